"""Compute baselines of a streaming model: online forecasts of the next value without training.

    persistence        the last value
    seasonal naive     the value one season ago plus the drift since: v[t-L] + (v[t-1] - v[t-1-L])
    least squares      a linear autoregression on the model's own features, updated at each row

Each baseline forecasts a row before it learns the row. Only least squares predicts its own spread;
the others take the spread of their past errors. The model's predictions do not use the baselines.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.series.features import SeriesPoints
from edgefold.runtime.series.scores import SeriesForecast


class RunningSpread:
    """Computes the root mean square of all errors so far, in constant memory."""

    def __init__(self) -> None:
        self._n = 0
        self._sum = 0.0

    @property
    def std(self) -> float:
        """Return the root mean square of the errors, at least 1e-12 so that a density exists.

        It is 1 before the first error.
        """
        return max(math.sqrt(self._sum / self._n), 1e-12) if self._n else 1.0

    def update(self, error: float) -> None:
        self._n += 1
        self._sum += error * error


CLIP = 8.0
"""Errors larger than this many times the usual size are clipped; normal noise has none so large."""
MEMORY = 50
"""The number of points over which the usual size of errors is averaged."""
LEAST_SIZE = 1e-3
"""The smallest usual size of errors, as a share of its mean over all points, so that a sensor that
did not change for long can be learned again."""
FLOOR = 1e-4
"""The share of the ridge that `LeastSquares` never forgets, so that its inverse Gram matrix P stays
bounded: P exceeds 1 / (FLOOR ridge) in no direction."""


class LeastSquares:
    """Learns y = w x + noise by recursive least squares: one pass, (X + 1)^2 numbers of memory.

    P is the inverse Gram matrix; a point moves w by its error times P x / (forget + x' P x). w
    starts at 0 with P = I / ridge, which is ridge regression, and includes a constant's weight. The
    predicted std is that of the errors so far, which are forgotten at the same rate, widened by
    x' P x.

    The weights learn from clipped errors, so that a spike moves them no further than large noise
    would; the std takes errors as they are. A small part of the ridge is never forgotten. Otherwise
    P would grow without end while inputs stay the same, and the first change would throw w far off.

    Args:
        n_inputs: X, the number of inputs.
        forget: The weight of a point after one further point; 1 never forgets, 0.998 remembers
            about 500 points.
        ridge: The strength with which w is held at 0 at the start, as a number of points with
            inputs of size 1.
        x_shift: The numbers that are subtracted from x, (X,); None stands for 0.
        x_scale: The numbers by which x is then divided, (X,); None stands for 1.
    """

    def __init__(
        self,
        n_inputs: int,
        forget: float = 0.998,
        ridge: float = 1.0,
        x_shift: FloatArray | None = None,
        x_scale: FloatArray | None = None,
    ):
        if not (0 < forget <= 1 and ridge > 0):
            raise DataError(
                f"forget is {forget} and ridge {ridge}; forget must be in (0, 1], ridge positive."
            )
        self._shift = np.zeros(n_inputs) if x_shift is None else np.asarray(x_shift, dtype=float)
        self._scale = np.ones(n_inputs) if x_scale is None else np.asarray(x_scale, dtype=float)
        self._forget = forget
        self._p: FloatArray = np.eye(n_inputs + 1) / ridge
        self._kept_ridge = (1 - forget) * FLOOR * ridge
        self._remains = forget * np.eye(n_inputs + 1)
        self._weights = np.zeros(n_inputs + 1)
        self._n = 0.0  # points remembered
        self._sum = 0.0  # of their squared errors, each made before the update
        self._n_all = 0
        self._size, self._size_all = 0.0, 0.0  # mean clipped error, of recent and of all points

    def _features(self, x: FloatArray) -> FloatArray:
        return np.append((x.reshape(-1) - self._shift) / self._scale, 1.0)

    def predict(self, x: FloatArray) -> tuple[float, float]:
        """Return the predicted mean and standard deviation of y at x, (X,) or (1, X)."""
        features = self._features(x)
        noise = self._sum / self._n if self._n else 1.0
        widened = noise * (1 + features @ self._p @ features)
        return float(features @ self._weights), max(math.sqrt(widened), 1e-12)

    def update(self, x: FloatArray, y: float) -> None:
        features = self._features(x)
        forget = self._forget
        projected = self._p @ features
        leverage = float(features @ projected)
        error = y - float(features @ self._weights)
        gain = projected / (forget + leverage)
        self._weights = self._weights + gain * self._clipped(error, math.sqrt(1 + leverage))
        p: FloatArray = self._p - np.outer(gain, projected)
        # The inverse of P loses its share, and gets back that of the ridge.
        p = np.linalg.solve(self._remains + self._kept_ridge * p, p)
        self._p = (p + p.T) / 2  # rounding would drive it from symmetry
        self._n = forget * self._n + 1
        # The error before the update, divided by its widening, estimates the noise alone.
        self._sum = forget * self._sum + error * error / (1 + leverage)

    def _clipped(self, error: float, widening: float) -> float:
        """Return the error, clipped to `CLIP` times the usual size, and learn the usual size.

        Args:
            error: The error of a prediction.
            widening: The factor by which the uncertainty of the weights widens errors here.
        """
        size = max(self._size, LEAST_SIZE * self._size_all)
        limit = CLIP * size if size else math.inf  # before the first error nothing is known
        noise = min(abs(error) / widening, limit)
        self._n_all += 1
        self._size += max(1 / self._n_all, 1 / MEMORY) * (noise - self._size)
        self._size_all += (noise - self._size_all) / self._n_all
        return math.copysign(min(abs(error), limit * widening), error)


def baselines(
    points: SeriesPoints,
    n_training: int,
    season_rows: int,
    scaling: Mapping[str, Any],
    forget: float = 0.998,
) -> dict[str, SeriesForecast]:
    """Run all baselines over a series and keep the forecasts after `n_training` points.

    Args:
        points: The points of the whole series.
        n_training: The number of points before the first forecast that is kept.
        season_rows: L, the number of rows in one season; 0 leaves out the seasonal naive forecast.
        scaling: A mapping with x_shift and x_scale, so that the ridge weighs all features alike.
        forget: The weight of a point after one further point in least squares; see the class.

    Returns:
        The forecasts of y = value - last value, by the name of the baseline: "persistence",
        "seasonal naive" or "least squares". A baseline that lacks some forecasts is left out.
    """
    squares = LeastSquares(
        points.x.shape[1],
        forget,
        x_shift=np.array(scaling["x_shift"]),
        x_scale=np.array(scaling["x_scale"]),
    )
    change = points.y[:, 0]
    spreads = {name: RunningSpread() for name in ("persistence", "seasonal naive")}
    kept: dict[str, list[tuple[float, float]]] = {}
    for row, y in enumerate(change.tolist()):
        means = {"persistence": 0.0}
        if season_rows and row >= season_rows:
            means["seasonal naive"] = float(points.season[row])
        forecasts = {name: (mean, spreads[name].std) for name, mean in means.items()}
        forecasts["least squares"] = squares.predict(points.x[row])
        if row >= n_training:
            for name, forecast in forecasts.items():
                kept.setdefault(name, []).append(forecast)
        for name, mean in means.items():
            spreads[name].update(y - mean)
        squares.update(points.x[row], y)
    whole = {name: rows for name, rows in kept.items() if len(rows) == len(change) - n_training}
    return {name: SeriesForecast(*np.array(rows).T) for name, rows in whole.items()}
