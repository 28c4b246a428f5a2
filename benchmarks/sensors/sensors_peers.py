"""The peers of the general model of sensors: online forecasters and a pretrained one.

    laplace      skaters 0.16 (MIT): an online mixture of some 60 transforms, with fitted tails; no
                 season is told to it, as it takes none. Every row since the first
    snarimax     river 0.26 (BSD-3): p = 12 and one season back, standardised, least squares by
                 gradient descent at 0.01, target standardised. Every row since the first
    holt-winters river: level 0.3, trend 0.1, season 0.6, as in its documentation; every row
    fracast      Fracast-0 (Apache-2.0): 85,001 weights, pretrained; the last 2,048 values a call
    ets          statsmodels (BSD-3): additive error, damped trend, additive season of at most 52,
                 of the last 1,000 values or 3 seasons, fitted again every 100 rows

What is fair: all see the rows before the one they forecast and no other; gaps are closed up for
them, they take no clock. Nobody tuned them, and nobody tuned ours on these series. They
forecast the last rows of each series only, `N_ROWS`, as the slow ones allow no more, and our model
is scored beside each on the same rows. The season is the one that our feed has found, if any.
River gives points, so its CRPS is its absolute error and it has no density. Fracast gives the
levels 0.1 to 0.9; 0.25 and 0.75 lie between its own, 0.05 and 0.95 as a normal tail goes on.
Where values are steps of a quantum, a density also counts as the mass of the step.

It runs in an interpreter of its own, since the project does not need these packages: see `PEERS`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import erf, log, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sensors.sensors_scores import (
    LEVELS,
    LOG_ROOT_2PI,
    Told,
    Z,
    crps,
    persistence,
    quantum_of,
    scores_of,
    two_sided,
)
from edgefold.runtime.arrays import Array, FloatArray

PEERS = {
    "laplace": "skaters",
    "snarimax": "river",
    "holt-winters": "river",
    "ets": "statsmodels",
    "fracast": "fracast",
}
"""Each peer and the package that it needs; `pip install edgefold[peers]` brings them."""
N_ROWS = {"laplace": 500, "snarimax": 500, "holt-winters": 500, "fracast": 200, "ets": 200}
"""The last scored rows of a series that each peer forecasts."""
HORIZONS = (4, 16)
CONTEXT, N_BATCH = 2048, 25
ETS_ROWS, ETS_SEASONS, ETS_EVERY, ETS_LONGEST = 1000, 3, 100, 52
LEAST_MASS = 1e-13


@dataclass(frozen=True, slots=True)
class Given:
    """A series as peers get it.

    Attributes:
        values: (n,).
        season: In rows, 0 for none.
        start: The first row that is scored.
        quantum: Of the values; 0 where there is none.
    """

    values: FloatArray
    season: int
    start: int
    quantum: float

    @property
    def horizons(self) -> tuple[int, ...]:
        """Rows ahead, the season last, where it is another one."""
        more = (self.season,) if self.season > 1 and self.season not in HORIZONS else ()
        return (*HORIZONS, *more)


@dataclass(frozen=True, slots=True)
class Answer:
    """Forecasts of a peer for rows from `start` on; `ahead` by horizon: quantiles (n, 7)."""

    told: Told
    ahead: Mapping[int, FloatArray]


def of_normals(given: Given, mean: FloatArray, std: FloatArray) -> Told:
    """Normal densities of the scored rows."""
    values = given.values[given.start :]
    std = np.maximum(std, 1e-12)
    apart = (values - mean) / std
    log_density = -0.5 * apart**2 - np.log(std) - LOG_ROOT_2PI
    mass = np.zeros(0)
    if given.quantum:
        half = 0.5 * given.quantum / std
        mass = np.array([_log_mass(a, h) for a, h in zip(apart.tolist(), half, strict=True)])
    return Told(mean, mean[:, None] + std[:, None] * Z, log_density, two_sided(apart), mass)


def _log_mass(apart: float, half: float) -> float:
    upper, lower = (0.5 * (1 + erf((apart + side) / sqrt(2))) for side in (half, -half))
    return log(max(upper - lower, LEAST_MASS))


def laplace(given: Given) -> Answer:
    """skaters' mixture, one row ahead."""
    from skaters import laplace as build

    forecaster, state, found = build(k=1), None, []
    half = 0.5 * given.quantum
    dist: Any = None
    for row, value in enumerate(given.values.tolist()):
        if row >= given.start:
            below = dist.cdf(value)
            mass = dist.cdf(value + half) - dist.cdf(value - half) if half else 0.0
            found.append(
                [
                    *(dist.mean, dist.logpdf(value), 2 * min(below, 1 - below)),
                    log(max(mass, LEAST_MASS)),
                    *(dist.quantile(level) for level in LEVELS),
                ]
            )
        dists, state = forecaster(value, state)
        dist = dists[0]
    table = np.array(found)
    mass = table[:, 3] if half else np.zeros(0)
    return Answer(Told(table[:, 0], table[:, 4:], table[:, 1], table[:, 2], mass), {})


