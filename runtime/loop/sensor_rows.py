"""Rows (time, value) of any sensor for the general model, which needs no training for it.

The columns of an input are found by its first lines, or kept in the snapshot of an earlier run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import DataError, SnapshotError
from edgefold.runtime.kept_arrays import as_part, part_of, require_same
from edgefold.runtime.loop.record import DAMAGE, RECORD
from edgefold.runtime.loop.row_adapter import RowAdapter
from edgefold.runtime.loop.row_source import RowSource
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.rows.csv_columns import Row, SeriesColumns
from edgefold.runtime.sensors.alarms.alarms import RATE, Verdict, Watch
from edgefold.runtime.sensors.clock.row_clock import SensorFeed
from edgefold.runtime.sensors.score_counts import Tally

if TYPE_CHECKING:
    from edgefold.runtime.rows.detect.columns import Table, TableColumns

WATCH = "watch_"
"""Before the names of the watch's arrays in a snapshot."""


class SensorRows(RowAdapter):
    """Turns rows (time, value) into slots of the general model, and watches its forecasts.

    Args:
        columns: The columns of a table that were found; or those of times and values, whose times
            are dates or numbers as the first row's is.
        kind: The bundle's prediction.
        rate: The rate of false alarms.

    Attributes:
        feed: Clock and season.
        tally: How good the forecasts were.
    """

    has_line = False
    stream = "series"

    def __init__(
        self, columns: SeriesColumns | TableColumns, kind: SensorForecast, rate: float = RATE
    ):
        super().__init__(columns, 1)
        self.header = ("time", "value")
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
        """Refuse times that are numbers, where it is not known yet what they are."""
        if isinstance(self._times, SeriesColumns):
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
        watch = as_part(self._watch.arrays(), WATCH)
        return {**self.feed.arrays(), "tally": self.tally.to_array(), **watch}

    def load(self, arrays: Mapping[str, Array]) -> None:
        require_same(arrays, self.arrays())
        tally = Tally.from_array(arrays["tally"])
        watch = Watch(self._rate)
        watch.load(part_of(arrays, WATCH))
        self.feed.load(arrays)
        self.tally, self._watch = tally, watch


def find_columns(
    source: RowSource,
    time: str | None = None,
    values: Sequence[str] | None = None,
    series: str | None = None,
    given: Mapping[str, Any] | None = None,
) -> Table | None:
    """Find the clock and the sensors of an input by the first lines that are there.

    Args:
        source: The input; none of its rows is taken.
        time: See `find_table`.
        values: See `find_table`.
        series: See `find_table`.
        given: See `find_table`.

    Returns:
        The table; None where no line is there, which is left to the loop.

    Raises:
        DataError: No table is found, or a named column is missing.
    """
    from edgefold.runtime.rows.detect.columns import find_table

    def found(lines: Sequence[bytes]) -> Table:
        return find_table(lines, source.name, time, values, series, given)

    def is_enough(lines: Sequence[bytes]) -> bool:
        try:
            return bool(found(lines))
        except DataError:
            return False

    lines = source.first_lines(is_enough)
    return found(lines) if lines else None


def kept_columns(
    snapshot: Path, manifest: Manifest, given: Mapping[str, Any]
) -> tuple[TableColumns | None, int]:
    """Return the columns that an earlier run has found, and how many sensors it has named.

    Args:
        snapshot: The snapshot of the run.
        manifest: The manifest of its bundle.
        given: Settings of `RowFormat` that are given now.

    Raises:
        SnapshotError: It cannot be read, or is damaged.
    """
    from edgefold.runtime.rows.detect.columns import TableColumns
    from edgefold.runtime.stream.snapshot import read_snapshot

    extra = read_snapshot(snapshot, manifest, [tensor.name for tensor in manifest.state])[2]
    try:
        form = json.loads(extra[RECORD].tobytes())
        n_named = len(form.get("names", ()))
        if "table" not in form:
            return None, n_named
        table = form["table"]
        return TableColumns.from_json({**table, "format": {**table["format"], **given}}), n_named
    except (*DAMAGE, DataError) as error:
        raise SnapshotError(
            f"snapshot {snapshot} was not made by `edgefold run` ({error}); choose another file."
        ) from None
