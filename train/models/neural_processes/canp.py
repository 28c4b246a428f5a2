"""CANP: the attentive neural process without a latent (Kim et al. 2019).

Points are kept, because self-attention mixes them: the state is a buffer of fixed capacity. An
update costs the same at any N and computes what belongs to its point alone. `refresh` does the
rest: the self-attention of both encoders over all points, O(N^2) in time, and its layers, O(N). A
query of M targets costs O(M N). A device keeps fewer rows of a point: see below.

The forms of CANP and ANP for a device do as little as possible:

    update    embeds a point three times and keeps the rows: of path 1, of path 2, of x alone
    refresh   self-attention of both paths (`buffer_attention`), keys and values of targets, and
              what path 2 adds to the decoder's first layer
    query     attention of targets, decoder

The first layers of the three embeddings are one matrix. Linear layers that follow each other are
one: the last of x's embedding and those of keys and queries, and the last of path 2 and the
decoder's first. Queries, keys and values of self-attention are not kept as in training: they are
cheap beside the attention, and a point's row of three vectors instead of seven is a smaller state
and a faster update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from edgefold.runtime.predictions import GaussianMixture
from edgefold.train.batch import Batch
from edgefold.train.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.layers.device_layers import (
    Affine,
    Weights,
    composed,
    exact,
    linear_layers,
    rounded,
)
from edgefold.train.models.device_form import DeviceForm
from edgefold.train.models.neural_processes.anp_layers import (
    N_KEPT,
    ROWS,
    AttentiveEncoders,
    EmbeddingsOnDevice,
    ResidualAttentionOnDevice,
    filled,
)
from edgefold.train.models.neural_processes.np_layers import (
    Decoder,
    PoolingDecoderOnDevice,
    masked,
    plain_loss,
    squares,
    with_seed,
)
from edgefold.train.paper_training import PAPER_TRAINING
from edgefold.train.published import Published, as_published
from edgefold.train.settings import require_sizes
from edgefold.train.states.point_buffer import PointBuffer


@dataclass(frozen=True, slots=True)
class CanpConfig:
    """The shape of a CANP, and how many points it keeps."""

    n_inputs: int = 1
    n_outputs: int = 1
    width: int = 128
    n_heads: int = 8
    capacity: int = 256
    when_full: str = "refuse"

    def __post_init__(self) -> None:
        require_sizes(self)


class Canp(StreamingModel):
    """Two encoders and a decoder; ANP and BANP are made of the same parts.

    State, per stream: `points` (B, slots, 7, D), what belongs to each point alone (see
    `anp_layers`), and `count`. Cache: keys, values and weights of the cross attention, and `hidden`
    (B, 1, D), what the pooled encoding adds to the decoder's first layer.
    """

    name = "canp"
    presets: ClassVar[Mapping[str, CanpConfig]] = {
        "small": CanpConfig(width=64),
        "paper": CanpConfig(),
    }
    training_defaults: ClassVar[Mapping[str, Any]] = PAPER_TRAINING
    published: ClassVar[Published] = as_published(
        {"CANP": (0.79, 0.62)}, {"CANP": (2.66, 3.15, None, 0.94, 0.82)}
    )

    def __init__(self, config: CanpConfig):
        super().__init__()
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, config.n_outputs
        self.capacity, self.when_full = config.capacity, config.when_full
        self.ordered = config.when_full != "refuse"
        self.buffer = PointBuffer(config.capacity, config.when_full, self._rows())
        self.rings = self.buffer.rings
        sizes = (config.n_inputs, config.n_outputs, config.width)
        self.encoders = AttentiveEncoders(*sizes, config.n_heads, self._n_pooled())
        self.decoder = Decoder(*sizes, 2 * config.width, self._n_bootstrapped())

    def _rows(self) -> dict[str, tuple[int, ...]]:
        """What is kept of a point."""
        return {"points": (N_KEPT, self.config.width)}

    def _n_pooled(self) -> int:
        """Width of what the pooled path gives out."""
        return int(self.config.width)

    def _n_bootstrapped(self) -> int:
        """Width of a second encoding that the decoder takes."""
        return 0

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.buffer.written(state, {"points": self.encoders.points(x, y)})

    def refresh(self, state: State) -> Cache:
        return self._cache(*filled(state["points"], self.buffer.visible(state)))

    def _cache(self, points: Tensor, weight: Tensor) -> Cache:
        pooled = self.encoders.pooled(points, weight)
        hidden = self.decoder.part(pooled, self.config.width)[:, None]
        return {**self.encoders.found(points, weight), "hidden": hidden}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        return self.decoder.answer(self._of_targets(cache, x) + cache["hidden"])

    def _of_targets(self, context: Cache, x: Tensor) -> Tensor:
        """What targets x (B, M, X) and what they find add to the decoder's first layer."""
        return self.decoder.part(self.encoders.at(context, x)) + self.decoder.inputs(x)

    def _points(self, x: Tensor, y: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """A batch's points as a buffer keeps them, and the weight of each, for training."""
        mask = torch.ones_like(x[..., 0], dtype=torch.bool) if mask is None else mask
        points = self.encoders.points(masked(x, mask), masked(y, mask))
        return masked(points, mask), mask.float()

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        return self.query(self._cache(*self._points(x_context, y_context, mask)), x_target)

    def loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        return plain_loss(self, batch)

    def for_device(self, n_streams: int, dtype: str = "float32") -> StreamingModel:
        return CanpOnDevice(self, n_streams)

    @property
    def summary(self) -> str:
        c = self.config
        return f"{type(self).__name__.upper()}, {c.width} wide, at most {c.capacity} points"


@dataclass(frozen=True, slots=True)
class SampledConfig(CanpConfig):
    """The shape of an ANP or a BANP, how many points it keeps, and its samples.

    `n_samples`, of the latent or bootstraps, are those of a prediction, 50 in the papers'
    evaluation; `n_train_samples` those of training.
    """

    n_samples: int = 50
    n_train_samples: int = 4


class SampledCanp(Canp):
    """A CANP whose prediction is a mixture over samples, which the state's `seed` decides."""

    config: SampledConfig

    def __init__(self, config: SampledConfig):
        super().__init__(config)
        self.prediction = GaussianMixture(config.n_samples)

    def initial_state(self, n_streams: int = 1) -> State:
        return with_seed(super().initial_state(n_streams), n_streams)

    @property
    def summary(self) -> str:
        return f"{super().summary}, {self.config.n_samples} samples"


class CanpOnDevice(DeviceForm):
    """A CANP for a fixed number of streams.

    State, per stream: `ROWS` (B, slots, D) and `count`. Cache: `keys` (B, H, D/H + 1, slots) and
    `values` (B, H, slots, D/H); `hidden` (B, 1, D), what path 2 adds to the decoder's first layer.
    """

    of_found: Tensor

    @torch.no_grad()
    def __init__(self, model: Canp, n_streams: int):
        super().__init__(model, n_streams)
        rows = {**dict.fromkeys(ROWS, (model.config.width,)), **model.buffer.rows}
        del rows["points"]
        self.buffer = type(model.buffer)(model.capacity, model.when_full, rows)
        self.rings = self.buffer.rings
        encoders, decoder, width = model.encoders, model.decoder, model.config.width
        of_inputs, last = linear_layers(encoders.of_inputs)
        paths = encoders.cross_path, encoders.pooled_path
        self.embeddings = EmbeddingsOnDevice(paths, of_inputs, model.n_outputs)
        self.of_inputs = Affine(of_inputs)
        self.cross = ResidualAttentionOnDevice(encoders.cross, n_streams, last)
        self.paths = cast(
            "list[ResidualAttentionOnDevice]",
            nn.ModuleList(
                ResidualAttentionOnDevice(path.attention, self.n_encoded) for path in paths
            ),
        )
        first, last = linear_layers(encoders.after)
        self.after = Affine(first)
        weight, bias = exact(decoder.first)
        self.fold_pooled(model, last, (weight[width : 2 * width], bias * 0))
        self.inputs = Affine((weight[2 * width :], bias))
        self.register_buffer("of_found", rounded(weight[:width], torch.float32))
        self.decoder = PoolingDecoderOnDevice(decoder, model.n_outputs)

    @property
    def n_encoded(self) -> int:
        """Contexts that self-attention encodes at once."""
        return self.n_streams

    def fold_pooled(self, model: Canp, last: Weights, of_pooled: Weights) -> None:
        """Make what leads from path 2 to the decoder's first layer.

        Args:
            model: The trained form.
            last: The last layer of path 2.
            of_pooled: The decoder's first layer, for what path 2 says.
        """
        self.of_pooled = Affine(composed(last, of_pooled))

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        rows = self.embeddings(torch.cat([x, y], -1))
        found = dict(zip(ROWS, rows, strict=True))
        return self.buffer.written(state, found, squares(x, y).sum(1))

    def refresh(self, state: State) -> Cache:
        slots = self.cross.kernel.slots(self.buffer.visible(state))
        of_cross, of_pooled, of_x = (slots.filled(state[name]) for name in ROWS)
        values = self.cross.kernel.values(self.paths[0].among(of_cross, slots), slots)
        keys = self.cross.kernel.keys(of_x, slots)
        pooled = self.pooled(self.paths[1].among(of_pooled, slots), slots.real)
        hidden = self.hidden(pooled, state)
        return {"keys": keys.contiguous(), "values": values.contiguous(), "hidden": hidden}

    def pooled(self, rows: Tensor, weight: Tensor) -> Tensor:
        """The hidden layer behind the mean of rows, by weights, of each context: (contexts, D)."""
        weight = weight.reshape(-1, 1, self.slots)
        total = (weight @ rows.view(len(weight), self.slots, -1))[:, 0]
        return torch.relu(self.after(total / weight.sum(-1).clamp(min=1.0)))

    @property
    def slots(self) -> int:
        """Slots of the buffer."""
        return self.capacity + self.buffer.is_reservoir

    def hidden(self, pooled: Tensor, state: State) -> Tensor:
        """What path 2 adds to the decoder's first layer."""
        return self.of_pooled(pooled)[:, None]

    def at(self, cache: Cache, x: Tensor) -> Tensor:
        """What targets x (B, M, X) and what they find add to the first layer: (B, M, D)."""
        rows = x.flatten(0, 1)
        found = self.cross(torch.relu(self.of_inputs(rows)), cache["keys"], cache["values"])
        return torch.addmm(self.inputs(rows), found, self.of_found).unflatten(0, x.shape[:2])

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        mean, std = self.decoder.answer(self.at(cache, x) + cache["hidden"])
        return {"mean": mean, "std": std}
