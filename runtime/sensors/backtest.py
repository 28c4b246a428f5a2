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

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS
from edgefold.runtime.sensors.clock.row_slots import MOST_MISSING
from edgefold.runtime.sensors.engine import ScoredRow

MIDDLE = SENSOR_LEVELS.index(0.5)


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
        n = len(horizons) + 1
        # Of each horizon: forecasts that wait, by their slot; and (value, newest value before,
        # quantiles) of those that were scored.
        self._waiting: list[dict[int, tuple[float, FloatArray]]] = [{} for _ in range(n)]
        self._scored: list[list[tuple[float, float, FloatArray]]] = [[] for _ in range(n)]
        self._newest = math.nan

    def add(
        self,
        row: ScoredRow,
        slot: int,
        known: tuple[FloatArray, FloatArray] | None,
        is_counted: bool = True,
    ) -> None:
        """Score the forecasts for a row, and keep those that were made after it.

        Args:
            row: The row.
            slot: The number of slots that the model has learned, including the row's.
            known: Means (H + 1,) and quantiles (H + 1, Q) at the H horizons and one season ahead,
                which are kept and must not change; None if there are none.
            is_counted: Whether the forecasts for this row are scored.
        """
        has_value = row.value == row.value
        if row.n_missing > MOST_MISSING:  # the model did not step through all slots of the gap
            for waiting in self._waiting:
                waiting.clear()
        for waiting, scored in zip(self._waiting, self._scored, strict=True):
            made = waiting.pop(slot, None)
            if made is not None and has_value and is_counted:
                scored.append((row.value, *made))
        if has_value:
            self._newest = row.value
        if known is None:
            return
        steps = (*self._horizons, row.season)
        for at, (waiting, step) in enumerate(zip(self._waiting, steps, strict=True)):
            if step:
                waiting[slot + step] = self._newest, known[1][at]
            for missed in [n for n in waiting if n <= slot] if row.n_missing else ():
                del waiting[missed]

    def result(self) -> list[tuple[str | int, BacktestScore]]:
        """Return the scores of each horizon; the last one is called "season"."""
        names: tuple[str | int, ...] = (*self._horizons, "season")
        return [(name, _score(scored)) for name, scored in zip(names, self._scored, strict=True)]


def _score(scored: list[tuple[float, float, FloatArray]]) -> BacktestScore:
    if not scored:
        return BacktestScore(0, *[math.nan] * 5)
    values, before = (np.array([each[i] for each in scored]) for i in (0, 1))
    quantiles = np.array([each[2] for each in scored])  # (n, Q)
    mae = float(np.abs(values - quantiles[:, MIDDLE]).mean())
    persistence = float(np.abs(values - before).mean())
    inside = (quantiles[:, 0] <= values) & (values <= quantiles[:, -1])
    away, levels = values[:, None] - quantiles, np.array(SENSOR_LEVELS)
    crps = 2 * np.maximum(levels * away, (levels - 1) * away).mean()
    ratio = mae / persistence if persistence else math.nan
    return BacktestScore(len(scored), mae, persistence, ratio, float(inside.mean()), float(crps))
