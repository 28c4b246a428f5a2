"""Models that encode the context by self-attention, and whose targets attend to the encodings.

Targets read the last Q of E + 1 encodings (`layer_walk`). EQTNP and Transformer + Cross Attention
differ only in E and Q. A new point changes every other one from the first encoder layer on:

    update    embeds one point and keeps the row                              O(1)
    refresh   encodes the context, and gives the query layers' keys and values    O(N^2)
    query     takes M targets through the query layers                        O(M N)

N is the capacity. Layers are pre-norm (`layers`).

The device's form does as little as possible (`prenorm_layers`), and its state is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.layers.decoder_device import HeadOnDevice
from edgefold.train.layers.device_layers import normalise
from edgefold.train.layers.embeddings import embedding_of
from edgefold.train.layers.embeddings_device import embedding_on_device
from edgefold.train.layers.prediction_head import Outputs, PredictionHead
from edgefold.train.layers.prenorm_layers import AttentionLayer, AttentionLayerOnDevice
from edgefold.train.models.attentive.layer_walk import LayerWalk
from edgefold.train.models.attentive.transformer_config import TransformerConfig
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.paper_training import PAPER_TRAINING
from edgefold.train.states.point_buffer import PointBuffer, real_points


@dataclass(frozen=True, slots=True)
class EncoderConfig(TransformerConfig):
    """The shape of the model; `n_classes` is described at `Outputs`."""

    n_classes: int = 0


PRESETS = {"small": EncoderConfig(n_layers=3, embedding="fourier"), "paper": EncoderConfig()}
"""`paper` is the published size; `small` has half its layers and trains on two cores in minutes."""


class ContextEncoder(LayerWalk):
    """A model of E encoder layers and Q query layers; subclasses say how many.

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
        layer = config.width, config.n_heads, config.feedforward
        encoders = (AttentionLayer(*layer) for _ in range(n_encoders))
        queries = (
            AttentionLayer(*layer, own_context_norm=own_context_norm) for _ in range(n_queries)
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
        x, y, mask = real_points(x_context, y_context, mask)
        return self.query(self._encode(self._embedded(x, y), mask), x_target)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return ContextEncoderOnDevice(self, n_streams)

    @property
    def summary(self) -> str:
        c, name = self.config, self.name.upper()
        return f"{name}, {c.n_layers} layers, {c.width} wide, up to {c.capacity} points"


class ContextEncoderOnDevice(LayerWalk, DeviceForm):
    """The rewrite of one model for a fixed number of streams.

    Cache: `keys_k` and `values_k` of each query layer, in the shapes of `buffer_attention`.
    """

    def __init__(self, model: ContextEncoder, n_streams: int):
        super().__init__(model, n_streams)
        self.buffer, self.outputs = model.buffer, model.head.outputs
        self.embedding = embedding_on_device(model.embedding)
        encoders = (
            AttentionLayerOnDevice(layer.attention, layer.ff, n_streams) for layer in model.encoders
        )
        queries = (
            AttentionLayerOnDevice(layer.attention, layer.ff, n_streams) for layer in model.queries
        )
        self.encoders = cast("list[AttentionLayerOnDevice]", nn.ModuleList(encoders))
        self.queries = cast("list[AttentionLayerOnDevice]", nn.ModuleList(queries))
        self.head = HeadOnDevice(model.head)

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
        prediction: Prediction = self.head(rows, x.shape[:2])
        return prediction
