"""Define the parts of every classical neural process: decoder, latent, losses.

The sizes are those that give the parameter counts of the later papers' tables (Feng et al. 2024).

A model that makes several predictions, one for each sample of a latent or each bootstrap, has them
on the axis S: a prediction is then (B, M, S, Y), for B streams, M targets and Y outputs. X is the
number of inputs, D the width.

The published code of all six trains on context points and targets together: both are predicted from
the context. So do the losses here. They give every task of a batch the same weight, whatever the
number of its context points.

Letters of shapes: N points, P points and targets, S samples or bootstraps, E numbers of an
encoding.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.runtime.predictions import Gaussian
from edgefold.train.batch import Batch
from edgefold.train.contract import SEED, Prediction, State, StreamingModel
from edgefold.train.layers.attention import Linear, mlp
from edgefold.train.layers.device_layers import Affine, Weights, exact, linear_layers, rounded
from edgefold.train.layers.prediction_head import std_of

LEAST_STD = 0.1
"""The smallest standard deviation of predictions and of latents, as published."""


def masked(points: Tensor, mask: Tensor | None) -> Tensor:
    """Return points (B, N, ...) with zeros where mask (B, N) is False, whatever they held."""
    if mask is None:
        return points
    return torch.where(mask.reshape(*mask.shape, *(1,) * (points.ndim - 2)), points, 0.0)


def every_row(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return the mask, or without one a mask of True for every row of x (B, N, X)."""
    return torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask


def latent_std(number: Tensor) -> Tensor:
    """Turn any number into a latent's standard deviation, between `LEAST_STD` and 1."""
    return LEAST_STD + (1 - LEAST_STD) * torch.sigmoid(number)


class Decoder(nn.Module):
    """Predicts mean and std from an encoding (..., E) and x (..., X), by three linear layers.

    ReLUs lie between the layers. What the encoding adds to the first layer's sum is computed once,
    and added to what each target adds.

    Attributes:
        bootstrapped: Layer that reads a second encoding, that of a bootstrap (Lee et al. 2020, eq.
            10); None in other models.
    """

    def __init__(
        self, n_inputs: int, n_outputs: int, width: int, n_encoded: int, n_bootstrapped: int = 0
    ):
        super().__init__()
        self.n_encoded = n_encoded
        self.first = Linear(n_encoded + n_inputs, width)
        self.bootstrapped = Linear(n_bootstrapped, width, bias=False) if n_bootstrapped else None
        self.rest = mlp(width, width, 2 * n_outputs, 2)

    @torch.no_grad()
    def bend_at_inputs(self) -> None:
        """Draw the first layer's weights of inputs and its bias anew, in wider ranges.

        The bends of its ReLUs then begin between -2 and 2, where scaled inputs lie: a CNP learns
        sooner than from the published start.
        """
        self.first.weight[self.n_encoded :].uniform_(-1, 1)
        assert self.first.bias is not None
        self.first.bias.uniform_(-2, 2)

    def part(self, encoded: Tensor, start: int = 0, bootstrapped: bool = False) -> Tensor:
        """Return what an encoding adds to the first layer's sum: (..., D).

        The encoding is multiplied by the rows of a layer's weight from `start` on: of the layer
        `bootstrapped` if the argument of that name is True, else of `first`.
        """
        layer = self.bootstrapped if bootstrapped else self.first
        assert layer is not None
        return encoded @ layer.weight[start : start + encoded.shape[-1]]

    def inputs(self, x: Tensor) -> Tensor:
        """Return what x (..., X) and the bias add to the first layer's sum: (..., D)."""
        return F.linear(x, self.first.weight[self.n_encoded :].mT, self.first.bias)

    def answer(self, hidden: Tensor) -> Prediction:
        """Predict mean and standard deviation (..., Y) from the first layer's sum (..., D)."""
        mean, raw = self.rest(torch.relu(hidden)).chunk(2, dim=-1)
        return {"mean": mean, "std": std_of(raw, LEAST_STD)}


class ProcessDecoderOnDevice(nn.Module):
    """Runs the decoder on a device, from what encodings add to its first layer, (B, S, D)."""

    of_input: Tensor

    def __init__(self, decoder: Decoder, n_outputs: int):
        super().__init__()
        weight, _ = exact(decoder.first)
        self.register_buffer("of_input", rounded(weight[decoder.n_encoded :], torch.float32))
        first, (weight, bias) = linear_layers(decoder.rest)
        self.hidden = Affine(first)
        self.mean = Affine((weight[:, :n_outputs], bias[:n_outputs]))
        self.spread = Affine((weight[:, n_outputs:], bias[n_outputs:]))

    def forward(self, x: Tensor, encoded: Tensor) -> Prediction:
        """Predict (B, M, S, Y) at x (B, M, X); `encoded` (B, S, D) is what encodings add."""
        return self.answer((x @ self.of_input)[:, :, None] + encoded[:, None])  # (B, M, S, D)

    def answer(self, hidden: Tensor) -> Prediction:
        """Predict mean and standard deviation (..., Y) from the first layer's sum (..., D)."""
        lead = hidden.shape[:-1]
        hidden = torch.relu(self.hidden(torch.relu(hidden).flatten(0, -2)))
        mean, std = self.mean(hidden), std_of(self.spread(hidden), LEAST_STD)
        return {"mean": mean.view(*lead, -1), "std": std.view(*lead, -1)}


