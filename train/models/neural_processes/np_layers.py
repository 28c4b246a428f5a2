"""What CNP, NP, BNP and CANP, ANP, BANP share: encoder of a mean, decoder, latent, and losses.

The sizes are those that give the parameter counts of the later papers' tables (Feng et al. 2024).

A model of several predictions, samples of a latent or bootstraps, has them on the axis S: a
prediction is then (B, M, S, Y).

The published code of all six trains on context points and targets together: both are predicted from
the context. So do the losses here. They give every task of a batch the same weight, whatever the
number of its context points.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.runtime.predictions import Gaussian
from edgefold.train.batch import Batch
from edgefold.train.contract import SEED, Prediction, State, StreamingModel
from edgefold.train.layers.attention import Linear, mlp
from edgefold.train.layers.device_layers import (
    Affine,
    Weights,
    composed,
    exact,
    linear_layers,
    rounded,
)
from edgefold.train.layers.prediction_head import std_of

LEAST_STD = 0.1
"""Of predictions and of latents, as published."""


def masked(points: Tensor, mask: Tensor | None) -> Tensor:
    """Points (B, N, ...) with zeros where mask (B, N) is false, whatever stood there."""
    if mask is None:
        return points
    return torch.where(mask.reshape(*mask.shape, *(1,) * (points.ndim - 2)), points, 0.0)


def latent_std(number: Tensor) -> Tensor:
    """The standard deviation of a latent, between `LEAST_STD` and 1, from any number."""
    return LEAST_STD + (1 - LEAST_STD) * torch.sigmoid(number)


class PoolingEncoder(nn.Module):
    """From points to a vector of `n_encoded` numbers, by way of the mean of D features.

    The published encoder is 4 layers, a mean over the points, and 2 layers (Garnelo et al. 2018a).
    Only the mean stands between its fourth and fifth layer. A mean and a linear layer may change
    places, so the mean is taken before the fourth layer here: the same function of one or more
    points with the same parameters, and a third less work for each point. Without points the mean
    is 0.

        features   3 layers, of each point          the state is their sum
        of_mean    1 + 2 layers, of the mean        `refresh`
    """

    def __init__(self, n_in: int, width: int, n_encoded: int):
        super().__init__()
        self.of_point = mlp(n_in, width, width, 3)
        self.of_mean = nn.Sequential(Linear(width, width), mlp(width, width, n_encoded, 2))

    def features(self, points: Tensor) -> Tensor:
        """Points (..., X + Y) -> (..., D), not negative."""
        return torch.relu(self.of_point(points))

    def forward(self, mean: Tensor) -> Tensor:
        """The mean of features (..., D) -> (..., n_encoded)."""
        encoded: Tensor = self.of_mean(mean)
        return encoded


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

    def part(self, encoded: Tensor, start: int = 0, bootstrapped: bool = False) -> Tensor:
        """What columns of an encoding, from `start` on, add to the first layer: (..., D)."""
        layer = self.bootstrapped if bootstrapped else self.first
        assert layer is not None
        return encoded @ layer.weight[start : start + encoded.shape[-1]]

    def inputs(self, x: Tensor) -> Tensor:
        """What x adds to the first layer, with the layer's bias: (..., D)."""
        return F.linear(x, self.first.weight[self.n_encoded :].mT, self.first.bias)

    def answer(self, hidden: Tensor) -> Prediction:
        """Mean and standard deviation from the first layer's sum."""
        mean, raw = self.rest(torch.relu(hidden)).chunk(2, dim=-1)
        return {"mean": mean, "std": std_of(raw, LEAST_STD)}


