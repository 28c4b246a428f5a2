"""Let other columns of a table explain a sensor: a heater's switch, the temperature outdoors.

    value y, covariates u ──> effect: what u has changed so far ──> y less the effect ──> model
                                       ^                                                    │
                                       └── the error of the forecast, by recursive least squares

A covariate is a number that is known beside a row's value, such as the state of a switch. Its
effect follows its changes: those of the covariate itself, and those of its running means over some
and many rows, where a sensor answers slowly. The weights of these features are learned from the
errors of the forecasts and from what was new in the features. The effect is the sum of weights
times changes, so that a weight that is learned moves no level.

Two states of the model follow each sensor, one with and one without the effect. How far each is
believed is learned, too: of a row from their quantile losses, of later rows from the errors of the
forecasts at each horizon. So a covariate that explains nothing costs time, and little accuracy.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.sensors.forecasts import Forecast, Path
from edgefold.runtime.sensors.sensors import Sensors

MEMORY = (1.0, 4.0, 32.0)
"""The numbers of rows over which a covariate is averaged: one, which is itself, some, and many."""
FORGET, PRIOR, MOST_VARIANCE = 0.9995, 1.0, 10.0
"""The share of the past that counts on after a row; the variance of a weight before the first row,
and its largest mean, both with features and errors in units of their usual size."""
SEASONAL = 0.7
"""The share of a feature's change one season before that is expected to come again."""
RATE, FIRST = 0.002, 30
"""The least rate of running means of sizes, and the rows before weights are learned."""
CLIP, LARGE, CLIP_FEATURE, LARGE_FEATURE = 3.0, 6.0, 30.0, 1e4
"""An error counts as at most `CLIP` usual ones where weights are learned, and as `LARGE` usual ones
in running means; a feature's change as `CLIP_FEATURE` usual ones, and its square as `LARGE_FEATURE`
mean squares. So one wrong covariate, such as -999, does not make all others small."""
LEAST, MOST, MOST_STEP, MOST_RATIO = 1e-200, 1e30, 1e6, 1e3
"""The least size that is divided by; the largest covariate that is taken as known; the most usual
errors by which covariates may move a value from one row to the next, or they are taken as unknown;
and the largest ratio of two errors."""
LOSS_RATE, BETTER, N_SCORED = 0.005, 0.98, 100
"""The rate of the running mean quantile losses of rows; the ratio below which the forecast with
covariates is believed; and the rows that are scored before."""
ERROR_RATE, POWER, N_JUDGED = 0.02, 8.0, 20
"""The rate of running mean errors of later rows one row ahead, which falls with the root of the
horizon; the power of errors in the weights; and the forecasts that are compared before any."""
WITH = "\0with"
"""The end of the name under which the model sees a sensor less the effect."""
CONTINUING = ("stuck", "gap")
"""Events that are sought without covariates: a value that stays does not stay less an effect."""
PLAIN, KNOWN, UNKNOWN = range(3)
"""The forecasts of later rows that are compared: without covariates; with those of the later row;
with those of the row at which the forecast was made."""


