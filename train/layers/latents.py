"""Define the settings of models with latents, their first values, and how targets read them.

Latents are learned rows (L, D) that attend to the points; targets read only the latents. B is the
number of streams, M of targets, X of inputs, H of heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import Cache
from edgefold.train.layers.attention import Attention, FeedForward, Residual
from edgefold.train.layers.device_layers import (
    AttentionOnDevice,
    FeedForwardOnDevice,
    normalise,
)
from edgefold.train.layers.embeddings import Embedding, EmbeddingKind, embedding_on_device
from edgefold.train.settings import SizedConfig, Start

LatentKind = Literal["inducing", "normal"]


@dataclass(frozen=True, slots=True)
class LatentsConfig(SizedConfig):
    """Describes the sizes of a model with latents, and the values that it starts from.

    `embedding`, `latents` and `query_gain` choose the initialisation: ("fourier", "inducing", 2) is
    ours, ("mlp", "normal", 1) the published one. Latents are "inducing" where they begin as
    embeddings of points that are spread between `input_low` and `input_high`, the bounds of scaled
    inputs: attention is then local in x from the first step. `fourier_std` is described at
    `FourierEmbedding`, `bounded` at `Outputs`, `residual` at `attention.Residual`. With the `start`
    "published" all blocks start from the same numbers, as copies of one block do, and so do all
    query layers.
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
    residual: Residual = "input"
    start: Start = "ours"

    def feed_forward(self, stack: tuple[int, ...] = ()) -> FeedForward:
        """Build a feed-forward layer over rows of this width; `stack` is that of `attention`."""
        return FeedForward(self.width, self.feedforward, stack, self.residual)

    def attention(self, cross: bool, stack: tuple[int, ...] = ()) -> Attention:
        """Build an attention layer between rows of this width.

        Args:
            cross: Whether rows attend to other rows than themselves. Only then `query_gain` is
                used, and W_q and W_k start equal if latents are "inducing".
            stack: Shape (K,) of a leading axis of K independent layers; () for a single layer.
        """
        return Attention(
            self.width,
            self.n_heads,
            cross=cross,
            stack=stack,
            query_gain=self.query_gain if cross else 1.0,
            tied=cross and self.latents == "inducing",
            residual=self.residual,
        )


PUBLISHED_FORM: Final[Mapping[str, Any]] = {
    "embedding": "mlp",
    "latents": "normal",
    "query_gain": 1.0,
    "residual": "normalised",
    "start": "published",
}
"""Settings by which a model is the one of the published code (Feng et al. 2023, 2024)."""


@torch.no_grad()
def first_latents(config: LatentsConfig, embedding: Embedding, n_sets: int) -> Tensor:
    """Return the initial values of n_sets sets of latents, (n_sets, L, D).

    Latents that are "inducing" embed inputs spread over the input range; "normal" ones are random.
    """
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
    """Runs the query layers, by which targets attend to keys and values of latents in the cache.

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
        """Compute the keys and values that layer k reads of the latents `hidden` (B*L, D)."""
        keys, values = self.attention[k].keys_values(normalise(hidden))
        return {f"keys_{k}": keys.contiguous(), f"values_{k}": values.contiguous()}

    def forward(self, cache: Cache, x: Tensor) -> Tensor:
        """Embed the targets x (B, M, X) and pass them through all layers; return rows (B*M, D)."""
        hidden: Tensor = self.embedding(x.flatten(0, 1))
        for k, (attention, ff) in enumerate(zip(self.attention, self.ff, strict=True)):
            hidden = ff(attention.read(hidden, cache[f"keys_{k}"], cache[f"values_{k}"]))
        return hidden