class Latent(NamedTuple):
    """A normal distribution of a latent, mean and standard deviation (B, D)."""

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, encoded: Tensor) -> Latent:
        """From an encoding (B, 2D)."""
        mean, raw = encoded.chunk(2, dim=-1)
        return cls(mean, latent_std(raw))

    def samples(self, white: Tensor) -> Tensor:
        """Latents (B, S, D) from standard normal numbers (B, S, D)."""
        return self.mean[:, None] + self.std[:, None] * white

    def log_density(self, samples: Tensor) -> Tensor:
        """Log density of samples (B, S, D): (B, S)."""
        mean, std = self.mean[:, None], self.std[:, None]
        return Gaussian().log_likelihood({"mean": mean, "std": std}, samples, torch)


class Points(NamedTuple):
    """Context points and targets in one row, (B, P, ...), with `mask` (B, P), True for real ones.

    Masked rows are 0.
    """

    x: Tensor
    y: Tensor
    mask: Tensor

    @classmethod
    def of(cls, batch: Batch) -> Points:
        """The context first."""
        of_context = batch.mask
        if of_context is None:
            of_context = torch.ones_like(batch.x_context[..., 0], dtype=torch.bool)
        of_targets = torch.ones_like(batch.x_target[..., 0], dtype=torch.bool)
        mask = torch.cat([of_context, of_targets], 1)
        x = masked(torch.cat([batch.x_context, batch.x_target], 1), mask)
        return cls(x, masked(torch.cat([batch.y_context, batch.y_target], 1), mask), mask)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over real points of numbers (B, P): (B,)."""
        return masked(values, self.mask).sum(1) / self.mask.sum(1)

    def log_densities(self, prediction: Prediction) -> Tensor:
        """Log density of y under each of S predictions (B, P, S, Y): (B, P, S), 0 if masked."""
        y = self.y[:, :, None]
        return masked(Gaussian().log_likelihood(prediction, y, torch), self.mask)


def plain_loss(model: StreamingModel, batch: Batch) -> Tensor:
    """The negative log-likelihood of context points and targets, given the context: ()."""
    points = Points.of(batch)
    told = model(batch.x_context, batch.y_context, points.x, batch.mask)
    return -points.mean(model.prediction.log_likelihood(told, points.y, torch)).mean()


def log_mean_exp(x: Tensor) -> Tensor:
    """Logarithm of the mean over the last axis."""
    return x.logsumexp(-1) - math.log(x.shape[-1])


def latent_loss(
    points: Points, told: Prediction, samples: Tensor, prior: Latent, posterior: Latent
) -> Tensor:
    """The negative importance-weighted bound of NP and ANP, a point's share of it: ().

    Samples of the posterior, which has seen the targets, are weighed by their density under the
    prior, which has not (Burda et al. 2016; Le et al. 2018, eq. 5).

    Args:
        points: Context and targets.
        told: What is predicted of them with each sample, (B, P, S, Y).
        samples: Latents, (B, S, D).
        prior: Given the context.
        posterior: Given context and targets.
    """
    weights = prior.log_density(samples) - posterior.log_density(samples)
    bound = log_mean_exp(points.log_densities(told).sum(1) + weights)
    return -(bound / points.mask.sum(1)).mean()


def bootstrap_loss(points: Points, alone: Prediction, told: Prediction) -> Tensor:
    """The loss of BNP and BANP (Lee et al. 2020, eq. 12), ().

    Args:
        points: Context and targets.
        alone: What the model without bootstraps predicts of them, (B, P, 1, Y).
        told: What it predicts with each bootstrap, (B, P, S, Y).
    """
    found = sum(points.mean(log_mean_exp(points.log_densities(each))) for each in (alone, told))
    return -torch.as_tensor(found).mean()


def of_encoded(decoder: Decoder) -> Weights:
    """What leads from encodings to a decoder's first layer."""
    weight, bias = exact(decoder.first)
    return weight[: decoder.n_encoded], bias