class Effect:
    """Learns what covariates change, in memory of a fixed size for a season.

    Args:
        n: K, the number of covariates.

    Attributes:
        level: The effect on the newest row, in the unit of the value.
        weights: The change of the value by one unit of each feature, (len(MEMORY), K).
    """

    def __init__(self, n: int):
        self.level, self.weights = 0.0, np.zeros((len(MEMORY), n))
        self._features: FloatArray | None = None  # of the newest row, (len(MEMORY), K)
        self._change = np.zeros_like(self.weights)  # of the features, by the newest row
        self._variance = PRIOR * np.eye(self.weights.size)
        self._sizes = np.zeros(self.weights.size)  # mean squares of what is new in the features
        self._n, self._usual = 0, 0.0  # rows, and the mean absolute error
        self._changes: deque[FloatArray] = deque(maxlen=0)  # those of the last season

    def moved(self, covariates: FloatArray) -> Effect:
        """Return this effect at covariates (K,) of the next row; NaN leaves one as it was."""
        other = Effect.__new__(Effect)
        other.__dict__.update(self.__dict__)
        is_known = np.abs(covariates) <= MOST
        if self._features is None:
            other._features = np.repeat(np.where(is_known, covariates, 0.0)[None], len(MEMORY), 0)
            return other
        known = np.where(is_known, covariates, self._features[0])
        change = (known - self._features) / np.array(MEMORY)[:, None]
        step = float((self.weights * change).sum())
        if self._n > FIRST and abs(step) > MOST_STEP * self._usual:
            change, step = np.zeros_like(change), 0.0
        other._change, other._features = change, self._features + change
        other.level = self.level + step
        return other

    def levels(self, covariates: FloatArray) -> FloatArray:
        """Return the effects on the next n rows, (n,), by their covariates (n, K)."""
        levels, effect = [], self
        for row in covariates:
            effect = effect.moved(row)
            levels.append(effect.level)
        return np.array(levels)

    def learn(self, error: float, season: int) -> None:
        """Learn the weights from the newest row.

        Args:
            error: The row's value less its forecast median; NaN if it has none.
            season: The season's length in slots; 0 for none.
        """
        change = self._change.ravel()
        new = change - SEASONAL * self._before(change, season)
        self._n += 1
        rate = max(1.0 / self._n, RATE)
        sizes, squares = self._sizes, new * new
        most = np.where(sizes > 0.0, LARGE_FEATURE * sizes, squares)
        self._sizes = sizes + rate * (np.minimum(squares, most) - sizes)
        if not math.isfinite(error):
            return
        usual = self._usual
        size = min(abs(error), LARGE * usual) if self._n > FIRST else abs(error)
        self._usual = usual + rate * (size - usual)
        if self._n <= FIRST or usual <= 0.0:
            return
        scales = np.sqrt(self._sizes + LEAST)
        feature = np.clip(new / scales, -CLIP_FEATURE, CLIP_FEATURE)
        bounded = max(-CLIP, min(error / usual, CLIP))
        gain = self._variance @ feature
        gain /= FORGET + feature @ gain
        variance = (self._variance - np.outer(gain, feature @ self._variance)) / FORGET
        mean = float(np.trace(variance)) / len(feature)
        self._variance = variance * min(1.0, MOST_VARIANCE / mean)
        self.weights = self.weights + (gain * bounded * usual / scales).reshape(self.weights.shape)

    def _before(self, change: FloatArray, season: int) -> FloatArray:
        """Return the features' change one season before the newest, and keep the newest one."""
        changes = self._changes
        if changes.maxlen != season:
            changes = self._changes = deque(maxlen=season)
        before = changes[0] if season and len(changes) == season else np.zeros_like(change)
        changes.append(change)
        return before


def _loss(forecast: Forecast, value: float) -> float:
    """Return the mean quantile loss of a forecast; unlike its density it has a value's unit.

    The density of a sensor that measures in steps is high on the steps, where a value less an
    effect never is.
    """
    errors = [(level, value - quantile) for level, quantile in forecast.quantiles.items()]
    return sum(max(level * e, (level - 1.0) * e) for level, e in errors) / len(errors)


class _Made(NamedTuple):
    """Holds what was forecast after a row, at each horizon.

    Attributes:
        plain: The medians without covariates, (H,).
        rest: The medians of the value less the effect, (H,).
        level: The effect on the row.
    """

    plain: FloatArray
    rest: FloatArray
    level: float


