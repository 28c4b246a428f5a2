"""Find a stream's season, and the phase in it of each slot (place of a row among even times).

    dated rows ──> day, week or year, the first that spans 4 slots ──> season from the first rows on
    values ──> ring ──> now and then: correlation with itself at every lag ──> a better season

All candidates are compared by how well the values repeat after them
(`edgefold.runtime.sensors.clock.season_score`). The present season stays until another one is
clearly better.

The phase of a calendar season follows the calendar; the phase of a found season counts slots.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.sensors.clock.season_score import LEAST_SCORE, NEAR, TURNS, repeats

LEAST_VALUES = 256
"""The smallest number of values that are kept; more are if the longest season needs them."""
FIRST_LOOKS, LOOK_EVERY = (48, 96, 160), 256
"""The numbers of slots after which a season is sought at first, and the interval in slots later."""
DAY, WEEK, YEAR = 86_400.0, 7 * 86_400.0, 365.2425 * 86_400.0
CALENDAR = {"day": DAY, "week": WEEK, "year": YEAR}
LEAST = 4
"""The smallest number of slots that a season of the calendar must span."""
OTHER_PACE = 1.25
"""The ratio of two times between slots beyond which values from before the change cannot show
seasons in slots."""
BESIDE_CALENDAR = 0.5
"""The weight of the score of a found season that is longer than the shortest one of the calendar
(day, week, year): few such seasons exist."""
LONGER = 0.9
"""The factor on the score of a week next to a day, and of a year next to a week: the longer season
must repeat better."""
OF_CALENDAR, OF_PRESENT = 0.05, 0.05
"""The numbers added to the score of a season of the calendar, and to that of the present season."""
SHARPER = 0.03
"""How much better a season must repeat over many turns than a present one of nearly its length."""
UNKNOWN_SCORE = 0.2
"""The score of the shortest season of the calendar before enough values have come to judge it."""
MOST_SLOTS = 2**52
SLIP = 2
"""The smallest difference, in slots, between counted phase and calendar that is corrected."""


@dataclass(frozen=True, slots=True)
class Season:
    """Describes a season by its length and, if it is one of the calendar, its name.

    Attributes:
        length: The length in slots; 0 stands for no season.
        name: The name in the calendar: day, week or year; empty for a season that was found.
    """

    length: int = 0
    name: str = ""


NONE = Season()


class Seasons:
    """Keeps the season of one stream, and looks for a better one now and then.

    Args:
        longest: The length of the longest season in slots.

    Attributes:
        season: The present season.
        n: The number of slots that have passed.
    """

    def __init__(self, longest: int):
        self._longest = longest
        self.season, self.n = NONE, 0
        self._offset = 0  # slot n has the phase n + offset
        n_values = max(math.ceil(TURNS * longest) + 1, LEAST_VALUES)
        self._ring = np.full(n_values, math.nan, np.float32)
        self._waiting: tuple[int, int, float] | None = None  # a row that is not in the ring yet
        self._n_held = 0  # slots since the ring was empty
        self._next_look = FIRST_LOOKS[0]
        self._pace = math.nan  # of the slots in the ring
        self._is_dated = False  # whether the calendar could be asked at the newest slot

    def copy(self) -> Seasons:
        """Return a copy, which shares the ring of values with this object.

        Only one of the two may go on: `push` leaves a row waiting, and it is written into the ring
        when the next one comes. Writing it twice changes nothing.
        """
        self._write(self._ring)
        other = Seasons.__new__(Seasons)
        other.__dict__.update(self.__dict__)
        return other

    def phase(self, n_slots: int) -> int:
        """Return the phase, in slots from 0, of the slot `n_slots` after the newest one."""
        return self.count(n_slots) % self.season.length

    def count(self, n_slots: int) -> int:
        """Return the number of the slot `n_slots` after the newest one; it has the slot's phase."""
        return self.n - 1 + n_slots + self._offset

    def slip(self, time: float, n_slots: int) -> int:
        """Return how many slots the calendar's phase at a time is ahead of the phase by counting.

        The result is negative if it is behind, and 0 if the two differ by fewer than 2 slots
        (`SLIP`) or the season is not in the calendar.

        Args:
            time: The time of a row, in seconds since 1970.
            n_slots: The number of slots from the newest row to this row.
        """
        season = self.season
        if not season.name:
            return 0
        apart = (calendar_phase(season, time) - self.phase(n_slots)) % season.length
        apart = apart - season.length if 2 * apart > season.length else apart
        return apart if abs(apart) >= SLIP else 0

    def push(self, value: float, n_missing: int, slip: int) -> None:
        """Append a NaN for each missing slot before a row, then the row's value; correct the phase.

        Args:
            value: The row's value; NaN if it has none.
            n_missing: The number of missing slots before the row.
            slip: The number of slots that are added to the phase from this row on.
        """
        self._write(self._ring)
        self._waiting = self.n, n_missing, value
        self.n += n_missing + 1
        self._n_held += n_missing + 1
        self._offset += slip

    def _write(self, ring: Array) -> None:
        """Write the row that waits, and the missing slots before it, into a ring of values."""
        if self._waiting is not None:
            first, n_missing, value = self._waiting
            if n_missing:
                ring[(first + np.arange(min(n_missing, len(ring)))) % len(ring)] = math.nan
            ring[(first + n_missing) % len(ring)] = value

    def _values(self) -> Array:
        """Return a copy of the ring of values with the row that waits."""
        ring = self._ring.copy()
        self._write(ring)
        return ring

    def follow(self, pace: float, mean_pace: float, newest: float | None) -> str:
        """Update the season after a row; some rows trigger a search for a better one.

        If the pace changed, all values are forgotten and a calendar season is taken, if any fits.

        Args:
            pace: The time between two slots.
            mean_pace: The mean time between two slots over many of them.
            newest: The time of the newest slot in seconds since 1970; None if times are not dates
                or are irregular.

        Returns:
            A note for the user about a new season; empty if it did not change.
        """
        before, is_guess = self.season, True
        if not 1 / OTHER_PACE < pace / self._pace < OTHER_PACE:
            if not math.isnan(self._pace):
                self._forget()
            self._pace = pace
            self._turn_to(self._first(mean_pace, newest), newest)
        elif (newest is not None) != self._is_dated:  # times are without a pace now, or no more
            season = NONE if newest is None and self.season.name else self.season
            self._turn_to(season if season.length else self._first(mean_pace, newest), newest)
        self._is_dated = newest is not None
        if self._n_held >= self._next_look:
            later = (n for n in FIRST_LOOKS if n > self._n_held)
            self._next_look = next(later, (self._n_held // LOOK_EVERY + 1) * LOOK_EVERY)
            self._pace = pace
            self._turn_to(self._look(mean_pace, newest), newest)
            is_guess = False
        if self.season == before:
            return ""
        if not self.season.length:
            return "no season any more"
        name = f", a {self.season.name}" if self.season.name else ""
        guess = " (by the calendar, until the values show one)" if is_guess else ""
        return f"season of {self.season.length} slots{name}{guess}"

    def _forget(self) -> None:
        """Forget the season and all values, which came at another pace."""
        self._ring, self._waiting = np.full_like(self._ring, math.nan), None
        self._n_held, self._next_look, self._pace = 0, FIRST_LOOKS[0], math.nan
        self.season, self._offset = NONE, 0

    def _turn_to(self, season: Season, newest: float | None) -> None:
        """Change to another season; one of the calendar gets its phase from the time `newest`."""
        if season == self.season:
            return
        self.season, self._offset = season, 0
        if season.name and newest is not None:
            self._offset = calendar_phase(season, newest) - self.phase(0)

    def _calendar(self, pace: float, newest: float | None) -> list[Season]:
        """Return the calendar's seasons that slots `pace` seconds apart can show, shortest first.

        There is none if `newest`, the time of the newest slot, is None: times are not dates, or
        irregular.
        """
        if newest is None:
            return []
        found = []
        for name, duration in CALENDAR.items():
            slots = duration / pace
            if self.season.name == name and abs(slots - self.season.length) < 0.75:
                found.append(self.season)  # a pace that is a little different changes nothing
            elif LEAST - 0.5 < slots <= self._longest:
                found.append(Season(round(slots), name))
        return found

    def _first(self, pace: float, newest: float | None) -> Season:
        """Return the shortest season of the calendar that slots `pace` seconds apart can show.

        It is `NONE` if there is none, or if `newest`, the newest slot's time, is None.
        """
        return next(iter(self._calendar(pace, newest)), NONE)

    def _look(self, pace: float, newest: float | None) -> Season:
        """Score all seasons by the values that are kept, and return the best, or `NONE`.

        `pace` is the time between two slots, and `newest` the newest slot's time in seconds since
        1970; if `newest` is None, no season of the calendar is considered.
        """
        n = min(self._n_held, len(self._ring))
        values = np.roll(self._values(), -(self.n % len(self._ring)))[-n:].astype(np.float64)
        found = repeats(values)
        score = found.score
        worth = {NONE: LEAST_SCORE}
        calendar = self._calendar(pace, newest)
        for rank, season in enumerate(calendar):
            if season.length < len(score):
                repeated = (found.likely if rank else score)[season.length]
                worth[season] = max(repeated * LONGER**rank, 0.0) + OF_CALENDAR
            elif rank == 0 or season == self.season:
                worth[season] = UNKNOWN_SCORE
        if calendar:
            worth[NONE] = 0.0  # a wrong season costs little, and the calendar's is seldom wrong
        present, length = self.season, found.best if found.best <= self._longest else 0
        now = present.length
        if not present.name and 0 < abs(length - now) <= NEAR * length:
            # One season, whose length is known to the slot only after some turns.
            if now < len(score) and found.sharp[length] <= found.sharp[now] + SHARPER:
                length = now
            else:
                present = Season(length)
        if length and not any(abs(length - s.length) <= 1 + length // 100 for s in calendar):
            is_beside = calendar and length > calendar[0].length
            worth[Season(length)] = float(score[length]) * (BESIDE_CALENDAR if is_beside else 1.0)
        if not present.name and 0 < present.length < len(score):
            worth[present] = float(score[present.length])
        if present in worth:
            worth[present] += OF_PRESENT
        return max(worth, key=lambda season: worth[season])

    def arrays(self) -> dict[str, Array]:
        """Return copies of the arrays that a snapshot must keep for `load`."""
        season = self.season
        kind = (*CALENDAR, "").index(season.name)
        counts = (self.n, self._n_held, self._offset, season.length, kind, self._is_dated)
        numbers = (*counts, self._next_look, self._pace)
        return {"season": np.array(numbers, np.float64), "season_values": self._values()}

    def load(self, numbers: FloatArray, values: Array) -> None:
        """Restore the two arrays that `arrays` returned; their shapes and types must be right.

        Raises:
            SnapshotError: The content of the arrays is damaged.
        """
        *counts, pace = numbers.tolist()
        if (
            not all(float(count).is_integer() and abs(count) < MOST_SLOTS for count in counts)
            or not 0 <= counts[1] <= counts[0]
            or counts[3] not in (0, *range(2, self._longest + 1))
            or counts[4] not in range(len(CALENDAR) + 1)
            or counts[5] not in (0, 1)
            or np.isinf(values).any()
            or not (math.isnan(pace) or 0 < pace < math.inf)
        ):
            raise SnapshotError("the snapshot's season of a sensor is damaged; start without it.")
        self.n, self._n_held, self._offset, length, kind, is_dated, self._next_look = map(
            int, counts
        )
        self._is_dated = bool(is_dated)
        self.season = Season(length, (*CALENDAR, "")[kind])
        self._ring, self._pace, self._waiting = values.copy(), pace, None


def calendar_phase(season: Season, time: float) -> int:
    """Return the phase, in slots, of a time in seconds since 1970 in a season of the calendar."""
    duration = CALENDAR[season.name]
    return int(time % duration / duration * season.length + 0.5) % season.length
