"""Count what came of the rows of one sensor: scores, alarms, incidents, and the last rows."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS
from edgefold.runtime.sensors.alarms.incidents import N_TIMES, Incident, Incidents
from edgefold.runtime.sensors.scored_rows import ScoredRows

LOW, MIDDLE, HIGH = (1 + SENSOR_LEVELS.index(level) for level in (0.05, 0.5, 0.95))
"""The places of quantiles in `ScoredRows.forecasts`."""


@dataclass(slots=True)
class SensorSummary:
    """Says what came of the rows of one sensor.

    Attributes:
        place: The place of its name among the keys.
        column: The name of the column of its values.
        n_rows: The number of its rows.
        n_refused: The number of rows that were refused, such as those of a time that came before.
        n_timeless: The number of rows without a time, which are not forecast.
        n_moved: The number of rows before which a later time was read.
        n_empty: The number of rows that were taken without a value.
        n_missing: The number of rows that are missing between others, by the pace.
        n_scored: The number of values that were forecast.
        n_within_90: How many of them were between q05 and q95.
        error: The sum of absolute errors of the medians.
        change: The sum of absolute errors of the forecast that nothing changes.
        log_density: The sum of the log densities of the values, in nats.
        alarms: The number of alarms by the name of their event.
        refusal: Why the first row was refused; "" for none.
        pace: The time between two rows, in seconds for dates; NaN if it is not known.
        season: The season's length in rows; 0 for none.
        season_name: "day", "week" or "year"; "" for another season.
        is_irregular: Whether rows come so unevenly that each counts as one.
        first, last: The times of the first and the last row in ticks, or numbers of rows; None
            without rows.
    """

    place: int
    column: str
    n_rows: int = 0
    n_refused: int = 0
    n_timeless: int = 0
    n_moved: int = 0
    n_empty: int = 0
    n_missing: int = 0
    n_scored: int = 0
    n_within_90: int = 0
    error: float = 0.0
    change: float = 0.0
    log_density: float = 0.0
    alarms: dict[str, int] = field(default_factory=dict)
    refusal: str = ""
    pace: float = math.nan
    season: int = 0
    season_name: str = ""
    is_irregular: bool = False
    first: float | None = None
    last: float | None = None

    @property
    def n_alarms(self) -> int:
        """Return the number of alarms."""
        return sum(self.alarms.values())

    @property
    def coverage_90(self) -> float:
        """Return the share of values between q05 and q95; NaN without forecasts."""
        return self._mean(self.n_within_90)

    @property
    def mae(self) -> float:
        """Return the mean absolute error of the medians; NaN without forecasts."""
        return self._mean(self.error)

    @property
    def persistence(self) -> float:
        """Return the mean absolute error of the newest value; NaN without forecasts."""
        return self._mean(self.change)

    @property
    def mean_log_density(self) -> float:
        """Return the mean log density of the values, in nats; NaN without forecasts."""
        return self._mean(self.log_density)

    @property
    def rank(self) -> tuple[float, float, int, str]:
        """Return what sorts sensors, the worst first: most alarms per row, worst log score."""
        score = self.mean_log_density
        alarms = self.n_alarms / max(self.n_rows, 1)
        return -alarms, math.inf if math.isnan(score) else score, self.place, self.column

    def _mean(self, total: float) -> float:
        return total / self.n_scored if self.n_scored else math.nan

    def to_json(self) -> dict[str, Any]:
        """Return all attributes by name."""
        return asdict(self)


class SummaryCounter:
    """Counts the rows of one sensor, block by block.

    Attributes:
        summary: What was counted.
        n_below: The number of values below the quantile of each level, (Q,); an equal one is half.
    """

    def __init__(self, place: int, column: str):
        self.summary = SensorSummary(place, column)
        self.n_below = np.zeros(len(SENSOR_LEVELS))
        self._newest = math.nan
        self._alarms = Counter[str]()

    def add(self, rows: ScoredRows) -> None:
        """Count the next rows."""
        own = self.summary
        taken = rows.taken
        own.n_rows += len(rows)
        own.n_refused += len(rows.refused)
        if rows.refused and not own.refusal:
            own.refusal = str(next(iter(rows.refused.values())))
        values, is_scored = rows.values, rows.is_scored
        own.n_empty += int((np.isnan(values) & taken).sum())
        own.n_missing += int(np.nansum(rows.column("n_missing")[taken & ~np.isnan(values)]))
        seen = values[is_scored].astype(np.float32).astype(float)  # as the model has seen them
        quantiles = rows.forecasts[is_scored]
        own.n_scored += len(seen)
        own.n_within_90 += int(((quantiles[:, LOW] <= seen) & (seen <= quantiles[:, HIGH])).sum())
        own.error += float(np.abs(seen - quantiles[:, MIDDLE]).sum())
        before = self._before(np.where(taken, values, np.nan))[is_scored]
        own.change += float(np.nansum(np.abs(seen - before)))
        own.log_density += float(rows.column("log_density")[is_scored].sum())
        levels = quantiles[:, 1:]
        self.n_below += (seen[:, None] < levels).sum(axis=0)
        self.n_below += 0.5 * (seen[:, None] == levels).sum(axis=0)
        self._alarms.update(rows.events[rows.is_alarm].tolist())
        own.alarms = dict(sorted(self._alarms.items()))

    def _before(self, values: FloatArray) -> FloatArray:
        """Return the newest value before each row, (n,)."""
        known = np.concatenate([[self._newest], values])
        places = np.where(np.isnan(known), 0, np.arange(len(known)))
        newest: FloatArray = known[np.maximum.accumulate(places)]
        self._newest = newest[-1].item()
        return newest[:-1]


class IncidentWalk:
    """Joins the alarms of one sensor to incidents; begin, alarmed and end are numbers of rows.

    Rows far from any alarm are skipped: an incident needs only the `N_TIMES` rows before it.

    Args:
        series: The name of the sensor.
    """

    def __init__(self, series: str):
        self._series, self._incidents = series, Incidents()
        self._found: list[Incident] = []
        self._left = _EventRows([], *(np.empty(0) for _ in range(6)))  # rows not yet taken
        self._n = 0

    def add(self, rows: ScoredRows) -> None:
        """Take the next rows."""
        left = self._left.joined(_EventRows.of(rows, self._n))
        self._n += len(rows)
        alarms, at = deque(np.flatnonzero(left.alarm).tolist()), 0
        while at < len(left):
            if not self._incidents.is_open(self._series):
                if not alarms:
                    break
                at = max(at, alarms[0] - N_TIMES + 1)
            number, value = str(int(left.number[at])), left.value[at].item()
            text = "" if math.isnan(value) else repr(value)
            self._found += self._incidents.take(self._series, number, text, left.row(at))
            if alarms and alarms[0] == at:
                alarms.popleft()
            at += 1
        self._left = left.after(max(at, len(left) - N_TIMES + 1))

    def end(self) -> list[Incident]:
        """Return all incidents in the order of their alarms."""
        found = [*self._found, *self._incidents.rest()]
        return sorted(found, key=lambda each: int(each.alarmed))


@dataclass(frozen=True, slots=True)
class _EventRows:
    """Holds those rows of a sensor that have a value or an event, as incidents count them, (n,)."""

    words: list[str]
    number: Array
    value: FloatArray
    event: Array
    alarm: Array
    since: Array
    size: FloatArray

    @classmethod
    def of(cls, rows: ScoredRows, first: int) -> _EventRows:
        """Return those of the next rows, of which the first has a number."""
        at = np.flatnonzero(rows.taken & (~np.isnan(rows.values) | (rows.event_numbers > 0)))
        columns = (rows.column(name)[at] for name in ("n_since", "size"))
        return cls(
            rows.words,
            *(at + first, rows.values[at], rows.event_numbers[at], rows.is_alarm[at]),
            *columns,
        )

    def __len__(self) -> int:
        return len(self.number)

    @property
    def _columns(self) -> tuple[Array, ...]:
        return self.number, self.value, self.event, self.alarm, self.since, self.size

    def joined(self, other: _EventRows) -> _EventRows:
        """Return these rows, and those of another object after them."""
        pairs = zip(self._columns, other._columns, strict=True)
        return _EventRows(other.words, *map(np.concatenate, pairs))

    def after(self, at: int) -> _EventRows:
        """Return the rows from a place on."""
        return _EventRows(self.words, *(column[at:] for column in self._columns))

    def row(self, at: int) -> _EventRow:
        """Return the row at a place with what an incident takes of it."""
        event, since = self.words[int(self.event[at])], int(self.since[at])
        return _EventRow(
            self.value[at].item(), bool(self.alarm[at]), event, since, self.size[at].item()
        )


class _EventRow(NamedTuple):
    """Holds what `EventRow` says of a row."""

    value: float
    alarm: bool
    event: str
    since: int
    size: float


@dataclass(frozen=True, slots=True)
class SensorPicture:
    """Holds what a picture shows of one sensor.

    Attributes:
        summary: The sensor's counts.
        times: Times of its last rows as numbers, (n,); if its last alarm is older, of the rows
            around that alarm.
        values: Values of these rows, (n,); NaN where one is missing.
        forecasts: Mean and quantiles of these rows, (n, 1 + Q).
        events: The numbers of these rows' events in `WORDS`, (n,).
        alarms: Whether these rows are alarms, (n,).
        n_missing: The rows that are missing before each, (n,).
        pieces: The course of all rows: first time, lowest and highest value of each piece, (3, m).
        marked: Times and values of the last alarms, (2, a).
        path: Means and quantiles of the rows to come, (s, 1 + Q); NaN if they are not shown.
        shares: Shares of values below each level's quantile, (Q,); NaN without forecasts.
    """

    summary: SensorSummary
    times: FloatArray
    values: FloatArray
    forecasts: FloatArray
    events: Array
    alarms: Array
    n_missing: Array
    pieces: FloatArray
    marked: FloatArray
    path: FloatArray
    shares: FloatArray

    ARRAYS: ClassVar[tuple[str, ...]] = (
        *("times", "values", "forecasts", "events", "alarms", "n_missing"),
        *("pieces", "marked", "path", "shares"),
    )

    def arrays(self) -> Iterator[tuple[str, Array]]:
        """Return all arrays by name."""
        for name in self.ARRAYS:
            yield name, getattr(self, name)
