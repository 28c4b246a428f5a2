"""Define a sensor model's forecasts of slots (equally spaced times of rows), and their scores.

A slot is one place in the even sequence of times in which a sensor's rows come. A slot whose row is
missing has no value. The general model of sensors makes these predictions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor
from edgefold.runtime.predictions.quantiles import level_names, median_of, require_levels

SENSOR_LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
FIRST_SLOTS, FIRST_VALUES = 11, 5
"""Number of slots, and number of measured values, that must have come before a forecast is of use.
"""
LEAST_LONGEST, LONGEST = 24, 1440
"""The bounds, in slots, of the longest season of a bundle: the hours and the minutes of a day."""
NO_SEASON = 64
"""The number of slots that the horizon "season" means for a sensor without a season."""


def band_names(levels: Sequence[float] = SENSOR_LEVELS) -> tuple[str, ...]:
    """Return the column names of a slot's forecast: mean, and a name such as q05 for each level."""
    return ("mean", *level_names(levels))


def place_of_level(levels: Sequence[float], level: float) -> int:
    """Return the place of the level that is nearest to another one."""
    return min(range(len(levels)), key=lambda place: abs(levels[place] - level))


def usual_of(tensors: Mapping[str, Any]) -> float:
    """Return the number in the tensor `usual` of one stream; NaN if the model gives none."""
    return float(tensors["usual"].item()) if "usual" in tensors else math.nan


def is_scored(log_density: float, p_value: float) -> bool:
    """Return whether a slot with these scores had both a forecast and a value.

    Without one of them the log density is 0 and the p-value is 1.
    """
    return p_value < 1.0 or log_density != 0.0


@dataclass(frozen=True)
class SensorForecast(PredictionKind):
    """Predicts the present slot and later slots of a sensor, and scores the present slot's value.

    Five tensors belong to the present slot, as it was forecast one slot before:

        mean (..., 1)           the mean
        quantiles (..., Q)      the quantiles at `levels`
        log_density (..., 1)    the log density of the slot's value, in nats
        p_value (..., 1)        twice the smaller of the probabilities below and above the value
        floor (..., 3)          mean, log density and p-value of only the mixture of experts: the
                                simple forecasts that the model's network corrects

    Two tensors belong to later slots: `ahead_mean` (..., H + 1) and `ahead_quantiles`
    (..., H + 1, Q). The first H are the slots `horizons` ahead, the last is one season ahead.

    A model with `tells_usual` adds `usual` (..., 1): the mean of the last seasons at the phase of
    the present slot, which means nothing for a sensor without a season.

    All values are in the units of the sensor: the model has no scaling. If a slot has no value or
    no forecast, `log_density` is 0 and `p_value` is 1.

    Attributes:
        levels: Q rising numbers between 0 and 1.
        horizons: H rising numbers of slots, which begin with 1.
        longest_season: The length in slots of the longest season that is used.
        tells_usual: Whether the model gives the tensor `usual`; older bundles do not.
    """

    levels: tuple[float, ...] = SENSOR_LEVELS
    horizons: tuple[int, ...] = (1, 4, 16)
    longest_season: int = LONGEST
    tells_usual: bool = False
    name: ClassVar[str] = "sensor-forecast"

    def __post_init__(self) -> None:
        object.__setattr__(self, "levels", require_levels(self.levels))
        horizons = tuple(self.horizons)
        if not horizons or horizons[0] != 1 or list(horizons) != sorted(set(horizons)):
            raise ValueError(f"horizons are {horizons}; give 1 and rising numbers of slots")
        object.__setattr__(self, "horizons", horizons)
        if self.longest_season < 2:
            raise ValueError(f"longest_season is {self.longest_season}, must be at least 2")

    @property
    def largest_input(self) -> float:
        """Return the largest accepted input, 1e30: the models limit numbers before they square."""
        return 1e30

    def tensors(self, n_outputs: int) -> tuple[PredictionTensor, ...]:
        n_levels, n_ahead = len(self.levels), len(self.horizons) + 1
        shapes: dict[str, tuple[int, ...]] = {
            "mean": (1,),
            "quantiles": (n_levels,),
            "log_density": (1,),
            "p_value": (1,),
            "floor": (3,),
            "ahead_mean": (n_ahead,),
            "ahead_quantiles": (n_ahead, n_levels),
        }
        if self.tells_usual:
            shapes["usual"] = (1,)
        return tuple(PredictionTensor(name, shape, "none") for name, shape in shapes.items())

    def center(self, prediction: Mapping[str, Any]) -> Any:
        return median_of(prediction["quantiles"][..., None], self.levels)

    def told(self, prediction: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a table's columns by name: mean, q05, .., q95, log_density and p_value."""
        quantiles = prediction["quantiles"]
        mean, *percents = band_names(self.levels)
        return {
            mean: prediction["mean"],
            **{name: quantiles[..., i, None] for i, name in enumerate(percents)},
            "log_density": prediction["log_density"],
            "p_value": prediction["p_value"],
        }
