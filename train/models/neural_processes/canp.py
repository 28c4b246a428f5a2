"""CANP: the attentive neural process without a latent (Kim et al. 2019).

Points are kept, because self-attention mixes them: the state is a buffer of fixed capacity. An
update costs the same at any N and computes what belongs to its point alone. `refresh` does the
rest: the self-attention of both encoders over all points, O(N^2) in time, and its layers, O(N). A
query of M targets costs O(M N). A device keeps fewer rows of a point: see `anp_device`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgefold.runtime.predictions import GaussianMixture
from edgefold.train.batch import Batch
from edgefold.train.contract import SEED, Cache, Prediction, State, StreamingModel
from edgefold.train.models.neural_processes.anp_device import CanpOnDevice
from edgefold.train.models.neural_processes.anp_layers import N_KEPT, AttentiveEncoders, filled
from edgefold.train.models.neural_processes.np_layers import Decoder, masked, plain_loss
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
        seed = torch.zeros(n_streams, dtype=torch.int64)
        return {**self.buffer.initial_state(n_streams), SEED: seed}

    @property
    def summary(self) -> str:
        return f"{super().summary}, {self.config.n_samples} samples"
