"""Define stacked constant-memory attention blocks (Feng et al., ICML 2024, section 3.2).

Each block has learned rows of its own, the latents L_B, which attend to the points of a stream;
their queries never change, so that this attention is a running average. The latents L_I that pass
from block to block attend to the result L_B' of each block:

    L_B' = SelfAttention(CrossAttention(L_B, points))     phase one, all blocks side by side
    L_I' = SelfAttention(CrossAttention(L_I, L_B'))       phase two, block after block

A feed-forward layer follows every attention.

Letters of shapes: B streams, K blocks, L latents, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import StreamingModel
from edgefold.train.layers.attention import Attention, FeedForward
from edgefold.train.layers.device_layers import (
    Affine,
    AttentionOnDevice,
    FeedForwardOnDevice,
    constant_rows,
    exact,
    normalise,
    rounded,
)
from edgefold.train.layers.starts import start_alike, start_stack_alike


class BlockLayers(NamedTuple):
    """Holds one block's layers that update L_I, the latents which pass from block to block."""

    block_attention: Attention
    block_ff: FeedForward
    block_self_attention: Attention
    block_self_ff: FeedForward


class CmabModel(StreamingModel):
    """Holds the layers of K blocks, with L latents each; a base class.

    Attributes:
        block_latents: Latents L_B of all blocks, (K, L, D).
        input_latents: Latents L_I before the first block, (L, D).
        context_attention: Attention of L_B to the points: K layers on a leading axis.
    """

    def _add_blocks(
        self,
        block_latents: Tensor,
        input_latents: Tensor,
        feedforward: Callable[[tuple[int, ...]], FeedForward],
        attention: Callable[[bool, tuple[int, ...]], Attention],
    ) -> None:
        """Add the layers of all blocks to the model.

        Args:
            block_latents: First values of L_B, (K, L, D).
            input_latents: First values of L_I, (L, D).
            feedforward: Function that builds a feed-forward layer, as `LatentsConfig.feed_forward`.
            attention: Function that builds an attention layer, as `LatentsConfig.attention` does.
        """
        n_blocks = len(block_latents)
        stack = (n_blocks,)
        self.block_latents = nn.Parameter(block_latents)
        self.context_attention = attention(True, stack)
        self.context_ff = feedforward(stack)
        self.latent_attention = attention(False, stack)
        self.latent_ff = feedforward(stack)

        def attentions(cross: bool) -> nn.ModuleList:
            return nn.ModuleList(attention(cross, ()) for _ in range(n_blocks))

        def feedforwards() -> nn.ModuleList:
            return nn.ModuleList(feedforward(()) for _ in range(n_blocks))

        self.input_latents = nn.Parameter(input_latents)
        self.block_attention, self.block_ff = attentions(True), feedforwards()
        self.block_self_attention, self.block_self_ff = attentions(False), feedforwards()

    def start_blocks_alike(self) -> None:
        """Give all blocks, with their latents, the first numbers of block 0."""
        stacks = self.context_attention, self.context_ff, self.latent_attention, self.latent_ff
        of_stacks = (parameter for layer in stacks for parameter in layer.parameters())
        start_stack_alike([self.block_latents, *of_stacks])
        for name in BlockLayers._fields:
            start_alike(cast(Any, getattr(self, name)))

    def block(self, k: int) -> BlockLayers:
        """Return the layers that only block k has; layers that all blocks share are attributes."""
        return BlockLayers(*(cast(Any, getattr(self, name)[k]) for name in BlockLayers._fields))

    def block_outputs(self, attended: Tensor) -> Iterator[Tensor]:
        """Yield the latents L_I after each block, (B, L, D).

        Args:
            attended: Output of the attention of L_B to the points, without the residual, (K, B, L,
                D).
        """
        kept = self.context_attention.kept(self.block_latents[:, None])
        latents = self.context_ff.added(kept + attended)
        latents = self.latent_ff.added(self.latent_attention.added(latents))  # L_B'
        hidden = self.input_latents.expand(latents.shape[1], -1, -1)
        for k in range(len(latents)):
            block = self.block(k)
            hidden = block.block_ff.added(block.block_attention.added(hidden, latents[k]))
            hidden = block.block_self_ff.added(block.block_self_attention.added(hidden))
            yield hidden


class CmabOnDevice(nn.Module):
    """Runs all layers of block k on a device.

    The latents L_I before the first block are learned, so that they and their queries are
    constants of the device form.

    Args:
        model: The trained model.
        k: Number of the block.
        context_out: Weight (features, D), in float64, of the output layer of the attention to the
            points. It reads `features` numbers a latent: those of all H heads side by side.
        n_streams: B, the number of streams.
        dtype: Type of the constants.
    """

    queries: Tensor
    kept: Tensor

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
        kept, _ = constant_rows(model.context_attention, model.block_latents[k], k)
        latents = (kept + bias).repeat(n_streams, 1)
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
            kept, queries = constant_rows(layer, model.input_latents)
            by_head = queries.unflatten(-1, (layer.n_heads, -1))
            self.register_buffer("queries", rounded(by_head[None].transpose(1, 2), dtype))
            self.register_buffer("kept", rounded(kept.repeat(n_streams, 1), dtype))

    def forward(self, attended: Tensor, hidden: Tensor | None) -> Tensor:
        """Return the latents L_I after this block, (B*L, D).

        Args:
            attended: What each latent L_B reads from the points by all heads, before the output
                layer, (B*L, features).
            hidden: L_I before this block, (B*L, D); None for the first one.
        """
        latents = self.context_ff(self.context_out(attended))
        normal = normalise(self.latent_ff(self.latent_attention(latents)))
        keys_values = self.attention.keys_values(normal)
        if hidden is None:
            hidden = self.attention.attend(self.kept, self.queries, *keys_values)
        else:
            hidden = self.attention.read(hidden, *keys_values)
        hidden = self.ff(hidden)
        following: Tensor = self.self_ff(self.self_attention(hidden))
        return following
