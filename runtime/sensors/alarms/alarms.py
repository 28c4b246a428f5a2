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
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_arrays import KeptNumbers
from edgefold.runtime.predictions.sensor_forecast import is_scored
from edgefold.runtime.sensors.alarms.lasting import LONGEST, SIGNS, Lasting
from edgefold.runtime.sensors.alarms.lasting import N_FIRST as LASTING_FIRST
from edgefold.runtime.sensors.alarms.recurring import Recurring
from edgefold.runtime.sensors.alarms.resting_values import Habits
from edgefold.runtime.sensors.alarms.run_lengths import Runs
from edgefold.runtime.sensors.alarms.slot_place import NOWHERE, SlotPlace
from edgefold.runtime.sensors.alarms.tail_probability import Tail

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


class AlarmVerdict(NamedTuple):
    """Says whether a row is an alarm, and what has happened.

    Attributes:
        alarm: Whether the row is an alarm; True once for each incident.
        event: "", "value", "level shift", "stuck", "gap", "absent", "drift", "rhythm", "quiet"
            or "noisy". Some also come without an alarm: "level shift" after a value that was
            alarmed, and "stuck" and what lasts for as long as they go on.
        n_since: How many rows before this one the event began; 0 if with this row.
        size: The size of an event that lasts, as `lasting` of this package measures it; else 0.
    """

    alarm: bool
    event: str
    n_since: int = 0
    size: float = 0.0


QUIET = AlarmVerdict(False, "")
ALARMS = {
    name: AlarmVerdict(True, name) for name in ("value", "level shift", "stuck", "gap", "absent")
}
NAMED = {name: AlarmVerdict(False, name) for name in ALARMS}


