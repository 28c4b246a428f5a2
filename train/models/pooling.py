"""The encoder and the decoder of the conditional neural processes that hold means over points.

The published encoder is 4 layers, a mean over the points, and 2 layers (Garnelo et al. 2018a; sizes
as in the tables of Feng et al. 2024). Only the mean stands between its fourth and fifth layer. A
mean and a linear layer may change places, so the mean is taken before the fourth layer here: the
same function of one or more points with the same parameters, and a third less work for each point.
Without points the mean is 0.

    features   3 layers, of each point          the state is their sum
    of_mean    1 + 2 layers, of the mean        `refresh`
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.models.layers import Linear, mlp


class PoolingEncoder(nn.Module):
    """From points to a vector of `n_encoded` numbers, by way of the mean of D features."""

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


class PoolingDecoder(nn.Module):
    """Three layers from a target and an encoding to a mean and a deviation.

    The first layer has one matrix for targets and one for encodings, so that what does not depend
    on a target is computed once: `of_encoded` is linear. std = 0.1 + 0.9 softplus, as published.
    """

    def __init__(self, n_inputs: int, n_encoded: int, width: int, n_outputs: int):
        super().__init__()
        self.of_input = Linear(n_inputs, width, bias=False)
        self.of_encoded = Linear(n_encoded, width)
        self.head = mlp(width, width, 2 * n_outputs, 2)
        with torch.no_grad():  # the bends of the first layer lie where inputs do
            self.of_encoded.bias.uniform_(-2, 2)  # type: ignore[union-attr]

    def forward(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Targets x (..., X), hidden = of_encoded(encoding) (..., D) -> mean, std (..., Y)."""
        mean, spread = self.head(torch.relu(self.of_input(x) + hidden)).chunk(2, -1)
        return mean, bounded(spread)


def bounded(spread: Tensor) -> Tensor:
    """A standard deviation from any number."""
    return 0.1 + 0.9 * F.softplus(spread)


def latent_deviation(spread: Tensor) -> Tensor:
    """The latent variable's standard deviation, 0.1 + 0.9 sigmoid, as published."""
    return 0.1 + 0.9 * torch.sigmoid(spread)


def visible_points(x: Tensor, y: Tensor, mask: Tensor | None) -> Tensor:
    """Points (B, U, X + Y), 0 where masked."""
    points = torch.cat([x, y], -1)
    return points if mask is None else torch.where(mask[..., None], points, 0.0)
