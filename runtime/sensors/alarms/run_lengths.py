"""How long a run of equal values or of missing slots lasts that the history explains.

length of a run       1, 2, 3-4, 5-8, 9-16, ...   a class for each
chance that it ends   of each class, counted, with a guess before the first count

runs of this length or more = runs that begin, a row * product of the chances to go on
"""

from __future__ import annotations

import math

from edgefold.runtime.kept_arrays import KeptNumbers

N_CLASSES = 12
ENDS = (0.5, 0.45, 0.4, 0.3, 0.22, 0.15, 0.1, 0.06, 0.03, 0.015, 0.008, 0.004)
"""Least guesses of the chance that a run ends, by class of its length."""
N_GUESSED, INHERITED = 1.5, 0.7
"""How many rows of a class a guess counts as; its part of the chance in the class before."""
FIRST_BEGUN, FIRST_ROWS = 0.5, 100.0
N_REMEMBERED, LEAST_CHANCE = 50_000.0, 1e-6


def class_of(length: int) -> int:
    """The class of a run's length, from 1 on."""
    return min((length - 1).bit_length(), N_CLASSES - 1)


class Runs(KeptNumbers):
    """Counts of runs, and how rare the present one is.

    Attributes:
        rows: Rows that were counted, which the caller adds.
        begun: Runs that have begun.
        length: Of the present run; 0 outside one.
        log_rarity: Logarithm of the runs a row that get as long as the present one; 0 outside one.
    """

    __slots__ = ("_ended", "_logs", "_tried", "begun", "length", "log_rarity", "rows")
    KEPT = ("rows", "begun", "length", "log_rarity", "_tried", "_ended")

    def __init__(self) -> None:
        self.rows, self.begun = FIRST_ROWS, FIRST_BEGUN
        self.length, self.log_rarity = 0, 0.0
        self._tried, self._ended = [0.0] * N_CLASSES, [0.0] * N_CLASSES
        self._logs = [0.0] * N_CLASSES
        self.restored()

    def restored(self) -> None:
        """Compute the logarithms of the chances to go on."""
        chance = 0.0
        for index, least in enumerate(ENDS):
            guess = N_GUESSED * max(least, INHERITED * chance)
            chance = (self._ended[index] + guess) / (self._tried[index] + N_GUESSED)
            self._logs[index] = math.log(max(1.0 - chance, LEAST_CHANCE))

    def longer(self) -> float:
        """The present run goes on by one row, or begins: log of how rare it is now."""
        if self.length == 0:
            self.log_rarity = min(math.log(self.begun / self.rows), 0.0)
        else:
            self.log_rarity += self._logs[class_of(self.length)]
        self.length += 1
        return self.log_rarity

    def end(self) -> None:
        """The present run has ended: count it."""
        self.count(self.length, 1.0)
        self.length, self.log_rarity = 0, 0.0

    def count(self, length: int, weight: float) -> None:
        """Count a run, or with a weight of -1 take it out again."""
        if self.rows > N_REMEMBERED:
            self._forget()
        self.begun = max(self.begun + weight, FIRST_BEGUN)
        last = class_of(length)
        start = 1
        for index in range(last + 1):
            end = length if index == last else 1 << index
            self._tried[index] = max(self._tried[index] + weight * (end - start + 1), 0.0)
            start = end + 1
        self._ended[last] = min(max(self._ended[last] + weight, 0.0), self._tried[last])
        self.restored()

    def _forget(self) -> None:
        self.rows, self.begun = 0.5 * self.rows, max(0.5 * self.begun, FIRST_BEGUN)
        self._tried = [0.5 * n for n in self._tried]
        self._ended = [0.5 * n for n in self._ended]