class CovariateSensor:
    """Serves one sensor with covariates; it takes two names of a `Sensors`.

    Args:
        sensors: The opened model.
        name: The sensor's name.
        n: K, the number of covariates.

    Attributes:
        effect: What the covariates change.
        losses: The running mean quantile losses of rows, without and with covariates, (2,).
    """

    def __init__(self, sensors: Sensors, name: str, n: int):
        self._sensors, self._name = sensors, name
        self.effect, self.losses, self._n_scored = Effect(n), np.zeros(2), 0
        self._horizons = np.array(sensors.horizons)
        shape = (3, len(self._horizons))
        self._errors, self._n_judged = np.zeros(shape), np.zeros(shape[1])
        self._made: deque[_Made | None] = deque(maxlen=int(self._horizons[-1]))

    @property
    def is_believed(self) -> bool:
        """Return whether rows are scored by the forecast with covariates."""
        plain, other = self.losses.tolist()
        return self._n_scored >= N_SCORED and other < BETTER * plain

    def step(
        self, time: Any, value: float, covariates: FloatArray, dated: bool | None = None
    ) -> Forecast:
        """Score a row, learn it, and forecast later rows, as `Sensors.step` does.

        Args:
            time: The row's time.
            value: The measured value; NaN if it is missing.
            covariates: Those of the row, (K,); NaN where one is not known, which stays as it was.
            dated: Whether a time that is a number is a date in seconds since 1970.

        Raises:
            DataError, BackendError, StepRefusedError: As for `Sensors.step`; a row that is refused
                changes nothing.
        """
        effect = self.effect.moved(covariates)
        level = effect.level
        rest = self._sensors.step(time, value - level, self._name + WITH, dated)
        plain = self._sensors.step(time, value, self._name, dated)
        effect.learn(value - level - rest.q50, plain.season)
        self.effect = effect
        if value == value and plain.is_known and rest.is_known:
            self._n_scored += 1
            rate = max(1.0 / self._n_scored, LOSS_RATE)
            losses = np.array([_loss(plain, value), _loss(rest, value - level)])
            if self._n_scored > N_JUDGED:
                losses = np.minimum(losses, LARGE * self.losses.max())
            self.losses = self.losses + rate * (losses - self.losses)
        self._judge(value, plain.n_missing)
        self._keep(plain, rest)
        return self._joined(plain, rest)

    def _judge(self, value: float, n_missing: int) -> None:
        """Compare the forecasts that were made of a row at each horizon before it."""
        self._made.extend([None] * min(n_missing, int(self._horizons[-1])))
        level = self.effect.level
        for at, horizon in enumerate(self._horizons.tolist()):
            made = self._made[-horizon] if len(self._made) >= horizon else None
            if made is None or value != value:
                continue
            forecasts = np.array(
                [made.plain[at], made.rest[at] + level, made.rest[at] + made.level]
            )
            self._n_judged[at] += 1
            rate = max(1.0 / self._n_judged[at], ERROR_RATE / math.sqrt(horizon))
            errors = np.abs(value - forecasts)
            if self._n_judged[at] > N_JUDGED:
                errors = np.minimum(errors, LARGE * self._errors[:, at].max())
            self._errors[:, at] += rate * (errors - self._errors[:, at])

    def _keep(self, plain: Forecast, rest: Forecast) -> None:
        """Keep the medians that were forecast after a row."""
        of_plain, of_rest = (
            np.array([forecast.ahead(h).q50 for h in self._horizons.tolist()])
            for forecast in (plain, rest)
        )
        is_known = np.isfinite(of_plain).all() and np.isfinite(of_rest).all()
        self._made.append(_Made(of_plain, of_rest, self.effect.level) if is_known else None)

    def weights(self, ahead: Array, kind: int) -> FloatArray:
        """Return how far the forecasts with covariates are believed some slots ahead, (n,).

        Args:
            ahead: How many slots ahead, (n,).
            kind: `KNOWN` if the covariates of these slots are known, or `UNKNOWN`.
        """
        plain, other = np.maximum(self._errors[[PLAIN, kind]], LEAST)
        weights = 1.0 / (1.0 + np.minimum(other / plain, MOST_RATIO) ** POWER)
        weights = np.where(self._n_judged >= N_JUDGED, weights, 0.0)
        found: FloatArray = np.interp(np.log(ahead), np.log(self._horizons), weights)
        return found

    def helps(self, ahead: int) -> float:
        """Return the error of later rows with known covariates over that without, lately.

        It is NaN until enough forecasts of so many rows ahead, one of the horizons, were compared.
        """
        at = self._horizons.tolist().index(ahead)
        plain, known, _ = self._errors[:, at].tolist()
        return known / plain if self._n_judged[at] >= N_JUDGED and plain > 0.0 else math.nan

    def path(self, horizon: int, coming: FloatArray | None = None) -> Path:
        """Forecast the next `horizon` slots, as `Sensors.path` does.

        Args:
            horizon: The number of slots.
            coming: The covariates of the first n of these slots, (n, K), where they are known.
        """
        plain = self._sensors.path(horizon, self._name)
        rest = self._sensors.path(horizon, self._name + WITH)
        slots = np.arange(1, horizon + 1)
        n, level = 0, np.full(horizon, self.effect.level)
        if coming is not None and len(coming):
            n = min(len(coming), horizon)
            level[:n] = self.effect.levels(coming[:n])
            level[n:] = level[n - 1]
        weight = self.weights(slots, UNKNOWN)
        if n:
            # Past the known slots, the weight goes over to that of unknown ones in as many slots.
            known = self.weights(np.minimum(slots, n), KNOWN)
            weight += np.clip(2 - slots / n, 0, 1) * (known - weight)
        mean = (1 - weight) * plain.mean + weight * (rest.mean + level)
        weight, level = weight[:, None], level[:, None]
        return Path(mean, (1 - weight) * plain.quantiles + weight * (rest.quantiles + level))

    def _joined(self, plain: Forecast, rest: Forecast) -> Forecast:
        """Return the forecast of a row by the state that is believed, with later rows by both."""
        found, level = plain, self.effect.level
        if self.is_believed and rest.is_known:
            names = ("mean", "q05", "q10", "q25", "q50", "q75", "q90", "q95")
            moved = {name: getattr(rest, name) + level for name in names}
            found = replace(rest, value=plain.value, **moved)
            if plain.event in CONTINUING:
                found = replace(found, alarm=plain.alarm, event=plain.event, since=plain.since)
        if plain._ahead is None or rest._ahead is None:
            return replace(found, _ahead=plain._ahead)
        slots = [*self._horizons, plain.season or self._horizons[-1]]
        weight = self.weights(np.array(slots), UNKNOWN)
        mean, quantiles = (
            (1 - w) * of_plain + w * (of_rest + level)
            for w, of_plain, of_rest in zip(
                (weight, weight[:, None]), plain._ahead, rest._ahead, strict=True
            )
        )
        return replace(found, _ahead=(mean, quantiles))
