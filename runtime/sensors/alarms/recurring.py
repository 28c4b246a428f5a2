"""Know the jumps that recur at one phase of the day: a heating schedule, a tariff, a night's pump.

A jump is a change from one row to the next that is far larger than usual. The last jumps are kept
with their slots. A slot's phase is its place in the cycle, which is a day or the sensor's season.

    expected    jumps of one sign came at about this phase in 3 of the last 7 cycles, or in 5 of the
                last 21: on working days, each night, on irregular days
    due         one came 7 cycles before (on the same weekday), and 14 cycles before too, or in 6 of
                the last 7 cycles
    absent      a jump was due and has not come, on a sensor of which those due hardly ever fail
"""

from __future__ import annotations

from edgefold.runtime.kept_numbers import KeptNumbers, filled, replaced
from edgefold.runtime.sensors.alarms.slot_place import SlotPlace

N_JUMPS = 96
"""The number of jumps that are kept."""
LEAST_JUMP, HIGHER, LOWER = 4.0, 1.05, 0.999
"""How many usual changes a jump is at least; each jump raises this bound by the first factor, and
each row lowers it by the second one, so that at most one row in 50 is a jump in the long run."""
CHANGE_RATE, CLIP = 0.002, 4.0
"""The rate of the mean change, in which a change counts as at most so many means."""
NEAR, SETTLING = 1, 5
"""How many slots a recurring jump may be early or late, and for how many rows after it a forecast
may still be wrong because of it."""
N_SOON, N_SOON_CYCLES, N_EVER, N_CYCLES = 3, 7, 5, 21
"""A jump is expected after 3 in the last 7 cycles, or 5 in the last 21."""
SOON = (2 << N_SOON_CYCLES) - 2
"""The bits of the last 7 cycles, which begin with bit 1."""
LARGER = 1.25
"""How much larger than the largest jump at its phase an error may be that it explains."""
WEEK, N_DUE = 7, 6
"""The cycles after which working days repeat; and in how many of these a daily jump came."""
NEAR_DUE = 2 * NEAR
"""How many slots a jump may be away from an earlier one's phase, if each may be `NEAR` off."""
N_KEPT, MOST_MISSED = 4, 0.2
"""How many jumps that were due must have come before an absent one is alarmed, and which share of
those due may have failed."""
FADING = 0.99
NOWHEN, LARGEST = -1, 1e100
EARLIEST, LATEST = -(1 << 62), 1 << 62
"""Slots before and after all others."""
N_LATE = 2 * NEAR + SETTLING + NEAR + 1
"""By how many slots the newest row may be late after a jump one or more cycles before; the earliest
one is `2 * NEAR` slots before."""