class Latent(NamedTuple):
    """Describes a normal distribution of a latent, by mean and standard deviation (B, 1, D)."""

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, encoded: Tensor) -> Latent:
        """Build the distribution that an encoding (B, 1, 2D) stands for."""
        mean, raw = encoded.chunk(2, dim=-1)
        return cls(mean, latent_std(raw))

    def samples(self, white: Tensor) -> Tensor:
        """Turn standard normal numbers (B, S, D) into samples of the latent, (B, S, D)."""
        return self.mean + self.std * white

    def log_density(self, samples: Tensor) -> Tensor:
        """Return the log density (B, S), in nats, of samples (B, S, D)."""
        return Gaussian().log_likelihood({"mean": self.mean, "std": self.std}, samples, torch)


class LatentOnDevice(nn.Module):
    """Draws samples of a latent from the rows that enter its encoder's last layer.

    Args:
        last: Weights of the last layer of the latent's encoder, to mean and deviation, (D, 2D).
        noise: Module that computes the samples' noise from seeds, as `SeededNoise` does.
    """

    def __init__(self, last: Weights, noise: nn.Module):
        super().__init__()
        weight, bias = last
        width = weight.shape[1] // 2
        self.mean = Affine((weight[:, :width], bias[:width]))
        self.std = Affine((weight[:, width:], bias[width:]))
        self.noise = noise

    def forward(self, hidden: Tensor, seed: Tensor) -> Tensor:
        """Draw samples (B, S, D) from seeds (B,) and rows (B, D) that enter the last layer."""
        mean, std = self.mean(hidden), latent_std(self.std(hidden))
        samples: Tensor = mean[:, None] + std[:, None] * self.noise(seed)
        return samples


class AllPoints(NamedTuple):
    """Holds the context points and targets of a batch together, (B, P, ...), the context first.

    `mask` (B, P) is True for real points. Masked rows are 0.
    """

    x: Tensor
    y: Tensor
    mask: Tensor

    @classmethod
    def of(cls, batch: Batch) -> AllPoints:
        """Join the context and the targets of a batch, the context first."""
        shown = every_row(batch.x_context, batch.mask), every_row(batch.x_target, None)
        mask = torch.cat(shown, 1)
        x = masked(torch.cat([batch.x_context, batch.x_target], 1), mask)
        return cls(x, masked(torch.cat([batch.y_context, batch.y_target], 1), mask), mask)

    def mean(self, values: Tensor) -> Tensor:
        """Return the mean (B,) of numbers (B, P) over real points."""
        return masked(values, self.mask).sum(1) / self.mask.sum(1)

    def log_densities(self, prediction: Prediction) -> Tensor:
        """Return the log density of y, (B, P, S), under S predictions (B, P, S, Y); 0 if masked."""
        y = self.y[:, :, None]
        return masked(Gaussian().log_likelihood(prediction, y, torch), self.mask)


def plain_loss(model: StreamingModel, batch: Batch) -> Tensor:
    """Return the negative log-likelihood of context points and targets, given the context: ()."""
    points = AllPoints.of(batch)
    prediction = model(batch.x_context, batch.y_context, points.x, batch.mask)
    return -points.mean(model.prediction.log_likelihood(prediction, points.y, torch)).mean()


def log_mean_exp(x: Tensor) -> Tensor:
    """Return the logarithm of the mean of exp(x) over the last axis."""
    return x.logsumexp(-1) - math.log(x.shape[-1])


def latent_loss(
    points: AllPoints, predictions: Prediction, samples: Tensor, prior: Latent, posterior: Latent
) -> Tensor:
    """Return the negative importance-weighted bound of NP and ANP, per point: ().

    Samples of the posterior, which has seen the targets, are weighed by their density under the
    prior, which has not (Burda et al. 2016; Le et al. 2018, eq. 5).

    Args:
        points: Context points and targets.
        predictions: Predictions of these points with each sample, (B, P, S, Y).
        samples: Samples of the latent, (B, S, D).
        prior: Distribution of the latent given the context.
        posterior: Distribution of the latent given context and targets.
    """
    weights = prior.log_density(samples) - posterior.log_density(samples)
    bound = log_mean_exp(points.log_densities(predictions).sum(1) + weights)
    return -(bound / points.mask.sum(1)).mean()


def bootstrap_loss(points: AllPoints, plain: Prediction, bootstrapped: Prediction) -> Tensor:
    """Return the loss of BNP and BANP (Lee et al. 2020, eq. 12), ().

    It is the negative log-likelihood per point without bootstraps, plus that of the mixture of all
    predictions with bootstraps.

    Args:
        points: Context points and targets.
        plain: Predictions of these points without bootstraps, (B, P, 1, Y).
        bootstrapped: Predictions with each bootstrap, (B, P, S, Y).
    """
    predictions = plain, bootstrapped
    terms = sum(points.mean(log_mean_exp(points.log_densities(each))) for each in predictions)
    return -torch.as_tensor(terms).mean()


def squares(x: Tensor, y: Tensor) -> Tensor:
    """Return the squares of the numbers of points x (..., X), y (..., Y): (..., X + Y)."""
    points = torch.cat([x, y], -1)
    return points * points


def with_seed(state: State, n_streams: int) -> State:
    """Return a state to which a seed of 0 for each stream is added."""
    return {**state, SEED: torch.zeros(n_streams, dtype=torch.int64)}
