"""Score the forecasts of a series."""

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
    """Holds forecasts of a target y: n means and n standard deviations, (n,) each, in y's units."""

    mean: FloatArray
    std: FloatArray


@dataclass(frozen=True, slots=True)
class Scores:
    """Holds measures of how good forecasts were.

    Attributes:
        rmse: The root of the mean squared error, in the value's units.
        mae: The mean absolute error, in the value's units.
        coverage_90: The share of values inside the central 90 % band.
        log_likelihood: The mean log density in nats of the values, in their own units.
        n: The number of forecasts that were scored.
    """

    rmse: float
    mae: float
    coverage_90: float
    log_likelihood: float
    n: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def score(y: FloatArray, forecast: SeriesForecast) -> Scores:
    """Score n forecasts by the true values y, (n,) or (n, 1); raise DataError for other shapes."""
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
