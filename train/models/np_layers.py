"""What the neural processes of Garnelo, Kim and Lee have in common: encoders, decoder, losses.

    points (x, y) -> MLP -> mean over the points -> MLP -> encoding of the context     (Pooling)
    encoding, x   -> MLP -> mean and standard deviation                                (Decoder)

The sizes are those that give the parameter counts of the later papers' tables. CNP and NP: Garnelo
et al. 2018a, 2018b; ANP: Kim et al. 2019; BNP and BANP: Lee et al. 2020.

A model of several predictions, samples of a latent or bootstraps, has them on the axis S: a
prediction is then (B, M, S, Y).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.runtime.predictions import Gaussian
from edgefold.train.models.contract import Prediction
from edgefold.train.models.layers import Linear, mlp
from edgefold.train.models.random_numbers import normal

LEAST_STD = 0.1


def masked(points: Tensor, mask: Tensor | None) -> Tensor:
    """Points (B, N, ...) with zeros where mask (B, N) is false, whatever stood there."""
    if mask is None:
        return points
    return torch.where(mask.reshape(*mask.shape, *(1,) * (points.ndim - 2)), points, 0.0)


def masked_mean(rows: Tensor, mask: Tensor | None) -> Tensor:
    """Mean over the rows that are real: (B, N, D) to (B, D); zeros where there is none."""
    if mask is None:
        return rows.sum(1) / max(1, rows.shape[1])
    return masked(rows, mask).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


class Pooling(nn.Module):
    """The encoder of CNP, NP and BNP: 4 linear layers before the mean over points, 2 after it."""

    def __init__(self, n_inputs: int, n_outputs: int, width: int, n_encoded: int):
        super().__init__()
        self.before = mlp(n_inputs + n_outputs, width, width, 4)
        self.after = mlp(width, width, n_encoded, 2)

    def points(self, x: Tensor, y: Tensor) -> Tensor:
        """What a point adds to the mean: (..., D)."""
        rows: Tensor = self.before(torch.cat([x, y], -1))
        return rows


class Decoder(nn.Module):
    """Three linear layers with ReLU, from an encoding (..., E) and x (..., X) to mean and std.

    The first layer is linear in its parts: what belongs to the stream is computed once, and added
    to what belongs to the target.

    Attributes:
        bootstrapped: Takes a second encoding, that of a bootstrap (Lee et al. 2020, eq. 10); None
            in other models.
    """

    def __init__(
        self, n_inputs: int, n_outputs: int, width: int, n_encoded: int, n_bootstrapped: int = 0
    ):
        super().__init__()
        self.n_encoded = n_encoded
        self.first = Linear(n_encoded + n_inputs, width)
        self.bootstrapped = Linear(n_bootstrapped, width, bias=False) if n_bootstrapped else None
        self.rest = mlp(width, width, 2 * n_outputs, 2)

    def part(self, encoded: Tensor, start: int, bootstrapped: bool = False) -> Tensor:
        """What columns of an encoding, from `start` on, add to the first layer: (..., D)."""
        layer = self.bootstrapped if bootstrapped else self.first
        assert layer is not None
        return encoded @ layer.weight[start : start + encoded.shape[-1]]

    def inputs(self, x: Tensor) -> Tensor:
        """What x adds to the first layer, with the layer's bias: (..., D)."""
        return F.linear(x, self.first.weight[self.n_encoded :].mT, self.first.bias)

    def answer(self, hidden: Tensor) -> Prediction:
        """Mean and standard deviation, at least 0.1 as published, from the first layer's sum."""
        mean, raw = self.rest(torch.relu(hidden)).chunk(2, dim=-1)
        return {"mean": mean, "std": LEAST_STD + (1 - LEAST_STD) * F.softplus(raw)}

    def forward(self, encoded: Tensor, x: Tensor) -> Prediction:
        return self.answer(self.part(encoded, 0) + self.inputs(x))


class Latent(NamedTuple):
    """A normal distribution of a latent, mean and standard deviation (B, D)."""

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, encoded: Tensor) -> Latent:
        """From an encoding (B, 2D), with a standard deviation between 0.1 and 1."""
        mean, raw = encoded.chunk(2, dim=-1)
        return cls(mean, LEAST_STD + (1 - LEAST_STD) * torch.sigmoid(raw))

    def samples(self, white: Tensor) -> Tensor:
        """Latents (B, S, D) from standard normal numbers (B, S, D)."""
        return self.mean[:, None] + self.std[:, None] * white

    def log_density(self, samples: Tensor) -> Tensor:
        """Log density of samples (B, S, D): (B, S)."""
        mean, std = self.mean[:, None], self.std[:, None]
        return Gaussian().log_likelihood({"mean": mean, "std": std}, samples, torch)


def log_densities(prediction: Prediction, y: Tensor) -> Tensor:
    """Log density of y (B, M, Y) under each of S predictions: (B, M, S)."""
    found: Tensor = Gaussian().log_likelihood(prediction, y[:, :, None], torch)
    return found


def log_mean_exp(x: Tensor) -> Tensor:
    """Logarithm of the mean over the last axis."""
    return x.logsumexp(-1) - math.log(x.shape[-1])


def white_noise(seed: Tensor, n_samples: int, width: int) -> Tensor:
    """Standard normal numbers (B, S, D) that a stream's seed (B,) decides."""
    index = torch.arange(n_samples * width).reshape(n_samples, width)
    return normal(seed[:, None, None], index)


def importance_weighted_bound(
    of_targets: Tensor, samples: Tensor, prior: Latent, posterior: Latent
) -> Tensor:
    """A bound from below on the targets' log-likelihood, a target's share of it: (B,).

    Samples of the posterior, which has seen the targets, are weighed by their density under the
    prior, which has not (Burda et al. 2016; Le et al. 2018, eq. 5).

    Args:
        of_targets: Log density of each target under each sample, (B, M, S).
        samples: Latents, (B, S, D).
        prior: Given the context.
        posterior: Given context and targets.
    """
    weights = prior.log_density(samples) - posterior.log_density(samples)
    return log_mean_exp(of_targets.sum(1) + weights) / of_targets.shape[1]


def bootstrap_loss(base: Tensor, of_bootstraps: Tensor) -> Tensor:
    """The loss of BNP and BANP (Lee et al. 2020, eq. 12), ().

    Args:
        base: Log density of each target from the model without bootstraps, (B, M).
        of_bootstraps: The same under each bootstrap, (B, M, S).
    """
    return -base.mean() - log_mean_exp(of_bootstraps).mean()
