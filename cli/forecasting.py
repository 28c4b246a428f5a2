"""Stream a table through the general model of sensors; write, count and keep its forecasts.

    rows ──> Sensors.step ──> a line of the output, counts, the last rows for the picture
                         └──> incidents, each with a line of its own

With covariates, the rows go through `edgefold.cli.covariate_rows`.

The memory in use depends on the number of sensors, not on the length of the table.
"""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

import numpy as np

from edgefold.cli.covariate_rows import CovariateRows, RowsAfter
from edgefold.cli.overview import Overview
from edgefold.cli.text.sensors import event_text
from edgefold.runtime.errors import DataError, MemoryLimitError, ValueRefusedError
from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS
from edgefold.runtime.rows.csv_columns import Row
from edgefold.runtime.rows.csv_fields import write_fields
from edgefold.runtime.rows.csv_reader import BadRow
from edgefold.runtime.rows.sensor_columns import SensorsRow
from edgefold.runtime.sensors.alarms.incidents import NAMES, TIMES_BYTES, Incident, Incidents
from edgefold.runtime.sensors.forecasts import (
    BAND,
    ROW_NAMES,
    Distribution,
    Forecast,
    Path,
    distribution,
)
from edgefold.runtime.sensors.score_counts import ScoreCounts
from edgefold.runtime.stream.named_states import MOST_SENSORS

if TYPE_CHECKING:
    from edgefold.runtime.arrays import FloatArray
    from edgefold.runtime.rows.detect.columns import Table
    from edgefold.runtime.sensors.sensors import Sensors

AHEAD_NAMES = ("made_at", "slots_ahead", "time", *BAND)
DIGITS = re.compile(r"[\d.,:+-]+")
MOST_DRAWN = 2000
"""Number of the last rows of a sensor that are kept for its picture: more than a day of minutes."""
SENSOR_BYTES = 220_000
"""Memory of one more sensor: its state, clock and counts. Measured with 10,000 columns."""
WARM_BYTES = 900_000
"""Further memory of a sensor while siblings help it, in its first 300 rows. Measured with 8."""
MANY = 1000
"""From this number of sensors on, their memory is reported before they come."""
MOST_ALARMS = 8
"""Number of alarms, and of reasons of refused rows, that are printed one by one."""
MOST_MARKED = 200
"""Number of the last alarms of a sensor that are drawn in its picture."""
MOST_PANELS = 8
"""Number of sensors that the picture shows; a longer one cannot be looked at."""


