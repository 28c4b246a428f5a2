"""The embeddings as devices run them: rows in one matrix, always float32."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from edgefold.train.layers.attention import Linear
from edgefold.train.layers.device_layers import Affine, exact
from edgefold.train.layers.embeddings import Embedding, FourierEmbedding, MlpEmbedding

LARGEST_HALF = 6e4
"""Close to the largest float16."""


class FourierOnDevice(nn.Module):
    """The Fourier embedding of points (rows, X) and (rows, Y), or of queries without y."""

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
    """The two published embedders."""

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
    """The embedding in its device form; what follows it works in `dtype`."""
    if isinstance(layer, FourierEmbedding):
        return FourierOnDevice(layer)
    return MlpOnDevice(layer, LARGEST_HALF if dtype == "float16" else math.inf)
