"""Stream a table through the general model of sensors, and write, count and keep what it says.

    rows ──> Sensors.step ──> a line of the output, counts, the last rows for the picture

Memory is that of the sensors, however long the table is.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

import numpy as np

from edgefold.cli.overview import Overview
from edgefold.runtime.errors import DataError, ValueRefusedError
from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS
from edgefold.runtime.rows.csv_columns import Row
from edgefold.runtime.rows.csv_fields import quoted
from edgefold.runtime.rows.csv_reader import BadRow
from edgefold.runtime.rows.sensor_columns import SensorsRow
from edgefold.runtime.sensors.forecasts import BAND, ROW_NAMES, Distribution, Forecast
from edgefold.runtime.sensors.score_counts import ScoreCounts
from edgefold.runtime.stream.named_states import MOST_SENSORS

if TYPE_CHECKING:
    from edgefold.runtime.rows.detect.columns import Table
    from edgefold.runtime.sensors.sensors import Sensors

AHEAD_NAMES = ("made_at", "slots_ahead", "time", *BAND)
DIGITS = re.compile(r"[\d.,:+-]+")
MOST_DRAWN = 600
"""Rows of a sensor that are kept for its picture."""
MOST_ALARMS = 8
"""Alarms and reasons that are printed one by one."""
MOST_MARKED = 200
"""Alarms in the picture."""
MOST_PANELS = 8
"""Sensors in the picture; a longer one cannot be looked at."""


@dataclass(slots=True)
class Track:
    """The counts and the last rows of one sensor.

    Attributes:
        overview: The course of all rows, for the picture; None where it is not in it.
        tally: Errors, coverage, alarms and gaps.
        n_rows: Rows that were taken.
        n_empty: Rows of them without a value.
        n_below: Values below the quantile of each level, (Q,); one that is equal counts half.
        alarmed: Alarms by their event.
        events: Events that began without an alarm of their own.
        alarms: The last alarms: time as written, value, event.
        notes: The last notes on clock and season, with the time of the row.
        reasons: Why rows were refused, alike but for numbers: the first line, its reason, how many.
        drawn: The last rows, or the last one where it is not in the picture.
        marked: The last alarms, for the picture: time and value.
        last: The time of the last row as written.
    """

    name: str
    overview: Overview | None = None
    tally: ScoreCounts = field(default_factory=ScoreCounts)
    n_rows: int = 0
    n_empty: int = 0
    n_refused: int = 0
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
        """Count a row that was refused, with the first of each reason."""
        self.n_refused += 1
        kind = DIGITS.sub("", reason)
        if kind in self.reasons or len(self.reasons) < MOST_ALARMS:
            first, text, n = self.reasons.get(kind, (line, reason, 0))
            self.reasons[kind] = (first, text, n + 1)

    def take(self, text: str, forecast: Forecast, notes: tuple[str, ...]) -> None:
        """Count a row that was taken."""
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
            self.alarms.append((text, forecast.value, forecast.event))
            self.marked.append((forecast.time, forecast.value))
            self.alarmed[forecast.event] += 1
        elif forecast.event and forecast.event != self.event:
            self.events[forecast.event] += 1
        self.event = forecast.event
        gaps_are_counted = forecast.n_missing > 0
        self.notes.extend((text, n) for n in notes if not (gaps_are_counted and "missing" in n))
        self.drawn.append(forecast)


class ForecastRun:
    """Takes each row of a table, once.

    Args:
        table: Opened.
        sensors: Opened, without any row.
        output: Where rows are written.
        ahead: Where the forecasts ahead of each row are written, if anywhere.

    Attributes:
        tracks: By the name of the sensor.
        bad: Lines that could not be read, as the refused rows of no sensor.
        is_named: Whether the output names the sensor of each row.
    """

    def __init__(self, table: Table, sensors: Sensors, output: TextIO, ahead: TextIO | None = None):
        self._table, self._sensors, self._output, self._ahead = table, sensors, output, ahead
        choice = table.choice
        self.is_named = choice.is_named
        self._own = {} if self.is_named else {choice.values[0]: ""}
        self.tracks: dict[str, Track] = {}
        self.bad = Track("")
        self.n_lines = 0
        head = ["series"] * self.is_named
        write_fields(output, *head, *ROW_NAMES)
        if ahead is not None:
            write_fields(ahead, *head, *AHEAD_NAMES)

    def run(self, on_line: Callable[[], None]) -> None:
        """Read the table to its end; `on_line` is called after each line."""
        for row in self._table.rows():
            self.n_lines += 1
            if isinstance(row, SensorsRow):
                for name, part in row.parts:
                    self._take(name, part)
            else:
                self.bad.refuse(row.line, row.reason)
            on_line()

    def _take(self, name: str, row: Row | BadRow) -> None:
        track = self.tracks.get(name)
        if track is None:
            if len(self.tracks) == MOST_SENSORS:
                self.bad.refuse(row.line, f"there are {MOST_SENSORS:,} series already")
                return
            is_drawn = len(self.tracks) < MOST_PANELS
            track = self.tracks[name] = Track(name, Overview() if is_drawn else None)
            track.drawn = deque(maxlen=MOST_DRAWN if is_drawn else 1)
        if not isinstance(row, Row):
            track.refuse(row.line, row.reason)
            return
        choice, sensor = self._table.choice, self._own.get(name, name)
        time, value = row.numbers
        try:
            forecast = self._sensors.step(time, value, sensor, choice.is_dated)
        except (DataError, ValueRefusedError) as error:
            track.refuse(row.line, str(error))
            return
        track.take(row.texts[0], forecast, tuple(self._sensors.feed(sensor).notes))
        head = [name] * self.is_named
        write_fields(self._output, *head, *row.texts, *_fields(forecast))
        if self._ahead is not None:
            self._write_ahead(self._ahead, head, row.texts[0], forecast)

    def _write_ahead(self, file: TextIO, head: list[str], text: str, forecast: Forecast) -> None:
        """Write the forecasts after a row of 1, 4, 16 slots and a season ahead."""
        sensor = self._own.get(head[0], head[0]) if head else ""
        pace = self._sensors.feed(sensor).pace
        for slots, slot in self.ahead_of(forecast):
            at = self._table.choice.written(forecast.time + slots * pace, text)
            write_fields(file, *head, text, str(slots), at, *_band(slot))

    def ahead_of(self, forecast: Forecast) -> list[tuple[int, Distribution]]:
        """Return the forecasts after a row, by how many slots they are ahead."""
        steps = [(h, forecast.ahead(h)) for h in self._sensors.horizons]
        if forecast.season:
            steps.append((forecast.season, forecast.ahead("season")))
        return sorted(((n, slot) for n, slot in steps if slot.is_known), key=lambda pair: pair[0])

    def coming(self, track: Track) -> list[tuple[int, Distribution]]:
        """Return the forecasts after a sensor's last row, as `ahead_of` does."""
        return self.ahead_of(track.drawn[-1]) if track.drawn else []

    def sensor_of(self, track: Track) -> str:
        """Return the name under which the model knows a sensor."""
        return self._own.get(track.name, track.name)


def write_fields(file: TextIO, *texts: str) -> None:
    """Write a line of CSV."""
    file.write(",".join(quoted(texts)) + "\n")


def _band(forecast: Distribution) -> list[str]:
    """Return a distribution as fields; empty ones where nothing is forecast."""
    if not forecast.is_known:
        return [""] * len(BAND)
    return [f"{getattr(forecast, name):.9g}" for name in BAND]


def _fields(forecast: Forecast) -> list[str]:
    """Return a forecast as fields."""
    scores = [f"{forecast.log_density:.9g}", f"{forecast.p_value:.9g}"]
    if not forecast.is_known or forecast.value != forecast.value:
        scores = ["", ""]
    return [*_band(forecast), *scores, f"{forecast.alarm:d}", forecast.event]
