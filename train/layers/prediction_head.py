"""Define the heads that predict y from rows: a normal distribution, or a score for each class.

A model with `n_classes` reads y as the number of a class, one column, and its embedding gets one
column for each class. B is the number of streams, M of targets, Y of outputs, D the width of a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.runtime.predictions import Categorical, Gaussian, PredictionKind
from edgefold.train.contract import Prediction
from edgefold.train.layers.attention import LayerNorm, Linear
from edgefold.train.layers.device_layers import (
    Affine,
    exact,
    fold,
    normalise,
)

LEAST_STD = 0.05
"""Least standard deviation of a bounded prediction, as published for EMNIST (Feng et al. 2023,
2024)."""


def std_of(number: Tensor, least: float) -> Tensor:
    """Return least + (1 - least) softplus(number), a standard deviation of at least `least`."""
    return least + (1 - least) * F.softplus(number)


@dataclass(frozen=True, slots=True)
class Outputs:
    """Describes what kind of numbers y is, and how a prediction of it is made.

    Attributes:
        n_outputs: Y, the number of outputs; 1 with classes.
        n_classes: Number K of classes, where y is the number of a class; 0 where it is Y real
            numbers.
        bounded: Whether standard deviations are at least `LEAST_STD`. Where some outputs are
            constant, as the background of scanned letters, the likelihood has no upper limit
            without it.
    """

    n_outputs: int
    n_classes: int = 0
    bounded: bool = False

    def __post_init__(self) -> None:
        if self.n_classes and self.n_outputs != 1:
            raise ValueError(f"n_outputs is {self.n_outputs}; the number of a class is one output")

    @property
    def prediction(self) -> PredictionKind:
        return Categorical(self.n_classes) if self.n_classes else Gaussian()

    @property
    def n_encoded(self) -> int:
        """Return the number of columns that `encoded` returns."""
        return self.n_classes or self.n_outputs

    @property
    def n_numbers(self) -> int:
        """Return how many numbers a prediction of one target is made of."""
        return self.n_classes or 2 * self.n_outputs

    def encoded(self, y: Tensor) -> Tensor:
        """Return y (..., Y) as an embedding reads it.

        The number of a class becomes a row (..., K) of zeros with a one at its place.
        """
        if not self.n_classes:
            return y
        # 0 * y keeps a class that is not a number visible: its row is not finite.
        return (y == torch.arange(self.n_classes, device=y.device)).to(y.dtype) + 0.0 * y

    def prediction_of(self, numbers: Tensor) -> Prediction:
        """Turn numbers (..., n_numbers) into "scores" of classes, or into "mean" and "std" of y."""
        if self.n_classes:
            return {"scores": numbers}
        mean, spread = numbers.chunk(2, dim=-1)
        return {"mean": mean, "std": self.std(spread)}

    def std(self, number: Tensor) -> Tensor:
        """Turn any number into a standard deviation: its exponential, or `std_of` where bounded."""
        return std_of(number, LEAST_STD) if self.bounded else torch.exp(number)


class PredictionHead(nn.Module):
    """Predicts from rows by layer norm, D -> 2D, ReLU and 2D -> `n_numbers`, as published.

    With `normalises` False the layer norm has weights and is not used, as in the published code of
    tree cross attention.
    """

    def __init__(self, width: int, outputs: Outputs, normalises: bool = True):
        super().__init__()
        self.outputs, self.normalises = outputs, normalises
        self.norm = LayerNorm(width)
        self.up = Linear(width, 2 * width)
        self.down = Linear(2 * width, outputs.n_numbers)

    def forward(self, hidden: Tensor) -> Prediction:
        hidden = self.norm(hidden) if self.normalises else hidden
        return self.outputs.prediction_of(self.down(torch.relu(self.up(hidden))))


class GaussianOutput(nn.Module):
    """Computes mean and deviation by two products, which together are a head's last layer."""

    def __init__(self, down: Linear, outputs: Outputs):
        super().__init__()
        self.outputs = outputs
        weight, bias = exact(down)
        half = weight.shape[-1] // 2
        self.mean = Affine((weight[:, :half], bias[:half]))
        self.spread = Affine((weight[:, half:], bias[half:]))

    def forward(self, hidden: Tensor, shape: Sequence[int]) -> Prediction:
        """Return "mean" and "std" from rows (B*M, 2D), each in the shape given, (B, M, Y)."""
        mean, std = self.mean(hidden), self.outputs.std(self.spread(hidden))
        return {"mean": mean.view(shape), "std": std.view(shape)}


class GaussianHead(nn.Module):
    """Predicts mean and standard deviation from rows, with the layer norm before it folded in."""

    def __init__(self, norm: LayerNorm, up: Linear, down: Linear, outputs: Outputs):
        super().__init__()
        self.up = Affine(fold(norm, up))
        self.output = GaussianOutput(down, outputs)

    def forward(self, hidden: Tensor, shape: Sequence[int]) -> Prediction:
        """Return "mean" and "std" from rows (B*M, D), each in the shape given, (B, M, Y)."""
        prediction: Prediction = self.output(torch.relu(self.up(normalise(hidden))), shape)
        return prediction


class HeadOnDevice(nn.Module):
    """Runs a head on a device, for classes or real numbers, with its layer norm folded in."""

    def __init__(self, head: PredictionHead):
        super().__init__()
        self.outputs, self.normalises = head.outputs, head.normalises
        self.up = Affine(fold(head.norm, head.up) if self.normalises else exact(head.up))
        self.down = Affine(exact(head.down))

    def forward(self, rows: Tensor, shape: Sequence[int]) -> Prediction:
        """Return the prediction (B, M, ...) from rows (B*M, D); `shape` is (B, M)."""
        rows = normalise(rows) if self.normalises else rows
        numbers = self.down(torch.relu(self.up(rows)))
        return self.outputs.prediction_of(numbers.view(*shape, -1))
