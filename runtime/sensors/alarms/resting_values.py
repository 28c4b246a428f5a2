"""Know the values at which a sensor often rests: zero at night, a ceiling, an idle level.

Such a value is called a habit. Runs of equal values are counted separately for habits and for all
other values. Otherwise the nights of a solar panel would explain an hour of equal values at noon. A
value becomes a habit with its second long run; its first long run, which was counted with the other
values, is then moved to the runs of the habits.
"""

from __future__ import annotations

import math

from edgefold.runtime.kept_numbers import KeptNumbers, filled, replaced
from edgefold.runtime.sensors.alarms.run_lengths import Runs

N_HABITS, LONG = 4, 8
"""The number of habits (values at which a sensor often rests) that are kept, and the number of
repeats that makes a run long."""
FADING = 0.98


class Habits(KeptNumbers):
    """Counts how often the values of a stream repeat, and says how rare a run of repeats is.

    The rows of `_other` are those of both; `_usual` gets them when it changes.
    """

    KEPT = ("_value", "_present", "_values", "_weights", "_first", "_usual", "_other")

    _value: float = math.nan  # the newest value
    _present: int = -1  # the habit that the newest value is, if it repeats; -1 for none
    _values: list[float] = filled(math.nan, N_HABITS)
    _weights: list[float] = filled(0.0, N_HABITS)
    _first: list[int] = filled(0, N_HABITS)  # the length of a value's first run, until its second
    _usual: Runs = Runs()
    _other: Runs = Runs()

    def see(self, value: float, after_gap: bool) -> float:
        """Count a value, and return the logarithm of how rare so long a run of its repeats is.

        Args:
            value: The value of the next row.
            after_gap: Whether rows are missing just before the row, which ends a run.

        Returns:
            The logarithm of the expected number of such runs per row; 0 if the value differs from
            the one before.
        """
        is_run = self._other.length > 0 or self._usual.length > 0
        if value != self._value or after_gap:
            if is_run:
                self._end()
            self._value = value
            self._other.rows += 1.0
            return 0.0
        self._other.rows += 1.0
        if not is_run:
            self._present = self._values.index(value) if value in self._values else -1
        if self._present < 0:
            return self._other.longer()
        self._usual.rows = self._other.rows
        return self._usual.longer()

    def _end(self) -> None:
        """End and count the run of equal values.

        If it was long, keep its value among the habits, at which the sensor often rests.
        """
        at = self._present
        length = max(self._other.length, self._usual.length)
        self._usual.rows = self._other.rows
        if at < 0:
            self._other.end()
        else:
            self._usual.end()
        self._present = -1
        if length < LONG:
            return
        weights = [FADING * weight for weight in self._weights]
        if at < 0:
            at = weights.index(min(weights))
            weights[at] = 0.0
            self._values = replaced(self._values, at, self._value)
            self._first = replaced(self._first, at, length)
        elif self._first[at] > 0:
            self._other.count(self._first[at], -1.0)
            self._usual.count(self._first[at], 1.0)
            self._first = replaced(self._first, at, 0)
        weights[at] = weights[at] + length
        self._weights = weights
