"""Find a stream's season, and the phase in it of each slot (place of a row among even times).

    dated rows ──> day, week or year, the first that spans 4 slots ──> season from the first rows on
    values ──> ring ──> now and then: correlation with itself at every lag ──> a better season

All candidates are compared by how well the values repeat after them
(`edgefold.runtime.sensors.clock.season_search`). The present season stays until another one is
clearly better.

The phase of a calendar season follows the calendar; the phase of a found season counts slots.

These are rules: C is generated from them (`edgefold.runtime.kept_numbers`), except for the ring,
which is an array of float32, and the search in it.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_numbers import KeptNumbers
from edgefold.runtime.sensors.clock.season_search import LEAST_SCORE, NEAR, TURNS, SeasonSearch

Name = Literal["", "day", "week", "year"]
"""The name of a season of the calendar; empty for any other season."""
SeasonNews = Literal["", "lost", "guessed", "found"]
"""Says how the season changed: there is none any more, or one is taken by the calendar until values
show one, or the values show it; empty if it did not change."""
LEAST_VALUES = 256
"""The smallest number of values that are kept; more are if the longest season needs them."""
FIRST_LOOKS, LOOK_EVERY = (48, 96, 160), 256
"""The numbers of slots after which a season is sought at first, and the interval in slots later."""
DAY, WEEK, YEAR = 86_400.0, 7 * 86_400.0, 365.2425 * 86_400.0
NAMES: tuple[Name, ...] = ("day", "week", "year")
DURATIONS = (DAY, WEEK, YEAR)
"""The names and durations of the seasons of the calendar, the shortest first."""
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
MOST_SLOTS = 2.0**52
"""The bound of all numbers of slots: float64 holds them and their halves exactly."""
SLIP = 2
"""The smallest difference, in slots, between counted phase and calendar that is corrected."""


class Season(NamedTuple):
    """Describes a season by its length and, if it is one of the calendar, its name.

    Attributes:
        length: The length in slots; 0 stands for no season.
        name: The name in the calendar: day, week or year; empty for a season that was found.
    """

    length: int = 0
    name: Name = ""


NONE = Season()


class Seasons(KeptNumbers):
    """Keeps the season of one stream, and looks for a better one now and then.

    Call `begin` first, and then `allocate`.

    A row waits until the next one comes before it is written into the ring of values, which copies
    share. So a copy that learned a row can be dropped: the ring holds only rows from before the
    copy. Of a copy and its original, only one may go on.

    Attributes:
        season: The present season.
        n: The number of slots that have passed.
        news: How `follow` changed the season last.
    """

    season: Season = NONE
    n: int = 0
    news: SeasonNews = ""
    _longest: int = 0  # the length of the longest season in slots
    _offset: int = 0  # slot n has the phase n + offset
    # The value of slot n is at the place n % n_ring, of the last n_held slots only. The ring is the
    # one array of numpy among all rules: rules set its elements, Python alone reads them.
    _ring: FloatArray = np.zeros(0, np.float32)
    _n_ring: int = 0
    _n_held: int = 0  # slots since the ring was empty
    _waiting: int = -1  # the first missing slot before the row that waits, or its slot; -1: none
    _n_waiting: int = 0  # missing slots before that row
    _waiting_value: float = 0.0
    _next_look: int = FIRST_LOOKS[0]
    _pace: float = math.nan  # of the slots in the ring
    _is_dated: bool = False  # whether the calendar could be asked at the newest slot

    def begin(self, longest: int) -> None:
        """Begin without values.

        Args:
            longest: The length of the longest season in slots.
        """
        self._longest = longest
        self._n_ring = max(math.ceil(TURNS * longest) + 1, LEAST_VALUES)

    def allocate(self) -> None:
        """Allocate the ring of values."""
        self._ring = np.full(self._n_ring, math.nan, np.float32)

    def phase(self, n_slots: int) -> int:
        """Return the phase, in slots from 0, of the slot `n_slots` after the newest one.

        There must be a season.
        """
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
        length = self.season.length
        if self.season.name == "" or length == 0:
            return 0
        apart = (calendar_phase(self.season, time) - self.phase(n_slots)) % length
        if 2 * apart > length:
            apart -= length
        return apart if abs(apart) >= SLIP else 0

    def push(self, value: float, n_missing: int, slip: int) -> None:
        """Append a NaN for each missing slot before a row, then the row's value; correct the phase.

        Args:
            value: The row's value; NaN if it has none.
            n_missing: The number of missing slots before the row.
            slip: The number of slots that are added to the phase from this row on.
        """
        self.write()
        self._waiting = self.n
        self._n_waiting = n_missing
        self._waiting_value = value
        self.n += n_missing + 1
        self._n_held += n_missing + 1
        self._offset += slip

    def write(self) -> None:
        """Write the row that waits, and the missing slots before it, into the ring of values.

        Writing it twice changes nothing.
        """
        if self._waiting < 0:
            return
        for i in range(min(self._n_waiting, self._n_ring)):
            self._ring[(self._waiting + i) % self._n_ring] = math.nan
        self._ring[(self._waiting + self._n_waiting) % self._n_ring] = self._waiting_value

    def follow(self, pace: float, mean_pace: float, newest: float, search: SeasonSearch) -> None:
        """Update the season after a row; some rows trigger a search for a better one. Set `news`.

        If the pace changed, all values are forgotten and a calendar season is taken, if any fits.

        Args:
            pace: The time between two slots.
            mean_pace: The mean time between two slots over many of them.
            newest: The time of the newest slot in seconds since 1970; NaN if times are not dates
                or are irregular.
            search: Searches for a season, where one is due.
        """
        before = self.season
        is_guess = True
        is_dated = not math.isnan(newest)
        if not 1 / OTHER_PACE < pace / self._pace < OTHER_PACE:
            if not math.isnan(self._pace):
                self._forget()
            self._pace = pace
            self._turn_to(self._first(mean_pace, newest), newest)
        elif is_dated != self._is_dated:  # times are without a pace now, or no more
            is_over = self.season.name != "" and not is_dated
            if is_over or self.season.length == 0:
                self._turn_to(self._first(mean_pace, newest), newest)
        self._is_dated = is_dated
        if self._n_held >= self._next_look:
            self._next_look = _look_after(self._n_held)
            self._pace = pace
            self._turn_to(self._look(mean_pace, newest, search), newest)
            is_guess = False
        if _is_same(self.season, before):
            self.news = ""
        elif self.season.length == 0:
            self.news = "lost"
        else:
            self.news = "guessed" if is_guess else "found"

    def _forget(self) -> None:
        """Forget the season and all values, which came at another pace."""
        self._waiting = -1
        self._n_held = 0
        self._next_look = FIRST_LOOKS[0]
        self._pace = math.nan
        self.season = NONE
        self._offset = 0

    def _turn_to(self, season: Season, newest: float) -> None:
        """Change to another season; one of the calendar gets its phase from the time `newest`."""
        if _is_same(season, self.season):
            return
        self.season = season
        self._offset = 0
        if season.name != "" and not math.isnan(newest):
            self._offset = calendar_phase(season, newest) - self.phase(0)

    def _of_calendar(self, at: int, pace: float, newest: float) -> Season:
        """Return one of the calendar's seasons if slots `pace` seconds apart can show it.

        If not, or if times are not dates or are irregular (`newest` is NaN), it is `NONE`.

        Args:
            at: The season's place in `NAMES`.
            pace: The time between two slots in seconds.
            newest: The time of the newest slot, or NaN.
        """
        if math.isnan(newest):
            return NONE
        slots = DURATIONS[at] / pace
        if self.season.name == NAMES[at] and abs(slots - self.season.length) < 0.75:
            return self.season  # a pace that is a little different changes nothing
        if LEAST - 0.5 < slots <= self._longest:
            return Season(round(slots), NAMES[at])
        return NONE

    def _first(self, pace: float, newest: float) -> Season:
        """Return the shortest season of the calendar that slots `pace` seconds apart can show.

        It is `NONE` if there is none, or if `newest`, the newest slot's time, is NaN.
        """
        for at in range(len(NAMES)):
            season = self._of_calendar(at, pace, newest)
            if season.length:
                return season
        return NONE

    def _look(self, pace: float, newest: float, search: SeasonSearch) -> Season:
        """Score all seasons by the values that are kept, and return the best, or `NONE`.

        Of equally good ones, it is the first of: none, those of the calendar, the one that the
        values show, the present one.

        Args:
            pace: The time between two slots.
            newest: The newest slot's time in seconds since 1970; if it is NaN, no season of the
                calendar is considered.
            search: Searches for a season.
        """
        search.asked = [self._of_calendar(at, pace, newest).length for at in range(3)]
        self.show(search)
        search.search(self._n_ring, self.n % self._n_ring, min(self._n_held, self._n_ring))
        season = self._best(pace, newest, search)
        search.release()
        return season

    def _best(self, pace: float, newest: float, found: SeasonSearch) -> Season:
        """Return the best season of a search; the arguments are those of `_look`."""
        present = self.season
        length = found.best()
        if length > self._longest:
            length = 0
        if present.name == "" and 0 < abs(length - present.length) <= NEAR * length:
            # One season, whose length is known to the slot only after some turns.
            if (
                present.length < found.n_lags
                and found.sharp_at(length) <= found.sharp_at(present.length) + SHARPER
            ):
                length = present.length
            else:
                present = Season(length, "")
        best = NONE
        # Beside a calendar, no season is worth little: a wrong one costs little, and the calendar's
        # is seldom wrong.
        most = OF_PRESENT if _is_same(present, NONE) else 0.0
        shortest = 0
        factor = 1.0
        is_of_calendar = False
        for at in range(len(NAMES)):
            season = self._of_calendar(at, pace, newest)
            if season.length == 0:
                continue
            worth = -1.0
            if season.length < found.n_lags:
                score = found.likely[at]
                if shortest == 0:
                    score = found.score_at(season.length)
                worth = max(score * factor, 0.0) + OF_CALENDAR
            elif shortest == 0 or _is_same(season, self.season):
                worth = UNKNOWN_SCORE
            if _is_same(season, present):
                worth += OF_PRESENT
            if worth > most:
                best = season
                most = worth
            if shortest == 0:
                shortest = season.length
            factor *= LONGER
            if abs(length - season.length) <= 1 + length // 100:
                is_of_calendar = True
        if shortest == 0:
            most += LEAST_SCORE
        if length and not is_of_calendar and not (present.name == "" and length == present.length):
            worth = found.score_at(length)
            if 0 < shortest < length:
                worth *= BESIDE_CALENDAR
            if worth > most:
                best = Season(length, "")
                most = worth
        if present.name == "" and 0 < present.length < found.n_lags:
            worth = found.score_at(present.length) + OF_PRESENT
            if worth > most:
                best = present
        return best

    def show(self, search: SeasonSearch) -> None:
        """Lend a search its arrays, and the ring with the row that waits; C does it by hand."""
        self._settle()
        search.ring = self._ring
        search.lend(min(self._n_held, self._n_ring))

    def _settle(self) -> None:
        """Write the row that waits into the ring: into a copy, which no other object shares."""
        self._ring = self._ring.copy()
        self.write()
        self._waiting = -1

    def _places(self) -> Array:
        """Return the places in the ring of the slots that are kept, the oldest first."""
        n = min(self._n_held, self._n_ring)
        places: Array = np.arange(self.n - n, self.n) % self._n_ring
        return places

    def arrays(self) -> dict[str, Array]:
        """Return copies of the arrays that a snapshot must keep for `load`."""
        season = self.season
        kind = (*NAMES, "").index(season.name)
        counts = (self.n, self._n_held, self._offset, season.length, kind, self._is_dated)
        numbers = (*counts, self._next_look, self._pace)
        kept, places = self.copy(), self._places()
        kept._settle()
        ring = np.full_like(self._ring, math.nan)
        ring[places] = kept._ring[places]
        return {"season": np.array(numbers, np.float64), "season_values": ring}

    def load(self, numbers: FloatArray, values: FloatArray) -> None:
        """Restore the two arrays that `arrays` returned; their shapes and types must be right.

        Raises:
            SnapshotError: The content of the arrays is damaged.
        """
        *counts, pace = numbers.tolist()
        if (
            not all(float(count).is_integer() and abs(count) < MOST_SLOTS for count in counts)
            or not 0 <= counts[1] <= counts[0]
            or counts[3] not in (0, *range(2, self._longest + 1))
            or counts[4] not in range(len(NAMES) + 1)
            or counts[5] not in (0, 1)
            or np.isinf(values).any()
            or not (math.isnan(pace) or 0 < pace < math.inf)
        ):
            raise SnapshotError("the snapshot's season of a sensor is damaged; start without it.")
        self.n, self._n_held, self._offset, length, kind, is_dated, self._next_look = map(
            int, counts
        )
        self._is_dated = bool(is_dated)
        self.season = Season(length, (*NAMES, "")[kind])
        self._ring, self._pace, self._waiting = values.copy(), pace, -1


def _is_same(one: Season, other: Season) -> bool:
    """Return whether two seasons are the same."""
    return one.length == other.length and one.name == other.name


def _look_after(n_held: int) -> int:
    """Return the number of slots after which a season is sought next."""
    for at in range(len(FIRST_LOOKS)):
        if FIRST_LOOKS[at] > n_held:
            return FIRST_LOOKS[at]
    return (n_held // LOOK_EVERY + 1) * LOOK_EVERY


def calendar_phase(season: Season, time: float) -> int:
    """Return the phase, in slots, of a time in seconds since 1970 in a season of the calendar."""
    duration = DAY
    if season.name != "day":
        duration = WEEK if season.name == "week" else YEAR
    return int(time % duration / duration * season.length + 0.5) % season.length