def _points(given: Given, model: Any) -> Answer:
    """A forecaster of river's, as points."""
    mean = []
    last = float(given.values[0])
    for row, value in enumerate(given.values.tolist()):
        if row >= given.start:
            try:
                point = float(model.forecast(horizon=1)[0])
            except (ZeroDivisionError, OverflowError, ValueError, IndexError):
                point = last
            mean.append(point if abs(point) < 1e30 else last)
        model.learn_one(value)
        last = value
    points = np.array(mean)
    none = np.full(len(points), np.nan)
    return Answer(Told(points, np.repeat(points[:, None], len(LEVELS), 1), none, none), {})


def snarimax(given: Given) -> Answer:
    """river's regression on the last 12 values and the season's."""
    from river import linear_model, optim, preprocessing, time_series

    season = given.season
    regressor = preprocessing.StandardScaler() | preprocessing.TargetStandardScaler(
        linear_model.LinearRegression(optimizer=optim.SGD(0.01))
    )
    model = time_series.SNARIMAX(
        p=12, d=0, q=0, m=max(season, 1), sp=int(season > 1), regressor=regressor
    )
    return _points(given, model)


def holt_winters(given: Given) -> Answer:
    """river's exponential smoothing."""
    from river import time_series

    seasonal = {"gamma": 0.6, "seasonality": given.season} if given.season > 1 else {}
    return _points(given, time_series.HoltWinters(alpha=0.3, beta=0.1, **seasonal))


def fracast(given: Given) -> Answer:
    """Fracast-0 on the last 2,048 values."""
    from fracast import FracastModel

    model = FracastModel.from_pretrained()
    farthest = min(max(given.horizons), model.horizon)
    found = []
    rows = list(range(given.start, len(given.values)))
    for first in range(0, len(rows), N_BATCH):
        part = rows[first : first + N_BATCH]
        context = np.full((len(part), CONTEXT), np.nan, np.float32)
        for at, row in enumerate(part):
            past = given.values[max(0, row - CONTEXT) : row]
            context[at, CONTEXT - len(past) :] = past
        found.append(model.forecast_batch(context, horizon=farthest))
    blocks = _at_levels(np.concatenate(found), model.quantiles)  # (n, h, 7)
    one = blocks[:, 0]
    none = np.full(len(one), np.nan)
    ahead = {h: blocks[:, h - 1] for h in given.horizons if h <= farthest}
    return Answer(Told(one[:, 3], one, none, none), ahead)


