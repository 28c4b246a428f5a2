"""The blocks of `cmab` rewritten so that a device does as little as possible."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgefold.train.layers.attention import Attention, FeedForward
from edgefold.train.layers.device_layers import (
    Affine,
    AttentionOnDevice,
    FeedForwardOnDevice,
    exact,
    fold,
    normalise,
    rounded,
    scaled,
)
from edgefold.train.models.constant_memory.cmab import CmabModel


class CmabOnDevice(nn.Module):
    """All layers of block k, those of a stack and its own.

    The first block's queries and what it adds to come from learned latents: they are constants.

    Args:
        context_out: Weight of what the points left, (features, D), in float64.
    """

    queries: Tensor
    start: Tensor

    @torch.no_grad()
    def __init__(
        self, model: CmabModel, k: int, context_out: Tensor, n_streams: int, dtype: torch.dtype
    ):
        super().__init__()

        def attention(layer: Attention) -> AttentionOnDevice:
            return AttentionOnDevice(layer, n_streams, dtype, k)

        def feedforward(layer: FeedForward) -> FeedForwardOnDevice:
            return FeedForwardOnDevice(layer, dtype, k)

        bias = exact(model.context_attention.out)[1][k]
        latents = (model.block_latents[k].double() + bias).repeat(n_streams, 1)
        self.context_out = Affine((context_out, latents), dtype)
        self.context_ff = feedforward(model.context_ff)
        self.latent_attention = attention(model.latent_attention)
        self.latent_ff = feedforward(model.latent_ff)
        own = model.block(k)
        self.attention, self.ff = attention(own.block_attention), feedforward(own.block_ff)
        self.self_attention = attention(own.block_self_attention)
        self.self_ff = feedforward(own.block_self_ff)
        if k == 0:
            layer = own.block_attention
            weight, bias = scaled(fold(layer.norm, layer.q), layer.n_heads)
            start = model.input_latents.double()
            queries = (normalise(start) @ weight + bias).unflatten(-1, (layer.n_heads, -1))
            self.register_buffer("queries", rounded(queries[None].transpose(1, 2), dtype))
            self.register_buffer("start", rounded(start.repeat(n_streams, 1), dtype))

    def forward(self, attended: Tensor, hidden: Tensor | None) -> Tensor:
        """L_I behind this block, (B*L, D).

        Args:
            attended: What the points left, by latent, (B*L, features).
            hidden: L_I before this block; None for the first one.
        """
        latents = self.context_ff(self.context_out(attended))
        normal = normalise(self.latent_ff(self.latent_attention(latents)))
        if hidden is None:
            hidden, queries = self.start, self.queries
        else:
            queries = self.attention.queries(normalise(hidden))
        keys_values = self.attention.keys_values(normal)
        hidden = self.ff(self.attention.attend(hidden, queries, *keys_values))
        following: Tensor = self.self_ff(self.self_attention(hidden))
        return following
