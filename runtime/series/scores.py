"""The scores of a series' forecasts."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.predictions import BAND_90


@dataclass(frozen=True, slots=True)
class SeriesForecast:
    """Forecasts of y: mean and standard deviation, each (n,), raw units of y."""

    mean: FloatArray
    std: FloatArray


@dataclass(frozen=True, slots=True)
class Scores:
    """Measures of how good forecasts were.

    Attributes:
        rmse: Root of the mean squared error, in the value's units.
        mae: Mean absolute error, in the value's units.
        coverage_90: Share of values inside the central 90 % band.
        log_likelihood: Mean log density in nats, of the value in its own units.
        n: Forecasts scored.
    """

    rmse: float
    mae: float
    coverage_90: float
    log_likelihood: float
    n: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def score(y: FloatArray, forecast: SeriesForecast) -> Scores:
    """Compare a forecast with the true values, (n,) or (n, 1)."""
    true = np.asarray(y, dtype=float).reshape(-1)
    mean, std = forecast.mean.reshape(-1), forecast.std.reshape(-1)
    if not true.shape == mean.shape == std.shape:
        raise DataError(
            f"score() got {true.size} values, {mean.size} means and {std.size} standard "
            "deviations; give one of each for every row."
        )
    error = true - mean
    density = -0.5 * (error / std) ** 2 - np.log(std) - 0.5 * math.log(2 * math.pi)
    return Scores(
        rmse=float(np.sqrt(np.mean(error**2))),
        mae=float(np.mean(np.abs(error))),
        coverage_90=float(np.mean(np.abs(error) <= BAND_90 * std)),
        log_likelihood=float(np.mean(density)),
        n=true.size,
    )