def _at_levels(found: Array, levels: list[float]) -> FloatArray:
    """Quantiles (..., 9) at 0.1 to 0.9 as quantiles (..., 7) at `LEVELS`."""
    inner = [np.apply_along_axis(lambda q: np.interp(LEVELS[1:6], levels, q), -1, found)]
    reach = (Z[6] - Z[5]) / (Z[5] - 0.8416212)
    low = found[..., :1] - reach * (found[..., 1:2] - found[..., :1])
    high = found[..., -1:] + reach * (found[..., -1:] - found[..., -2:-1])
    together: FloatArray = np.concatenate([low, *inner, high], -1).astype(np.float64)
    return together


def ets(given: Given) -> Answer:
    """statsmodels' exponential smoothing, fitted again now and then."""
    import pandas
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    values, season = given.values, given.season
    seasonal = 1 < season <= ETS_LONGEST
    width = max(ETS_ROWS, ETS_SEASONS * season if seasonal else 0)
    farthest = max(h for h in given.horizons if h <= max(ETS_LONGEST, *HORIZONS))
    options = {"seasonal": "add", "seasonal_periods": season} if seasonal else {}
    means, stds, parameters = [], [], None
    for row in range(given.start, len(values)):
        past = values[max(0, row - width) : row]
        past = past + 1e-9 * np.arange(len(past)) if np.ptp(past) == 0 else past
        model = ETSModel(
            pandas.Series(past), error="add", trend="add", damped_trend=True,
            initialization_method="heuristic", **options,
        )  # fmt: skip
        if parameters is None or (row - given.start) % ETS_EVERY == 0:
            parameters = model.fit(disp=False, maxiter=100).params
        smoothed = model.smooth(parameters)
        told = smoothed.get_prediction(start=len(past), end=len(past) + farthest - 1)
        means.append(np.asarray(told.predicted_mean))
        stds.append(np.sqrt(np.maximum(np.asarray(told.forecast_variance), 0)))
    mean, std = np.array(means), np.array(stds)
    ahead = {
        h: mean[:, h - 1, None] + std[:, h - 1, None] * Z for h in given.horizons if h <= farthest
    }
    return Answer(of_normals(given, mean[:, 0], std[:, 0]), ahead)


RUN: Mapping[str, Callable[[Given], Answer]] = {
    "laplace": laplace,
    "snarimax": snarimax,
    "holt-winters": holt_winters,
    "fracast": fracast,
    "ets": ets,
}


def scored(given: Given, answer: Answer) -> dict[str, Any]:
    """The scores of a peer on one series, beside persistence on the same rows."""
    rows = slice(given.start, None)
    values = given.values[rows]
    found: dict[str, Any] = scores_of(values, answer.told, persistence(given.values).of(rows))
    found["ahead"] = {}
    for horizon, quantiles in answer.ahead.items():
        n = len(values) - horizon + 1  # told at row t - 1 of row t + horizon - 1
        if n > 0:
            beside = persistence(given.values, horizon).of(rows)
            later = values[horizon - 1 :]
            found["ahead"][str(horizon)] = {
                "n": n,
                "crps": float(crps(later, quantiles[:n]).mean()),
                "crps_beside": float(crps(later, beside.quantiles[horizon - 1 :]).mean()),
            }
    return found


def missing() -> list[str]:
    """Peers whose package this interpreter does not have."""
    return [peer for peer, package in PEERS.items() if importlib.util.find_spec(package) is None]


def main() -> None:
    """Score one peer on one series, and print its scores as JSON."""
    parser = argparse.ArgumentParser(
        description="The child of `benchmarks.sensors.sensors --peers`."
    )
    parser.add_argument("series", type=Path, help="written by benchmarks.sensors.sensors")
    parser.add_argument("peer", choices=tuple(PEERS))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    with np.load(args.series) as arrays:
        values, (season, start) = arrays["values"], arrays["season_start"].tolist()
    given = Given(values, season, start, quantum_of(values))
    began = time.perf_counter()
    found = scored(given, RUN[args.peer](given))
    found["seconds"] = time.perf_counter() - began
    print(json.dumps(found))


if __name__ == "__main__":
    main()
