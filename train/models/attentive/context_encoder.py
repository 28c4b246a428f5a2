"""Models that encode the context by self-attention, and whose targets attend to the encodings.

    points ──> encoder layer 1 ──> encoder layer 2 ──> ... ──> encoder layer E
      |              |                   |                          |
    targets read the last Q of these E + 1 encodings, one in each of Q query layers

EQTNP and Transformer + Cross Attention differ in E and Q alone. A new point changes every other one
from the first encoder layer on:

    update    embeds one point and keeps the row                              O(1)
    refresh   encodes the context, and gives the query layers' keys and values    O(N^2)
    query     takes M targets through the query layers                        O(M N)

N is the capacity. Layers are pre-norm (`layers`).

The device's form does as little as possible: masks cost nothing (`buffer_attention`), layer norms
are folded into the products behind them, and what several products read is normalised once. State
and predictions are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.layers.attention import Attention, FeedForward
from edgefold.train.layers.buffer_attention import BufferAttention, Slots
from edgefold.train.layers.device_layers import Affine, FeedForwardOnDevice, exact, fold, normalise
from edgefold.train.layers.embeddings import embedding_of
from edgefold.train.layers.embeddings_device import embedding_on_device
from edgefold.train.layers.prediction_head import Outputs, PredictionHead
from edgefold.train.models.attentive.transformer_config import TransformerConfig
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.paper_training import PAPER_TRAINING
from edgefold.train.states.point_buffer import PointBuffer


@dataclass(frozen=True, slots=True)
class EncoderConfig(TransformerConfig):
    """The shape of the model; `n_classes` is described at `Outputs`."""

    n_classes: int = 0


PRESETS = {"small": EncoderConfig(n_layers=3, embedding="fourier"), "paper": EncoderConfig()}
"""`paper` is the published size; `small` has half its layers and trains on two cores in minutes."""


class AttentionLayer(nn.Module):
    """Attention and a feed-forward layer, each added to its input."""

    def __init__(self, config: EncoderConfig, *, own_context_norm: bool = False):
        super().__init__()
        self.attention = Attention(config.width, config.n_heads, cross=own_context_norm)
        self.ff = FeedForward(config.width, config.feedforward)

    def keys_values(self, rows: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of rows (B, N, D), whether a slot holds a point or not."""
        return self.attention.keys_values(rows)

    def forward(
        self, rows: Tensor, normal: Tensor, keys: Tensor, values: Tensor, visible: Tensor
    ) -> Tensor:
        queries = self.attention.queries(normal)
        rows = rows + self.attention.attend(queries, keys, values, visible)
        after: Tensor = rows + self.ff(rows)
        return after


class LayerWalk(StreamingModel):
    """Walks over encoder and query layers, in training and on a device.

    A layer must know which slots hold points: training gives it `visible` (B, N). A device gives
    `Slots` where keys are made, and hides nothing later.
    """

    buffer: PointBuffer
    encoders: Sequence[Any]
    queries: Sequence[Any]

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def normal(self, rows: Tensor) -> Tensor:
        """The rows as layers read them; those of training normalise rows themselves."""
        return rows

    def encoded(self, rows: Tensor, slots: Any) -> Cache:
        """Keys and values of each query layer, from the embedded points."""
        cache: Cache = {}
        n_unread = len(self.encoders) + 1 - len(self.queries)  # the first encodings
        for k in range(len(self.encoders) + 1):
            normal, reader = self.normal(rows), k - n_unread
            if reader >= 0:
                keys, values = self.queries[reader].keys_values(normal, slots)
                cache |= {f"keys_{reader}": keys, f"values_{reader}": values}
            if k < len(self.encoders):
                layer = self.encoders[k]
                rows = layer(rows, normal, *layer.keys_values(normal, slots), slots)
        return cache

    def decoded(self, rows: Tensor, cache: Cache, slots: Any = None) -> Tensor:
        """Rows of targets behind the query layers."""
        for k, layer in enumerate(self.queries):
            keys, values = cache[f"keys_{k}"], cache[f"values_{k}"]
            rows = layer(rows, self.normal(rows), keys, values, slots)
        return rows


