"""Give alarms at a stated rate of false alarms, and name what has happened to a sensor.

    value        one value that the forecast did not expect
    level shift  the values after an alarmed value stay at its level; or several values in sequence
                 are unexpected on the same side. Then the new level is learned, not alarmed
    stuck        equal values for longer than the sensor's own history explains
    drift, rhythm, quiet, noisy
                 what lasts over many rows, which `lasting` of this package finds
    gap          slots are missing for longer than the sensor's own history explains
    absent       a jump that recurs at this time of the day has not come, which `recurring` of this
                 package finds

Each event is found by a number whose tail is learned (`tail_probability` and `run_lengths` of this
package), so that a forecast density whose tails are wrong still gives the stated rate. The error
that remains is removed as the integrator of conformal PID control does (Angelopoulos et al. 2023):
more alarms than stated lower the rate that is allowed next, and each row raises it again, so that
in the long run alarms come at the stated rate even if everything above is wrong. One alarm, which
may be chance, lowers the rate little, so that the next fault is found; several alarms lower it
much. One incident is alarmed once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_numbers import KeptNumbers
from edgefold.runtime.predictions.sensor_forecast import is_scored
from edgefold.runtime.sensors.alarms.lasting import LONGEST, SIGNS, Lasting
from edgefold.runtime.sensors.alarms.lasting import N_FIRST as LASTING_FIRST
from edgefold.runtime.sensors.alarms.recurring import Recurring
from edgefold.runtime.sensors.alarms.resting_values import Habits
from edgefold.runtime.sensors.alarms.run_lengths import Runs
from edgefold.runtime.sensors.alarms.slot_place import NOWHERE, SlotPlace
from edgefold.runtime.sensors.alarms.tail_probability import Tail
from edgefold.runtime.sensors.alarms.verdict import QUIET, AlarmVerdict, Event

RATE = 1e-4
"""The share of rows that may be false alarms, if the user states none."""
PARTS = {"error": 0.9, "surprise": 0.7, "side": 0.4, "run": 0.1, "lasting": 0.3}
"""Maps each test that can alarm a row to the part of the stated rate that it may use, and of what
lasts each sum. The parts add up to more than 1, because two tests often alarm the same row, and
learned tails err to the safe side. Rows with errors to one side come in groups of which one row is
alarmed, so their part may be larger."""
N_FIRST = 60
"""The number of rows that are scored before the first alarm."""
GUARD, GUARD_BOUNDS = 0.3, (-3.6, 1.5)
"""Set how the allowed rate follows the alarms that came: it is multiplied by exp(GUARD * d * |d|),
where d, kept between the bounds, is the number of alarms that the stated rate allows minus the
number that came."""
INCIDENT, LEARNING = 5, 30
"""The number of rows in which a level shift must show, and the number of rows in which the model
then learns the new level without alarm."""
SIDE_MEMORY = 0.7
LEAST_SURPRISE, SURPRISE_BOUND = 4.0, 5.0
"""Bounds of a surprise, which is -log(p-value). A large error is alarmed only if its surprise is at
least 4 (p < 0.018), because a wide forecast has said that it may be wrong. In the sum of surprises
to one side, a surprise counts as at most 5."""
LEAST_P, LARGEST = 1e-12, 1e100
N_OLDER = 12
"""The number of a watch's own numbers in a snapshot of an older version."""


