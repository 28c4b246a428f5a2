"""Turn times into slots (places in an even sequence of times), and refuse rows of wrong times.

A slot is one place in the even sequence of times in which rows come; a slot without a row is
missing. The pace, the time between two slots, is the median of the last differences of times, or
the mean of the differences near the median if the clock is not exact.

    row ──> later, up to 1000 slots           -> accepted; slots between the two are missing
      ├───> later than that                   -> refused, until a second row follows it
      ├───> earlier: late, or the clock was set back
      │                                       -> refused, until several rows follow each other
      └───> at the newest row's time          -> refused

So one wrong time costs one row, and a clock that was really set costs a few. Where times are too
uneven for a pace, each row is one slot.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from itertools import pairwise
from statistics import fmean, median_low

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError, SnapshotError
from edgefold.runtime.rows.csv_fields import Clock as Kind
from edgefold.runtime.series.durations import elapsed

N_DIFFERENCES = 31
"""The number of the last differences of times from which the pace, the time between two slots, is
learned."""
MANY = 128
"""The number of slots after which their mean length is a better pace than the last differences."""
FASTER, SLOWER = 0.6, 1.5
"""The bounds, as parts of the pace (time between two slots), between which a difference of times is
taken as one slot."""
LIKE, BELOW = 0.125, 0.25
"""The pace (time between two slots) is kept while at least the first share of the differences of
times is about as long, and at most the second share is clearly shorter."""
EXACT = 0.01
"""The clock is exact if at least half of the differences of times that are about one slot long lie
within this share of the pace (time between two slots)."""
MOST_UNEVEN = 4.5
"""The largest difference of times, in slots, that is used to judge how even the clock is: in longer
ones the error of the pace adds up."""
EVERY = 8
"""The number of rows after which the pace is computed again, once `N_DIFFERENCES` are known."""
UNEVEN, EVEN = 0.2, 0.15
"""Bounds of the mean distance of the differences of times from whole slots, in slots: above the
first the clock is irregular, below the second it is regular again. Times without any pace have
about 0.25."""
ROUNDED = 1.2
"""The factor by which the mean difference of rounded times must exceed the median one to be taken
as the pace, the time between two slots."""
CHANGED = 1.25
"""The ratio of two paces from which on they count as different and the user gets a note."""
DRIFT = 0.9
"""The share of a row's distance from its slot that is carried over to the next row."""
LEAP_SLOTS = 1000
"""The number of slots beyond which a later row is doubted, like a row before the newest one."""
NEAR_SLOTS = 3.5
"""The largest distance in slots at which one refused row counts as following another."""
N_DOUBTED = 16
"""The number of refused times that are remembered."""
AHEAD, BACK, SETTLED_BACK = 2, 3, 8
"""How many rows must follow each other until the last of them is accepted, where they come far
after the newest row; before it, if fewer than `SETTLED` rows came since the clock last leapt;
before it, if more came."""
SETTLED = 8
EVENLY, RISING = 4, 8
"""How many times in sequence, all but the last refused, show a new time between slots: if they come
evenly; if they only rise."""
ROUNDED_WITHIN = 1.75
"""The range, in median differences of times, within which rounded times stay around even places."""
LATEST = 1e300
"""The largest accepted size of a time: sums of 31 differences of such times are finite. A year of
attoseconds is 3e25."""
MOST_SLOTS = 10**12
"""The most slots between two rows; a step between two times may be any number of paces long."""
N_FIELDS = 8


