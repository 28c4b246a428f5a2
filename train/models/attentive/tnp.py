"""What all transformer neural processes share: the context's encoding, and targets that read it.

Nguyen & Grover 2022, "Transformer Neural Processes". Tokens are (x, y) of a context point and
(x, 0) of a target. In every layer of the encoder all of them attend to the context, and to nothing
else. So the context's encoding does not depend on targets. It is computed once, and a target reads
its keys and values:

    update    embeds one point and keeps the row                       O(1)
    refresh   encodes the context: keys and values of every layer      O(N^2), N = capacity
    query     takes M targets through the layers                       O(M N)

The published code encodes context and targets again at each query. A new point changes the encoding
of all others from the second layer on, so `refresh` cannot be incremental. Of the first layer,
queries, keys and values could be kept; that would save products of O(N) beside those of O(N^2), and
make the state four times as large. The last layer is computed for targets only.

The device's form keeps the rows x' of `postnorm_layers` as points: no addition is left that a
product could do, and attention needs no masks (`buffer_attention`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from edgefold.train.contract import Cache, Prediction, State
from edgefold.train.layers.attention import Linear, mlp
from edgefold.train.layers.device_layers import Affine, exact
from edgefold.train.layers.embeddings import FourierEmbedding
from edgefold.train.layers.embeddings_device import FourierOnDevice
from edgefold.train.layers.postnorm_layers import PostNormLayer, PostNormOnDevice
from edgefold.train.models.attentive.layer_walk import LayerWalk
from edgefold.train.models.attentive.transformer_config import TransformerConfig
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.paper_training import PAPER_TRAINING
from edgefold.train.states.point_buffer import PointBuffer, real_points

POINTS = "points"


@dataclass(frozen=True, slots=True)
class TnpConfig(TransformerConfig):
    """The shape of a TNP."""


PRESETS = {"small": TnpConfig(n_layers=3, embedding="fourier"), "paper": TnpConfig()}
"""`paper` is the published size; `small` has half its layers and trains on two cores in minutes."""


class TokenEmbedding(nn.Module):
    """The published embedder, 4 linear layers with ReLU: a target is a point whose y is 0."""

    def __init__(self, n_inputs: int, n_outputs: int, width: int):
        super().__init__()
        self.n_outputs = n_outputs
        self.layers = mlp(n_inputs + n_outputs, width, width, 4)

    def points(self, x: Tensor, y: Tensor) -> Tensor:
        embedded: Tensor = self.layers(torch.cat([x, y], -1))
        return embedded

    def queries(self, x: Tensor) -> Tensor:
        return self.points(x, x.new_zeros(*x.shape[:-1], self.n_outputs))


class SharedWalk(LayerWalk):
    """Walks over layers that serve as encoder and as query layers."""

    layers: Sequence[Any]

    @property
    def encoders(self) -> Sequence[Any]:  # type: ignore[override]
        """Return all layers but the last, which is computed for targets only."""
        return list(self.layers)[:-1]

    @property
    def queries(self) -> Sequence[Any]:  # type: ignore[override]
        """Return all layers."""
        return self.layers


class Tnp(SharedWalk):
    """The encoder; subclasses add a head that makes predictions of encoded targets.

    State, per stream: the embedded `points` (B, N, D) and their `count` (B,), N the capacity.
    Cache: `keys_k` and `values_k` (B, H, N, D/H) of each layer, and `visible` (B, N), True where a
    slot holds a point.
    """

    presets: ClassVar[Mapping[str, TnpConfig]] = PRESETS
    training_defaults: ClassVar[Mapping[str, Any]] = PAPER_TRAINING

    def __init__(self, config: TnpConfig):
        super().__init__()
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, config.n_outputs
        self.buffer = PointBuffer(config.capacity, config.when_full, {POINTS: (config.width,)})
        self.rings, self.capacity = self.buffer.rings, config.capacity
        self.when_full, self.ordered = config.when_full, config.when_full != "refuse"
        shape = (config.n_inputs, config.n_outputs, config.width)
        self.embedding: TokenEmbedding | FourierEmbedding = (
            TokenEmbedding(*shape)
            if config.embedding == "mlp"
            else FourierEmbedding(*shape, config.fourier_std)
        )
        layers = (
            PostNormLayer(config.width, config.n_heads, config.feedforward)
            for _ in range(config.n_layers)
        )
        self.layers = cast("list[PostNormLayer]", nn.ModuleList(layers))

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.buffer.written(state, {POINTS: self.embedding.points(x, y)})

    def refresh(self, state: State) -> Cache:
        return self.encode(state[POINTS], self.buffer.visible(state))

    def embedded(self, x: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Embed points, (B, N, D), and mark the real ones, (B, N); masked ones may be NaN."""
        x, y, mask = real_points(x, y, mask)
        return self.embedding.points(x, y), mask

    def encode(self, points: Tensor, visible: Tensor) -> Cache:
        """Return every layer's keys and values of the context."""
        return {"visible": visible, **self.encoded(points, visible[:, None, None])}

    def targets(self, cache: Cache, x: Tensor) -> Tensor:
        """Return encoded targets (B, M, D) for x (B, M, X)."""
        return self.decoded(self.embedding.queries(x), cache, cache["visible"][:, None, None])

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        """The batched form, for training: the context as it is, not in a buffer."""
        return self.query(self.encode(*self.embedded(x_context, y_context, mask)), x_target)

    @property
    def summary(self) -> str:
        c = self.config
        return (
            f"{self.name.upper()}, {c.n_layers} layers, {c.width} wide, up to {c.capacity} points"
        )


