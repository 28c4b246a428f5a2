"""Whether rows come as often as a model was trained for."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.errors import PaceError, SnapshotError
from edgefold.runtime.series.durations import elapsed
from edgefold.runtime.series.spec import SeriesSpec

SLOWEST, FASTEST = 1.5, 0.5
"""A row's usual time after the one before, in steps: beyond these the pace is another one."""
N_FIRST = 6
"""Intervals that may decide at the start, if they agree."""
N_RECENT = 16
"""Intervals that decide at the latest, and that are looked at later."""
TO_ACCEPT, TO_REFUSE = 4, 6
"""So many more intervals must be right than are not, or too long, or too short, to decide earlier.
Of the first six all must be wrong to be refused: with 30 % of wrong times, 1 right pace in 140 is
(1 in 8 if the median of six decides), and a wrong one is taken for right a fifth as often."""
N_CHANGED = 12
"""So many of them that are too long, or too short, are another pace; faults are fewer."""


class Pace:
    """Watches the time from each row to the next.

    A row that goes back takes the interval before it away as well: one of the two times was wrong.

    Args:
        spec: Of the series that the model was trained on.

    Attributes:
        is_known: Whether the pace was right at the start.
    """

    def __init__(self, spec: SeriesSpec):
        self._spec = spec
        self._intervals: deque[float] = deque(maxlen=N_RECENT)  # in steps
        self._last_time = math.nan
        self.is_known = False

    def note(self, time: float) -> None:
        """Take the time of a row that could be read.

        Raises:
            PaceError: The first intervals are of another pace; the next ones are judged again.
        """
        steps = (time - self._last_time) / self._spec.step
        self._last_time = time
        if steps < 0 and self._intervals:
            self._intervals.pop()
        if not steps > 0:
            return
        self._intervals.append(min(steps, 1e9))
        n = len(self._intervals)
        if self.is_known or n < N_FIRST:
            return
        n_fast, n_slow = self._count_wrong()
        usual_is_right = FASTEST <= median(self._intervals) <= SLOWEST
        if n - 2 * (n_fast + n_slow) >= TO_ACCEPT or (n == N_RECENT and usual_is_right):
            self.is_known = True
        elif 2 * max(n_fast, n_slow) - n >= TO_REFUSE or n == N_RECENT:
            sentence = self.sentence
            self._intervals.clear()
            raise PaceError(
                f"{sentence}; bring the rows to that pace, or train a model for theirs: "
                "edgefold train series --csv FILE --out RUN"
            )

    def _count_wrong(self) -> tuple[int, int]:
        """Count the intervals that are too short, and those that are too long."""
        n_fast = sum(steps < FASTEST for steps in self._intervals)
        return n_fast, sum(steps > SLOWEST for steps in self._intervals)

    @property
    def changed(self) -> bool:
        """Whether the pace was right once and the recent rows come at another one.

        Two intervals that are right again, one after the other, end it.
        """
        intervals = self._intervals
        if not self.is_known or len(intervals) < N_RECENT:
            return False
        if all(FASTEST <= steps <= SLOWEST for steps in (intervals[-2], intervals[-1])):
            return False
        return max(self._count_wrong()) >= N_CHANGED

    @property
    def sentence(self) -> str:
        """Say how often rows come, and how often they should."""
        clock, step = self._spec.clock, self._spec.step
        return (
            f"a row comes every {elapsed(median(self._intervals) * step, clock)}, this bundle was "
            f"trained for a row every {elapsed(step, clock)}"
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Copy everything that a snapshot must keep for `load`."""
        kept = np.full(2 + N_RECENT, math.nan)
        kept[:2] = self._last_time, self.is_known
        kept[2 : 2 + len(self._intervals)] = self._intervals
        return {"pace": kept}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `arrays` returned, whose shape and type are right.

        Raises:
            SnapshotError: The content is damaged.
        """
        last_time, is_known, *intervals = arrays["pace"].tolist()
        kept = [steps for steps in intervals if not math.isnan(steps)]
        if is_known not in (0, 1) or not all(0 < steps < math.inf for steps in kept):
            raise SnapshotError("the snapshot's pace of rows is damaged; start without it.")
        self._last_time, self.is_known = last_time, bool(is_known)
        self._intervals = deque(kept, maxlen=N_RECENT)

    def assume_right(self) -> None:
        """Take the pace for right, as where rows were learned before it was watched."""
        self.is_known = True