class Recurring(KeptNumbers):
    """Remembers the jumps of one sensor, in a memory of fixed size."""

    KEPT = (
        *("_cycle", "_slot", "_value", "_usual", "_bound", "_gap", "_judged"),
        *("_n_came", "_n_missed", "_at", "_jumps", "_sizes"),
    )

    _cycle: int = 0
    _slot: int = NOWHEN
    _value: float = 0.0
    _usual: float = 0.0
    _bound: float = LEAST_JUMP
    # The slots of the newest row after a gap, and of the newest jump that was due.
    _gap: int = NOWHEN
    _judged: int = NOWHEN
    # The jumps that were due, and came or did not.
    _n_came: float = 0.0
    _n_missed: float = 0.0
    # Jumps, 2 * slot + 1 upwards and 2 * slot downwards, in a ring; `_at` is the oldest.
    _at: int = 0
    _jumps: list[int] = filled(NOWHEN, N_JUMPS)
    _sizes: list[float] = filled(0.0, N_JUMPS)
    # The next slot that is a day or a week after a jump, or one before it: spares a search per row.
    _next: int = EARLIEST

    def restored(self) -> None:
        """Let the next row search for `_next`."""
        self._next = EARLIEST

    def see(self, value: float, n_missing: int, place: SlotPlace, is_stuck: bool) -> bool:
        """Learn a row, and return whether a jump that was due has not come.

        Args:
            value: The measured value.
            n_missing: The number of missing rows just before it.
            place: Its place in the cycle.
            is_stuck: Whether the sensor is stuck, so that no jump can be seen.
        """
        cycle, slot = place.cycle, place.slot
        if cycle != self._cycle or slot < self._slot:
            self._forget(cycle)
        if cycle == 0:
            return False
        follows = self._slot != NOWHEN and n_missing == 0
        change = value - self._value
        self._slot, self._value = slot, value
        if not follows or is_stuck:
            self._gap = slot
            return False
        self._learn(slot, change)
        then = slot - NEAR_DUE - 1
        if then > self._next:
            self._find_next(then)
        if then < self._next:
            return False
        day, week = 2 * (then - cycle), 2 * (then - WEEK * cycle)
        if (day in self._jumps or week in self._jumps) and self._is_absent(then, 0):
            return True
        is_upwards = day + 1 in self._jumps or week + 1 in self._jumps
        return is_upwards and self._is_absent(then, 1)

    def _forget(self, cycle: int) -> None:
        """Begin again, with another cycle or because times have gone back."""
        self._cycle, self._slot = cycle, NOWHEN
        self._value, self._usual, self._bound = 0.0, 0.0, LEAST_JUMP
        self._gap, self._judged = NOWHEN, NOWHEN
        self._n_came, self._n_missed = 0.0, 0.0
        self._at = 0
        self._jumps = [NOWHEN for _ in range(N_JUMPS)]
        self._sizes = [0.0 for _ in range(N_JUMPS)]
        self._next = EARLIEST

    def _learn(self, slot: int, change: float) -> None:
        """Keep a row's change from the row before if it is a jump, and learn the usual change."""
        size, usual, bound = abs(change), self._usual, LOWER * self._bound
        self._bound = bound = bound if bound > LEAST_JUMP else LEAST_JUMP
        if usual <= 0.0:
            self._usual = min(size, LARGEST)
            return
        if size > bound * usual:
            self._bound = HIGHER * bound
            self._keep(2 * slot + 1 if change > 0.0 else 2 * slot, size)
        self._usual = usual + CHANGE_RATE * (min(size, CLIP * usual) - usual)

    def _keep(self, jump: int, size: float) -> None:
        self._jumps = replaced(self._jumps, self._at, jump)
        self._sizes = replaced(self._sizes, self._at, size)
        self._at = (self._at + 1) % N_JUMPS
        self._next = min(self._next, (jump >> 1) + self._cycle)

    def _find_next(self, slot: int) -> None:
        """Find the next slot, this one or later, that is a day or a week after a jump."""
        day, week, found = self._cycle, WEEK * self._cycle, LATEST
        for jump in self._jumps:
            at = jump >> 1
            if slot <= at + day < found:
                found = at + day
            elif slot <= at + week < found:
                found = at + week
        self._next = found

    def _came(self, slot: int, up: int) -> bool:
        """Return whether a jump upwards or downwards came at about a slot."""
        first, last = 2 * (slot - NEAR_DUE), 2 * (slot + NEAR_DUE) + 1
        for jump in self._jumps:  # noqa: SIM110  # C has no any()
            if first <= jump <= last and jump & 1 == up:
                return True
        return False

    def _is_absent(self, then: int, up: int) -> bool:
        """Return whether a jump that hardly ever fails was due at slot `then` and did not come."""
        is_seen = self._gap < then - NEAR_DUE
        if not is_seen or then <= self._judged + 2 * NEAR_DUE or not self._is_due(then, up):
            return False
        self._judged = then
        n_came, n_missed = FADING * self._n_came, FADING * self._n_missed
        if self._came(then, up):
            self._n_came, self._n_missed = n_came + 1.0, n_missed
            return False
        self._n_came, self._n_missed = n_came, n_missed + 1.0
        return n_came >= N_KEPT and n_missed + 1.0 <= MOST_MISSED * (n_came + 1.0)

    def _is_due(self, then: int, up: int) -> bool:
        """Return whether a jump was due at slot `then`: by the day of the week, or on most days."""
        cycle = self._cycle
        if not self._came(then - WEEK * cycle, up):
            return False
        if self._came(then - 2 * WEEK * cycle, up):
            return True
        n_came = 0
        for n in range(1, WEEK + 1):
            if self._came(then - n * cycle, up):
                n_came += 1
        return n_came >= N_DUE

    def explains(self, error: float) -> bool:
        """Return whether a jump that is expected at about the newest row explains an error.

        Args:
            error: |value - median| of the newest row.
        """
        cycle, slot = self._cycle, self._slot
        if cycle == 0:
            return False
        n_near, largest = 0, 0.0
        # For downward and then for upward jumps, for each slot that the newest row may be late: the
        # cycles in which a jump came, one bit each.
        cycles = [0 for _ in range(2 * N_LATE)]
        for jump, size in zip(self._jumps, self._sizes, strict=True):
            ago = slot - (jump >> 1)
            n_cycles = (ago + NEAR) // cycle if jump != NOWHEN else 0
            late = ago - n_cycles * cycle
            if late > cycle // 2:
                n_cycles, late = n_cycles + 1, late - cycle
            if 1 <= n_cycles <= N_CYCLES and -2 * NEAR <= late <= SETTLING + NEAR:
                n_near += 1
                largest = max(largest, size)
                at = (jump & 1) * N_LATE + late + 2 * NEAR
                cycles[at] = cycles[at] | 1 << n_cycles
        if n_near < N_SOON or error > LARGER * largest:
            return False
        for up in range(2):
            for center in range(NEAR, N_LATE - NEAR):
                first = up * N_LATE + center - NEAR
                came = 0
                for at in range(first, first + 2 * NEAR + 1):
                    came = came | cycles[at]
                if _n_bits(came & SOON) >= N_SOON or _n_bits(came) >= N_EVER:
                    return True
        return False


def _n_bits(number: int) -> int:
    """Return how many bits of a number are 1."""
    n = 0
    while number > 0:
        number = number & (number - 1)
        n += 1
    return n
