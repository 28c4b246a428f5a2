"""Find the slots of a sensor's rows: how many are missing before each, their phases, their place.

A slot is one place in the even sequence of times in which rows come. `accept` computes everything
about a row and changes nothing else, but for the times of refused rows; `learn` learns the row.

These are rules: C is generated from them (`edgefold.runtime.kept_numbers`).
"""

from __future__ import annotations

import math

from edgefold.runtime.kept_numbers import KeptNumbers
from edgefold.runtime.sensors.alarms.slot_place import NOWHERE, SlotPlace
from edgefold.runtime.sensors.clock.season_search import SeasonSearch
from edgefold.runtime.sensors.clock.seasons import DAY, LEAST, MOST_SLOTS, Seasons
from edgefold.runtime.sensors.clock.slot_clock import CHANGED, Refusal, SlotClock

MOST_MISSING = 256
"""The largest number of missing slots in sequence that the model steps through; of a longer gap,
whole seasons are skipped."""
NOTED_GAP = 10
"""A row that comes more than this many slots after the one before is reported as a gap."""
LARGEST = 1e30
"""The largest accepted value: the model computes in float32, and no sensor measures larger ones."""


class RowSlots(KeptNumbers):
    """Finds the slots of one sensor's rows, and learns their pace and season.

    Args:
        longest_season: The length of the longest season in slots.

    Attributes:
        clock: Counts slots by times.
        seasons: Knows the season and the phases of slots.
        told_pace: The time between two slots that the user heard of last; NaN before the first.
        n_slots: The number of slots from the newest row to the row that `accept` accepted last.
        n_passed: How many missing slots before that row the model steps through.
        slip: How many slots the phase of that row is ahead of the phase by counting.
        place: Where that row stands in the season and the day.
        is_accepted: Whether a row is accepted and not yet learned.
        is_dated: Whether that row's time is a date.
        n_gap: The number of missing slots before the row learned last, if that is worth a note.
        pace_before: The pace that the user heard of before, if `learn` found another one now; else
            NaN.
    """

    clock: SlotClock = SlotClock()
    seasons: Seasons = Seasons()
    told_pace: float = math.nan
    n_slots: int = 1
    n_passed: int = 0
    slip: int = 0
    place: SlotPlace = NOWHERE
    is_accepted: bool = False
    is_dated: bool = False
    n_gap: int = 0
    pace_before: float = math.nan
    _time: float = math.nan  # of the accepted row
    _value: float = math.nan

    def __init__(self, longest_season: int):
        super().__init__()
        self.begin(longest_season)
        self.seasons.allocate()

    def begin(self, longest_season: int) -> None:
        """Begin without rows.

        Args:
            longest_season: The length of the longest season in slots.
        """
        self.seasons.begin(longest_season)

    def accept(self, time: float, value: float, dated: bool) -> Refusal:
        """Find the slots of a row, or say why it is refused.

        Args:
            time: The row's time; in seconds since 1970 if it is a date.
            value: The row's value; NaN if it has none.
            dated: Whether times are dates.
        """
        self.is_accepted = False
        if abs(value) > LARGEST:
            return "value too large"
        n_slots = self.clock.slots(time)
        if n_slots == 0:
            return self.clock.refusal
        slip = self.seasons.slip(time, n_slots)
        n_passed = n_slots - 1
        if n_passed > MOST_MISSING:
            n_passed = _passed(n_passed + slip, self.seasons.season.length)
            slip = 0
        self._time = time
        self._value = value
        self.n_slots = n_slots
        self.n_passed = n_passed
        self.slip = slip
        self.is_dated = dated
        self.is_accepted = True
        self._find_place()
        return ""

    def _find_place(self) -> None:
        """Set the place of the accepted row."""
        length = self.seasons.season.length
        if self.is_dated and self.clock.is_known and not self.clock.is_irregular:
            n_day = round(min(DAY / self.clock.pace, MOST_SLOTS))
            if n_day >= LEAST:
                slot = self._time * n_day / DAY + 0.5
                if abs(slot) > MOST_SLOTS:
                    slot = math.copysign(MOST_SLOTS, slot)
                self.place = SlotPlace(length, n_day, math.floor(slot))
                return
        slots = self.seasons.count(1) + self.n_passed + self.slip
        self.place = SlotPlace(length, length, slots)

    def phase_of(self, slot: int) -> int:
        """Return the phase of one of the slots that the model steps through; 0 without a season.

        Args:
            slot: 0 for the first missing slot before the accepted row; `n_passed` for the row's.
        """
        length = self.seasons.season.length
        if length == 0:
            return 0
        phase = self.seasons.phase(1 + slot)
        return (phase + self.slip) % length if slot == self.n_passed else phase

    def learn(self, search: SeasonSearch) -> None:
        """Learn pace and season from the accepted row, and keep what changed, for notes.

        Args:
            search: Searches for a season, where one is due.
        """
        self.is_accepted = False
        self.clock.commit(self._time, self.n_slots)
        self.n_gap = self.n_slots - 1 if self.n_slots > NOTED_GAP and self.clock.leap == "" else 0
        self.seasons.push(self._value, self.n_passed, self.slip)
        self.seasons.news = ""
        self.pace_before = math.nan
        if self.clock.is_known:
            self._compare_pace()
            is_usable = self.is_dated and not self.clock.is_irregular
            newest = self._time if is_usable else math.nan
            self.seasons.follow(self.clock.pace, self.clock.mean_pace, newest, search)

    def _compare_pace(self) -> None:
        """Set `pace_before` if the pace is not the one any more that the user heard of last."""
        before = self.told_pace
        pace = self.clock.pace
        if not self.clock.is_settled or self.clock.is_irregular:
            return
        if not 1 / CHANGED < pace / before < CHANGED:
            self.told_pace = pace
            self.pace_before = before


def _passed(n_missing: int, season: int) -> int:
    """Return how many missing slots of a long gap the model steps through.

    Whole seasons are skipped, so that the row after the gap has the right phase. There are at most
    `MOST_MISSING`, or less than a season if it is longer.

    Args:
        n_missing: The number of missing slots.
        season: The season's length in slots; 0 if there is no season.
    """
    if season == 0:
        return MOST_MISSING
    rest = n_missing % season
    if rest > MOST_MISSING:
        return rest
    return rest + (MOST_MISSING - rest) // season * season
