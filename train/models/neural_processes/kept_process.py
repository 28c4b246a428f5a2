"""Define the base of classical neural processes that keep the points of a context.

Letters of shapes: B streams, N points, M targets, S samples, X inputs, Y outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from edgefold.train.contract import Prediction, State
from edgefold.train.models.kept_points import PointsModel
from edgefold.train.models.neural_processes.neural_process import Context, NeuralProcess
from edgefold.train.models.neural_processes.np_layers import every_row, masked
from edgefold.train.settings import PAPER_TRAINING


class KeptProcess(NeuralProcess, PointsModel):
    """Keeps rows of each point in a buffer, from which its encoders encode the context; a base.

    State, per stream, with a slot for each point: `points` (B, slots, *row), the rows that the
    encoders make of a point, and their `count`; with bootstraps `raw` (B, slots, X + Y), the points
    themselves; with samples `seed` (B,).

    Args:
        config: Settings, among them `capacity` and `when_full`.
        encoders: Encoders whose `points` make the rows of a point.
        row: Shape of the rows of one point.
    """

    training_defaults: ClassVar[Mapping[str, Any]] = PAPER_TRAINING

    def __init__(self, config: Any, encoders: nn.Module, row: tuple[int, ...]):
        super().__init__(config, encoders)
        self.keep_points(config, {"points": row} | self.raw_rows())
        # A bootstrap's draws depend on the places of points.
        self.ordered |= self.sampling == "bootstrap"

    def raw_rows(self) -> dict[str, tuple[int, ...]]:
        """Return the name and shape of the state tensor's row that keeps x and y of a point.

        The dictionary is empty without bootstraps, since only they need this row.
        """
        return {"raw": (self.n_inputs + self.n_outputs,)} if self.sampling == "bootstrap" else {}

    def empty_state(self, n_streams: int) -> State:
        return self.buffer.initial_state(n_streams)

    def update(self, state: State, x: Tensor, y: Tensor) -> State:
        rows = {"points": self.encoders.points(x, y), "raw": torch.cat([x, y], -1)}
        return self.buffer.written(state, {name: rows[name] for name in self.buffer.rows})

    def at_once(self, x: Tensor, y: Tensor, mask: Tensor) -> Context:
        """Return the rows kept of points x (B, N, X), y (B, N, Y), and their weights, for training.

        Rows are (B, N, *row); the weight (B, N) of a point is 1 where the mask (B, N) is True, else
        0.
        """
        return self.encoders.context(self.encoders.points(masked(x, mask), masked(y, mask)), mask)

    def forward(
        self,
        x_context: Tensor,
        y_context: Tensor,
        x_target: Tensor,
        mask: Tensor | None = None,
        seeds: Tensor | None = None,
    ) -> Prediction:
        context = self.at_once(x_context, y_context, every_row(x_context, mask))
        return self.query(self.cache(context, self.seeded(x_context, seeds)), x_target)

    @property
    def summary(self) -> str:
        c = self.config
        samples = "" if self.sampling == "none" else f", {c.n_samples} samples"
        return f"{self.name.upper()}, {c.width} wide, at most {c.capacity} points{samples}"
