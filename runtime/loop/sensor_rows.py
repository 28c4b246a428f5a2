"""Rows (time, value) of any sensor for the general model, which needs no training for it.

The columns of an input are found by its first lines, or kept in the snapshot of an earlier run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import DataError, SnapshotError
from edgefold.runtime.loop.arrival import RowAdapter
from edgefold.runtime.loop.record import DAMAGE, RECORD
from edgefold.runtime.loop.row_source import RowSource
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.predictions.sensor_forecast import band_names
from edgefold.runtime.rows.csv_columns import Row, SeriesColumns
from edgefold.runtime.sensors.alarms.alarms import RATE
from edgefold.runtime.sensors.engine import ScoredRow, SensorEngine
from edgefold.runtime.stream.named_states import NamedStates

if TYPE_CHECKING:
    from edgefold.runtime.rows.detect.columns import Table, TableColumns


class SensorRows(RowAdapter):
    """Sends the rows of a sensor through the engine of the general model.

    Args:
        columns: The columns of a table that were found; or those of times and values, whose times
            are dates or numbers as the first row's is.
        kind: The bundle's prediction.
        rate: The rate of false alarms.

    Attributes:
        engine: The sensor's clock, alarms and counts.
    """

    has_line = False
    stream = "series"

    def __init__(
        self, columns: SeriesColumns | TableColumns, kind: SensorForecast, rate: float = RATE
    ):
        super().__init__(columns, 1)
        self.header = ("time", "value")
        self._times, self._kind = columns, kind
        self.watch_at(rate)

    def watch_at(self, rate: float) -> None:
        """Begin to watch at a rate of false alarms."""
        self.engine = SensorEngine(self._kind, rate)

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
        return self.engine.feed.notes

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"false_alarms": self.engine.rate}

    def score(self, states: NamedStates, name: str, row: Row, n_values: int) -> ScoredRow:
        """Score, learn and judge a row of the sensor of a name; see `SensorEngine.step`."""
        time, value = row.numbers
        return self.engine.step(states, name, time, value, self._times.clock == "date", n_values)

    def arrays(self) -> dict[str, Array]:
        return self.engine.arrays()

    def load(self, arrays: Mapping[str, Array]) -> None:
        self.engine.load(arrays)


class SensorColumns:
    """The output's columns of the general model; see `edgefold.runtime.loop.output_columns`.

    Args:
        kind: The bundle's prediction.

    Attributes:
        names: The columns' names.
    """

    has_errors = has_band = False
    n_errors = 0

    def __init__(self, kind: SensorForecast):
        self.names = [*band_names(kind.levels), "log_density", "p_value", "alarm", "event"]
        self._no_forecast = "," * (len(self.names) - 2)

    def text(self, scored: ScoredRow) -> str:
        """Write the fields of a row: its forecast, or empty fields, and the alarm."""
        text = self._no_forecast
        if scored.is_known:
            texts = [f"{number:.9g}" for number in (scored.mean, *scored.quantiles)]
            scores = scored.log_density, scored.p_value
            texts += [f"{number:.9g}" for number in scores] if scored.is_scored else ["", ""]
            text = ",".join(texts) + ","
        return f"{text}{scored.alarm:d},{scored.event}"


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