class Watch(KeptNumbers):
    """Decides for each row of one sensor whether it is an alarm, in a memory of fixed size.

    Args:
        rate: The stated share of rows that may be false alarms, above 0 and at most 0.1.
    """

    KEPT = (
        *("_n", "_guard", "_balance", "_age", "_learning", "_middle"),
        *("_sign", "_stayed", "_is_stuck", "_lasts", "_n_over", "_n_calm"),
    )
    PARTS = ("_error", "_surprise", "_side", "_habits", "_gaps", "_lasting", "_recurring")

    def __init__(self, rate: float = RATE):
        if not 0.0 < rate <= 0.1:
            raise ValueError(f"rate is {rate}, must be above 0 and at most 0.1")
        self.rate, self._log_lasting = rate, math.log(rate * PARTS["lasting"])
        self._error, self._surprise, self._side = Tail(), Tail(), Tail()
        self._habits, self._gaps = Habits(), Runs()
        self._lasting, self._recurring = Lasting(), Recurring()
        self._n = 0  # rows that were scored
        self._guard = 0.0  # alarms that were stated, less those that came
        self._balance = 0.0  # of signed surprise
        # The open incident: its age in rows, -1 for none; rows left in which a shift is learned.
        self._age, self._learning = -1, 0
        self._middle, self._sign, self._stayed = 0.0, 0.0, 0
        self._is_stuck = 0
        self._n_calm = 0  # rows since the newest alarm
        # The newest incident that lasts: its sign, and the rows since it was seen last.
        self._lasts, self._n_over = 0, LONGEST + 1

    def see(
        self,
        value: float,
        p_value: float,
        quantiles: Sequence[float] | FloatArray,
        log_density: float,
        n_missing: int = 0,
        usual: float = math.nan,
        place: SlotPlace = NOWHERE,
    ) -> AlarmVerdict:
        """Decide whether the next row is an alarm, and learn from it.

        Args:
            value: The measured value; NaN if the row has none.
            p_value: Twice the smaller of the forecast probabilities below and above the value.
            quantiles: The forecast quantiles, an odd number with the median in the middle.
            log_density: The forecast log density of the value; 0, with a p-value of 1, if nothing
                was forecast.
            n_missing: The number of missing rows (slots without a row) just before this row.
            usual: The mean of the last seasons at the phase of this row; NaN if it is not known.
            place: Where the row stands in the season and the day.
        """
        if not math.isfinite(value):
            return QUIET
        gap = self._see_gap(n_missing) if n_missing > 0 else QUIET
        stuck = self._see_run(value, n_missing)
        is_absent = self._recurring.see(value, n_missing, place, self._is_stuck > 0)
        middle = float(quantiles[len(quantiles) // 2])
        scored = lasting = QUIET
        is_sound = math.isfinite(middle) and p_value == p_value
        is_scored_row = is_sound and is_scored(log_density, p_value)
        if is_scored_row:
            scored = self._see_score(value, p_value, middle)
        absent = self._alarmed("absent") if is_absent and self._n >= N_FIRST else QUIET
        has_alarm = gap.alarm or stuck.alarm or scored.alarm or absent.alarm
        self._n_calm = 0 if has_alarm else self._n_calm + 1
        if is_scored_row:
            is_shift = scored.event == "level shift"
            lasting = self._see_lasting(value, usual, place.season, n_missing, is_shift)
        if lasting.alarm and not has_alarm:
            self._n_calm = 0
        if gap is stuck is scored is absent is lasting:
            return QUIET
        return _foremost((gap, stuck, scored, absent, lasting))

    def _see_lasting(
        self, value: float, usual: float, season: int, n_missing: int, is_shift: bool
    ) -> AlarmVerdict:
        """Decide whether what lasts is an alarm: no other one has come since it began.

        `is_shift` says whether the level has shifted; the other arguments are those of `Lasting`.
        """
        lasting = self._lasting
        if is_shift:
            lasting.forget_level()
        guard = self._guard
        log_allowed = self._log_lasting + GUARD * guard * abs(guard)
        found = lasting.see(value, usual, season, n_missing, log_allowed)
        if not found:
            self._n_over += 1
            return QUIET
        _, n_since, size = first = found[0]
        if lasting.n - n_since <= LASTING_FIRST:
            return AlarmVerdict(False, first.event, n_since, size)
        goes_on = self._n_over == 0 or (
            self._n_over <= LONGEST and first.event == SIGNS[self._lasts]
        )
        if not goes_on:
            self._lasts = first.sign
        self._n_over = 0
        event = SIGNS[self._lasts]
        _, n_since, size = next((one for one in found if one.event == event), first)
        is_new = not goes_on and n_since < self._n_calm
        if is_new:
            self._lower_guard()
        return AlarmVerdict(is_new, event, n_since, size)

    def _allowed(self, part: str) -> float:
        return self.rate * PARTS[part] * math.exp(GUARD * self._guard * abs(self._guard))

    def _see_gap(self, n_missing: int) -> AlarmVerdict:
        gaps = self._gaps
        for _ in range(min(n_missing, 4096)):
            rarity = gaps.longer()
        gaps.end()
        rare = self._n >= N_FIRST and rarity < math.log(self.rate * PARTS["run"])
        return ALARMS["gap"] if rare else QUIET

    def _see_run(self, value: float, n_missing: int) -> AlarmVerdict:
        """Decide whether the sensor is stuck: one value repeats for too long, no row missing."""
        self._gaps.rows += 1.0
        rarity = self._habits.see(value, n_missing > 0)
        if rarity == 0.0:
            self._is_stuck = 0
            return QUIET
        if self._is_stuck:
            return NAMED["stuck"]
        if rarity > -4.0 or self._n < N_FIRST or rarity > math.log(self._allowed("run")):
            return QUIET
        self._is_stuck = 1
        return self._alarmed("stuck")

    def _lower_guard(self) -> None:
        """Count an alarm, which lowers the rate that is allowed next."""
        self._guard = max(self._guard - 1.0, GUARD_BOUNDS[0])

    def _alarmed(self, event: str) -> AlarmVerdict:
        self._lower_guard()
        return ALARMS[event]

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
        if by_error < self._allowed("error") or by_surprise < self._allowed("surprise"):
            self._age, self._stayed = 0, 0
            self._middle, self._sign = 0.5 * (value + middle), math.copysign(1.0, value - middle)
            return self._alarmed("value")
        if by_side < self._allowed("side"):
            self._learning, self._sign = LEARNING, math.copysign(1.0, value - middle)
            return self._alarmed("level shift")
        return QUIET

    def _in_incident(self, value: float) -> AlarmVerdict:
        """Count a row after an alarmed value; the fourth one decides whether the level has shifted.

        It has if the values of all rows since the alarm are nearer to the alarmed value than to the
        median that was forecast for it.
        """
        self._age += 1
        self._stayed += (value - self._middle) * self._sign > 0
        if self._age < INCIDENT - 1:
            return QUIET
        self._age = -1
        if self._stayed < INCIDENT - 1:
            return QUIET
        self._learning = LEARNING
        return NAMED["level shift"]

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


def _foremost(verdicts: Sequence[AlarmVerdict]) -> AlarmVerdict:
    """Return the first verdict that is an alarm; without one, the first that names an event."""
    return next((one for one in verdicts if one.alarm), None) or next(
        (one for one in verdicts if one.event), QUIET
    )
