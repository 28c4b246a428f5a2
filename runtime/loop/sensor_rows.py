"""Read rows (time, value) of any sensor for the general model, and write its forecasts as columns.

The general model needs no training for a sensor. The columns of an input are found from its first
lines, or kept in the snapshot of an earlier run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import DataError, SnapshotError
from edgefold.runtime.loop.arrival import RowAdapter
from edgefold.runtime.loop.record import DAMAGE, RECORD
from edgefold.runtime.loop.watcher import RowView
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.predictions.sensor_forecast import band_names, place_of_level
from edgefold.runtime.rows.csv_columns import Row, SeriesColumns
from edgefold.runtime.sensors.alarms.alarms import RATE
from edgefold.runtime.sensors.engine import ScoredRow, SensorEngine
from edgefold.runtime.sensors.warm.fleet import Fleet
from edgefold.runtime.sources.row_source import RowSource
from edgefold.runtime.stream.named_states import NamedStates
from edgefold.runtime.trial.successor import refuse_old_bundle

if TYPE_CHECKING:
    from edgefold.runtime.rows.detect.columns import Table, TableColumns


class SensorRows(RowAdapter):
    """Gives the rows of one sensor to the `SensorEngine`, which runs the general model.

    Args:
        columns: The columns of times and values. `TableColumns` state whether times are dates or
            numbers; with `SeriesColumns` the first row shows it.
        kind: The bundle's kind of prediction.
        rate: The rate of false alarms, as a share of the rows.

    Attributes:
        engine: The engine, which holds the sensor's clock, alarms and counts.
        fleet: The siblings by which the sensor starts warm; None without any.
    """

    has_line = False
    stream = "series"

    def __init__(
        self, columns: SeriesColumns | TableColumns, kind: SensorForecast, rate: float = RATE
    ):
        super().__init__(columns, 1)
        self.header = ("time", "value")
        self._times, self._kind = columns, kind
        self.fleet: Fleet | None = None
        self.watch_at(rate)

    def watch_at(self, rate: float) -> None:
        """Start with a new, empty engine, whose rate of false alarms is this share of the rows."""
        self.engine = SensorEngine(self._kind, rate)

    def start_warm(self, fleet: Fleet) -> None:
        """Start with a new, empty engine, whose first rows are forecast by siblings, too."""
        self.fleet = fleet
        self.engine = SensorEngine(self._kind, self.engine.rate, fleet=fleet)

    def share_columns(self, other: SensorRows) -> None:
        """Use the columns of another sensor of the same input, so that both read times alike."""
        self.columns = self._times = other._times

    def require_dates(self) -> None:
        """Refuse all times but dates from now on; do nothing if the columns are `TableColumns`.

        Such columns state already whether their times are dates or numbers.
        """
        if isinstance(self._times, SeriesColumns):
            self._times.clock = "date"

    @property
    def is_dated(self) -> bool:
        """Return whether times are dates; also True before the first row, when it is not known."""
        return self._times.clock != "number"

    @property
    def newest_time(self) -> float:
        return self.engine.feed.newest_time

    @property
    def notes(self) -> Sequence[str]:  # type: ignore[override]
        return self.engine.feed.notes

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"false_alarms": self.engine.rate}

    def score(self, states: NamedStates, name: str, row: Row, n_values: int) -> ScoredRow:
        """Forecast a row, score the forecast, learn the row, and decide whether it is an alarm.

        Args:
            states: The states of all sensors.
            name: The sensor's name.
            row: The row (time, value).
            n_values: Number of the sensor's earlier rows that hold a value.
        """
        time, value = row.numbers
        return self.engine.step(states, name, time, value, self._times.clock == "date", n_values)

    def arrays(self) -> dict[str, Array]:
        return self.engine.arrays()

    def load(self, arrays: Mapping[str, Array]) -> None:
        self.engine.load(arrays)


class SensorColumns:
    """Writes the forecasts and alarms of the general model as columns of the output.

    For other models `edgefold.runtime.loop.output_columns` does this.

    Args:
        kind: The bundle's kind of prediction.

    Attributes:
        names: The names of the columns.
    """

    has_errors = has_band = False
    n_errors = 0

    def __init__(self, kind: SensorForecast):
        self.names = [*band_names(kind.levels), "log_density", "p_value", "alarm", "event"]
        self._no_forecast = "," * (len(self.names) - 2)
        self._low, self._lower, self._upper, self._high = (
            place_of_level(kind.levels, level) for level in (0.05, 0.25, 0.75, 0.95)
        )

    def text(self, scored: ScoredRow) -> str:
        """Return the fields of a row, with commas between them: forecast, scores, alarm, event.

        A forecast or a score that does not exist gives empty fields.
        """
        text = self._no_forecast
        if scored.is_known:
            texts = [f"{number:.9g}" for number in (scored.mean, *scored.quantiles)]
            scores = scored.log_density, scored.p_value
            texts += [f"{number:.9g}" for number in scores] if scored.is_scored else ["", ""]
            text = ",".join(texts) + ","
        return f"{text}{scored.alarm:d},{scored.event}"

    def view(self, scored: ScoredRow) -> RowView:
        """Return a row for those who watch the loop."""
        if not scored.is_known:
            return RowView(scored.value, *[math.nan] * 4)
        q = scored.quantiles
        nats = scored.log_density if scored.is_scored else math.nan
        band, quartiles = (q[self._low], q[self._high]), (q[self._lower], q[self._upper])
        return RowView(scored.value, scored.mean, *band, nats, *quartiles)


def find_columns(
    source: RowSource,
    time: str | None = None,
    values: Sequence[str] | None = None,
    series: str | None = None,
    given: Mapping[str, Any] | None = None,
) -> Table | None:
    """Find the columns of times and values of an input from its first lines.

    Args:
        source: The input; its lines stay unread for the loop.
        time: Name of the column of times; None finds it.
        values: Names of the columns of values; None takes all other columns of numbers.
        series: Name of the column that names each row's sensor; None finds one; "" if
            all rows are of one sensor.
        given: Settings of `RowFormat` that are known, by name; the others are found.

    Returns:
        The table, with the columns that were found and notes on what was assumed; None if the input
        holds no line yet, which the loop reports.

    Raises:
        DataError: No table is found, or a named column is missing.
    """
    from edgefold.runtime.rows.detect.columns import find_table

    def found(lines: Sequence[bytes]) -> Table:
        options = ("--value", "--stream")
        return find_table(lines, source.name, time, values, series, given, options)

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
    """Return the columns that an earlier run found in its input, and its number of sensors.

    Args:
        snapshot: The snapshot of the earlier run.
        manifest: The manifest of the bundle that the run used.
        given: Settings of `RowFormat` that the user gives now; they replace the kept ones.

    Returns:
        The columns, or None if the run was given its columns; and the number of named sensors.

    Raises:
        SnapshotError: The snapshot cannot be read, or is damaged.
    """
    from edgefold.runtime.rows.detect.columns import TableColumns
    from edgefold.runtime.stream.snapshot import read_snapshot

    try:
        extra = read_snapshot(snapshot, manifest, [tensor.name for tensor in manifest.state])[2]
    except SnapshotError:
        refuse_old_bundle(snapshot, manifest)
        raise
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
