"""Turn a sensor's rows into inputs x of the general model, one for each evenly spaced slot.

    (time, value) ──> clock: how many slots ──> season: length and phase ──> x, a row for each slot

A slot is one place in the even sequence of times in which rows come; a slot without a row is
missing. The four numbers of x are the value, 1 if it was measured and 0 if not, the season's length
in slots or 0, and the slot's phase in the season. A missing slot becomes an x without a value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError, SnapshotError
from edgefold.runtime.kept_arrays import require_same
from edgefold.runtime.rows.csv_fields import Clock
from edgefold.runtime.sensors.alarms.slot_place import SlotPlace
from edgefold.runtime.sensors.clock.notes import news_of, notes_of, refusal_text
from edgefold.runtime.sensors.clock.row_slots import RowSlots
from edgefold.runtime.sensors.clock.season_search import SeasonSearch


class SensorFeed:
    """Turns the rows of one sensor into inputs x of the model, in memory of a fixed size.

    Call `rows` for each row of the sensor, and `commit` once the model has taken what it returned.

    Args:
        longest_season: The length of the longest season in slots, from the bundle's prediction.

    Attributes:
        notes: Sentences for the user about what the last committed row changed: gaps, pace, season.
    """

    def __init__(self, longest_season: int):
        self._longest = longest_season
        self._slots = RowSlots(longest_season)
        self.notes: tuple[str, ...] = ()

    @property
    def n_missing(self) -> int:
        """Return the number of missing slots before the row that `rows` accepted last."""
        return self._slots.n_slots - 1

    @property
    def place(self) -> SlotPlace:
        """Return where that row stands in the season and the day."""
        return self._slots.place

    @property
    def season(self) -> int:
        """Return the season's length in slots; 0 if there is no season."""
        return self._slots.seasons.season.length

    @property
    def season_name(self) -> str:
        """Return "day", "week" or "year" for a season of the calendar; empty for any other."""
        return self._slots.seasons.season.name

    @property
    def newest_time(self) -> float:
        """Return the time of the newest row; NaN before the first."""
        return self._slots.clock.last_time

    @property
    def pace(self) -> float:
        """Return the time between two slots; if rows are irregular, the mean time between rows.

        It is NaN before it is known, and has the unit of the times, which is seconds for dates.
        """
        return self._slots.clock.shown_pace()

    @property
    def is_irregular(self) -> bool:
        """Return whether the rows come so unevenly that each row counts as one slot."""
        return self._slots.clock.is_irregular

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
        slots = self._slots
        refusal = slots.accept(time, value, dated)
        if refusal:
            kind: Clock = "date" if dated else "number"
            raise DataError(refusal_text(refusal, time, value, slots.clock.distance, kind))
        measured, length, n = value == value, self.season, slots.n_passed
        number = value if measured else 0.0
        if n == 0:
            return np.array([[number, measured, length, slots.phase_of(0)]], np.float64)
        x = np.zeros((n + 1, 4))
        x[-1, :2] = number, measured
        x[:, 2] = length
        x[:, 3] = [slots.phase_of(slot) for slot in range(n + 1)]
        return x

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
        assert self._slots.is_accepted, "a row is prepared after rows() has accepted it"
        new = SensorFeed.__new__(SensorFeed)
        new._longest, new._slots = self._longest, self._slots.copy()
        new._slots.learn(SeasonSearch())
        kind: Clock = "date" if new._slots.is_dated else "number"
        new.notes = notes_of(news_of(new._slots), kind)
        return new

    def arrays(self) -> dict[str, Array]:
        """Return copies of the arrays that a snapshot must keep for `load`; shapes never change."""
        return {
            **self._slots.clock.arrays(),
            **self._slots.seasons.arrays(),
            "told_pace": np.array([self._slots.told_pace], np.float64),
        }

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; nothing changes if they are refused.

        Raises:
            SnapshotError: Arrays are missing, damaged, or of another longest season.
        """
        require_same(arrays, self.arrays())
        fresh = SensorFeed(self._longest)
        fresh._slots.clock.load(arrays["clock"])
        fresh._slots.seasons.load(arrays["season"], arrays["season_values"])
        fresh._slots.told_pace = told_pace = float(arrays["told_pace"].item())
        if not (math.isnan(told_pace) or 0 < told_pace < math.inf):
            raise SnapshotError("the snapshot's pace of a sensor is damaged; start without it.")
        self.__dict__.update(fresh.__dict__)
