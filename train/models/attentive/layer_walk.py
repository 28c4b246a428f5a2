"""Pass points and targets through a model's layers; shared by training and device form.

    points ──> encoder layer 1 ──> encoder layer 2 ──> ... ──> encoder layer E
      |              |                   |                          |
    targets read the last Q of these E + 1 encodings, one in each of Q query layers

One layer may serve as encoder and as query layer, as in TNP: its keys are computed once.

Letters of shapes: B streams, N points, M targets, X inputs, Y outputs, H heads, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from edgefold.train.contract import Cache, Prediction, State
from edgefold.train.layers.attention import Reads
from edgefold.train.layers.embeddings import EmbeddingKind
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.models.kept_points import PointsModel
from edgefold.train.settings import PAPER_TRAINING, SizedConfig
from edgefold.train.states.point_buffer import real_points


@dataclass(frozen=True, slots=True)
class TransformerConfig(SizedConfig):
    """Holds the sizes of a transformer, and how many points it keeps.

    `embedding` is "mlp" as published, or "fourier", which learns faster; `fourier_std` is described
    at `FourierEmbedding`, `bounded` at `Outputs`. `capacity` and `when_full` are described at
    `PointBuffer`.
    """

    n_inputs: int = 1
    n_outputs: int = 1
    n_layers: int = 6
    width: int = 64
    n_heads: int = 4
    feedforward: int = 128
    embedding: EmbeddingKind = "mlp"
    fourier_std: float = 3.0
    bounded: bool = False
    capacity: int = 256
    when_full: str = "refuse"


POINTS = "points"


class LayerWalk(PointsModel):
    """Passes rows through encoder and query layers, in training and on a device.

    A layer must know which slots of the buffer hold points. In training each call gets a mask for
    this; on a device `encoded` gets `Slots`, which make keys that hide empty slots, and `decoded`
    needs nothing more.
    """

    encoders: Sequence[Any]
    queries: Sequence[Any]
    embedding: Any
    reads: Reads = "normalised"

    def normal(self, rows: Tensor) -> Tensor:
        """Return the rows as they are; a device form normalises here where its layers do not."""
        return rows

    def encoded_y(self, y: Tensor) -> Tensor:
        """Return y (..., Y) as the embedding reads it; subclasses may encode classes here."""
        return y

    def encoded(self, rows: Tensor, slots: Any) -> Cache:
        """Encode the context; return the keys and values that each query layer reads.

        Args:
            rows: Embedded points, (B, N, D) in training, (B*N, D) on a device.
            slots: Mask or `Slots`, which mark the points that exist.

        Returns:
            `keys_k` and `values_k` of each query layer k.
        """
        cache: Cache = {}
        encoders, queries = list(self.encoders), list(self.queries)
        n_unread = len(encoders) + 1 - len(queries)  # the first encodings
        for k in range(len(encoders) + 1):
            normal, reader, context = self.normal(rows), k - n_unread, None
            read = rows if self.reads == "raw" else normal
            if reader >= 0:
                context = queries[reader].keys_values(read, slots)
                cache |= {f"keys_{reader}": context[0], f"values_{reader}": context[1]}
            if k < len(encoders):
                layer = encoders[k]
                if context is None or layer is not queries[reader]:
                    context = layer.keys_values(read, slots)
                rows = layer.step(rows, normal, *context, slots)
        return cache

    def decoded(self, rows: Tensor, cache: Cache, slots: Any = None) -> Tensor:
        """Pass rows of targets through the query layers; return the rows after the last one.

        Layer k reads `keys_k` and `values_k` in the cache. `slots` is a mask, or None on a device.
        """
        for k, layer in enumerate(self.queries):
            keys, values = cache[f"keys_{k}"], cache[f"values_{k}"]
            rows = layer.step(rows, self.normal(rows), keys, values, slots)
        return rows


class PointsEncoder(LayerWalk):
    """Keeps points and encodes them for queries, whose targets read the encodings; a base class.

    State, per stream: the embedded `points` (B, N, D) and their `count` (B,). Cache: `keys_k` and
    `values_k` (B, H, N, D/H) of each query layer, and `visible` (B, N), True where a slot holds a
    point.
    """

    training_defaults: ClassVar[Mapping[str, Any]] = PAPER_TRAINING

    def __init__(self, config: TransformerConfig):
        super().__init__()
        self.keep_points(config, {POINTS: (config.width,)})

    def mask_of(self, visible: Tensor) -> Tensor:
        """Return visible (B, N) in the shape that the layers take as a mask: here as it is."""
        return visible

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.buffer.written(state, {POINTS: self.embedding.points(x, self.encoded_y(y))})

    def refresh(self, state: State) -> Cache:
        return self.encode(state[POINTS], self.buffer.visible(state))

    def embedded(self, x: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Embed points x (B, N, X), y (B, N, Y): return (B, N, D) and the mask, (B, N).

        The mask is True for real points; the others may be NaN.
        """
        x, y, mask = real_points(x, y, mask)
        return self.embedding.points(x, self.encoded_y(y)), mask

    def encode(self, points: Tensor, visible: Tensor) -> Cache:
        """Return the cache of embedded points (B, N, D); visible (B, N) is True for real ones."""
        return {"visible": visible, **self.encoded(points, self.mask_of(visible))}

    def targets(self, cache: Cache, x: Tensor) -> Tensor:
        """Return encoded targets (B, M, D) for their inputs x (B, M, X)."""
        return self.decoded(self.embedding.queries(x), cache, self.mask_of(cache["visible"]))

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        """Predict targets from a context that is not in a buffer: the batched form for training."""
        return self.query(self.encode(*self.embedded(x_context, y_context, mask)), x_target)

    @property
    def summary(self) -> str:
        c, name = self.config, self.name.upper()
        return f"{name}, {c.n_layers} layers, {c.width} wide, up to {c.capacity} points"


class PointsEncoderOnDevice(LayerWalk, DeviceForm):
    """Runs a `PointsEncoder` on a device, for a fixed number of streams.

    Cache: `keys_k` (B, H, D/H + 1, N) and `values_k` (B, H, N, D/H) of each query layer k.
    """

    def __init__(self, model: PointsEncoder, n_streams: int):
        super().__init__(model, n_streams)
        self.buffer = model.buffer

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.buffer.written(state, {POINTS: self.embedding(x, self.encoded_y(y))})

    def refresh(self, state: State) -> Cache:
        slots = self.queries[0].attention.slots(self.buffer.visible(state))
        cache = self.encoded(slots.filled(state[POINTS]), slots)
        return {name: tensor.contiguous() for name, tensor in cache.items()}

    def targets(self, cache: Cache, x: Tensor) -> Tensor:
        """Return encoded targets (B*M, D) for their inputs x (B, M, X)."""
        return self.decoded(self.embedding(x.reshape(-1, self.n_inputs)), cache)
