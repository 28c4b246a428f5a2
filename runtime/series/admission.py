"""Decide which rows continue the history of a series, or the one parked before the last gap.

One wrong time must not spoil the history, and one true pause must not lose a row. So two histories
are kept: the present one, and the parked one, which was set aside at the last long gap or jump. A
step is the usual time between two rows.

    row ──> up to 3 steps after the present history's newest row  -> continues it
      ├───> up to 3 steps after the parked history's newest row   -> that one is the present again
      ├───> later, up to 1000 steps or a season                   -> the missing rows are bridged
      ├───> two in a row much later, or with a far value          -> history starts over
      ├───> three in a row, earlier and never seen (clock set back) -> goes on under the new time
      └───> learned before, too soon after the newest, ...        -> refused

This module reads no files. `edgefold.runtime.series.features` computes a model's inputs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.errors import DataError
from edgefold.runtime.kept_arrays import as_part, part_of, require_same
from edgefold.runtime.rows.csv_fields import MAX_NUMBER
from edgefold.runtime.series.durations import duration
from edgefold.runtime.series.history import SETTLED_ROWS, History, SeenRows
from edgefold.runtime.series.pace import FASTEST, Pace
from edgefold.runtime.series.spec import SeriesSpec

MAX_GAP_STEPS = 1000
"""The most steps (usual times between two rows) that a row may come after the newest one; where a
season is longer, it is the limit."""
NEAR_STEPS = 3
"""A row that comes up to this many steps (usual times between two rows) after the newest one is not
doubted: if its time is wrong, the times of later rows soon pass it."""
NEARER_STEPS = 0.75
"""The parked history is taken again instead of a present one of few rows only if its newest row is
more than this many steps (usual times between two rows) later."""
LARGE_CHANGES = 2.0
"""Values count as going on after a clock was set back if the first one differs from the last by at
most this many times the largest change in the history."""
PARKED = "parked_"
"""The prefix that a snapshot puts before the names of the parked history's arrays."""


