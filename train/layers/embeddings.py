"""Embed points and queries: turn them into the rows (..., D) that attention works on.

of a point    x (..., X), y (..., Y)
of a query    x (..., X)

X is the number of inputs, Y of outputs, D the width. On a device rows lie in one matrix and are
always float32.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.layers.attention import Linear, mlp
from edgefold.train.layers.device_layers import Affine, exact

EmbeddingKind = Literal["fourier", "mlp", "elu"]


class FourierEmbedding(nn.Module):
    """Embeds a point as `sqrt(2) sin(W x + b)` plus a small MLP of the sine and of y.

    A query is embedded as a point with y = 0.

    Points and queries share the embedding, so that a query and a point at the same x begin with the
    same key directions. `std` is the spread of the frequencies, in radians a unit of x; it is
    divided by sqrt(X).
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
    """Embeds points by 4 linear layers with ReLU or ELU, and queries by 4 others, as published."""

    def __init__(
        self, n_inputs: int, n_outputs: int, width: int, between: type[nn.Module] = nn.ReLU
    ):
        super().__init__()
        self.of_points = mlp(n_inputs + n_outputs, width, width, 4, between)
        self.of_queries = mlp(n_inputs, width, width, 4, between)

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
    """Build a "fourier" embedding, or a published one, which learns far slower.

    The "mlp" has ReLU between its layers; "elu" is that of tree cross attention, with ELU.

    `std` is that of `FourierEmbedding`: the spread of the frequencies, in radians a unit of x.
    """
    if kind == "fourier":
        return FourierEmbedding(n_inputs, n_outputs, width, std)
    return MlpEmbedding(n_inputs, n_outputs, width, nn.ELU if kind == "elu" else nn.ReLU)


LARGEST_HALF = 6e4
"""Limit of a float16 embedding, close to the largest float16."""


class FourierOnDevice(nn.Module):
    """Computes the Fourier embedding of points x (rows, X), y (rows, Y), or of queries x."""

    down: Tensor

    def __init__(self, layer: FourierEmbedding):
        super().__init__()
        self.frequency = Affine(exact(layer.frequency))
        # One more hidden unit that is always 1 carries the last layer's bias, so that the product
        # has room for the wave as its third operand: addmm adds beta times it.
        up, bias = exact(layer.up)
        up, bias = F.pad(up, (0, 1)), F.pad(bias, (0, 1), value=1.0)
        self.up, self.up_query = Affine((up, bias)), Affine((up[: len(layer.down.weight)], bias))
        self.register_buffer("down", torch.vstack(exact(layer.down)).detach().float())

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        wave = torch.sin(self.frequency(x))
        hidden = self.up_query(wave) if y is None else self.up(torch.cat([wave, y], -1))
        return torch.addmm(wave, torch.relu(hidden), self.down, beta=math.sqrt(2))


class MlpOnDevice(nn.Module):
    """Computes the published embedding of points x (rows, X), y (rows, Y), or of queries x.

    Embedded queries are clamped to +-`limit`, because they grow with x.
    """

    def __init__(self, layer: MlpEmbedding, limit: float):
        super().__init__()
        self.limit = limit
        self.points, self.queries = (
            nn.Sequential(*(Affine(exact(m)) if isinstance(m, Linear) else m for m in layers))
            for layers in (layer.of_points, layer.of_queries)
        )

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        if y is not None:
            return self.points(torch.cat([x, y], -1))
        embedded = self.queries(x)  # it grows with x
        return embedded.clamp(-self.limit, self.limit) if self.limit < math.inf else embedded


def embedding_on_device(layer: Embedding, dtype: str = "float32") -> nn.Module:
    """Return the form of an embedding that a device runs; it computes in float32.

    With `dtype` "float16" what it returns for queries fits into float16.
    """
    if isinstance(layer, FourierEmbedding):
        return FourierOnDevice(layer)
    return MlpOnDevice(layer, LARGEST_HALF if dtype == "float16" else math.inf)