@dataclass(slots=True)
class Track:
    """Counts the rows, forecasts and alarms of one sensor, and keeps its last rows.

    A row's event is what happens to the sensor, as `AlarmVerdict` lists it.

    Attributes:
        overview: Course of all rows, for the picture; None for a sensor that is not drawn.
        tally: Errors, coverage, alarms and gaps.
        n_rows: Number of rows that the model took.
        n_empty: Number of taken rows without a value.
        n_refused: Number of rows that were refused.
        coming: The rows after the last value, which are forecast by their covariates.
        n_below: Number of values below the quantile of each level, (Q,); an equal one counts half.
        alarmed: Number of alarms by the name of their event.
        events: Number of events by name whose first row was not an alarm.
        alarms: The last alarms: time as written, value, event with the rows since it began.
        notes: The last messages on clock and season, each after the time of its row.
        reasons: Refused rows by reason without digits: the first line, its reason, and how many.
        drawn: Forecasts of the last rows; of a sensor that is not drawn, only of the last row.
        marked: The last alarms, for the picture: time and value.
        last: Time of the last row as written.
        last_time: Time of the last row as a number; seconds since 1970 for dates.
        event: Event of the last row, or "".
    """

    name: str
    overview: Overview | None = None
    tally: ScoreCounts = field(default_factory=ScoreCounts)
    n_rows: int = 0
    n_empty: int = 0
    n_refused: int = 0
    coming: RowsAfter = field(default_factory=RowsAfter)
    n_below: np.ndarray = field(default_factory=lambda: np.zeros(len(SENSOR_LEVELS)))
    alarmed: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    alarms: deque[tuple[str, float, str]] = field(default_factory=lambda: deque(maxlen=MOST_ALARMS))
    notes: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=MOST_ALARMS))
    reasons: dict[str, tuple[int, str, int]] = field(default_factory=dict)
    drawn: deque[Forecast] = field(default_factory=lambda: deque(maxlen=MOST_DRAWN))
    marked: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MOST_MARKED))
    last: str = ""
    last_time: float = 0.0
    event: str = ""

    def refuse(self, line: int, reason: str) -> None:
        """Count a refused row of the table's line `line`, and keep the first row of each reason."""
        self.n_refused += 1
        kind = DIGITS.sub("", reason)
        if kind in self.reasons or len(self.reasons) < MOST_ALARMS:
            first, text, n = self.reasons.get(kind, (line, reason, 0))
            self.reasons[kind] = (first, text, n + 1)

    def take(self, text: str, forecast: Forecast, notes: tuple[str, ...]) -> None:
        """Count a row that the model took: its time as written, its forecast, its messages."""
        self.n_rows += 1
        self.last, self.last_time = text, forecast.time
        if self.overview is not None:
            self.overview.add(forecast.time, forecast.value)
        is_value = forecast.value == forecast.value
        self.n_empty += not is_value
        if forecast.is_known and is_value:
            value = float(np.float32(forecast.value))  # as the model has seen it
            self.tally.forecast(value, forecast.q05, forecast.q50, forecast.q95)
            quantiles = np.array(list(forecast.quantiles.values()))
            self.n_below += (value < quantiles) + 0.5 * (value == quantiles)
        if is_value:
            self.tally.row(forecast.value, forecast.n_missing, forecast.alarm)
        if forecast.alarm:
            self.alarms.append((text, forecast.value, event_text(forecast.event, forecast.since)))
            self.marked.append((forecast.time, forecast.value))
            self.alarmed[forecast.event] += 1
        elif forecast.event and forecast.event != self.event:
            self.events[forecast.event] += 1
        self.event = forecast.event
        gaps_are_counted = forecast.n_missing > 0
        self.notes.extend((text, n) for n in notes if not (gaps_are_counted and "missing" in n))
        self.drawn.append(forecast)


