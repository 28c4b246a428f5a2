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

from edgefold.runtime.kept_arrays import KeptNumbers
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


class Recurring(KeptNumbers):
    """Remembers the jumps of one sensor, in a memory of fixed size."""

    KEPT = (
        *("_cycle", "_slot", "_value", "_usual", "_bound", "_gap", "_judged"),
        *("_n_came", "_n_missed", "_at", "_jumps", "_sizes"),
    )

    def __init__(self) -> None:
        self._cycle, self._slot = 0, NOWHEN
        self._value, self._usual, self._bound = 0.0, 0.0, LEAST_JUMP
        # The slots of the newest row after a gap, and of the newest jump that was due.
        self._gap, self._judged = NOWHEN, NOWHEN
        self._n_came, self._n_missed = 0.0, 0.0  # jumps that were due, and came or did not
        # Jumps, 2 * slot + 1 upwards and 2 * slot downwards, in a ring; `_at` is the oldest.
        self._at, self._jumps, self._sizes = 0, [NOWHEN] * N_JUMPS, [0.0] * N_JUMPS
        self.restored()

    def restored(self) -> None:
        """Compute the set of jumps again."""
        self._known = frozenset(self._jumps)

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
            fresh = Recurring()
            self.__dict__.update(fresh.__dict__)
            self._cycle = cycle
        if not cycle:
            return False
        follows = self._slot != NOWHEN and not n_missing
        change = value - self._value
        self._slot, self._value = slot, value
        if not follows or is_stuck:
            self._gap = slot
            return False
        self._learn(slot, change)
        then, jumps = slot - NEAR_DUE - 1, self._known
        day, week = 2 * (then - cycle), 2 * (then - WEEK * cycle)
        if (day in jumps or week in jumps) and self._is_absent(then, 0):
            return True
        return (day + 1 in jumps or week + 1 in jumps) and self._is_absent(then, 1)

    def _learn(self, slot: int, change: float) -> None:
        """Keep a row's change from the row before if it is a jump, and learn the usual change."""
        size, usual, bound = abs(change), self._usual, LOWER * self._bound
        self._bound = bound = bound if bound > LEAST_JUMP else LEAST_JUMP
        if usual <= 0.0:
            self._usual = min(size, LARGEST)
            return
        if size > bound * usual:
            self._bound = HIGHER * bound
            self._keep(2 * slot + (change > 0.0), size)
        self._usual = usual + CHANGE_RATE * (min(size, CLIP * usual) - usual)

    def _keep(self, jump: int, size: float) -> None:
        jumps, sizes = [*self._jumps], [*self._sizes]
        jumps[self._at], sizes[self._at] = jump, size
        self._jumps, self._sizes, self._at = jumps, sizes, (self._at + 1) % N_JUMPS
        self.restored()

    def _came(self, slot: int, up: int) -> bool:
        """Return whether a jump upwards or downwards came at about a slot."""
        jumps = self._known
        return any(2 * (slot + d) + up in jumps for d in range(-NEAR_DUE, NEAR_DUE + 1))

    def _is_absent(self, then: int, up: int) -> bool:
        """Return whether a jump that hardly ever fails was due at slot `then` and did not come."""
        cycle = self._cycle
        is_seen = self._gap < then - NEAR_DUE
        if not is_seen or then <= self._judged + 2 * NEAR_DUE:
            return False
        if not self._came(then - WEEK * cycle, up):
            return False
        is_due = self._came(then - 2 * WEEK * cycle, up) or (
            sum(self._came(then - n * cycle, up) for n in range(1, WEEK + 1)) >= N_DUE
        )
        if not is_due:
            return False
        self._judged = then
        n_came, n_missed = FADING * self._n_came, FADING * self._n_missed
        if self._came(then, up):
            self._n_came, self._n_missed = n_came + 1.0, n_missed
            return False
        self._n_came, self._n_missed = n_came, n_missed + 1.0
        return n_came >= N_KEPT and n_missed + 1.0 <= MOST_MISSED * (n_came + 1.0)

    def explains(self, error: float) -> bool:
        """Return whether a jump that is expected at about the newest row explains an error.

        Args:
            error: |value - median| of the newest row.
        """
        cycle, slot = self._cycle, self._slot
        if not cycle:
            return False
        near = list[tuple[int, int, int, float]]()
        for jump, size in zip(self._jumps, self._sizes, strict=True):
            ago = slot - (jump >> 1)
            n_cycles = (ago + NEAR) // cycle if jump != NOWHEN else 0
            late = ago - n_cycles * cycle
            if late > cycle // 2:
                n_cycles, late = n_cycles + 1, late - cycle
            if 1 <= n_cycles <= N_CYCLES and -2 * NEAR <= late <= SETTLING + NEAR:
                near.append((jump & 1, late, n_cycles, size))
        if len(near) < N_SOON or error > LARGER * max(size for *_, size in near):
            return False
        for up in (0, 1):
            for center in range(-NEAR, SETTLING + 1):
                cycles = {n for u, late, n, _ in near if u == up and abs(late - center) <= NEAR}
                n_soon = sum(n <= N_SOON_CYCLES for n in cycles)
                if n_soon >= N_SOON or len(cycles) >= N_EVER:
                    return True
        return False
