"""Define the encoders of CNP, NP and BNP, which read a context as means of its points' features.

Letters of shapes: B streams, U points, N kept points, K bootstraps, X inputs, Y outputs, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgefold.train.contract import Cache
from edgefold.train.layers.attention import Linear, mlp
from edgefold.train.models.neural_processes.neural_process import Context
from edgefold.train.models.neural_processes.np_layers import masked


class PoolingEncoder(nn.Module):
    """Encodes points as a vector of `n_encoded` numbers, by the mean of D features over the points.

    The published encoder is 4 layers, a mean over the points, and 2 layers (Garnelo et al. 2018a).
    Between its fourth and fifth layer there is only the mean. A mean and a linear layer may change
    places, so the mean is taken before the fourth layer here: the same function of one or more
    points with the same parameters, and a third less work for each point. Without points the mean
    is 0.

        features   3 layers, of each point          an update adds them to the state
        of_mean    1 + 2 layers, of the mean        `refresh` runs them
    """

    def __init__(self, n_in: int, width: int, n_encoded: int):
        super().__init__()
        self.of_point = mlp(n_in, width, width, 3)
        self.of_mean = nn.Sequential(Linear(width, width), mlp(width, width, n_encoded, 2))

    def features(self, points: Tensor) -> Tensor:
        """Return features (..., D), all at least 0, of points (..., X + Y)."""
        return torch.relu(self.of_point(points))

    def forward(self, mean: Tensor) -> Tensor:
        """Encode the mean of features (..., D): return (..., n_encoded)."""
        encoded: Tensor = self.of_mean(mean)
        return encoded


class EncoderPair(nn.ModuleList):
    """Holds both encoders of a process; a base class."""

    def points(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the features of both encoders, (..., 2, D), of points x (..., X), y (..., Y)."""
        points = torch.cat([x, y], -1)
        return torch.stack([encoder.features(points) for encoder in self], -2)  # type: ignore[operator]


class PoolingEncoders(EncoderPair):
    """Encodes a context from the means of its points' features.

    The means are (B, 2, D), or (B, 1 + K, 2, D) with K bootstraps (resamplings of the points).
    """

    def context(self, rows: Tensor, mask: Tensor) -> Context:
        """Return the means (B, 2, D) of the rows (B, U, 2, D) for which mask (B, U) is True.

        Without such rows they are 0.
        """
        return (means_of(summed(rows, mask[..., None])[:, 0], mask.sum(1)),)

    def first(self, means: Tensor) -> Tensor:
        """Return the first encoder's encoding of each context, (B, 1, D) or (B, 1 + K, D)."""
        return self._encoded(0, means)

    def pooled(self, means: Tensor) -> Tensor:
        """Return the second encoder's encodings, (B, 1, D), (B, 1 + K, D), or (B, 1, 2D) for NP."""
        return self._encoded(1, means)

    def _encoded(self, number: int, means: Tensor) -> Tensor:
        encoded: Tensor = self[number](means[..., number, :])
        return encoded[:, None] if means.ndim == 3 else encoded


def summed(rows: Tensor, weights: Tensor) -> Tensor:
    """Sum features (B, U, 2, D), each counted weights (B, U, 1 + K) times: (B, 1 + K, 2, D)."""
    return (weights.mT.to(rows) @ rows.flatten(2)).unflatten(-1, (2, -1))


def means_of(sums: Tensor, count: Tensor) -> Tensor:
    """Divide sums (..., 2, D) by counts (...); the result is 0 without points."""
    return sums / count.clamp(min=1)[..., None, None]


class KeptEncoders(EncoderPair):
    """Encodes a context from rows of features that were kept of each point, (..., N, 2, D)."""

    def context(self, rows: Tensor, mask: Tensor) -> Context:
        """Return rows (B, N, 2, D) and weights (B, N), both 0 where mask (B, N) is False."""
        return masked(rows, mask), mask.to(rows)

    def found(self, points: Tensor, weight: Tensor) -> Cache:
        """Return the first encoder's encoding of each context, `first` (..., 1, D).

        Args:
            points: Rows kept of the points, (..., N, 2, D); zeros in places without a point.
            weight: Number of times that each point counts, (..., N).
        """
        return {"first": self._encoded(0, points, weight)}

    def at(self, context: Cache, x: Tensor) -> Tensor:
        """Return what targets x (..., M, X) read, which is the same for all: (..., 1, D)."""
        return context["first"]

    def pooled(self, points: Tensor, weight: Tensor) -> Tensor:
        """Return the second encoder's encoding of each context, (..., 1, D), as `found` does."""
        return self._encoded(1, points, weight)

    def _encoded(self, number: int, points: Tensor, weight: Tensor) -> Tensor:
        total = weight[..., None, :].to(points) @ points[..., number, :]  # (..., 1, D)
        count = weight.sum(-1).clamp(min=1)[..., None, None]
        encoded: Tensor = self[number](total / count)
        return encoded
