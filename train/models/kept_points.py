"""Define the base of models that keep the points of their context in a buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefold.train.contract import State, StreamingModel
from edgefold.train.states.point_buffer import PointBuffer


class PointsModel(StreamingModel):
    """Keeps points in a buffer, which is its state; a base class."""

    buffer: PointBuffer

    def keep_points(self, config: Any, rows: Mapping[str, tuple[int, ...]]) -> None:
        """Set up the buffer of points, and the attributes of the model that describe it.

        Args:
            config: Settings, of which sizes, `capacity` and `when_full` are taken.
            rows: Shape of the row that each state tensor keeps of a point, by the tensor's name.
        """
        self.config = config
        self.n_inputs, self.n_outputs = config.n_inputs, config.n_outputs
        self.buffer = PointBuffer(config.capacity, config.when_full, rows)
        self.rings, self.capacity = self.buffer.rings, config.capacity
        self.when_full, self.ordered = config.when_full, config.when_full != "refuse"

    def initial_state(self, n_streams: int = 1) -> State:
        return self.buffer.initial_state(n_streams)
