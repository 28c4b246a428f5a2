"""CANP: the attentive neural process without a latent (Kim et al. 2019).

Points are kept, because self-attention mixes them: the state is a buffer of fixed capacity. An
update costs the same at any N and computes all that belongs to its point alone. `refresh` does the
rest: the self-attention of both encoders over all points, O(N^2) in time, and its layers, O(N). A
query of M targets costs O(M N).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgefold.train.models.anp_layers import N_KEPT, AttentiveEncoders
from edgefold.train.models.contract import Cache, Prediction, State, StreamingModel
from edgefold.train.models.np_layers import Decoder, masked
from edgefold.train.models.point_buffer import PointBuffer


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
        if self.width % self.n_heads:
            raise ValueError(f"width {self.width} is not a multiple of n_heads {self.n_heads}")


class Canp(StreamingModel):
    """Two encoders and a decoder.

    State, per stream: `points` (B, slots, 7, D), what belongs to each point alone (see
    `anp_layers`), and `count`. Cache: keys, values and weights of the cross attention, and `hidden`
    (B, 1, D), what the pooled encoding adds to the decoder's first layer.
    """

    name = "canp"
    presets: ClassVar[Mapping[str, CanpConfig]] = {
        "small": CanpConfig(width=64),
        "paper": CanpConfig(),
    }
    training_defaults: ClassVar[Mapping[str, Any]] = {}
    published: ClassVar[Mapping[str, Mapping[str, tuple[float, ...]]]] = {
        "gp": {"CANP, as published": (0.79, 0.62)}
    }

    def __init__(self, config: CanpConfig):
        super().__init__()
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, config.n_outputs
        self.capacity, self.when_full = config.capacity, config.when_full
        self.ordered = config.when_full != "refuse"
        self.buffer = PointBuffer(
            config.capacity, config.when_full, {"points": (N_KEPT, config.width)}
        )
        self.rings = self.buffer.rings
        width = config.width
        self.encoders = AttentiveEncoders(
            config.n_inputs, config.n_outputs, width, config.n_heads, width
        )
        self.decoder = Decoder(config.n_inputs, config.n_outputs, width, 2 * width)

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        return self.buffer.written(state, {"points": self.encoders.points(x, y)})

    def refresh(self, state: State) -> Cache:
        return self._cache(state["points"], self.buffer.visible(state))

    def _cache(self, points: Tensor, visible: Tensor) -> Cache:
        context = self.encoders.context(points, visible.float())
        pooled = context.pop("pooled")
        return {**context, "hidden": self.decoder.part(pooled, self.config.width)[:, None]}

    def query(self, cache: Cache, x: Tensor) -> Prediction:
        found = self.encoders.at(cache, x)
        hidden = self.decoder.part(found, 0) + cache["hidden"] + self.decoder.inputs(x)
        return self.decoder.answer(hidden)

    def forward(
        self, x_context: Tensor, y_context: Tensor, x_target: Tensor, mask: Tensor | None = None
    ) -> Prediction:
        x, y = masked(x_context, mask), masked(y_context, mask)
        visible = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
        points = masked(self.encoders.points(x, y), visible)
        return self.query(self._cache(points, visible), x_target)

    @property
    def summary(self) -> str:
        c = self.config
        return f"{type(self).__name__.upper()}, {c.width} wide, at most {c.capacity} points"
