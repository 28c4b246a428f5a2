"""Scores of forecasts of sensors, row by row and over series: numpy alone, no model.

Every row is scored before it is learned. Of one series: the mean absolute error, the CRPS, the log
density, what bands hold, how often p-values are small. Over series: geometric means of ratios, mean
and median of nats, wins, the worst, and a bootstrap over blocks of rows.

The CRPS is twice the mean pinball loss over the 7 levels of `LEVELS`, for our model and for every
peer alike; a point forecast's is its absolute error, which the same formula gives when all its
quantiles are equal. It leaves out what lies beyond the 5 % and 95 % levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
Z = np.array([-1.6448536, -1.2815516, -0.6744898, 0.0, 0.6744898, 1.2815516, 1.6448536])
"""Quantiles of N(0, 1) at `LEVELS`."""
LEAST_NATS = -30.0
WARM_SHARE, WARM_SEASONS, WARM_ROWS = 0.3, 2, 85
SPREAD_MEMORY, LEAST_SPREAD = 0.99, 1e-3
BLOCK, N_DRAWS = 50, 1000
LOG_ROOT_2PI = 0.5 * np.log(2 * np.pi)


def quantiles_at(levels: FloatArray, quantiles: FloatArray) -> FloatArray:
    """Return quantiles (..., L) at other levels than `LEVELS`, of those at `LEVELS`, (..., 7).

    They are linear in the standard normal's quantiles, between the levels and beyond them.
    """
    z = np.array([NormalDist().inv_cdf(level) for level in levels])
    at = np.clip(np.searchsorted(Z, z) - 1, 0, len(Z) - 2)
    share = (z - Z[at]) / (Z[at + 1] - Z[at])
    found: FloatArray = (1 - share) * quantiles[..., at] + share * quantiles[..., at + 1]
    return found


@dataclass(frozen=True, slots=True)
class Told:
    """Forecasts of n rows of a series, each made before its value was seen.

    Attributes:
        mean: (n,).
        quantiles: At `LEVELS`, (n, 7); NaN where there are none.
        log_density: Of the value, (n,), nats; NaN where there is none.
        p_value: Twice the smaller mass beside the value, (n,); NaN where there is none.
        log_mass: Of the value's quantum, (n,), nats; NaN where there is none.
    """

    mean: FloatArray
    quantiles: FloatArray
    log_density: FloatArray
    p_value: FloatArray
    log_mass: FloatArray = field(default_factory=lambda: np.zeros(0))

    def of(self, rows: slice) -> Told:
        """Some of the rows."""
        mass = self.log_mass[rows] if len(self.log_mass) else self.log_mass
        return Told(
            self.mean[rows], self.quantiles[rows], self.log_density[rows], self.p_value[rows], mass
        )


def first_scored(n_rows: int, season: int) -> int:
    """The rows before this one warm up, and are not scored.

    A season of which the series has not three is no reason to wait for it.
    """
    seasons = WARM_SEASONS * season if (WARM_SEASONS + 1) * season <= n_rows else 0
    return max(int(WARM_SHARE * n_rows), seasons, WARM_ROWS)


def crps(values: FloatArray, quantiles: FloatArray) -> FloatArray:
    """Twice the mean pinball loss of quantiles (n, 7) beside values (n,): (n,)."""
    return quantile_loss(values, quantiles, np.array(LEVELS)).mean(1)  # type: ignore[no-any-return]


def quantile_loss(values: FloatArray, quantiles: FloatArray, levels: FloatArray) -> FloatArray:
    """Twice the pinball loss of quantiles (..., Q) at levels (Q,) beside values (...): (..., Q)."""
    away = values[..., None] - quantiles
    loss: FloatArray = 2 * np.maximum(levels * away, (levels - 1) * away)
    return loss


def floored(log_density: FloatArray) -> FloatArray:
    """No row counts for less than `LEAST_NATS`."""
    return np.maximum(np.nan_to_num(log_density, nan=LEAST_NATS, neginf=LEAST_NATS), LEAST_NATS)


def persistence(values: FloatArray, horizon: int = 1) -> Told:
    """The value `horizon` rows before, with the running spread of such changes.

    The first `horizon` rows have no forecast: NaN.
    """
    then = np.full(len(values), np.nan)
    then[horizon:] = values[:-horizon]
    return normal_around(then, values, horizon)


def normal_around(mean: FloatArray, values: FloatArray, horizon: int = 1) -> Told:
    """A normal density around point forecasts, with the running root mean square of their errors.

    Of a forecast, errors up to `horizon` rows before count: later ones are not known yet.
    """
    spread = running_spread(values - mean, horizon)
    quantiles = mean[:, None] + spread[:, None] * Z
    apart = (values - mean) / spread
    log_density = -0.5 * apart**2 - np.log(spread) - LOG_ROOT_2PI
    return Told(mean, quantiles, log_density, two_sided(apart))


def two_sided(apart: FloatArray) -> FloatArray:
    """Twice the smaller tail of N(0, 1) beyond numbers (n,)."""
    from math import erfc, sqrt

    return np.array([erfc(abs(a) / sqrt(2)) if a == a else 1.0 for a in apart.tolist()])


def running_spread(errors: FloatArray, horizon: int = 1) -> FloatArray:
    """The root of the running mean of squares that were known before each row, (n,).

    It is 1 before the first of them, and at least a part of the largest error so far.
    """
    total, weight, largest = 0.0, 0.0, 0.0
    squares = errors**2
    found = np.ones(len(errors))
    for row in range(horizon, len(errors)):
        square = squares[row - horizon]
        if square == square:
            total = SPREAD_MEMORY * total + square
            weight = SPREAD_MEMORY * weight + 1.0
            largest = max(largest, square)
        if weight:
            found[row] = max(total / weight, LEAST_SPREAD**2 * largest, 1e-24) ** 0.5
    return found


def quantum_of(values: FloatArray) -> float:
    """The step in which a sensor tells its values; 0 where it has none.

    It is the smallest difference of values, where nearly all values are multiples of it apart and
    repeat themselves.
    """
    distinct = np.unique(values)
    if len(distinct) < 2 or len(distinct) > 0.5 * len(values):
        return 0.0
    steps = np.diff(distinct)
    steps = steps[steps > 1e-9 * max(np.abs(distinct).max(), 1e-30)]
    if not len(steps):
        return 0.0
    quantum = float(steps.min())
    parts = (distinct - distinct[0]) / quantum
    on_grid = np.abs(parts - np.round(parts)) < 0.02 * np.maximum(1.0, 0.01 * parts)
    return quantum if on_grid.mean() > 0.95 else 0.0


def scores_of(values: FloatArray, told: Told, beside: Told) -> dict[str, float]:
    """The scores of rows (n,), and ratios beside a baseline's: `mae`, `crps`; nats more: `gain`."""
    found = {
        "n": float(len(values)),
        "mae": float(np.abs(values - told.mean).mean()),
        "mae_beside": float(np.abs(values - beside.mean).mean()),
    }
    if np.isfinite(told.quantiles).all():
        q = told.quantiles
        found |= {
            "mae_median": float(np.abs(values - q[:, 3]).mean()),
            "crps": float(crps(values, q).mean()),
            "crps_beside": float(crps(values, beside.quantiles).mean()),
            "holds_90": float(((values >= q[:, 0]) & (values <= q[:, 6])).mean()),
            "holds_50": float(((values >= q[:, 2]) & (values <= q[:, 4])).mean()),
        }
    if np.isfinite(told.log_density).any():
        found["nats"] = float(floored(told.log_density).mean())
        found["gain"] = found["nats"] - float(floored(beside.log_density).mean())
    if np.isfinite(told.p_value).all():
        found |= {
            "rate_1e-2": float((told.p_value < 1e-2).mean()),
            "rate_1e-3": float((told.p_value < 1e-3).mean()),
        }
        found.setdefault("holds_90", float((told.p_value >= 0.1).mean()))
        found.setdefault("holds_50", float((told.p_value >= 0.5).mean()))
    if len(told.log_mass):
        found["mass"] = float(floored(told.log_mass).mean())
    return found


