"""What a model of attention gives out: a normal distribution of y, or a score for each class.

A model with `n_classes` reads y as the number of a class, one column, and its embedding gets one
column for each class.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from edgefold.runtime.predictions import Categorical, Gaussian, PredictionKind
from edgefold.train.models.contract import Prediction
from edgefold.train.models.layers import LayerNorm, Linear


@dataclass(frozen=True, slots=True)
class Outputs:
    """What y is, and what is predicted of it.

    Attributes:
        n_outputs: Y; 1 with classes.
        n_classes: K, where y is the number of a class; 0 where it is Y real numbers.
    """

    n_outputs: int
    n_classes: int = 0

    def __post_init__(self) -> None:
        if self.n_classes and self.n_outputs != 1:
            raise ValueError(f"n_outputs is {self.n_outputs}; the number of a class is one output")

    @property
    def prediction(self) -> PredictionKind:
        return Categorical(self.n_classes) if self.n_classes else Gaussian()

    @property
    def n_encoded(self) -> int:
        """Columns of `encoded`."""
        return self.n_classes or self.n_outputs

    @property
    def n_numbers(self) -> int:
        """Numbers that a prediction of one target is made of."""
        return self.n_classes or 2 * self.n_outputs

    def encoded(self, y: Tensor) -> Tensor:
        """y (..., Y) as an embedding reads it; a class as a row of zeros and a one (..., K)."""
        if not self.n_classes:
            return y
        # 0 * y keeps a class that is not a number visible: its row is not finite.
        return (y == torch.arange(self.n_classes, device=y.device)).to(y.dtype) + 0.0 * y

    def prediction_of(self, numbers: Tensor) -> Prediction:
        """A prediction from numbers (..., n_numbers); standard deviations are exponentials."""
        if self.n_classes:
            return {"scores": numbers}
        mean, log_std = numbers.chunk(2, dim=-1)
        return {"mean": mean, "std": torch.exp(log_std)}


class PredictionHead(nn.Module):
    """Layer norm, D -> 2D -> ReLU -> the numbers of a prediction, as published."""

    def __init__(self, width: int, outputs: Outputs):
        super().__init__()
        self.outputs = outputs
        self.norm = LayerNorm(width)
        self.up = Linear(width, 2 * width)
        self.down = Linear(2 * width, outputs.n_numbers)

    def forward(self, hidden: Tensor) -> Prediction:
        return self.outputs.prediction_of(self.down(torch.relu(self.up(self.norm(hidden)))))
