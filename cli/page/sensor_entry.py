"""Sum up the rows of one sensor, of this run, for the page."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from edgefold.cli.page.row_history import RowHistory
from edgefold.runtime.loop.watcher import WatchedRow

MOST_SPARKS = 40
"""Number of values in the small picture of a sensor in the list."""
OWN_ALARMS = 20
SHARE = 0.2
"""A new interval between two rows has this weight in the mean interval."""


class SensorEntry:
    """Holds what the page shows of one sensor; only the page's thread changes it.

    Args:
        number: The number by which the browser knows the sensor.
        name: The sensor's name.
        most_rows: Number of last rows that are kept.

    Attributes:
        changed: The number of the last event of this sensor.
        history: The last rows.
        alarms: The last alarms as JSON objects.
    """

    def __init__(self, number: int, name: str, most_rows: int):
        self.number, self.name = number, name
        self.changed = 0
        self.history = RowHistory(most_rows)
        self.alarms: deque[Mapping[str, Any]] = deque(maxlen=OWN_ALARMS)
        self._row: WatchedRow | None = None
        self._n_rows = self._n_alarms = self._n_since_alarm = 0
        self._n_refused = self._n_in_a_row = 0
        self._n_banded = self._n_below = self._n_above = 0
        self._n_logs, self._sum_log = 0, 0.0
        self._n_errors, self._sum_error, self._sum_change = 0, 0.0, 0.0
        self._newest = math.nan
        self._arrived_at = self._interval_s = math.nan  # by the clock of this machine
        self._step = math.nan  # between two rows by their own times

    def add(self, number: int, row: WatchedRow, at: float) -> None:
        """Count a row, which the page's thread got at this time (seconds since 1970)."""
        view, before, self._row, self.changed = row.view, self._row, row, number
        self.history.add(number, row)
        self._n_rows += 1
        self._n_in_a_row = 0
        self._n_since_alarm = 0 if row.alarm else self._n_since_alarm + 1
        self._n_alarms += row.alarm is not None
        value = view.value
        if value == value:
            if view.low == view.low:
                self._n_banded += 1
                self._n_below += value < view.low
                self._n_above += value > view.high
            if view.log_density == view.log_density:
                self._n_logs += 1
                self._sum_log += view.log_density
            if view.mean == view.mean and self._newest == self._newest:
                self._n_errors += 1
                self._sum_error += abs(value - view.mean)
                self._sum_change += abs(value - self._newest)
            self._newest = value
        self._interval_s = _mean(self._interval_s, at - self._arrived_at)
        if before is not None:
            self._step = _mean(self._step, row.time - before.time)
        self._arrived_at = at

    def refuse(self, number: int) -> None:
        """Count a row that was refused."""
        self.changed = number
        self._n_refused += 1
        self._n_in_a_row += 1

    def summary(self) -> dict[str, Any]:
        """Return what the list shows of the sensor as a JSON object."""
        row = self._row
        is_forecast = row is not None and row.view.mean == row.view.mean
        return {
            "id": self.number,
            "value": number_of(row.view.value) if row else None,
            "time": number_of(row.time) if row else None,
            "text": row.text[:100] if row else "",
            "arrived": number_of(round(self._arrived_at, 1)),
            "interval": number_of(round(self._interval_s, 3)),
            "step": number_of(self._step),
            "rows": self._n_rows,
            "alarms": self._n_alarms,
            "event": self.alarms[-1]["event"] if self.alarms else "",
            "since": self._n_since_alarm,
            "refused": self._n_in_a_row,
            "learning": not is_forecast,
        }

    def scores(self) -> dict[str, Any]:
        """Return how good the forecasts of this run were, as a JSON object."""
        n, n_errors = self._n_banded, self._n_errors
        return {
            "n": n,
            "below": self._n_below / n if n else None,
            "above": self._n_above / n if n else None,
            "log_score": number_of(self._sum_log / self._n_logs) if self._n_logs else None,
            "error": number_of(self._sum_error / n_errors) if n_errors else None,
            "change": number_of(self._sum_change / n_errors) if n_errors else None,
            "rows": self._n_rows,
            "refused": self._n_refused,
        }


def _mean(mean: float, step: float) -> float:
    """Return the mean of intervals with one more; NaN stands for none."""
    if mean != mean or step != step:
        return step if mean != mean else mean
    return mean + SHARE * (step - mean)


def number_of(number: float) -> float | None:
    """Return a number; None for NaN and infinite ones, which JSON does not have."""
    return number if math.isfinite(number) else None