def ratio(one: float, other: float) -> float:
    """One beside the other; 1 where both are nothing."""
    if other <= 0:
        return 1.0 if one <= 0 else float("inf")
    return one / other


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of positive ratios; NaN of none."""
    kept = [max(r, 1e-6) for r in ratios if r == r]
    return float(np.exp(np.mean(np.log(kept)))) if kept else float("nan")


@dataclass(frozen=True, slots=True)
class Gains:
    """Nats of one model over another, a series each.

    Attributes:
        mean, median, worst: Over series.
        wins: Series on which it is better.
        n: Series.
        low, high: The mean's bootstrap over blocks of rows, 2.5 % and 97.5 %.
        median_low, median_high: The median's.
    """

    mean: float
    median: float
    worst: float
    wins: int
    n: int
    low: float
    high: float
    median_low: float
    median_high: float


def gains(by_series: Mapping[str, FloatArray], n_draws: int = N_DRAWS, seed: int = 0) -> Gains:
    """Summarise differences of log densities of rows, by series."""
    random = np.random.default_rng(seed)
    means = np.array([rows.mean() for rows in by_series.values()])
    drawn = np.stack([_redrawn(rows, n_draws, random) for rows in by_series.values()])
    low, high = np.quantile(drawn.mean(0), (0.025, 0.975)).tolist()
    median_low, median_high = np.quantile(np.median(drawn, 0), (0.025, 0.975)).tolist()
    return Gains(
        mean=float(means.mean()),
        median=float(np.median(means)),
        worst=float(means.min()),
        wins=int((means > 0).sum()),
        n=len(means),
        low=low,
        high=high,
        median_low=median_low,
        median_high=median_high,
    )


def _redrawn(rows: FloatArray, n_draws: int, random: np.random.Generator) -> FloatArray:
    """Means of a series whose blocks are drawn with replacement, (n_draws,)."""
    starts: Array = np.arange(0, len(rows), BLOCK)
    sums = np.add.reduceat(rows, starts)
    sizes = np.diff(np.append(starts, len(rows)))
    drawn = random.integers(0, len(starts), (n_draws, len(starts)))
    found: FloatArray = sums[drawn].sum(1) / sizes[drawn].sum(1)
    return found
