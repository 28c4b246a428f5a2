"""Settings of models with latents, how these begin, and how targets read them on a device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import Cache
from edgefold.train.layers.attention import Attention, FeedForward
from edgefold.train.layers.device_layers import (
    AttentionOnDevice,
    FeedForwardOnDevice,
    normalise,
)
from edgefold.train.layers.embeddings import Embedding, EmbeddingKind, embedding_on_device
from edgefold.train.settings import SizedConfig

LatentKind = Literal["inducing", "normal"]


@dataclass(frozen=True, slots=True)
class LatentsConfig(SizedConfig):
    """The shape of a model with latents and how it starts.

    `embedding`, `latents` and `query_gain` choose the initialisation: ("fourier", "inducing", 2) is
    ours, ("mlp", "normal", 1) the published one. Latents are "inducing" where they begin as
    embeddings of points that are spread between `input_low` and `input_high`, the bounds of scaled
    inputs: attention is then local in x from the first step. `fourier_std` is described at
    `FourierEmbedding`, `bounded` at `Outputs`.
    """

    n_inputs: int = 1
    n_outputs: int = 1
    n_blocks: int = 6
    width: int = 64
    n_heads: int = 4
    n_latents: int = 128
    feedforward: int = 128
    embedding: EmbeddingKind = "fourier"
    latents: LatentKind = "inducing"
    query_gain: float = 2.0
    fourier_std: float = 3.0
    input_low: float = -2.0
    input_high: float = 2.0
    bounded: bool = False

    def attention(self, cross: bool, stack: tuple[int, ...] = ()) -> Attention:
        """A new layer; `query_gain` and the tie of W_q and W_k are for cross-attention alone."""
        return Attention(
            self.width,
            self.n_heads,
            cross=cross,
            stack=stack,
            query_gain=self.query_gain if cross else 1.0,
            tied=cross and self.latents == "inducing",
        )


@torch.no_grad()
def first_latents(config: LatentsConfig, embedding: Embedding, n_sets: int) -> Tensor:
    """Initial values of n_sets sets of latents, (n_sets, L, D)."""
    if config.latents == "normal":
        return torch.randn(n_sets, config.n_latents, config.width)
    if config.n_inputs == 1:  # an even grid, each set shifted by its share of one step
        steps = torch.arange(config.n_latents).repeat(n_sets, 1)
        shift = (torch.arange(n_sets)[:, None] + 0.5) / n_sets
        unit = ((steps + shift) / config.n_latents)[..., None]
    else:
        unit = torch.rand(n_sets, config.n_latents, config.n_inputs)
    points = config.input_low + (config.input_high - config.input_low) * unit
    return embedding.queries(points)


class DecoderOnDevice(nn.Module):
    """Query layers, each of which attends to keys and values of its own in the cache.

    The cache holds `keys_k` (B, H, D/H, L) and `values_k` (B, H, L, D/H) of each layer k.
    """

    def __init__(
        self, embedding: Embedding, layers: Sequence[tuple[Attention, FeedForward]], n_streams: int
    ):
        super().__init__()
        self.embedding = embedding_on_device(embedding)
        single = torch.float32
        attention = (AttentionOnDevice(layer, n_streams, single) for layer, _ in layers)
        self.attention = cast("list[AttentionOnDevice]", nn.ModuleList(attention))
        self.ff = nn.ModuleList(FeedForwardOnDevice(layer, single) for _, layer in layers)

    def cached(self, k: int, hidden: Tensor) -> Cache:
        """Return what layer k reads of the latents (B*L, D)."""
        keys, values = self.attention[k].keys_values(normalise(hidden))
        return {f"keys_{k}": keys.contiguous(), f"values_{k}": values.contiguous()}

    def forward(self, cache: Cache, x: Tensor) -> Tensor:
        """Return the rows (B*M, D) of targets x (B, M, X) behind the layers."""
        hidden: Tensor = self.embedding(x.flatten(0, 1))
        for k, (attention, ff) in enumerate(zip(self.attention, self.ff, strict=True)):
            queries = attention.queries(normalise(hidden))
            keys, values = cache[f"keys_{k}"], cache[f"values_{k}"]
            hidden = ff(attention.attend(hidden, queries, keys, values))
        return hidden
