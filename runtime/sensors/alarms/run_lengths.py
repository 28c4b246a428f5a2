"""Learn how rare a run of a certain length is: of equal values, or of missing slots.

The lengths are put into classes: 1, 2, 3-4, 5-8, 9-16 and so on. For each class, the chance that a
run ends is counted, and guessed before the first count. So, per row,

    runs of this length or more = runs that begin * product of the chances to go on
"""

from __future__ import annotations

import math

from edgefold.runtime.kept_numbers import KeptNumbers, filled

N_CLASSES = 12
ENDS = (0.5, 0.45, 0.4, 0.3, 0.22, 0.15, 0.1, 0.06, 0.03, 0.015, 0.008, 0.004)
"""Lists, for each class of lengths, the smallest guess of the chance that a run ends with a row."""
N_GUESSED, INHERITED = 1.5, 0.7
"""The number of counted rows that a guess of a chance weighs as much as, and the smallest guess as
a share of the chance in the class of shorter runs."""
FIRST_BEGUN, FIRST_ROWS = 0.5, 100.0
N_REMEMBERED, LEAST_CHANCE = 50_000.0, 1e-6


def class_of(length: int) -> int:
    """Return the class of a run's length: 0 for 1, 1 for 2, 2 for 3 and 4, 3 for 5 to 8, ..."""
    return min((length - 1).bit_length(), N_CLASSES - 1)


class Runs(KeptNumbers):
    """Counts runs by their length, and says how rare the present run is.

    Attributes:
        rows: The number of rows so far; the caller adds them.
        begun: The number of runs that have begun.
        length: The length of the present run in rows; 0 outside a run.
        log_rarity: The logarithm of the number of runs per row that become as long as the present
            one; 0 outside a run.
    """

    KEPT = ("rows", "begun", "length", "log_rarity", "_tried", "_ended")

    rows: float = FIRST_ROWS
    begun: float = FIRST_BEGUN
    length: int = 0
    log_rarity: float = 0.0
    _tried: list[float] = filled(0.0, N_CLASSES)
    _ended: list[float] = filled(0.0, N_CLASSES)
    _logs: list[float] = filled(0.0, N_CLASSES)

    def restored(self) -> None:
        """Compute again, from changed counts, the chance that a run goes on for one more row.

        The logarithms of these chances, one for each class of lengths (`class_of`), are stored.
        """
        chance = 0.0
        logs = [*self._logs]
        for index in range(N_CLASSES):
            guess = N_GUESSED * max(ENDS[index], INHERITED * chance)
            chance = (self._ended[index] + guess) / (self._tried[index] + N_GUESSED)
            logs[index] = math.log(max(1.0 - chance, LEAST_CHANCE))
        self._logs = logs

    def longer(self) -> float:
        """Make the present run one row longer, or begin one; return its new `log_rarity`."""
        if self.length == 0:
            self.log_rarity = min(math.log(self.begun / self.rows), 0.0)
        else:
            self.log_rarity += self._logs[class_of(self.length)]
        self.length += 1
        return self.log_rarity

    def end(self) -> None:
        """End the present run and count it."""
        self.count(self.length, 1.0)
        self.length, self.log_rarity = 0, 0.0

    def count(self, length: int, weight: float) -> None:
        """Count a run of this length with a weight of 1, or remove it with a weight of -1."""
        if self.rows > N_REMEMBERED:
            self._forget()
        self.begun = max(self.begun + weight, FIRST_BEGUN)
        last = class_of(length)
        tried, ended = [*self._tried], [*self._ended]
        start = 1
        for index in range(last + 1):
            end = length if index == last else 1 << index
            tried[index] = max(tried[index] + weight * (end - start + 1), 0.0)
            start = end + 1
        ended[last] = min(max(ended[last] + weight, 0.0), tried[last])
        self._tried, self._ended = tried, ended
        self.restored()

    def _forget(self) -> None:
        self.rows, self.begun = 0.5 * self.rows, max(0.5 * self.begun, FIRST_BEGUN)
        self._tried = [0.5 * n for n in self._tried]
        self._ended = [0.5 * n for n in self._ended]
