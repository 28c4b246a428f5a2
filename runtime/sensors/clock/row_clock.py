"""Turn a sensor's rows into inputs x of the general model, one for each evenly spaced slot.

    (time, value) ──> clock: how many slots ──> season: length and phase ──> x, a row for each slot

A slot is one place in the even sequence of times in which rows come; a slot without a row is
missing. The four numbers of x are the value, 1 if it was measured and 0 if not, the season's length
in slots or 0, and the slot's phase in the season. A missing slot becomes an x without a value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.kept_arrays import require_same
from edgefold.runtime.rows.csv_fields import Clock
from edgefold.runtime.sensors.alarms.slot_place import NOWHERE, SlotPlace
from edgefold.runtime.sensors.clock.seasons import DAY, LEAST, Seasons
from edgefold.runtime.sensors.clock.slot_clock import CHANGED, SlotClock
from edgefold.runtime.series.durations import elapsed

MOST_MISSING = 256
"""The largest number of missing slots in sequence that the model steps through; of a longer gap,
whole seasons are skipped."""
NOTED_GAP = 10
"""A row that comes more than this many slots after the one before is reported as a gap."""
_new = tuple.__new__  # makes a `SlotPlace` in a third of the time, which every row pays
LARGEST = 1e30
"""The largest accepted value: the model computes in float32, and no sensor measures larger ones."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """Holds a row that `SensorFeed.rows` has accepted, until `SensorFeed.commit` keeps it."""

    time: float
    value: float
    n_slots: int
    n_missing: int  # of them, passed through
    slip: int
    kind: Clock


class SensorFeed:
    """Turns the rows of one sensor into inputs x of the model, in memory of a fixed size.

    Call `rows` for each row of the sensor, and `commit` once the model has taken what it returned.

    Args:
        longest_season: The length of the longest season in slots, from the bundle's prediction.

    Attributes:
        notes: Sentences for the user about what the last committed row changed: gaps, pace, season.
        n_missing: The number of missing slots before the row that `rows` accepted last.
        place: Where that row stands in the season and the day.
    """

    def __init__(self, longest_season: int):
        self._longest = longest_season
        self._clock, self._seasons = SlotClock(), Seasons(longest_season)
        self._pending: _Pending | None = None
        self._told_pace = math.nan
        self.notes: tuple[str, ...] = ()
        self.n_missing = 0
        self.place = NOWHERE

    @property
    def season(self) -> int:
        """Return the season's length in slots; 0 if there is no season."""
        return self._seasons.season.length

    @property
    def season_name(self) -> str:
        """Return "day", "week" or "year" for a season of the calendar; empty for any other."""
        return self._seasons.season.name

    @property
    def newest_time(self) -> float:
        """Return the time of the newest row; NaN before the first."""
        return self._clock.last_time

    @property
    def pace(self) -> float:
        """Return the time between two slots; if rows are irregular, the mean time between rows.

        It is NaN before it is known, and has the unit of the times, which is seconds for dates.
        """
        return self._clock.mean_step if self.is_irregular else self._clock.pace

    @property
    def is_irregular(self) -> bool:
        """Return whether the rows come so unevenly that each row counts as one slot."""
        return self._clock.is_irregular

    def rows(self, time: float, value: float, dated: bool) -> FloatArray:
        """Return the inputs x (n, 4) of the missing slots before a row and of the row itself.

        Before `commit`, only the time of a refused row is remembered: several refused rows that
        follow each other show that the clock was set.

        Args:
            time: The row's time; in seconds since 1970 if it is a date.
            value: The row's value; NaN if it has none.
            dated: Whether times are dates.

        Returns:
            The inputs, one for each slot: the value or 0; 1 if it was measured, else 0; the
            season's length in slots or 0; and the slot's phase in the season.

        Raises:
            DataError: The row is refused: late, repeated, far ahead, or a value beyond 1e30.
        """
        self._pending = None
        kind: Clock = "date" if dated else "number"
        if not abs(value) <= LARGEST and value == value:
            raise DataError(f"the value {value:g} is beyond {LARGEST:g}; drop the row.")
        n_slots = self._clock.slots(time, kind)
        n_missing = n_slots - 1
        seasons, length = self._seasons, self.season
        slip = seasons.slip(time, n_slots) if length else 0
        if n_missing > MOST_MISSING:
            n_missing, slip = _passed(n_missing + slip, length), 0
        self.n_missing = n_slots - 1
        self.place = self._place(time, dated, length, n_missing + slip)
        self._pending = _Pending(time, value, n_slots, n_missing, slip, kind)
        measured = value == value
        number = value if measured else 0.0
        if n_missing == 0:
            phase = (seasons.phase(1) + slip) % length if length else 0
            return np.array([[number, measured, length, phase]], np.float64)
        x = np.zeros((n_missing + 1, 4))
        x[-1, :2] = number, measured
        if length:
            x[:, 2] = length
            x[:, 3] = (seasons.phase(1) + np.arange(n_missing + 1)) % length
            x[-1, 3] = (x[-1, 3] + slip) % length
        return x

    def _place(self, time: float, dated: bool, season: int, n_passed: int) -> SlotPlace:
        """Return the place of a row that comes `n_passed` slots after the next slot."""
        clock = self._clock
        if dated and not clock.is_irregular and clock.is_known:
            n_day = round(DAY / clock.pace)
            if n_day >= LEAST:
                return _new(SlotPlace, (season, n_day, math.floor(time * n_day / DAY + 0.5)))
        return _new(SlotPlace, (season, season, self._seasons.count(1) + n_passed))

    def commit(self) -> None:
        """Keep the row that `rows` accepted last, and learn pace and season from it."""
        self.take(self.prepared())

    def take(self, new: SensorFeed) -> None:
        """Become what `prepared` returned, in one step that no interrupt can divide."""
        self.__dict__.update(new.__dict__)

    def prepared(self) -> SensorFeed:
        """Return what this object becomes by the row that `rows` accepted last, for `take`.

        This object itself does not change.
        """
        pending = self._pending
        assert pending is not None, "a row is prepared after rows() has accepted it"
        new = SensorFeed.__new__(SensorFeed)
        new.__dict__.update(self.__dict__)
        new._clock, new._seasons, new._pending = self._clock.copy(), self._seasons.copy(), None
        new._learn(pending)
        return new

    def _learn(self, pending: _Pending) -> None:
        """Learn pace and season from a row that `rows` has accepted, and note what changed."""
        clock, seasons = self._clock, self._seasons
        notes = clock.commit(pending.time, pending.n_slots)
        if pending.n_slots > NOTED_GAP and not notes:
            n = pending.n_slots - 1
            length = elapsed(n * clock.pace, pending.kind)
            notes.append(f"{n:,} rows are missing ({length})")
        seasons.push(pending.value, pending.n_missing, pending.slip)
        if clock.is_known:
            if note := self._told_of_pace(pending.kind):
                notes.append(note)
            is_usable = pending.kind == "date" and not clock.is_irregular
            newest = pending.time if is_usable else None
            if note := seasons.follow(clock.pace, clock.mean_pace, newest):
                notes.append(note)
        self.notes = tuple(notes)

    def _told_of_pace(self, kind: Clock) -> str:
        """Return a sentence if the slots' interval changed since the last such sentence; else "".

        `kind` says whether times are dates.
        """
        pace, before = self._clock.pace, self._told_pace
        if not self._clock.is_settled or self.is_irregular or 1 / CHANGED < pace / before < CHANGED:
            return ""
        self._told_pace = pace
        if math.isnan(before):
            return ""
        return f"a row comes every {elapsed(pace, kind)} now, {elapsed(before, kind)} before"

    def arrays(self) -> dict[str, Array]:
        """Return copies of the arrays that a snapshot must keep for `load`; shapes never change."""
        return {
            **self._clock.arrays(),
            **self._seasons.arrays(),
            "told_pace": np.array([self._told_pace], np.float64),
        }

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; nothing changes if they are refused.

        Raises:
            SnapshotError: Arrays are missing, damaged, or of another longest season.
        """
        require_same(arrays, self.arrays())
        fresh = SensorFeed(self._longest)
        fresh._clock.load(arrays["clock"])
        fresh._seasons.load(arrays["season"], arrays["season_values"])
        fresh._told_pace = float(arrays["told_pace"].item())
        self.__dict__.update(fresh.__dict__)


def _passed(n_missing: int, season: int) -> int:
    """Return how many missing slots of a long gap the model steps through, at most `MOST_MISSING`.

    Whole seasons are skipped, so that the row after the gap has the right phase.

    Args:
        n_missing: The number of missing slots.
        season: The season's length in slots; 0 if there is no season.
    """
    rest = n_missing % season if season else 0
    if not season or rest > MOST_MISSING:
        return rest or MOST_MISSING
    return rest + (MOST_MISSING - rest) // season * season
