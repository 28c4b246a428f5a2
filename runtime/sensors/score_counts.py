"""Keep counts and sums that say how good the forecasts of one sensor were."""

from __future__ import annotations

import math

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_numbers import KeptNumbers


class ScoreCounts(KeptNumbers):
    """Holds counts and sums over the rows of a sensor since its first row.

    A slot is one place in the even sequence of times in which rows come.

    Attributes:
        n_forecast: Number of rows that were forecast.
        n_within_90: Number of forecast rows whose value was between the quantiles at 5 % and 95 %.
        error: Sum of the absolute differences between value and forecast median.
        change: Sum of the absolute differences between the values of forecast rows and the values
            before them, which are the errors of the forecast that nothing changes (persistence).
        n_alarms: Number of rows that were alarms.
        n_gaps: Number of places where one or more slots in sequence have no row.
        n_missing: Number of slots that have no row.
        newest: The newest value; NaN before the first.
    """

    KEPT = (
        *("n_forecast", "n_within_90", "error", "change"),
        *("n_alarms", "n_gaps", "n_missing", "newest"),
    )

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
        """Return the fraction of forecast values inside the 90 % band; NaN before the first."""
        return self.n_within_90 / self.n_forecast if self.n_forecast > 0.0 else math.nan

    @property
    def mean_error(self) -> float:
        """Return the mean absolute error of the forecast medians; NaN before the first forecast."""
        return self.error / self.n_forecast if self.n_forecast > 0.0 else math.nan

    @property
    def mean_change(self) -> float:
        """Return the mean absolute error of persistence on the forecast rows; NaN without them."""
        return self.change / self.n_forecast if self.n_forecast > 0.0 else math.nan

    def row(self, value: float, n_missing: int, is_alarm: bool) -> None:
        """Count a row with a value; call `forecast` before it if the row was forecast.

        Args:
            value: The value of the row.
            n_missing: Number of missing rows just before this row.
            is_alarm: Whether the row is an alarm.
        """
        self.newest = value
        if is_alarm:
            self.n_alarms += 1.0
        if n_missing > 0:
            self.n_gaps += 1.0
            self.n_missing += n_missing

    def forecast(self, value: float, low: float, middle: float, high: float) -> None:
        """Count a forecast and the value that came.

        Args:
            value: The value that came.
            low: The forecast quantile at 5 %.
            middle: The forecast median.
            high: The forecast quantile at 95 %.
        """
        self.n_forecast += 1.0
        if low <= value <= high:
            self.n_within_90 += 1.0
        self.error += abs(value - middle)
        self.change += abs(value - self.newest)

    def to_array(self) -> Array:
        """Return all attributes, in their order, as one array of 8 numbers for a snapshot."""
        return self.numbers()

    @classmethod
    def from_array(cls, array: Array) -> ScoreCounts:
        """Rebuild the counts from the array that `to_array` returned; its shape must be right.

        Raises:
            SnapshotError: The content of the array is damaged.
        """
        *sums, newest = array.tolist()
        if not all(0 <= total < math.inf for total in sums) or math.isinf(newest):
            raise SnapshotError("the snapshot's tally of a sensor is damaged; start without it.")
        counts = cls()
        counts.take(array)
        return counts
