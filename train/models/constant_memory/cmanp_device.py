"""CMANP rewritten so that a device does as little as possible; it predicts what `Cmanp` predicts.

The state is that of `running_attention`, or of `forgetting_attention`. Layer norms are folded into
the matrices behind them, and what is computed from learned latents alone is a constant.

A narrow type (float16) is for what lies behind the state: refresh, query, and the cache between
them. What stays float32, and why (gp-small, gp-paper and series-co2 with every node rounded):

    the update       scores reach 460 at gp-small, where float16 resolves 0.25: a worst latent of
                     the state is off by 1e-2, for as long as the state lives, and by 4e-4 if the
                     values alone are half. The state is held to 1e-5, so no part of it is.
    W x + b, sin     in half it blurs x by 1e-3 and doubles the error of every prediction
    the last layer   so that predictions do not lie on float16's grid

Attention scores, softmax, layer norms and the residual stream of refresh and query lose nothing
that can be measured in half. Nothing there overflows, however large x and y are: the update's layer
norm bounds what follows it, and sines or a clip what a query begins with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.layers.decoder_device import GaussianOutput
from edgefold.train.layers.device_layers import (
    Affine,
    AttentionOnDevice,
    FeedForwardOnDevice,
    exact,
    fold,
    normalise,
)
from edgefold.train.layers.embeddings_device import embedding_on_device
from edgefold.train.models.constant_memory.cmab_device import CmabOnDevice
from edgefold.train.states.forgetting_attention import ForgettingAttentionOnDevice
from edgefold.train.states.running_attention import RunningAttentionOnDevice
from edgefold.train.states.running_sums import CONSOLIDATE_EVERY

if TYPE_CHECKING:
    from edgefold.train.models.constant_memory.cmanp import Cmanp


class BlockOnDevice(CmabOnDevice):
    """All layers of block k and of query layer k."""

    def __init__(self, model: Cmanp, k: int, n_streams: int, dtype: torch.dtype):
        super().__init__(model, k, exact(model.context_attention.out)[0][k], n_streams, dtype)
        attention, feedforward = model.query_layer(k)
        self.query_attention = AttentionOnDevice(attention, n_streams, dtype)
        self.query_ff = FeedForwardOnDevice(feedforward, dtype)


class CmanpOnDevice(StreamingModel):
    """The rewrite of one model for a fixed number of streams; see the top of this file."""

    running: RunningAttentionOnDevice
    consolidate_every = CONSOLIDATE_EVERY

    def __init__(self, model: Cmanp, n_streams: int, dtype: str = "float32"):
        super().__init__()
        c = self.config = model.config
        self.n_inputs, self.n_outputs, self.input_range = c.n_inputs, c.n_outputs, model.input_range
        self.n_streams, self.dtype, self.ordered = n_streams, getattr(torch, dtype), model.ordered
        self.embedding = embedding_on_device(model.embedding, dtype)
        attention = model.context_attention, model.block_latents
        if model.forgets:
            self.running = ForgettingAttentionOnDevice(*attention, model.rates)
        else:
            self.running = RunningAttentionOnDevice(*attention)
        blocks = (BlockOnDevice(model, k, n_streams, self.dtype) for k in range(c.n_blocks))
        self.blocks = cast("list[BlockOnDevice]", nn.ModuleList(blocks))
        self._fold_head(model)

    def _fold_head(self, model: Cmanp) -> None:
        self.head_up = Affine(fold(model.head_norm, model.head_up), self.dtype)
        self.output = GaussianOutput(model.head_down, model.outputs)

    def initial_state(self, n_streams: int = 1) -> State:
        return self.running.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.running.update(state, normalise(self.embedding(x, y)))

    def condition(self, state: State, x: Tensor, y: Tensor, mask: Tensor | None = None) -> State:
        n_points = x.shape[1]
        x, y = x.reshape(-1, self.n_inputs), y.reshape(-1, self.n_outputs)  # (B*U, ...)
        if mask is not None:
            real = mask.reshape(-1, 1)
            x, y = torch.where(real, x, 0.0), torch.where(real, y, 0.0)
        return self.running.condition(state, normalise(self.embedding(x, y)), n_points, mask)

    def consolidate(self, state: State) -> State:
        return self.running.consolidate(state)

    def refresh(self, state: State) -> Cache:
        """Everything behind the running attentions, to the query layers' keys and values.

        Block by block, though the first phase of all blocks could run as one batch: a block's
        tensors stay in a core's cache, and the largest (the attention weights) exist once.
        """
        attended = self.running.attended(state).to(self.dtype)
        hidden: Tensor | None = None
        cache: Cache = {}
        for k, (block, heads) in enumerate(
            zip(self.blocks, attended.split(self.config.n_heads, 1), strict=True)
        ):
            rows = heads.reshape(self.n_streams, self.config.width, -1).mT  # (B, L, D)
            hidden = block(rows.reshape(-1, self.config.width), hidden)
            keys, values = block.query_attention.keys_values(normalise(hidden))
            cache |= {f"keys_{k}": keys.contiguous(), f"values_{k}": values.contiguous()}
        return cache

    def decoded(self, cache: Cache, x: Tensor) -> Tensor:
        """What the query layers make of targets x (B, M, X): (B*M, D)."""
        hidden = self.embedding(x.reshape(-1, self.n_inputs)).to(self.dtype)  # (B*M, D)
        for k, block in enumerate(self.blocks):
            queries = block.query_attention.queries(normalise(hidden))
            keys, values = cache[f"keys_{k}"], cache[f"values_{k}"]
            hidden = block.query_ff(block.query_attention.attend(hidden, queries, keys, values))
        return hidden

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        hidden = torch.relu(self.head_up(normalise(self.decoded(cache, x)))).float()
        told: Prediction = self.output(hidden, (*x.shape[:2], self.n_outputs))
        return told