class TokensOnDevice(nn.Module):
    """The published embedder of points (rows, X) and (rows, Y), or of targets without y."""

    def __init__(self, layer: TokenEmbedding, n_inputs: int):
        super().__init__()
        first, *rest = (exact(part) for part in layer.layers if isinstance(part, Linear))
        self.first = Affine(first)
        self.first_query = Affine((first[0][:n_inputs], first[1]))
        self.rest = nn.ModuleList(map(Affine, rest))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        rows = self.first_query(x) if y is None else self.first(torch.cat([x, y], -1))
        for layer in self.rest:
            rows = layer(torch.relu(rows))
        return rows


@torch.no_grad()
def _embedding(model: Tnp, shift: Tensor) -> FourierOnDevice | TokensOnDevice:
    """Return the model's embedding plus a shift."""
    embedding = copy.deepcopy(model.embedding)
    last = embedding.down if isinstance(embedding, FourierEmbedding) else embedding.layers[-1]
    assert isinstance(last, Linear) and last.bias is not None
    last.bias.copy_(last.bias.double() + shift)
    if isinstance(embedding, FourierEmbedding):
        return FourierOnDevice(embedding)
    return TokensOnDevice(embedding, model.n_inputs)


class TnpOnDevice(SharedWalk, DeviceForm):
    """The rewrite of one model for a fixed number of streams.

    The state is that of `Tnp`, with x' as points. Cache: `keys_k` and `values_k` of each layer, in
    the shapes of `buffer_attention`.
    """

    def __init__(self, model: Tnp, n_streams: int):
        super().__init__(model, n_streams)
        self.buffer = model.buffer
        biases = [exact(layer.out)[1] for layer in model.layers]
        following = [*biases[1:], torch.zeros_like(biases[0])]
        layers = map(PostNormOnDevice, model.layers, following, repeat(n_streams))
        self.layers = cast("list[PostNormOnDevice]", nn.ModuleList(layers))
        self.embedding = _embedding(model, biases[0])

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.buffer.written(state, {"points": self.embedding(x, y)})

    def refresh(self, state: State) -> Cache:
        slots = self.layers[0].attention.slots(self.buffer.visible(state))
        cache = self.encoded(slots.filled(state["points"]), slots)
        return {name: tensor.contiguous() for name, tensor in cache.items()}

    def targets(self, cache: Cache, x: Tensor) -> Tensor:
        """Return encoded targets (B*M, D) for x (B, M, X)."""
        return self.decoded(self.embedding(x.reshape(-1, self.n_inputs)), cache)
