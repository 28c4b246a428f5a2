"""Sums that say how good the forecasts of one sensor were."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import SnapshotError


@dataclass(slots=True)
class ScoreCounts:
    """Counts and sums since a sensor's first row.

    Attributes:
        n_forecast: Rows that were forecast.
        n_within_90: Forecast rows with a value between the quantiles at 5 % and 95 %.
        error: Sum of absolute differences from the forecast's median.
        change: Sum of absolute differences from the row before: the error of persistence.
        n_alarms: Rows that were alarms.
        n_gaps: Places where slots are missing.
        n_missing: Slots that are missing.
        newest: The newest value; NaN before the first.
    """

    n_forecast: float = 0.0
    n_within_90: float = 0.0
    error: float = 0.0
    change: float = 0.0
    n_alarms: float = 0.0
    n_gaps: float = 0.0
    n_missing: float = 0.0
    newest: float = math.nan

    @property
    def coverage_90(self) -> float:
        """Fraction of forecast values inside the 90 % band; NaN before the first."""
        return self.n_within_90 / self.n_forecast if self.n_forecast else math.nan

    @property
    def mean_error(self) -> float:
        """Mean absolute error of the median; NaN before the first forecast."""
        return self.error / self.n_forecast if self.n_forecast else math.nan

    @property
    def mean_change(self) -> float:
        """Mean absolute error of persistence, of the same rows; NaN before the first forecast."""
        return self.change / self.n_forecast if self.n_forecast else math.nan

    def row(self, value: float, n_missing: int, is_alarm: bool) -> None:
        """Count a row, after `forecast` where it had one."""
        self.newest = value
        self.n_alarms += is_alarm
        if n_missing:
            self.n_gaps += 1
            self.n_missing += n_missing

    def forecast(self, value: float, low: float, middle: float, high: float) -> None:
        """Count a forecast: its quantiles at 5, 50 and 95 %, and the value that came."""
        self.n_forecast += 1
        self.n_within_90 += low <= value <= high
        self.error += abs(value - middle)
        self.change += abs(value - self.newest)

    def to_array(self) -> Array:
        """Return all of it for a snapshot."""
        return np.array([getattr(self, f.name) for f in fields(self)])

    @classmethod
    def from_array(cls, array: Array) -> ScoreCounts:
        """Restore what `to_array` returned, whose shape and type are right.

        Raises:
            SnapshotError: The content is damaged.
        """
        *sums, newest = numbers = array.tolist()
        if not all(0 <= total < math.inf for total in sums) or math.isinf(newest):
            raise SnapshotError("the snapshot's tally of a sensor is damaged; start without it.")
        return cls(*numbers)