class Watch(KeptNumbers):
    """Decides for each row of one sensor whether it is an alarm, in a memory of fixed size.

    Args:
        rate: The stated share of rows that may be false alarms, above 0 and at most 0.1.
    """

    KEPT = (
        *("_n", "_guard", "_balance", "_age", "_learning", "_middle"),
        *("_sign", "_stayed", "_is_stuck", "_lasts", "_n_over", "_n_calm"),
    )

    rate: float = RATE
    _log_lasting: float = 0.0  # the logarithm of the part of the rate for what lasts
    _error: Tail = Tail()
    _surprise: Tail = Tail()
    _side: Tail = Tail()
    _habits: Habits = Habits()
    _gaps: Runs = Runs()
    _lasting: Lasting = Lasting()
    _recurring: Recurring = Recurring()
    _n: int = 0  # rows that were scored
    _guard: float = 0.0  # alarms that were stated, less those that came
    _balance: float = 0.0  # of signed surprise
    # The open incident: its age in rows, -1 for none; rows left in which a shift is learned.
    _age: int = -1
    _learning: int = 0
    _middle: float = 0.0
    _sign: float = 0.0
    _stayed: int = 0
    _is_stuck: int = 0
    _n_calm: int = 0  # rows since the newest alarm
    # The newest incident that lasts: its sign, and the rows since it was seen last.
    _lasts: int = 0
    _n_over: int = LONGEST + 1

    def __init__(self, rate: float = RATE):
        if not 0.0 < rate <= 0.1:
            raise ValueError(f"rate is {rate}, must be above 0 and at most 0.1")
        super().__init__()
        self.begin(rate)

    def begin(self, rate: float) -> None:
        """Set the stated rate of a new object."""
        self.rate, self._log_lasting = rate, math.log(rate * PARTS["lasting"])

    def see(
        self,
        value: float,
        p_value: float,
        middle: float,
        log_density: float,
        n_missing: int = 0,
        usual: float = math.nan,
        place: SlotPlace = NOWHERE,
    ) -> AlarmVerdict:
        """Decide whether the next row is an alarm, and learn from it.

        Args:
            value: The measured value; NaN if the row has none.
            p_value: Twice the smaller of the forecast probabilities below and above the value.
            middle: The forecast median.
            log_density: The forecast log density of the value; 0, with a p-value of 1, if nothing
                was forecast.
            n_missing: The number of missing rows (slots without a row) just before this row.
            usual: The mean of the last seasons at the phase of this row; NaN if it is not known.
            place: Where the row stands in the season and the day.
        """
        if not math.isfinite(value):
            return QUIET
        is_gap = n_missing > 0 and self._see_gap(n_missing)
        is_stuck = self._see_run(value, n_missing)
        is_absent = self._recurring.see(value, n_missing, place, self._is_stuck > 0)
        scored = lasting = QUIET
        is_sound = math.isfinite(middle) and p_value == p_value
        is_scored_row = is_sound and is_scored(log_density, p_value)
        if is_scored_row:
            scored = self._see_score(value, p_value, middle)
        is_absent = is_absent and self._n >= N_FIRST
        if is_absent:
            self._lower_guard()
        has_alarm = is_gap or is_stuck or scored.alarm or is_absent
        self._n_calm = 0 if has_alarm else self._n_calm + 1
        if is_scored_row:
            is_shift = scored.event == "level shift"
            lasting = self._see_lasting(value, usual, place.season, n_missing, is_shift)
        if has_alarm:
            if is_gap or is_stuck:
                return AlarmVerdict(True, "gap" if is_gap else "stuck")
            return scored if scored.alarm else AlarmVerdict(True, "absent")
        if lasting.alarm:
            self._n_calm = 0
            return lasting
        if self._is_stuck:
            return AlarmVerdict(False, "stuck")
        return scored if scored.event != "" else lasting

    def _see_lasting(
        self, value: float, usual: float, season: int, n_missing: int, is_shift: bool
    ) -> AlarmVerdict:
        """Decide whether what lasts is an alarm: no other one has come since it began.

        `is_shift` says whether the level has shifted; the other arguments are those of `Lasting`.
        """
        if is_shift:
            self._lasting.forget_level()
        guard = self._guard
        log_allowed = self._log_lasting + GUARD * guard * abs(guard)
        if self._lasting.see(value, usual, season, n_missing, log_allowed) == 0:
            self._n_over += 1
            return QUIET
        first = self._lasting.found(0)
        if self._lasting.n - first.n_since <= LASTING_FIRST:
            return AlarmVerdict(False, first.event, first.n_since, first.size)
        goes_on = self._n_over == 0 or (
            self._n_over <= LONGEST and first.event == SIGNS[self._lasts]
        )
        if not goes_on:
            self._lasts = first.sign
        self._n_over = 0
        found = self._lasting.of_event(SIGNS[self._lasts])
        is_new = not goes_on and found.n_since < self._n_calm
        if is_new:
            self._lower_guard()
        return AlarmVerdict(is_new, SIGNS[self._lasts], found.n_since, found.size)

    def _allowed(self, part: float) -> float:
        return self.rate * part * math.exp(GUARD * self._guard * abs(self._guard))

    def _see_gap(self, n_missing: int) -> bool:
        """Count a gap, and return whether it is longer than the sensor's history explains."""
        rarity = 0.0
        for _ in range(min(n_missing, 4096)):
            rarity = self._gaps.longer()
        self._gaps.end()
        return self._n >= N_FIRST and rarity < math.log(self.rate * PARTS["run"])

    def _see_run(self, value: float, n_missing: int) -> bool:
        """Return whether the sensor has become stuck: one value repeats, no row is missing."""
        self._gaps.rows += 1.0
        rarity = self._habits.see(value, n_missing > 0)
        if rarity == 0.0:
            self._is_stuck = 0
            return False
        if self._is_stuck or rarity > -4.0 or self._n < N_FIRST:
            return False
        if rarity > math.log(self._allowed(PARTS["run"])):
            return False
        self._is_stuck = 1
        self._lower_guard()
        return True

    def _lower_guard(self) -> None:
        """Count an alarm, which lowers the rate that is allowed next."""
        self._guard = max(self._guard - 1.0, GUARD_BOUNDS[0])

    def _alarmed(self, event: Event) -> AlarmVerdict:
        self._lower_guard()
        return AlarmVerdict(True, event)

    def _see_score(self, value: float, p_value: float, middle: float) -> AlarmVerdict:
        """Decide by how unexpected the value is, by itself and together with those before it.

        Args:
            value: The measured value.
            p_value: The probability that chance brings a value this far from the forecast.
            middle: The forecast median.
        """
        self._n = n = self._n + 1
        surprise = -math.log(p_value if p_value > LEAST_P else LEAST_P)
        away = value - middle
        error = min(away if away >= 0.0 else -away, LARGEST)
        self._balance *= SIDE_MEMORY
        is_large = error > self._error.level or surprise > self._surprise.level
        if is_large and self._recurring.explains(error):
            by_error = by_surprise = by_side = 1.0
            sign = math.copysign(1.0, away)
            left = self._learning if sign == self._sign else 0
            self._learning, self._sign = max(left, INCIDENT), sign
        else:
            by_error, by_surprise = self._error.see(error), self._surprise.see(surprise)
            if surprise < LEAST_SURPRISE:
                by_error = 1.0
            bounded = surprise if surprise < SURPRISE_BOUND else SURPRISE_BOUND
            self._balance += bounded if away >= 0.0 else -bounded
            by_side = self._side.see(abs(self._balance))
        guard = self._guard
        if guard < GUARD_BOUNDS[1]:
            self._guard = guard + self.rate
        if n <= N_FIRST:
            return QUIET
        if self._age >= 0:
            return self._in_incident(value)
        if self._learning:
            self._learning -= 1
            if away * self._sign >= 0.0:
                return QUIET
        if by_error == by_surprise == by_side == 1.0:
            return QUIET
        return self._judged(value, middle, by_error, by_surprise, by_side)

    def _judged(
        self, value: float, middle: float, by_error: float, by_surprise: float, by_side: float
    ) -> AlarmVerdict:
        """Alarm the row if one of three measures of how unusual it is has too low a probability.

        `value` is the measured value and `middle` its forecast median. Each argument `by_...` is
        the probability that chance makes a measure so large: the error |value - middle|; the
        surprise -log(p-value); the sum of recent surprises, signed by the side of the median. The
        stated rate of false alarms sets how low is too low.
        """
        is_large = by_error < self._allowed(PARTS["error"])
        if is_large or by_surprise < self._allowed(PARTS["surprise"]):
            self._age, self._stayed = 0, 0
            self._middle, self._sign = 0.5 * (value + middle), math.copysign(1.0, value - middle)
            return self._alarmed("value")
        if by_side < self._allowed(PARTS["side"]):
            self._learning, self._sign = LEARNING, math.copysign(1.0, value - middle)
            return self._alarmed("level shift")
        return QUIET

    def _in_incident(self, value: float) -> AlarmVerdict:
        """Count a row after an alarmed value; the fourth one decides whether the level has shifted.

        It has if the values of all rows since the alarm are nearer to the alarmed value than to the
        median that was forecast for it.
        """
        self._age += 1
        if (value - self._middle) * self._sign > 0.0:
            self._stayed += 1
        if self._age < INCIDENT - 1:
            return QUIET
        self._age = -1
        if self._stayed < INCIDENT - 1:
            return QUIET
        self._learning = LEARNING
        return AlarmVerdict(False, "level shift")

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that a snapshot must keep; their shapes never change."""
        return {
            "tails": np.array([tail.numbers() for tail in self._tails()]),
            "habits": self._habits.numbers(),
            "gaps": self._gaps.numbers(),
            "lasting": self._lasting.numbers(),
            "recurring": self._recurring.numbers(),
            "watch": self.numbers(),
        }

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; they must have the same shapes.

        Raises:
            SnapshotError: The arrays are damaged; nothing has changed.
        """
        fresh = Watch(self.rate)
        try:
            for tail, numbers in zip(fresh._tails(), arrays["tails"], strict=True):
                tail.take(numbers)
            fresh._habits.take(arrays["habits"])
            fresh._gaps.take(arrays["gaps"])
            fresh._lasting.take(arrays["lasting"])
            fresh._recurring.take(arrays["recurring"])
            fresh.take(arrays["watch"])
        except (KeyError, ValueError, OverflowError, ZeroDivisionError) as error:
            raise SnapshotError(
                f"the snapshot's alarms are damaged ({error}); use an older copy, or start without."
            ) from None
        self.__dict__.update(fresh.__dict__)

    @staticmethod
    def converted(arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the arrays of a snapshot, with those added that older versions did not keep.

        Older versions had a fourth tail and three numbers for noise, which `lasting` replaces.
        """
        if "lasting" in arrays or arrays["watch"].shape != (N_OLDER,):
            return dict(arrays)
        fresh = Watch()
        n, guard, balance, _, _, age, learning, middle, sign, stayed, _, is_stuck = arrays["watch"]
        kept = [n, guard, balance, age, learning, middle, sign, stayed, is_stuck]
        new = fresh.numbers()
        new[: len(kept)] = kept
        return {**fresh.arrays(), **arrays, "tails": arrays["tails"][:3], "watch": new}

    def _tails(self) -> tuple[Tail, ...]:
        return self._error, self._surprise, self._side
