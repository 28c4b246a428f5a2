"""Predict a sensor's next slots and score the present one, for the general model of sensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor
from edgefold.runtime.predictions.quantiles import level_names, median_of, require_levels

SENSOR_LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
FIRST_SLOTS, FIRST_VALUES = 11, 5
"""Slots and measured values that must have come before a slot's forecast is of use."""


def band_names(levels: Sequence[float] = SENSOR_LEVELS) -> tuple[str, ...]:
    """Return the columns of a slot's forecast: mean, q05, .., q95."""
    return ("mean", *level_names(levels))


def is_scored(log_density: float, p_value: float) -> bool:
    """Whether a slot had both a forecast and a value."""
    return p_value < 1.0 or log_density != 0.0


@dataclass(frozen=True)
class SensorForecast(PredictionKind):
    """The forecast of the step's slot, the likelihood of its value, and forecasts of later slots.

    Tensors of the step's slot, as forecast one slot before: `mean`, (..., 1); `quantiles`,
    (..., Q), at `levels`; `log_density` of its value in nats, (..., 1); `p_value`, (..., 1), twice
    the smaller of the masses below and above its value; `floor`, (..., 3), mean, log density and
    p-value of only the experts' mixture. Tensors of the slots `horizons` ahead, and one season
    ahead as the last: `ahead_mean`, (..., H + 1), and `ahead_quantiles`, (..., H + 1, Q).

    All are in the units of the value: the model has no scaling. If a slot has no value or no
    forecast, `log_density` is 0 and `p_value` is 1.

    Attributes:
        levels: Q rising numbers between 0 and 1.
        horizons: H rising numbers of slots, from 1 on.
        longest_season: Length in slots; a longer season is not used.
    """

    levels: tuple[float, ...] = SENSOR_LEVELS
    horizons: tuple[int, ...] = (1, 4, 16)
    longest_season: int = 1440
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
        """Models of the kind have no scaling, and limit numbers themselves before they square."""
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
        return tuple(PredictionTensor(name, shape, "none") for name, shape in shapes.items())

    def center(self, prediction: Mapping[str, Any]) -> Any:
        return median_of(prediction["quantiles"][..., None], self.levels)

    def told(self, prediction: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return columns mean, q05, .., q95, log_density and p_value."""
        quantiles = prediction["quantiles"]
        mean, *percents = band_names(self.levels)
        return {
            mean: prediction["mean"],
            **{name: quantiles[..., i, None] for i, name in enumerate(percents)},
            "log_density": prediction["log_density"],
            "p_value": prediction["p_value"],
        }
