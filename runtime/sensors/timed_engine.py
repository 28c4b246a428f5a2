"""Serve one sensor with the times that programs have, and with forecasts of later slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_arrays import require_same
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.sensors.engine import ScoredRow, SensorEngine, converted
from edgefold.runtime.sensors.slots_ahead import SlotsAhead
from edgefold.runtime.sensors.time_parsing import Kind, kind_of, seconds_of
from edgefold.runtime.sensors.warm.fleet import Fleet
from edgefold.runtime.stream.named_states import NamedStates

KINDS: tuple[Kind | None, ...] = (None, "dates", "numbers", "rows")


class TimedEngine(SensorEngine):
    """Serves one sensor, remembers the kind of its times, and keeps its forecasts of later slots.

    Args:
        prediction: The prediction kind of the bundle.
        rate: The share of sound rows that may be alarms.
        name: The sensor's name.
        known: The engines of all sensors by name; this one is added with its first row.
        fleet: The siblings by which the sensor starts warm; None lets it start cold.

    Attributes:
        kind: The kind of the sensor's times: "dates", "numbers", or "rows" if rows have no times;
            None before the first row.
        n_rows: The number of rows that were taken.
    """

    ahead: SlotsAhead

    def __init__(
        self,
        prediction: SensorForecast,
        rate: float,
        name: str,
        known: dict[str, TimedEngine],
        fleet: Fleet | None = None,
    ):
        super().__init__(prediction, rate, SlotsAhead(prediction), fleet)
        self._name, self._known = name, known
        self.kind: Kind | None = None
        self.n_rows = 0
        self._row: tuple[Kind | None, int] = (None, 0)

    def take(self, states: NamedStates, time: Any, value: float, dated: bool | None) -> ScoredRow:
        """Score and learn a row; `time` and `dated` are those of `Sensors.step`, as its errors."""
        kind = self.kind or kind_of(time, dated)
        seconds = seconds_of(time, kind, self.n_rows)
        self._row = kind, self.n_rows + 1
        n_values = self.ahead.counts.n_values
        return self.step(states, self._name, seconds, value, kind == "dates", n_values)

    def finish(self) -> None:
        """Make the changes of the row that the model has learned; a second call changes nothing."""
        super().finish()
        self.kind, self.n_rows = self._row
        self._known[self._name] = self

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that a snapshot must keep; their names and shapes never change."""
        own = np.array([KINDS.index(self.kind), self.n_rows], np.int64)
        return {**super().arrays(), **self.ahead.arrays(), "rows": own}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; raise SnapshotError if they are damaged.

        A snapshot of a bundle with other horizons does without its forecasts of later slots: they
        are unknown until some more values have come.
        """
        arrays, fresh = SlotsAhead.converted(converted(arrays)), self.ahead.arrays()
        if any(name not in arrays or arrays[name].shape != a.shape for name, a in fresh.items()):
            arrays = {**arrays, **fresh}
        require_same(arrays, self.arrays())
        kind, n_rows = arrays["rows"].tolist()
        if not (0 <= kind < len(KINDS) and n_rows >= 0):
            raise SnapshotError("the snapshot's rows of a sensor are damaged; start without it.")
        super().load(arrays)
        self.ahead.load(arrays)
        self.kind, self.n_rows = KINDS[kind], n_rows
