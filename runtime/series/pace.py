"""Check whether rows come at the pace (usual time between rows) for which a model was trained.

The pace is the usual time from one row to the next. Intervals between rows are measured in steps; a
step is the pace of the series in training.
"""

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
"""The longest and the shortest right interval between two rows, in steps (the usual interval in
training): others are of another pace."""
N_FIRST = 6
"""The number of first intervals between rows after which the pace may be judged, if they agree."""
N_RECENT = 16
"""The number of intervals after which the pace is judged in any case; so many last ones are
kept."""
TO_ACCEPT, TO_REFUSE = 4, 6
"""The majorities of intervals that decide before `N_RECENT` have come. To accept the pace, 4 more
must be right than wrong. To refuse it, 6 more must be too long than not, or too short than not. So
the first six are refused only if all are wrong: with 30 % of wrong times, 1 right pace in 140 is
refused (1 in 8 if the median of six decides), and a wrong one is accepted a fifth as often."""
N_CHANGED = 12
"""How many of the last 16 intervals must be too long, or too short, to show another pace: more than
single faults make."""


class Pace:
    """Watches the intervals between rows, and refuses rows that come at another pace.

    A row whose time goes back also removes the interval before it: one of the two times was wrong.

    Args:
        spec: The features of the series that the model was trained on, with its step.

    Attributes:
        is_known: Whether the first rows came at the right pace.
    """

    def __init__(self, spec: SeriesSpec):
        self._spec = spec
        self._intervals: deque[float] = deque(maxlen=N_RECENT)  # in steps
        self._last_time = math.nan
        self.is_known = False

    def note(self, time: float) -> None:
        """Learn from the time of the next row how often rows come.

        Raises:
            PaceError: The first intervals have another pace; the check begins again with the next.
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
        """Count the intervals that are too short and the intervals that are too long."""
        n_fast = sum(steps < FASTEST for steps in self._intervals)
        return n_fast, sum(steps > SLOWEST for steps in self._intervals)

    @property
    def changed(self) -> bool:
        """Return whether the pace was right at first and the recent rows come at another one.

        It is False again as soon as the last two intervals are right.
        """
        intervals = self._intervals
        if not self.is_known or len(intervals) < N_RECENT:
            return False
        if all(FASTEST <= steps <= SLOWEST for steps in (intervals[-2], intervals[-1])):
            return False
        return max(self._count_wrong()) >= N_CHANGED

    @property
    def sentence(self) -> str:
        """Return a sentence that says how often rows come, and how often they should."""
        clock, step = self._spec.clock, self._spec.step
        return (
            f"a row comes every {elapsed(median(self._intervals) * step, clock)}, this bundle was "
            f"trained for a row every {elapsed(step, clock)}"
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return, as one array, everything that a snapshot must keep for `load`."""
        kept = np.full(2 + N_RECENT, math.nan)
        kept[:2] = self._last_time, self.is_known
        kept[2 : 2 + len(self._intervals)] = self._intervals
        return {"pace": kept}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the array that `arrays` returned; its shape and type must be right.

        Raises:
            SnapshotError: The content of the array is damaged.
        """
        last_time, is_known, *intervals = arrays["pace"].tolist()
        kept = [steps for steps in intervals if not math.isnan(steps)]
        if is_known not in (0, 1) or not all(0 < steps < math.inf for steps in kept):
            raise SnapshotError("the snapshot's pace of rows is damaged; start without it.")
        self._last_time, self.is_known = last_time, bool(is_known)
        self._intervals = deque(kept, maxlen=N_RECENT)

    def assume_right(self) -> None:
        """Accept the pace without a check, for example if rows were learned before checks began."""
        self.is_known = True
