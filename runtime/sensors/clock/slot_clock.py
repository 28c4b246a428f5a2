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

These are rules: C is generated from them (`edgefold.runtime.kept_numbers`).
"""

from __future__ import annotations

import math
from typing import Literal

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_numbers import KeptNumbers, filled, ordered, replaced, shifted

Refusal = Literal[
    "", "value too large", "time not finite", "time too large", "repeated", "late", "far ahead"
]
"""Says why a row is refused; empty if it is accepted."""
Leap = Literal["", "back", "ahead"]
"""Says whether an accepted row lies before the newest one, or far after it."""

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
KNOWN, LASTING = 3, 16
"""The numbers of differences of times from which on the pace is known, and from which on it will
last."""
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
MOST_SLOTS = 1e12
"""The most slots between two rows; a step between two times may be any number of paces long."""
MOST_COUNTED = 2.0**53
"""The largest count that a snapshot may hold: float64 holds all whole numbers up to it."""


class SlotClock(KeptNumbers):
    """Counts slots by the times of one sensor's rows, and learns the pace from them.

    Attributes:
        pace: The time between two slots; NaN before the second row.
        is_irregular: Whether each row is one slot, because the times have no pace.
        last_time: The time of the newest row; NaN before the first.
        refusal: Why `slots` refused the row that it saw last; empty if it did not.
        distance: How far the row that was refused last as late or far ahead was from the newest.
        leap: Whether the newest row came before the one before it, or far after it.
    """

    KEPT = (
        *("pace", "last_time", "is_irregular", "_ahead", "_n_since_leap", "_n_until_look"),
        *("_since", "_n_since", "_steps", "_doubted"),
    )
    pace: float = math.nan
    last_time: float = math.nan
    is_irregular: bool = False
    _ahead: float = 0.0  # how many slots the newest row's time is later than its slot's time
    _n_since_leap: int = 0
    _n_until_look: int = 0
    _since: float = math.nan  # a slot's time
    _n_since: int = 0  # how many slots came after it
    _steps: list[float] = filled(math.nan, N_DIFFERENCES)  # the oldest first, then NaN
    _doubted: list[float] = filled(math.nan, N_DOUBTED)  # refused times, likewise
    _n_steps: int = 0
    _n_doubted: int = 0
    refusal: Refusal = ""
    distance: float = 0.0
    leap: Leap = ""

    @property
    def is_known(self) -> bool:
        """Return whether the pace is known: at least three differences of times were seen."""
        return self._n_steps >= KNOWN

    @property
    def is_settled(self) -> bool:
        """Return whether at least 16 differences of times were seen, so that the pace will last."""
        return self._n_steps >= LASTING

    @property
    def mean_pace(self) -> float:
        """Return the mean time between two slots since the pace last changed.

        With fewer than 128 slots (`MANY`) since then, it is `pace`.
        """
        if self._n_since < MANY:
            return self.pace
        return (self.last_time - self._since) / self._n_since

    @property
    def mean_step(self) -> float:
        """Return the mean of the last differences of times; NaN before the first."""
        return _mean(self._steps, 0, self._n_steps) if self._n_steps else math.nan

    def shown_pace(self) -> float:
        """Return the time between two slots; if rows are irregular, the mean time between rows."""
        return self.mean_step if self.is_irregular else self.pace

    def slots(self, time: float) -> int:
        """Return how many slots a row at `time` comes after the newest row; 0 if it is refused.

        Only `refusal`, `distance` and the list of refused times change. A row before the newest one
        or far after it is refused until enough refused times and its own follow each other at short
        distances. A row at the newest one's time, or at a time that is not finite, is refused, too.
        """
        self.refusal = ""
        if not abs(time) <= LATEST:
            self.refusal = "time too large" if math.isfinite(time) else "time not finite"
            return 0
        step = time - self.last_time
        if math.isnan(step):
            return 1
        if step == 0:
            self.refusal = "repeated"
            return 0
        is_known = self._n_steps >= KNOWN
        if step < 0 or (is_known and step > LEAP_SLOTS * self.pace):
            is_sure = self._is_led_to(time, step) or self._n_new_steps(time) > 0
            if not is_sure:
                self._doubt(time, step)
                return 0
        if step < 0 or not is_known or self.is_irregular:
            return 1
        return round(min(max(1.0, step / self.pace + self._ahead), MOST_SLOTS))

    def _doubt(self, time: float, step: float) -> None:
        """Refuse a row far from the newest one, and remember its time.

        `step` is the row's time minus that of the newest row.
        """
        self.refusal = "late" if step < 0 else "far ahead"
        self.distance = abs(step)
        if self._n_doubted == N_DOUBTED:
            self._doubted = shifted(self._doubted, time)
        else:
            self._doubted = replaced(self._doubted, self._n_doubted, time)
            self._n_doubted += 1

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
        later = time
        for i in range(self._n_doubted):
            earlier = self._doubted[self._n_doubted - 1 - i]
            if 0 < later - earlier <= NEAR_SLOTS * self.pace:
                n += 1
                later = earlier
        return n >= needed

    def _n_new_steps(self, time: float) -> int:
        """Return how many of the last differences of refused times and this one show a new pace.

        They are 3 if these come evenly, 7 if they only rise, and 0 if there is no new pace.
        """
        n = min(self._n_doubted, RISING - 1)
        later = time
        shortest = math.inf
        longest = -math.inf
        for i in range(n):
            earlier = self._doubted[self._n_doubted - 1 - i]
            shortest = min(shortest, later - earlier)
            longest = max(longest, later - earlier)
            later = earlier
            is_even = i == EVENLY - 2 and 0 < longest <= NEAR_SLOTS * shortest
            if is_even and not shortest <= NEAR_SLOTS * self.pace:
                return EVENLY - 1
        return n if n == RISING - 1 and shortest > 0 else 0

    def commit(self, time: float, n_slots: int) -> None:
        """Make an accepted row the newest one and learn from it; this sets `leap`.

        Args:
            time: The row's time.
            n_slots: The number of slots from the newest row to this one, by `slots`.
        """
        step = time - self.last_time
        is_known = self._n_steps >= KNOWN
        self.leap = ""
        if math.isnan(step):
            self._count_from(time)
        elif step < 0 or (is_known and step > LEAP_SLOTS * self.pace):
            self.leap = "back" if step < 0 else "ahead"
            if not self._is_led_to(time, step):
                self._take_new_steps(time)
            self._count_from(time)
            self._n_since_leap = 0
        else:
            if is_known:
                ahead = step / self.pace + self._ahead - n_slots
                self._ahead = DRIFT * min(max(ahead, -0.5), 0.5)
            if self._n_steps == N_DIFFERENCES:
                self._steps = shifted(self._steps, step)
            else:
                self._steps = replaced(self._steps, self._n_steps, step)
                self._n_steps += 1
            self._n_since += n_slots
        self.last_time = time
        self._n_since_leap += 1
        if self._n_doubted:
            self._doubted = [math.nan for _ in range(N_DOUBTED)]
            self._n_doubted = 0
        self._n_until_look -= 1
        if self._n_steps and (self._n_until_look <= 0 or self._n_steps < N_DIFFERENCES):
            self._n_until_look = EVERY
            self._look()

    def _count_from(self, time: float) -> None:
        """Count slots, and how far rows are ahead of them, from a slot at `time` on."""
        self._since = time
        self._n_since = 0
        self._ahead = 0.0

    def _take_new_steps(self, time: float) -> None:
        """Replace all differences of times by those of refused times and this one: a new pace."""
        n = self._n_new_steps(time)
        steps = [math.nan for _ in range(N_DIFFERENCES)]
        later = time
        for i in range(n):
            earlier = self._doubted[self._n_doubted - 1 - i]
            steps[n - 1 - i] = later - earlier
            later = earlier
        self._steps = steps
        self._n_steps = n

    def _look(self) -> None:
        """Compute `pace` and `is_irregular` from the last differences of times."""
        n = self._n_steps
        steps = ordered(self._steps, n)
        pace = self._usual_step(steps, n)
        first = _first_from(steps, n, FASTER * pace)
        end = _end_up_to(steps, n, SLOWER * pace)
        if 2 * _n_exact(steps, first, end, pace) < end - first:
            pace = _mean(steps, first, end)  # the clock is not exact
        if n == N_DIFFERENCES:
            mean_step = _mean(self._steps, 0, n)
            if mean_step > ROUNDED * pace and self._is_rounded(mean_step, steps[n // 2]):
                pace = mean_step
        is_irregular = n >= SETTLED and _unevenness(steps, n, pace) > (
            EVEN if self.is_irregular else UNEVEN
        )
        if is_irregular != self.is_irregular or not 1 / CHANGED < pace / self.pace < CHANGED:
            self._count_from(self.last_time)
        self.pace = pace
        self.is_irregular = is_irregular

    def _usual_step(self, steps: list[float], n: int) -> float:
        """Return the median of the differences of times that are one slot long.

        A difference is taken as one slot if it is 0.6 to 1.5 times the present pace. If too few
        differences are so, or too many are shorter, those around the lower quartile of all
        differences are taken: if rows are missing, the differences of one slot are the shortest.

        Args:
            steps: The last differences of times, the shortest first.
            n: How many there are.
        """
        if n < SETTLED:
            return steps[(n - 1) // 2]
        first = _first_from(steps, n, FASTER * self.pace)
        end = _end_up_to(steps, n, SLOWER * self.pace)
        if end - first < LIKE * n or first > BELOW * n:
            quartile = steps[(n - 1) // 4]
            first = _first_from(steps, n, FASTER * quartile)
            end = _end_up_to(steps, n, SLOWER * quartile)
        return steps[first + (end - first - 1) // 2]

    def _is_rounded(self, mean_step: float, median: float) -> bool:
        """Return whether the last times are those of rows every `mean_step`, only rounded.

        They are if their distances from an even sequence with this step range over at most 1.75
        (`ROUNDED_WITHIN`) median differences of times.
        """
        away = 0.0
        low = 0.0
        high = 0.0
        for step in self._steps:
            away += step - mean_step
            low = min(low, away)
            high = max(high, away)
        return high - low <= ROUNDED_WITHIN * median

    def restored(self) -> None:
        """Count the differences of times and the refused times."""
        self._n_steps = 0
        for step in self._steps:
            if not math.isnan(step):
                self._n_steps += 1
        self._n_doubted = 0
        for time in self._doubted:
            if not math.isnan(time):
                self._n_doubted += 1

    def arrays(self) -> dict[str, Array]:
        """Return, as one array, everything that a snapshot must keep for `load`."""
        return {"clock": self.numbers()}

    def load(self, array: FloatArray) -> None:
        """Restore the array that `arrays` returned; its shape and type must be right.

        Raises:
            SnapshotError: The content of the array is damaged.
        """
        pace, last_time, is_irregular, ahead, *others = array.tolist()
        n_since_leap, n_until_look, since, n_since, *times = others
        steps, doubted = times[:N_DIFFERENCES], times[N_DIFFERENCES:]
        if (
            not (math.isnan(pace) if math.isnan(steps[0]) else 0 < pace < math.inf)
            or is_irregular not in (0, 1)
            or not (abs(ahead) <= 1 and 0 <= n_since_leap <= MOST_COUNTED)
            or not -MOST_COUNTED <= n_until_look <= EVERY
            or any(map(math.isinf, (last_time, since, *steps, *doubted)))
            or any(step <= 0 for step in steps)
            or not all(map(_is_filled_first, (steps, doubted)))
            or not (n_since == 0 or (since < last_time and 0 < n_since <= MOST_COUNTED))
            or not n_since.is_integer()
        ):
            raise SnapshotError("the snapshot's clock of a sensor is damaged; start without it.")
        self.take(array)


def _is_filled_first(numbers: list[float]) -> bool:
    """Return whether no number comes after a NaN."""
    unknown = [math.isnan(number) for number in numbers]
    return unknown == sorted(unknown)


def _mean(numbers: list[float], first: int, end: int) -> float:
    """Return the mean of the numbers from the place `first` to before the place `end`."""
    total = 0.0
    for at in range(first, end):
        total += numbers[at]
    return total / (end - first)


def _first_from(steps: list[float], n: int, bound: float) -> int:
    """Return the place of the first of n ordered numbers that is not below a bound; else n."""
    at = 0
    while at < n and steps[at] < bound:
        at += 1
    return at


def _end_up_to(steps: list[float], n: int, bound: float) -> int:
    """Return how many of n ordered numbers are not above a bound."""
    end = n
    while end > 0 and steps[end - 1] > bound:
        end -= 1
    return end


def _n_exact(steps: list[float], first: int, end: int, pace: float) -> int:
    """Return how many ordered differences of times, one of which is `pace`, are nearly as long.

    Only those from the place `first` to before the place `end` are counted.
    """
    low = first
    while abs(steps[low] - pace) > EXACT * pace:
        low += 1
    high = end
    while abs(steps[high - 1] - pace) > EXACT * pace:
        high -= 1
    return high - low


def _unevenness(steps: list[float], n: int, pace: float) -> float:
    """Return the mean distance of n ordered differences of times from whole slots, in slots.

    Differences of 4.5 slots (`MOST_UNEVEN`) and longer ones do not count.
    """
    total = 0.0
    n_near = 0
    for at in range(n):
        length = steps[at] / pace
        if length >= MOST_UNEVEN:
            break
        total += abs(length - (1 if length < 1.5 else round(length)))
        n_near += 1
    return total / n_near if n_near else 0.0