class Admission:
    """Admits rows to the present history, and keeps a parked history from before the last gap.

    Args:
        spec: The features of the series.
        max_change: The largest change from one value to the next; a larger one is refused as a
            jump.

    Attributes:
        history: The present history.
        pace: The check of how often rows come.
    """

    def __init__(self, spec: SeriesSpec, max_change: float = math.inf):
        self._spec = spec
        self._max_change = max_change
        self._max_steps = max(MAX_GAP_STEPS, spec.season_rows)
        self.history, self._parked = History(spec.n_rows), History(spec.n_rows)
        self._run: list[tuple[float, float]] = []  # refused rows that follow each other
        self._seen = SeenRows(spec.step)
        self.pace = Pace(spec)

    def objection(self, time: float, value: float | None = None) -> str:
        """Return a sentence that says why a row cannot follow the present history; "" if it can.

        Without a value, only the time is examined.
        """
        return self._objection(self.history, time, value)

    def _objection(self, history: History, time: float, value: float | None) -> str:
        steps = (time - history.last_time) / self._spec.step
        if math.isnan(history.last_time):
            return ""
        if steps <= 0:
            words = f"{self._words(-steps)} before" if steps else "that of"
            return (
                f"its time is {words} the newest row's; rows must come in order and once: drop the "
                "row."
            )
        if steps < FASTEST:
            return (
                f"it comes {self._words(steps)} after the newest row; this bundle was trained for "
                f"a row every {self._words(1.0)}: drop the row."
            )
        if not steps <= self._max_steps + 0.5:
            return (
                f"its time is {self._words(steps)} after the newest row's, more than "
                f"{self._max_steps} steps; if the next row follows it, history starts over."
            )
        if value is not None and abs(value - history.last_value) > self._max_change:
            return (
                f"the value {value} is more than {self._max_change:g} from the last one, "
                f"{history.last_value}; if the next row follows it, history starts over."
            )
        return ""

    def _words(self, steps: float) -> str:
        amount = steps * self._spec.step
        return duration(amount) if self._spec.clock == "date" else f"{amount:g}"

    def n_missing(self, time: float) -> int:
        """Return how many rows are missing between the newest row and a later `time`."""
        newest = self.history.last_time
        return 0 if math.isnan(newest) else max(0, round((time - newest) / self._spec.step) - 1)

    def admit(self, time: float, value: float) -> None:
        """Choose the history that a row continues, or refuse the row.

        Raises:
            DataError: The row is not finite, out of order, seen before, a jump, or of another pace.
            PaceError: The first rows come at another pace than the step of the series.
        """
        for name, number in (("time", time), ("value", value)):
            if not math.isfinite(number):
                raise DataError(f"the {name} {number} is not finite; drop the row.")
        if abs(value) > MAX_NUMBER:
            raise DataError(f"the value {value} is beyond {MAX_NUMBER:g}; drop the row.")
        self.pace.note(time)
        if self.pace.changed:
            raise DataError(
                f"{self.pace.sentence}; nothing is learned until the former pace returns."
            )
        if self.history.count:
            self._choose(time, value)
        self._run.clear()

    def _choose(self, time: float, value: float) -> None:
        """Make the history that a row follows the present one; raise DataError if there is none."""
        history, parked = self.history, self._parked
        objection = self.objection(time, value)
        seen = self._seen.holds(time, value)
        covered = history.is_settled and history.since <= time <= history.last_time
        follows_parked = (
            not (seen or covered)
            and self._is_near(parked, time)
            and not self._objection(parked, time, value)
        )
        if not objection and self._is_near(history, time):
            # Rows of a gap may come late: rows that were learned after the gap are then later.
            ahead = history.since < parked.since <= time <= parked.last_time
            nearer = parked.last_time - history.last_time > NEARER_STEPS * self._spec.step
            if follows_parked and nearer and not history.is_settled:
                self._take_back()
                return
            if not (ahead and seen):
                return
        elif follows_parked:
            self._take_back()
            return
        elif not seen and not objection:
            return
        elif not seen and self._is_before_doubtful(time, value):
            history.copy_from(parked)
            return
        elif not seen and self._starts_over(time, value):
            return
        if seen:
            self._run.clear()
            raise DataError("a row of this time and value was learned before: drop the row.")
        raise DataError(objection)

    def _take_back(self) -> None:
        """Exchange the parked history and the present one, whose times may have been wrong.

        If the one that is parked now had too few rows since its last long gap to be trusted, these
        rows no longer count.
        """
        self.history, self._parked = self._parked, self.history
        if not self._parked.is_settled:
            self._parked.n_settled = 0

    def _is_near(self, history: History, time: float) -> bool:
        return 0 < time - history.last_time <= (NEAR_STEPS + 0.5) * self._spec.step

    def _is_before_doubtful(self, time: float, value: float) -> bool:
        """Return whether a row fits between the parked history and a present one of few rows.

        With fewer than 4 rows since the last long gap, the times of the present history may be
        wrong.
        """
        history, parked = self.history, self._parked
        if history.is_settled or not parked.last_time < time < history.since:
            return False
        return not self._objection(parked, time, value)

    def _starts_over(self, time: float, value: float) -> bool:
        """Return whether a refused row completes a run of refused rows that follow each other.

        If so, history starts over with these rows, or goes on with them if only the clock was set
        back.
        """
        history, run = self.history, self._run
        is_back = time <= history.last_time
        if run:
            far = run[-1]
            follows = FASTEST <= (time - far[0]) / self._spec.step <= NEAR_STEPS + 0.5
            if not follows or abs(value - far[1]) > self._max_change:
                run.clear()
        if is_back and self._seen.may_have_held(time, history.last_time):
            run.clear()
            return False
        if len(run) < (2 if is_back and history.count > 1 else 1):
            run.append((time, value))
            return False
        change = abs(run[0][1] - history.last_value)
        if history.is_settled:
            self._parked.copy_from(history)
        if not (is_back and change <= LARGE_CHANGES * history.largest_change):
            history.clear()
        history.begin_stretch(run[0][0])
        for row in run:
            history.append(*row)
        return True

    def push(self, time: float, value: float) -> None:
        """Call `admit` for a row, and add it to the history that it continues."""
        self.admit(time, value)
        history, missing = self.history, self.n_missing(time)
        if missing >= NEAR_STEPS:
            if history.is_settled:
                self._parked.copy_from(history)
                history.begin_stretch(time)
            elif history.count < SETTLED_ROWS:  # too little to bridge from
                history.clear()
                missing = 0
            else:
                history.begin_stretch(history.since)
        history.append(time, value, missing)
        self._seen.add(time, value)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of the arrays that a snapshot must keep for `load`."""
        run = np.full((2, 2), math.nan)
        run[: len(self._run)] = np.reshape(self._run, (-1, 2))
        parked = as_part(self._parked.arrays(), PARKED)
        more = self._seen.arrays() | self.pace.arrays()
        return {**self.history.arrays(), **parked, "run": run, **more}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore the arrays that `arrays` returned; nothing changes if they are refused.

        Raises:
            SnapshotError: Arrays are missing, damaged, or of another specification.
        """
        require_same(arrays, self.arrays(), "series")
        fresh = Admission(self._spec, self._max_change)
        fresh._load(arrays)
        self.__dict__.update(fresh.__dict__)

    def _load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.history.load(arrays)
        self._parked.load(part_of(arrays, PARKED))
        self._seen.load(arrays)
        self.pace.load(arrays)
        self._run = [(t, v) for t, v in arrays["run"].tolist() if math.isfinite(t + v)]
