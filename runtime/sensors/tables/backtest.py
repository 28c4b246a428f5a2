"""Score the forecasts of one sensor's rows at each horizon, while its rows come.

    row at slot n ──> scores the forecasts for slot n that were made h slots before
                 └──> its own forecasts wait for the slots n + h

A slot is one place in the even sequence of times in which the rows of a sensor come. A forecast is
scored if a row with a value comes at its slot. It is compared with persistence, the forecast that
nothing changes: the newest value when it was made.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS
from edgefold.runtime.sensors.clock.row_slots import MOST_MISSING
from edgefold.runtime.sensors.scored_rows import ScoredRows

MIDDLE = SENSOR_LEVELS.index(0.5)
PART = 1 << 40
"""A number larger than any count of slots, by which the parts between long gaps are told apart."""


class BacktestScore(NamedTuple):
    """Says how good the forecasts of one sensor were at one horizon; NaN without forecasts.

    Attributes:
        n: The number of forecasts that were scored.
        mae: The mean absolute error of the medians, in the value's unit.
        persistence: The mean absolute error of persistence at the same slots.
        ratio: `mae` divided by `persistence`; below 1 the model knows more than the last value.
        coverage_90: The share of values from `q05` to `q95`; 0.9 is right.
        crps: The continuous ranked probability score, in the value's unit: twice the mean pinball
            loss over the seven levels. It leaves out what lies beyond 5 % and 95 %.
    """

    n: int
    mae: float
    persistence: float
    ratio: float
    coverage_90: float
    crps: float


class HorizonScores:
    """Scores the forecasts of one sensor at some horizons and one season ahead.

    Args:
        horizons: The numbers of slots ahead.
    """

    def __init__(self, horizons: tuple[int, ...]):
        self._horizons = horizons
        self._waiting = [_Waiting() for _ in range(len(horizons) + 1)]
        self._sums = np.zeros((len(horizons) + 1, 5))
        self._newest, self._part = math.nan, 0

    def add(self, rows: ScoredRows, skip: int = 0) -> None:
        """Score the forecasts for the next rows of the sensor, and keep those made after them.

        Args:
            rows: The rows, with forecasts of later slots.
            skip: The number of the first of these rows for which no forecast is scored.
        """
        assert rows.ahead is not None
        taken = rows.taken
        values, n_missing = rows.values[taken], rows.column("n_missing")[taken]
        seasons, n_points = rows.column("season")[taken], rows.ahead.n_points[taken]
        # Forecasts do not reach across a gap of which the model did not step through all slots.
        parts = self._part + np.cumsum(n_missing > MOST_MISSING)
        places = parts * PART + n_points
        newest, is_known = self._filled(values), rows.ahead.is_known[taken]
        is_counted = (np.arange(len(rows)) >= skip)[taken] & ~np.isnan(values)
        quantiles = rows.ahead.quantiles[taken]
        for at, waiting in enumerate(self._waiting):
            steps = (
                np.full(len(places), self._horizons[at]) if at < len(self._horizons) else seasons
            )
            made = is_known & (steps > 0)
            waiting.make((places + steps)[made].astype(np.int64), newest[made], quantiles[made, at])
            row, forecast = waiting.due(places)
            is_scored = is_counted[row]
            row, forecast = row[is_scored], forecast[is_scored]
            self._sums[at] += _sums(
                values[row], waiting.newest[forecast], waiting.quantiles[forecast]
            )
            waiting.drop(places)
        if len(places):
            self._newest, self._part = newest[-1].item(), parts[-1].item()

    def _filled(self, values: FloatArray) -> FloatArray:
        """Return the newest value at each row, (n,): its own, or that of a row before."""
        known = np.concatenate([[self._newest], values])
        places = np.where(np.isnan(known), 0, np.arange(len(known)))
        filled: FloatArray = known[np.maximum.accumulate(places)[1:]]
        return filled

    def result(self) -> list[tuple[str | int, BacktestScore]]:
        """Return the scores of each horizon; the last one is called "season"."""
        names: tuple[str | int, ...] = (*self._horizons, "season")
        return [
            (name, _score(*sums)) for name, sums in zip(names, self._sums.tolist(), strict=True)
        ]


class _Waiting:
    """Holds the forecasts at one horizon whose slots have not come, in the order of their making.

    A place is the number of a slot, higher by `PART` after each gap that forecasts do not reach
    across.

    Attributes:
        places: The places for which the forecasts are, (n,).
        newest: The newest values when they were made, (n,).
        quantiles: The quantiles, (n, Q).
    """

    def __init__(self) -> None:
        self.places, self.newest = np.empty(0, np.int64), np.empty(0)
        self.quantiles = np.empty((0, len(SENSOR_LEVELS)))

    def make(self, places: Array, newest: FloatArray, quantiles: FloatArray) -> None:
        """Add forecasts."""
        self.places = np.concatenate([self.places, places])
        self.newest = np.concatenate([self.newest, newest])
        self.quantiles = np.concatenate([self.quantiles, quantiles])

    def due(self, places: Array) -> tuple[Array, Array]:
        """Return pairs of rows and forecasts of one place: of two forecasts, the one made last.

        Args:
            places: The places of the rows, (n,).
        """
        order = np.argsort(self.places, kind="stable")
        at = np.searchsorted(self.places[order], places, "right") - 1
        rows = np.flatnonzero(at >= 0)
        forecasts = order[at[rows]]
        same = self.places[forecasts] == places[rows]
        return rows[same], forecasts[same]

    def drop(self, places: Array) -> None:
        """Forget the forecasts for places up to the last of these."""
        if len(places):
            left = self.places > places[-1]
            self.places, self.newest = self.places[left], self.newest[left]
            self.quantiles = self.quantiles[left]


def _sums(values: FloatArray, before: FloatArray, quantiles: FloatArray) -> FloatArray:
    """Return count, absolute errors, those of persistence, values inside, and twice the losses.

    Args:
        values: The values that came, (n,).
        before: The newest values when the forecasts were made, (n,).
        quantiles: The quantiles, (n, Q).
    """
    inside = (quantiles[:, 0] <= values) & (values <= quantiles[:, -1])
    away, levels = values[:, None] - quantiles, np.array(SENSOR_LEVELS)
    losses = np.maximum(levels * away, (levels - 1) * away).mean(axis=1)
    errors = np.abs(values - quantiles[:, MIDDLE]).sum()
    persistence = np.abs(values - before).sum()
    return np.array([len(values), errors, persistence, inside.sum(), 2 * losses.sum()])


def _score(
    n: float, errors: float, persistence: float, inside: float, loss: float
) -> BacktestScore:
    if not n:
        return BacktestScore(0, *[math.nan] * 5)
    ratio = errors / persistence if persistence else math.nan
    return BacktestScore(int(n), errors / n, persistence / n, ratio, inside / n, loss / n)