class ContextEncoder(LayerWalk):
    """E encoder layers and Q query layers; subclasses say how many.

    State, per stream: the embedded `points` (B, N, D) and their `count` (B,). Cache: `keys_k` and
    `values_k` (B, H, N, D/H) of each query layer, and `visible` (B, N), True where a slot holds a
    point.
    """

    presets: ClassVar[Mapping[str, EncoderConfig]] = PRESETS
    training_defaults: ClassVar[Mapping[str, Any]] = PAPER_TRAINING

    def __init__(
        self, config: EncoderConfig, n_encoders: int, n_queries: int, own_context_norm: bool
    ):
        super().__init__()
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, config.n_outputs
        self.buffer = PointBuffer(config.capacity, config.when_full, {"points": (config.width,)})
        self.rings, self.capacity = self.buffer.rings, config.capacity
        self.when_full, self.ordered = config.when_full, config.when_full != "refuse"
        outputs = Outputs(config.n_outputs, config.n_classes, config.bounded)
        self.prediction = outputs.prediction
        self.embedding = embedding_of(
            config.embedding, config.n_inputs, outputs.n_encoded, config.width, config.fourier_std
        )
        encoders = (AttentionLayer(config) for _ in range(n_encoders))
        queries = (
            AttentionLayer(config, own_context_norm=own_context_norm) for _ in range(n_queries)
        )
        self.encoders = cast("list[AttentionLayer]", nn.ModuleList(encoders))
        self.queries = cast("list[AttentionLayer]", nn.ModuleList(queries))
        self.head = PredictionHead(config.width, outputs)

    def _embedded(self, x: Tensor, y: Tensor) -> Tensor:
        return self.embedding.points(x, self.head.outputs.encoded(y))

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.buffer.written(state, {"points": self._embedded(x, y)})

    def refresh(self, state: State) -> Cache:
        return self._encode(state["points"], self.buffer.visible(state))

    def _encode(self, rows: Tensor, visible: Tensor) -> Cache:
        return {"visible": visible, **self.encoded(rows, visible)}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        rows = self.decoded(self.embedding.queries(x), cache, cache["visible"])
        prediction: Prediction = self.head(rows)
        return prediction

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        """The batched form, for training: the context as it is, not in a buffer."""
        if mask is None:
            mask = torch.ones(x_context.shape[:2], dtype=torch.bool, device=x_context.device)
        x, y = (torch.where(mask[..., None], tensor, 0.0) for tensor in (x_context, y_context))
        return self.query(self._encode(self._embedded(x, y), mask), x_target)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return ContextEncoderOnDevice(self, n_streams)

    @property
    def summary(self) -> str:
        c, name = self.config, self.name.upper()
        return f"{name}, {c.n_layers} layers, {c.width} wide, up to {c.capacity} points"


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

    def keys_values(self, normal: Tensor, slots: Slots) -> tuple[Tensor, Tensor]:
        """Keys and values of normalised rows (B*N, D); keys of empty slots are hidden."""
        return self.attention.keys_values(normal, slots)

    def forward(
        self, rows: Tensor, normal: Tensor, keys: Tensor, values: Tensor, slots: Slots | None = None
    ) -> Tensor:
        queries = self.attention.queries(normal)
        after: Tensor = self.ff(self.out(self.attention.attended(queries, keys, values)) + rows)
        return after


class ContextEncoderOnDevice(LayerWalk, DeviceForm):
    """The rewrite of one model for a fixed number of streams.

    Cache: `keys_k` and `values_k` of each query layer, in the shapes of `buffer_attention`.
    """

    def __init__(self, model: ContextEncoder, n_streams: int):
        super().__init__(model, n_streams)
        self.buffer, self.outputs = model.buffer, model.head.outputs
        self.embedding = embedding_on_device(model.embedding)
        encoders = (AttentionLayerOnDevice(layer, n_streams) for layer in model.encoders)
        queries = (AttentionLayerOnDevice(layer, n_streams) for layer in model.queries)
        self.encoders = cast("list[AttentionLayerOnDevice]", nn.ModuleList(encoders))
        self.queries = cast("list[AttentionLayerOnDevice]", nn.ModuleList(queries))
        self.head_up = Affine(fold(model.head.norm, model.head.up))
        self.head_down = Affine(exact(model.head.down))

    def normal(self, rows: Tensor) -> Tensor:
        return normalise(rows)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        point = self.embedding(x, self.outputs.encoded(y))
        return self.buffer.written(state, {"points": point})

    def refresh(self, state: State) -> Cache:
        slots = self.queries[0].attention.slots(self.buffer.visible(state))
        cache = self.encoded(slots.filled(state["points"]), slots)
        return {name: tensor.contiguous() for name, tensor in cache.items()}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        rows = self.decoded(self.embedding(x.reshape(-1, self.n_inputs)), cache)  # (B*M, D)
        numbers = self.head_down(torch.relu(self.head_up(normalise(rows))))
        return self.outputs.prediction_of(numbers.view(*x.shape[:2], -1))