class SlotClock:
    """Counts slots by the times of one sensor's rows, and learns the pace from them.

    Attributes:
        pace: The time between two slots; NaN before the second row.
        is_irregular: Whether each row is one slot, because the times have no pace.
        last_time: The time of the newest row; NaN before the first.
    """

    def __init__(self) -> None:
        self.pace = self.last_time = math.nan
        self.is_irregular = False
        self._differences: deque[float] = deque(maxlen=N_DIFFERENCES)
        self._since, self._n_since = math.nan, 0  # a slot's time, and how many slots came after it
        self._ahead = 0.0  # how many slots the newest row's time is later than its slot's time
        self._doubted: tuple[float, ...] = ()  # replaced, never changed
        self._n_since_leap = self._n_until_look = 0

    @property
    def is_known(self) -> bool:
        """Return whether the pace is known: at least three differences of times were seen."""
        return len(self._differences) > 2

    @property
    def is_settled(self) -> bool:
        """Return whether at least 16 differences of times were seen, so that the pace will last."""
        return len(self._differences) > N_DIFFERENCES // 2

    @property
    def mean_pace(self) -> float:
        """Return the mean time between two slots since the pace last changed.

        With fewer than 128 slots (`MANY`) since then, it is `pace`.
        """
        n = self._n_since
        return (self.last_time - self._since) / n if n >= MANY else self.pace

    @property
    def mean_step(self) -> float:
        """Return the mean of the last differences of times; NaN before the first."""
        return fmean(self._differences) if self._differences else math.nan

    def slots(self, time: float, kind: Kind = "number") -> int:
        """Return how many slots a row at `time` comes after the newest row; at least 1.

        Only the list of refused times changes. A row before the newest one or far after it is
        refused until enough refused times and its own follow each other at short distances.

        Args:
            time: The row's time.
            kind: Whether times are dates or numbers, for messages.

        Raises:
            DataError: The row is refused, or has the newest row's time or one that is not finite.
        """
        if not abs(time) <= LATEST:
            fault = f"is beyond {LATEST:g}" if math.isfinite(time) else "is not finite"
            raise DataError(f"the time {time:g} {fault}; drop the row.")
        step = time - self.last_time
        if math.isnan(step):
            return 1
        if step == 0:
            raise DataError("its time is that of the newest row; drop the row.")
        if step < 0 or step > LEAP_SLOTS * self._usual:
            self._doubt(time, step, kind)
        return self._n_slots(step)

    @property
    def _usual(self) -> float:
        """Return the pace; infinity while it is unknown, so that no later time is refused."""
        return self.pace if self.is_known else math.inf

    def _n_slots(self, step: float) -> int:
        if step < 0 or self.is_irregular or not self.is_known:
            return 1
        return round(min(max(1.0, step / self.pace + self._ahead), MOST_SLOTS))

    def _doubt(self, time: float, step: float, kind: Kind) -> None:
        """Raise DataError for a row far from the newest one, unless it follows enough refused rows.

        `step` is the row's time minus that of the newest row; `kind` is used in the message.
        """
        if self._is_led_to(time, step) or self._new_differences(time):
            return
        self._doubted = (*self._doubted, time)[-N_DOUBTED:]
        where = "after" if step > 0 else "before"
        raise DataError(
            f"its time is {elapsed(abs(step), kind)} {where} the newest row's; if the next rows "
            "follow it, the clock goes on there."
        )

    def _is_led_to(self, time: float, step: float) -> bool:
        """Return whether enough refused times and this one follow each other at short distances.

        Together they must be 2 for a time after the newest row, and 3 or 8 for one before it.

        Args:
            time: The time of the row.
            step: The time of the row minus that of the newest row.
        """
        needed = AHEAD
        if step < 0:
            needed = BACK if self._n_since_leap < SETTLED else SETTLED_BACK
        n = 1
        for doubted in reversed(self._doubted):
            if 0 < time - doubted <= NEAR_SLOTS * self.pace:
                n, time = n + 1, doubted
        return n >= needed

    def _new_differences(self, time: float) -> list[float]:
        """Return the differences of the last refused times and this one if they show a new pace.

        If not, the list is empty.
        """
        times = [*self._doubted, time][-RISING:]
        steps = [later - earlier for earlier, later in pairwise(times)]
        last = steps[1 - EVENLY :]
        is_even = len(last) == EVENLY - 1 and 0 < max(last) <= NEAR_SLOTS * min(last)
        if is_even and not min(last) <= NEAR_SLOTS * self.pace:
            return last
        return steps if len(steps) == RISING - 1 and min(steps) > 0 else []

    def copy(self) -> SlotClock:
        """Return a copy; a change of one of the two does not change the other."""
        other = SlotClock.__new__(SlotClock)
        other.__dict__.update(self.__dict__)
        other._differences = self._differences.copy()
        return other

    def commit(self, time: float, n_slots: int) -> list[str]:
        """Make an accepted row the newest one and learn from it; return notes for the user.

        Args:
            time: The row's time.
            n_slots: The number of slots from the newest row to this one, by `slots`.
        """
        step = time - self.last_time
        notes: list[str] = []
        if math.isnan(step):
            self._since, self._n_since = time, 0
        elif step < 0 or step > LEAP_SLOTS * self._usual:
            notes.append("the clock was set back" if step < 0 else "rows go on after a long pause")
            if not self._is_led_to(time, step):
                self._differences = deque(self._new_differences(time), N_DIFFERENCES)
            self._since, self._n_since = time, 0
            self._ahead, self._n_since_leap = 0.0, 0
        else:
            if self.is_known:
                ahead = min(max(step / self.pace + self._ahead - n_slots, -0.5), 0.5)
                self._ahead = DRIFT * ahead
            self._differences.append(step)
            self._n_since += n_slots
        self.last_time = time
        self._n_since_leap += 1
        self._doubted = ()
        self._n_until_look -= 1
        n = len(self._differences)
        if n and (self._n_until_look <= 0 or n < N_DIFFERENCES):
            self._n_until_look = EVERY
            self._look()
        return notes

    def _look(self) -> None:
        """Compute `pace` and `is_irregular` from the last differences of times."""
        steps = self._differences
        pace = self._usual_step()
        like = _like(steps, pace)
        if 2 * sum(abs(step - pace) <= EXACT * pace for step in like) < len(like):
            pace = fmean(like)  # the clock is not exact
        if len(steps) == N_DIFFERENCES:
            mean = fmean(steps)
            pace = mean if mean > ROUNDED * pace and self._is_rounded(mean) else pace
        near = [n for step in steps if (n := step / pace) < MOST_UNEVEN]
        uneven = fmean([abs(n - max(1, round(n))) for n in near]) if near else 0.0
        is_irregular = len(steps) >= SETTLED and uneven > (EVEN if self.is_irregular else UNEVEN)
        if is_irregular != self.is_irregular or not 1 / CHANGED < pace / self.pace < CHANGED:
            self._since, self._n_since, self._ahead = self.last_time, 0, 0.0
        self.pace, self.is_irregular = pace, is_irregular

    def _usual_step(self) -> float:
        """Return the median of the differences of times that are one slot long.

        A difference is taken as one slot if it is 0.6 to 1.5 times the present pace. If too few
        differences are so, or too many are shorter, those around the lower quartile of all
        differences are taken: if rows are missing, the differences of one slot are the shortest.
        """
        steps, pace = sorted(self._differences), self.pace
        n = len(steps)
        if n < SETTLED:
            return median_low(steps)
        like = _like(steps, pace)
        n_below = sum(step < FASTER * pace for step in steps)
        if len(like) >= LIKE * n and n_below <= BELOW * n:
            return median_low(like)
        return median_low(_like(steps, steps[(n - 1) // 4]))

    def _is_rounded(self, mean: float) -> bool:
        """Return whether the last times are those of rows every `mean`, only rounded.

        They are if their distances from an even sequence with this step range over at most 1.75
        (`ROUNDED_WITHIN`) median differences of times.
        """
        away = low = high = 0.0
        for step in self._differences:
            away += step - mean
            low, high = min(low, away), max(high, away)
        return high - low <= ROUNDED_WITHIN * median_low(self._differences)

    def arrays(self) -> dict[str, Array]:
        """Return, as one array, everything that a snapshot must keep for `load`."""
        kept = np.full(N_FIELDS + N_DIFFERENCES + N_DOUBTED, math.nan)
        kept[:N_FIELDS] = (
            *(self.pace, self.last_time, self.is_irregular),
            *(self._ahead, self._n_since_leap, self._n_until_look, self._since, self._n_since),
        )
        kept[N_FIELDS : N_FIELDS + len(self._differences)] = self._differences
        kept[N_FIELDS + N_DIFFERENCES :][: len(self._doubted)] = self._doubted
        return {"clock": kept}

    def load(self, array: FloatArray) -> None:
        """Restore the array that `arrays` returned; its shape and type must be right.

        Raises:
            SnapshotError: The content of the array is damaged.
        """
        numbers = array.tolist()
        pace, last_time, is_irregular, ahead, *counts = numbers[:N_FIELDS]
        n_since_leap, n_until_look, since, n_since = counts
        steps, doubted = (
            [number for number in part if not math.isnan(number)]
            for part in (numbers[N_FIELDS:-N_DOUBTED], numbers[-N_DOUBTED:])
        )
        if (
            not (pace > 0 if steps else math.isnan(pace))
            or is_irregular not in (0, 1)
            or not (abs(ahead) <= 1 and n_since_leap >= 0 and n_until_look <= EVERY)
            or not all(0 < step < math.inf for step in steps)
            or any(map(math.isinf, (pace, last_time, since, *doubted)))
            or not (n_since >= 0 and float(n_since).is_integer())
        ):
            raise SnapshotError("the snapshot's clock of a sensor is damaged; start without it.")
        self.pace, self.last_time, self.is_irregular = pace, last_time, bool(is_irregular)
        self._ahead, self._since, self._n_since = ahead, since, int(n_since)
        self._n_since_leap, self._n_until_look = int(n_since_leap), int(n_until_look)
        self._differences, self._doubted = deque(steps, N_DIFFERENCES), tuple(doubted)


def _like(steps: Iterable[float], pace: float) -> list[float]:
    """Return the differences of times that may be one slot long: 0.6 to 1.5 times `pace`."""
    return [step for step in steps if FASTER * pace <= step <= SLOWER * pace]
