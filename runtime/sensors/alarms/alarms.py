"""Give alarms at a stated rate of false alarms, and name what has happened to a sensor.

    value        one value that the forecast did not expect
    level shift  the values after an alarmed value stay at its level; or several values in sequence
                 are unexpected on the same side. Then the new level is learned, not alarmed
    stuck        equal values for longer than the sensor's own history explains
    noisy        the forecast errors are far larger than usual, for about 15 rows
    gap          slots are missing for longer than the sensor's own history explains

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
from edgefold.runtime.sensors.alarms.resting_values import Habits
from edgefold.runtime.sensors.alarms.run_lengths import Runs
from edgefold.runtime.sensors.alarms.slot_place import NOWHERE, SlotPlace
from edgefold.runtime.sensors.alarms.tail_probability import Tail

RATE = 1e-4
"""The share of rows that may be false alarms, if the user states none."""
PARTS = {"error": 0.9, "surprise": 0.7, "side": 0.4, "noise": 0.5, "run": 0.1}
"""Maps each test that can alarm a row to the part of the stated rate that it may use. The parts add
up to more than 1, because two tests often alarm the same row, and learned tails err to the safe
side. Rows with errors to one side, or with noise, come in groups of which one row is alarmed, so
their parts may be larger."""
N_FIRST = 60
"""The number of rows that are scored before the first alarm."""
GUARD, GUARD_BOUNDS = 0.3, (-3.6, 1.5)
"""Set how the allowed rate follows the alarms that came: it is multiplied by exp(GUARD * d * |d|),
where d, kept between the bounds, is the number of alarms that the stated rate allows minus the
number that came."""
INCIDENT, LEARNING = 5, 30
"""The number of rows in which a level shift must show, and the number of rows in which the model
then learns the new level without alarm."""
SIDE_MEMORY, NOISE_MEMORY, NOISE_BOUND, USUAL_RATE = 0.7, 0.93, 4.0, 0.002
LEAST_SURPRISE, SURPRISE_BOUND = 4.0, 5.0
"""Bounds of a surprise, which is -log(p-value). A large error is alarmed only if its surprise is at
least 4 (p < 0.018), because a wide forecast has said that it may be wrong. In the sum of surprises
to one side, a surprise counts as at most 5."""
LEAST_P, LARGEST = 1e-12, 1e100


class AlarmVerdict(NamedTuple):
    """Says whether a row is an alarm, and what has happened.

    Attributes:
        alarm: Whether the row is an alarm; True once for each incident.
        event: "", "value", "level shift", "stuck", "noisy" or "gap". Some events also come without
            an alarm: "level shift" after a value that was alarmed, and "stuck" and "noisy" as long
            as they last.
        n_since: How many rows before this one the event began; 0 if with this row.
        size: The size of an event that lasts, as `lasting` of this package measures it; else 0.
    """

    alarm: bool
    event: str
    n_since: int = 0
    size: float = 0.0


QUIET = AlarmVerdict(False, "")
ALARMS = {
    name: AlarmVerdict(True, name) for name in ("value", "level shift", "stuck", "noisy", "gap")
}
NAMED = {name: AlarmVerdict(False, name) for name in ALARMS}


class Watch(KeptNumbers):
    """Decides for each row of one sensor whether it is an alarm, in a memory of fixed size.

    Args:
        rate: The stated share of rows that may be false alarms, above 0 and at most 0.1.
    """

    KEPT = (
        *("_n", "_guard", "_balance", "_usual", "_noise_size", "_age", "_learning", "_middle"),
        *("_sign", "_stayed", "_is_noisy", "_is_stuck"),
    )
    PARTS = ("_error", "_surprise", "_side", "_noise", "_habits", "_gaps")

    def __init__(self, rate: float = RATE):
        if not 0.0 < rate <= 0.1:
            raise ValueError(f"rate is {rate}, must be above 0 and at most 0.1")
        self.rate = rate
        self._error, self._surprise, self._side, self._noise = Tail(), Tail(), Tail(), Tail()
        self._habits, self._gaps = Habits(), Runs()
        self._n = 0  # rows that were scored
        self._guard = 0.0  # alarms that were stated, less those that came
        self._balance = 0.0  # of signed surprise
        self._usual, self._noise_size = (
            0.0,
            1.0,
        )  # the usual error; the newest ones compared with it
        # The open incident: its age in rows, -1 for none; rows left in which a shift is learned.
        self._age, self._learning = -1, 0
        self._middle, self._sign, self._stayed = 0.0, 0.0, 0
        self._is_noisy, self._is_stuck = 0, 0

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
        found = self._see_gap(n_missing) if n_missing > 0 else QUIET
        stuck = self._see_run(value, n_missing)
        middle = float(quantiles[len(quantiles) // 2])
        is_sound = math.isfinite(middle) and p_value == p_value
        if is_sound and is_scored(log_density, p_value):
            scored = self._see_score(value, p_value, middle)
        else:
            scored = QUIET
        for verdict in (found, stuck, scored):
            if verdict.alarm:
                return verdict
        return stuck if stuck.event else scored

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

    def _alarmed(self, event: str) -> AlarmVerdict:
        self._guard = max(self._guard - 1.0, GUARD_BOUNDS[0])
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
        by_error, by_surprise = self._error.see(error), self._surprise.see(surprise)
        if surprise < LEAST_SURPRISE:
            by_error = 1.0
        bounded = surprise if surprise < SURPRISE_BOUND else SURPRISE_BOUND
        signed = bounded if away >= 0.0 else -bounded
        self._balance = balance = SIDE_MEMORY * self._balance + signed
        usual = self._usual
        most = NOISE_BOUND * usual
        counted = error if error < most or n < N_FIRST else most
        self._usual = usual + max(USUAL_RATE, 1.0 / n) * (counted - usual)
        self._noise_size = size = NOISE_MEMORY * self._noise_size + (1.0 - NOISE_MEMORY) * (
            counted / usual if usual > 0.0 else 1.0
        )
        by_side = self._side.see(balance if balance >= 0.0 else -balance)
        by_noise = self._noise.see(size) if n > N_FIRST else 1.0
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
        if by_noise == 1.0:
            self._is_noisy = 0
            if by_error == by_surprise == by_side == 1.0:
                return QUIET
        return self._judged(value, middle, by_error, by_surprise, by_side, by_noise)

    def _judged(
        self, value: float, middle: float, by_error: float, by_surprise: float, by_side: float,
        by_noise: float,
    ) -> AlarmVerdict:  # fmt: skip
        """Alarm the row if one of four measures of how unusual it is has too low a probability.

        `value` is the measured value and `middle` its forecast median. Each argument `by_...` is
        the probability that chance makes a measure so large: the error |value - middle|; the
        surprise -log(p-value); the sum of recent surprises, signed by the side of the median; the
        mean size of recent errors. The stated rate of false alarms sets how low is too low.
        """
        if by_error < self._allowed("error") or by_surprise < self._allowed("surprise"):
            self._age, self._stayed = 0, 0
            self._middle, self._sign = 0.5 * (value + middle), math.copysign(1.0, value - middle)
            return self._alarmed("value")
        if by_side < self._allowed("side"):
            self._learning, self._sign = LEARNING, math.copysign(1.0, value - middle)
            return self._alarmed("level shift")
        if by_noise < self._allowed("noise") or self._is_noisy:
            if self._is_noisy:
                return NAMED["noisy"]
            self._is_noisy = 1
            return self._alarmed("noisy")
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
            fresh.take(arrays["watch"])
        except (KeyError, ValueError, OverflowError, ZeroDivisionError) as error:
            raise SnapshotError(
                f"the snapshot's alarms are damaged ({error}); use an older copy, or start without."
            ) from None
        self.__dict__.update(fresh.__dict__)

    def _tails(self) -> tuple[Tail, ...]:
        return self._error, self._surprise, self._side, self._noise
