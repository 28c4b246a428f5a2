"""Rows (time, value) of any sensor for the general model, which needs no training for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.loop.row_adapter import RowAdapter
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.rows.csv_columns import Row, SeriesColumns
from edgefold.runtime.sensors.alarms.alarms import RATE, Verdict, Watch
from edgefold.runtime.sensors.clock.row_clock import SensorFeed, require_same
from edgefold.runtime.sensors.score_counts import Tally

WATCH = "watch_"
"""Before the names of the watch's arrays in a snapshot."""


class SensorRows(RowAdapter):
    """Turns rows (time, value) into slots of the general model, and watches its forecasts.

    Args:
        columns: Of times and values; a time is a date or a number as the first row's is.
        kind: The bundle's prediction.
        rate: Of false alarms.

    Attributes:
        feed: Clock and season.
        tally: How good the forecasts were.
    """

    has_line = False
    stream = "series"

    def __init__(self, columns: SeriesColumns, kind: SensorForecast, rate: float = RATE):
        super().__init__(columns, 1)
        self._times = columns
        self.feed, self.tally = SensorFeed(kind.longest_season), Tally()
        self.watch_at(rate)

    def watch_at(self, rate: float) -> None:
        """Begin to watch at a rate of false alarms."""
        self._rate, self._watch = rate, Watch(rate)

    def share_columns(self, other: SensorRows) -> None:
        """Read rows as another sensor of the same input does."""
        self.columns = self._times = other._times

    def require_dates(self) -> None:
        """Refuse times that are numbers."""
        self._times.clock = "date"

    @property
    def is_dated(self) -> bool:
        """Whether times are dates; so too before the first row has shown it."""
        return self._times.clock != "number"

    @property
    def notes(self) -> Sequence[str]:  # type: ignore[override]
        return self.feed.notes

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"false_alarms": self._rate}

    def inputs(self, row: Row) -> FloatArray:
        time, value = row.numbers
        return self.feed.rows(time, value, self._times.clock == "date")

    def commit(self, row: Row) -> None:
        self.feed.commit()

    def keep_missing(self, n: int) -> None:
        self.feed.keep_missing(n)

    def judge(
        self, value: float, p_value: float, quantiles: Sequence[float], log_density: float
    ) -> Verdict:
        """Judge the row that was kept last by its forecast; see `Watch.see`."""
        return self._watch.see(value, p_value, quantiles, log_density, self.feed.n_missing)

    def arrays(self) -> dict[str, Array]:
        watch = {f"{WATCH}{name}": array for name, array in self._watch.arrays().items()}
        return {**self.feed.arrays(), "tally": self.tally.to_array(), **watch}

    def load(self, arrays: Mapping[str, Array]) -> None:
        require_same(arrays, self.arrays())
        tally = Tally.from_array(arrays["tally"])
        watch = Watch(self._rate)
        watch.load({n.removeprefix(WATCH): a for n, a in arrays.items() if n.startswith(WATCH)})
        self.feed.load(arrays)
        self.tally, self._watch = tally, watch