class ForecastRun:
    """Reads each row of a table once, forecasts it and writes the forecast.

    Args:
        table: The opened table.
        sensors: The opened model, which has seen no row yet.
        output: CSV file for each row and its forecast.
        ahead: CSV file for the forecasts after each row; None writes none.
        memory_limit: Bytes that all sensors may take; None for the memory that is free.
        alarms: CSV file for the incidents; None writes none.
        beside: Columns of the table that are covariates of all others.

    Raises:
        MemoryLimitError: The sensors that are known already would take more.

    Attributes:
        table: The opened table.
        values: The columns of the sensors' values, without those of covariates.
        tracks: Counts of each sensor, by the name of the sensor.
        bad: Counts of the lines that could not be read, which belong to no sensor.
        is_named: Whether the output names the sensor of each row.
        n_lines: Number of lines that were read.
        incidents: The alarms joined to incidents; None if nobody asked for them.
        covariates: The covariates of each line and sensor; None without any.
    """

    def __init__(
        self,
        table: Table,
        sensors: Sensors,
        output: TextIO,
        ahead: TextIO | None = None,
        memory_limit: int | None = None,
        alarms: TextIO | None = None,
        beside: Sequence[str] = (),
    ):
        self.table, self._sensors, self._output, self._ahead = table, sensors, output, ahead
        choice = table.choice
        self.covariates = CovariateRows(beside, sensors) if beside else None
        self.values = [name for name in choice.values if name not in beside]
        self.is_named = len(self.values) > 1 or bool(choice.series)
        self._own = {} if self.is_named else {self.values[0]: ""}
        self.tracks: dict[str, Track] = {}
        self.bad = Track("")
        self.n_lines = 0
        self._alarms = alarms
        self.incidents = None if alarms is None else Incidents()
        own = SENSOR_BYTES + WARM_BYTES * bool(sensors.siblings)
        self._bytes = (1 + bool(beside)) * own + (0 if alarms is None else TIMES_BYTES)
        self._limit = memory_limit or free_memory()
        self._most = int(min(self._limit // self._bytes, MOST_SENSORS))
        self._require_memory(max(len(choice.values), table.n_named))
        head = ["series"] * self.is_named
        write_fields(output, *head, *ROW_NAMES)
        if ahead is not None:
            write_fields(ahead, *head, *AHEAD_NAMES)
        if alarms is not None:
            write_fields(alarms, *head, *NAMES)

    def _require_memory(self, n: int) -> None:
        """Raise MemoryLimitError if n sensors take more than the limit and more are allowed."""
        if self._most < n <= MOST_SENSORS:
            raise MemoryLimitError(
                f"{n:,} series need some {n * self._bytes / 1e9:.2g} GB of memory, and "
                f"{self._limit / 1e9:.2g} GB are free or allowed. Name fewer columns with "
                "--columns, or allow more with --memory-limit; --series names the column of names."
            )

    def run(self, on_line: Callable[[], None]) -> None:
        """Read the table to its end; `on_line` is called after each line."""
        for row in self.table.rows():
            self.n_lines += 1
            if not isinstance(row, SensorsRow):
                self.bad.refuse(row.line, row.reason)
            elif self.covariates is None:
                for name, part in row.parts:
                    self._take(name, part)
            else:
                self._take_with(row, self.covariates)
            on_line()
        for track in self.tracks.values():
            self._write_coming(track)
        if self.incidents is not None:
            self._write_incidents(self.incidents.rest())

    def _take_with(self, line: SensorsRow, covariates: CovariateRows) -> None:
        """Take the rows of a line with its covariates."""
        numbers = covariates.of(line)
        for name, part in line.parts:
            if name in covariates.names:
                continue
            if not isinstance(part, Row):
                self._take(name, part)
                continue
            for ready in covariates.ready(name, part, numbers):
                self._take(name, ready.row, ready.covariates)

    def _take(self, name: str, row: Row | BadRow, covariates: FloatArray | None = None) -> None:
        track = self.tracks.get(name)
        if track is None:
            if len(self.tracks) == MOST_SENSORS:
                self.bad.refuse(row.line, f"there are {MOST_SENSORS:,} series already")
                return
            self._require_memory(len(self.tracks) + 1)
            is_drawn = len(self.tracks) < MOST_PANELS
            track = self.tracks[name] = Track(name, Overview() if is_drawn else None)
            track.drawn = deque(maxlen=MOST_DRAWN if is_drawn else 1)
        if not isinstance(row, Row):
            track.refuse(row.line, row.reason)
            return
        choice, sensor = self.table.choice, self._own.get(name, name)
        time, value = row.numbers
        try:
            if self.covariates is None or covariates is None:
                forecast = self._sensors.step(time, value, sensor, choice.is_dated)
            else:
                beside = self.covariates.sensor(sensor)
                forecast = beside.step(time, value, covariates, choice.is_dated)
        except (DataError, ValueRefusedError) as error:
            track.refuse(row.line, str(error))
            return
        track.take(row.texts[0], forecast, tuple(self._sensors.feed(sensor).notes))
        head = [name] * self.is_named
        write_fields(self._output, *head, *row.texts, *_fields(forecast))
        if self._ahead is not None:
            self._write_ahead(self._ahead, head, row.texts[0], forecast)
        if self.incidents is not None:
            at, written = row.texts
            self._write_incidents(self.incidents.take(name, at, written, forecast))

    def _write_incidents(self, incidents: list[Incident]) -> None:
        """Write a line for each incident."""
        assert self._alarms is not None
        for incident in incidents:
            write_fields(self._alarms, *[incident.series] * self.is_named, *incident.fields)

    def _write_ahead(self, file: TextIO, head: list[str], text: str, forecast: Forecast) -> None:
        """Write the forecasts made after a row: a line for each horizon, one for a season ahead.

        Args:
            file: CSV file for the lines.
            head: First field of each line, the sensor's name; empty if it is not written.
            text: Time of the row as the table has it.
            forecast: Forecast of the row, with those of the times after it.
        """
        sensor = self._own.get(head[0], head[0]) if head else ""
        pace = self._sensors.feed(sensor).pace
        for slots, slot in self.ahead_of(forecast):
            at = self.table.choice.written(forecast.time + slots * pace, text)
            write_fields(file, *head, text, str(slots), at, *_band(slot))

    def ahead_of(self, forecast: Forecast) -> list[tuple[int, Distribution]]:
        """Return pairs (rows ahead, forecast) for the times after a row, the nearest first."""
        steps = [(h, forecast.ahead(h)) for h in self._sensors.horizons]
        if forecast.season and forecast.season not in self._sensors.horizons:
            steps.append((forecast.season, forecast.ahead("season")))
        return sorted(((n, slot) for n, slot in steps if slot.is_known), key=lambda pair: pair[0])

    def coming(self, track: Track) -> list[tuple[int, Distribution]]:
        """Return the forecasts for the times after a sensor's last row, as `ahead_of` does."""
        if not track.drawn:
            return []
        ahead = self.ahead_of(track.drawn[-1])
        if not ahead or not track.coming.rows:
            return ahead
        path = self.path(track, ahead[-1][0])
        return [(n, distribution(path.mean[n - 1], path.quantiles[n - 1])) for n, _ in ahead]

    def path(self, track: Track, horizon: int) -> Path:
        """Forecast the next slots of a sensor, with what is known of their covariates."""
        sensor = self.sensor_of(track)
        if self.covariates is None:
            return self._sensors.path(horizon, sensor)
        return self.covariates.sensor(sensor).path(horizon, track.coming.covariates)

    def _write_coming(self, track: Track) -> None:
        """Write the forecasts of the rows after a sensor's last value."""
        if self.covariates is None or not track.n_rows:
            return
        sensor = self.sensor_of(track)
        track.coming = self.covariates.coming(track.name, sensor, track.last_time)
        rows = track.coming.rows
        if not rows:
            return
        path = self.path(track, rows[-1][0])
        for slot, row in rows:
            found = distribution(path.mean[slot - 1], path.quantiles[slot - 1])
            head = [track.name] * self.is_named
            write_fields(self._output, *head, *row.texts, *_band(found), "", "", "0", "")

    def sensor_of(self, track: Track) -> str:
        """Return the name under which the model knows a sensor."""
        return self._own.get(track.name, track.name)


def free_memory() -> int:
    """Return how many bytes of memory programs can still take, as Linux states it."""
    try:
        with open("/proc/meminfo") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _band(forecast: Distribution) -> list[str]:
    """Return a forecast's numbers as CSV fields named in `BAND`; empty ones without a forecast."""
    if not forecast.is_known:
        return [""] * len(BAND)
    return [f"{getattr(forecast, name):.9g}" for name in BAND]


def _fields(forecast: Forecast) -> list[str]:
    """Return the forecast of a row as CSV fields: those of `ROW_NAMES` after time and value."""
    scores = [f"{forecast.log_density:.9g}", f"{forecast.p_value:.9g}"]
    if not forecast.is_known or forecast.value != forecast.value:
        scores = ["", ""]
    return [*_band(forecast), *scores, f"{forecast.alarm:d}", forecast.event]
