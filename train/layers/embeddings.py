"""From points and queries to the rows that attention works on, (..., D).

of a point    x (..., X), y (..., Y)
of a query    x (..., X)
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from edgefold.train.layers.attention import Linear, mlp

EmbeddingKind = Literal["fourier", "mlp"]


class FourierEmbedding(nn.Module):
    """`sqrt(2) sin(W x + b)` plus a small MLP of it and of y; a query is a point with y = 0.

    One embedding for context points and queries, so that a query and a point at the same x begin
    with the same key directions. `std` is the spread of the frequencies, in radians a unit of x; it
    is divided by sqrt(X).
    """

    def __init__(self, n_inputs: int, n_outputs: int, width: int, std: float = 3.0):
        super().__init__()
        self.frequency = Linear(n_inputs, width)
        self.up = Linear(width + n_outputs, width)
        self.down = Linear(width, width)
        with torch.no_grad():
            self.frequency.weight.normal_(0, std / math.sqrt(n_inputs))
            self.frequency.bias.uniform_(-math.pi, math.pi)  # type: ignore[union-attr]
            self.up.weight[width:].normal_()  # y is one number among many: give it weight

    def points(self, x: Tensor, y: Tensor) -> Tensor:
        wave = torch.sin(self.frequency(x))
        return math.sqrt(2) * wave + self.down(torch.relu(self.up(torch.cat([wave, y], -1))))

    def queries(self, x: Tensor) -> Tensor:
        return self.points(
            x, x.new_zeros(*x.shape[:-1], self.up.weight.shape[0] - self.down.weight.shape[1])
        )


class MlpEmbedding(nn.Module):
    """The published embedders: 4 linear layers with ReLU, one for points and one for queries."""

    def __init__(self, n_inputs: int, n_outputs: int, width: int):
        super().__init__()
        self.of_points = mlp(n_inputs + n_outputs, width, width, 4)
        self.of_queries = mlp(n_inputs, width, width, 4)

    def points(self, x: Tensor, y: Tensor) -> Tensor:
        embedded: Tensor = self.of_points(torch.cat([x, y], -1))
        return embedded

    def queries(self, x: Tensor) -> Tensor:
        embedded: Tensor = self.of_queries(x)
        return embedded


Embedding = FourierEmbedding | MlpEmbedding


def embedding_of(
    kind: EmbeddingKind, n_inputs: int, n_outputs: int, width: int, std: float = 3.0
) -> Embedding:
    """The embedding of a kind; "mlp" is the published one and learns far slower."""
    if kind == "fourier":
        return FourierEmbedding(n_inputs, n_outputs, width, std)
    return MlpEmbedding(n_inputs, n_outputs, width)
