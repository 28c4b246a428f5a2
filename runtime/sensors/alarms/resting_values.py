"""Know the values at which a sensor often rests: zero at night, a ceiling, an idle level.

Such a value is called a habit. Runs of equal values are counted separately for habits and for all
other values. Otherwise the nights of a solar panel would explain an hour of equal values at noon. A
value becomes a habit with its second long run; its first long run, which was counted with the other
values, is then moved to the runs of the habits.
"""

from __future__ import annotations

from edgefold.runtime.arrays import Array
from edgefold.runtime.kept_arrays import KeptNumbers
from edgefold.runtime.sensors.alarms.run_lengths import Runs

N_HABITS, LONG = 4, 8
"""The number of habits (values at which a sensor often rests) that are kept, and the number of
repeats that makes a run long."""
FADING = 0.98


class Habits(KeptNumbers):
    """Counts how often the values of a stream repeat, and says how rare a run of repeats is.

    Copies share the two objects that count runs: each change replaces them.
    """

    KEPT = ("_value", "_present", "_values", "_weights", "_first", "_usual", "_other")

    def __init__(self) -> None:
        self._usual, self._other = Runs(), Runs()
        self._rows = self._other.rows  # the rows of both, which are written when a run changes
        self._value, self._present = float("nan"), -1  # the newest value; its habit, if it is one
        self._values = [float("nan")] * N_HABITS
        self._weights = [0.0] * N_HABITS
        self._first = [0] * N_HABITS  # the length of a value's first run, kept until its second run

    def restored(self) -> None:
        """Read the number of rows from the objects that count runs."""
        self._rows = self._other.rows

    def numbers(self) -> Array:
        """Return the attributes' numbers, the number of rows among them."""
        self._other = self._changed(self._other)
        return super().numbers()

    def _changed(self, runs: Runs) -> Runs:
        """Return a copy that may be changed, with the present number of rows."""
        copied = runs.copy()
        copied.rows = self._rows
        return copied

    def see(self, value: float, after_gap: bool) -> float:
        """Count a value, and return the logarithm of how rare so long a run of its repeats is.

        Args:
            value: The value of the next row.
            after_gap: Whether rows are missing just before the row, which ends a run.

        Returns:
            The logarithm of the expected number of such runs per row; 0 if the value differs from
            the one before.
        """
        is_run = self._other.length or self._usual.length
        if value != self._value or after_gap:
            if is_run:
                self._end()
            self._value = value
            self._rows += 1.0
            return 0.0
        self._rows += 1.0
        if not is_run:
            known = value in self._values
            self._present = self._values.index(value) if known else -1
        if self._present < 0:
            self._other = runs = self._changed(self._other)
        else:
            self._usual = runs = self._changed(self._usual)
        return runs.longer()

    def _end(self) -> None:
        """End and count the run of equal values.

        If it was long, keep its value among the habits, at which the sensor often rests.
        """
        at = self._present
        self._other = other = self._changed(self._other)
        self._usual = usual = self._changed(self._usual)
        length = max(other.length, usual.length)
        (other if at < 0 else usual).end()
        self._present, self._rows = -1, other.rows
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
            first[at], self._rows = 0, other.rows
        weights[at] += length
        self._values, self._weights, self._first = values, weights, first