class FeaturesOnDevice(nn.Module):
    """Inputs and outputs of rows -> both encoders' features and 1, (rows, 2D + 1)."""

    one: Tensor

    def __init__(self, encoders: Iterable[PoolingEncoder]):
        super().__init__()
        layers = [linear_layers(encoder.of_point) for encoder in encoders]
        weights, biases = zip(*(own[0] for own in layers), strict=True)
        self.first = Affine((torch.hstack(weights), torch.hstack(biases)))
        self.second, self.third = (
            nn.ModuleList(Affine(own[number]) for own in layers) for number in (1, 2)
        )
        self.register_buffer("one", torch.ones(1, 1))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        halves = torch.relu(self.first(torch.cat([x, y], -1))).chunk(2, -1)
        found = [
            third(torch.relu(second(half)))
            for half, second, third in zip(halves, self.second, self.third, strict=True)
        ]
        return torch.relu(torch.cat([*found, self.one.expand(len(y), 1)], -1))


class MeansOnDevice(nn.Module):
    """Means (rows, 2D) -> the hidden layer behind them, (rows, 2D)."""

    def __init__(self, encoders: Iterable[PoolingEncoder]):
        super().__init__()
        folded = (composed(*linear_layers(encoder.of_mean)[:2]) for encoder in encoders)
        self.first = nn.ModuleList(Affine(weights) for weights in folded)

    def forward(self, means: Tensor) -> Tensor:
        halves = zip(self.first, means.chunk(2, -1), strict=True)
        return torch.relu(torch.cat([first(half) for first, half in halves], -1))


class PoolingDecoderOnDevice(nn.Module):
    """x (B, M, ...) and S encodings in the first layer (B, S, D) -> (B, M, S, Y) twice."""

    of_input: Tensor

    def __init__(self, decoder: Decoder, n_outputs: int):
        super().__init__()
        weight, _ = exact(decoder.first)
        self.register_buffer("of_input", rounded(weight[decoder.n_encoded :], torch.float32))
        first, (weight, bias) = linear_layers(decoder.rest)
        self.hidden = Affine(first)
        self.mean = Affine((weight[:, :n_outputs], bias[:n_outputs]))
        self.spread = Affine((weight[:, n_outputs:], bias[n_outputs:]))

    def forward(self, x: Tensor, encoded: Tensor) -> tuple[Tensor, Tensor]:
        return self.answer((x @ self.of_input)[:, :, None] + encoded[:, None])  # (B, M, S, D)

    def answer(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation (..., Y) from the first layer's sum (..., D)."""
        lead = hidden.shape[:-1]
        hidden = torch.relu(self.hidden(torch.relu(hidden).flatten(0, -2)))
        mean, std = self.mean(hidden), std_of(self.spread(hidden), LEAST_STD)
        return mean.view(*lead, -1), std.view(*lead, -1)


def squares(x: Tensor, y: Tensor) -> Tensor:
    """The squares of points' numbers, (..., X + Y)."""
    points = torch.cat([x, y], -1)
    return points * points


def means_of(sums: Tensor) -> Tensor:
    """Sums (..., 2D + 1) whose last one is the number of points -> means (..., 2D), 0 if none."""
    return sums[..., :-1] / sums[..., -1:].clamp(min=1.0)


class LatentOnDevice(nn.Module):
    """Draws samples of a latent from the layer before its encoder's last one.

    Args:
        last: The last layer of the latent's encoder, to mean and deviation, (D, 2D).
        noise: The samples' noise by seed.
    """

    def __init__(self, last: Weights, noise: nn.Module):
        super().__init__()
        weight, bias = last
        width = weight.shape[1] // 2
        self.mean = Affine((weight[:, :width], bias[:width]))
        self.std = Affine((weight[:, width:], bias[width:]))
        self.noise = noise

    def forward(self, hidden: Tensor, seed: Tensor) -> Tensor:
        """Samples (B, S, D) from rows (B, D) and seeds (B,)."""
        mean, std = self.mean(hidden), latent_std(self.std(hidden))
        drawn: Tensor = mean[:, None] + std[:, None] * self.noise(seed)
        return drawn


def with_seed(state: State, n_streams: int) -> State:
    """A state with the seed 0 for each stream."""
    return {**state, SEED: torch.zeros(n_streams, dtype=torch.int64)}
