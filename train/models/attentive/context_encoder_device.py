"""Context encoders rewritten so that a device does as little as possible.

Masks cost nothing (`buffer_attention`), layer norms are folded into the products behind them, and
what several products read is normalised once. State and predictions are those of `ContextEncoder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.layers.buffer_attention import BufferAttention
from edgefold.train.layers.device_layers import (
    Affine,
    FeedForwardOnDevice,
    exact,
    fold,
    normalise,
)
from edgefold.train.layers.embeddings_device import embedding_on_device

if TYPE_CHECKING:
    from edgefold.train.models.attentive.context_encoder import AttentionLayer, ContextEncoder


class AttentionLayerOnDevice(nn.Module):
    """One layer, over rows (B*rows, D)."""

    def __init__(self, layer: AttentionLayer, n_streams: int):
        super().__init__()
        one = layer.attention
        norm = one.norm if one.context_norm is None else one.context_norm
        self.attention = BufferAttention(
            fold(one.norm, one.q), fold(norm, one.k), fold(norm, one.v), one.n_heads, n_streams
        )
        self.out = Affine(exact(one.out))
        self.ff = FeedForwardOnDevice(layer.ff, torch.float32)

    def forward(self, rows: Tensor, normal: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        queries = self.attention.queries(normal)
        after: Tensor = self.ff(self.out(self.attention.attended(queries, keys, values)) + rows)
        return after


class ContextEncoderOnDevice(StreamingModel):
    """The rewrite of one model for a fixed number of streams.

    Cache: `keys_k` and `values_k` of each query layer, in the shapes of `buffer_attention`.
    """

    def __init__(self, model: ContextEncoder, n_streams: int):
        super().__init__()
        self.config, self.buffer, self.n_streams = model.config, model.buffer, n_streams
        self.n_inputs, self.n_outputs = model.n_inputs, model.n_outputs
        self.rings, self.capacity, self.when_full = model.rings, model.capacity, model.when_full
        self.ordered, self.input_range = model.ordered, model.input_range
        self.prediction, self.outputs = model.prediction, model.head.outputs
        self.n_unread = model.n_unread
        self.embedding = embedding_on_device(model.embedding)
        encoders = (AttentionLayerOnDevice(layer, n_streams) for layer in model.encoders)
        queries = (AttentionLayerOnDevice(layer, n_streams) for layer in model.queries)
        self.encoders = cast("list[AttentionLayerOnDevice]", nn.ModuleList(encoders))
        self.queries = cast("list[AttentionLayerOnDevice]", nn.ModuleList(queries))
        self.head_up = Affine(fold(model.head.norm, model.head.up))
        self.head_down = Affine(exact(model.head.down))

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        point = self.embedding(x, self.outputs.encoded(y))
        return self.buffer.written(state, {"points": point})

    def refresh(self, state: State) -> Cache:
        slots = self.queries[0].attention.slots(self.buffer.visible(state))
        rows = slots.filled(state["points"])  # (B*N, D)
        cache: Cache = {}
        for k in range(len(self.encoders) + 1):
            normal, reader = normalise(rows), k - self.n_unread
            if reader >= 0:
                keys, values = self.queries[reader].attention.keys_values(normal, slots)
                cache |= {f"keys_{reader}": keys.contiguous()}
                cache |= {f"values_{reader}": values.contiguous()}
            if k < len(self.encoders):
                layer = self.encoders[k]
                rows = layer(rows, normal, *layer.attention.keys_values(normal, slots))
        return cache

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        rows = self.embedding(x.reshape(-1, self.n_inputs))  # (B*M, D)
        for k, layer in enumerate(self.queries):
            rows = layer(rows, normalise(rows), cache[f"keys_{k}"], cache[f"values_{k}"])
        numbers = self.head_down(torch.relu(self.head_up(normalise(rows))))
        return self.outputs.prediction_of(numbers.view(*x.shape[:2], -1))
