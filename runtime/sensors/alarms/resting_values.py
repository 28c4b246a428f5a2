"""Know the values at which a sensor often rests: zero at night, a ceiling, an idle level.

Such a value is called a habit. Runs of equal values are counted separately for habits and for all
other values. Otherwise the nights of a solar panel would explain an hour of equal values at noon. A
value becomes a habit with its second long run; its first long run, which was counted with the other
values, is then moved to the runs of the habits.
"""

from __future__ import annotations

from edgefold.runtime.kept_arrays import KeptNumbers
from edgefold.runtime.sensors.alarms.run_lengths import Runs

N_HABITS, LONG = 4, 8
"""The number of habits (values at which a sensor often rests) that are kept, and the number of
repeats that makes a run long."""
FADING = 0.98


class Habits(KeptNumbers):
    """Counts how often the values of a stream repeat, and says how rare a run of repeats is."""

    KEPT = ("_value", "_present", "_values", "_weights", "_first", "_usual", "_other")
    PARTS = ("_usual", "_other")

    def __init__(self) -> None:
        self._usual, self._other = Runs(), Runs()
        self._value, self._present = float("nan"), -1  # the newest value; its habit, if it is one
        self._values = [float("nan")] * N_HABITS
        self._weights = [0.0] * N_HABITS
        self._first = [0] * N_HABITS  # the length of a value's first run, kept until its second run

    def see(self, value: float, after_gap: bool) -> float:
        """Count a value, and return the logarithm of how rare so long a run of its repeats is.

        Args:
            value: The value of the next row.
            after_gap: Whether rows are missing just before the row, which ends a run.

        Returns:
            The logarithm of the expected number of such runs per row; 0 if the value differs from
            the one before.
        """
        if value != self._value or after_gap:
            if self._other.length or self._usual.length:
                self._end()
            self._value = value
            self._other.rows += 1.0
            return 0.0
        self._other.rows += 1.0
        if not self._other.length and not self._usual.length:
            known = value in self._values
            self._present = self._values.index(value) if known else -1
        self._usual.rows = self._other.rows
        return (self._other if self._present < 0 else self._usual).longer()

    def _end(self) -> None:
        """End and count the run of equal values.

        If it was long, keep its value among the habits, at which the sensor often rests.
        """
        at, other, usual = self._present, self._other, self._usual
        length = max(other.length, usual.length)
        (other if at < 0 else usual).end()
        self._present = -1
        if length < LONG:
            return
        weights = [FADING * weight for weight in self._weights]
        values, first = [*self._values], [*self._first]
        if at < 0:
            at = weights.index(min(weights))
            values[at], weights[at], first[at] = self._value, 0.0, length
        elif first[at]:
            other.count(first[at], -1.0)
            usual.count(first[at], 1.0)
            first[at] = 0
        weights[at] += length
        self._values, self._weights, self._first = values, weights, first
