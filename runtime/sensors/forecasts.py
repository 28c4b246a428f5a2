"""The forecast of a row that a program gets, how likely the value was, and what comes next."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import BundleError, ValueRefusedError
from edgefold.runtime.predictions.sensor_forecast import (
    SENSOR_LEVELS,
    SensorForecast,
    band_names,
)

Horizon = int | Literal["season"]
NO_SEASON = 64
"""Slots that "season" means where a sensor has none."""
NEWS_SLOTS = 16
"""Slots in which what was learned since a season ago fades from a path."""
BAND = band_names()
"""The names of a `Distribution`'s numbers, and of the columns that hold them."""
ROW_NAMES = ("time", "value", *BAND, "log_density", "p_value", "alarm", "event")
"""Columns of a row and how it was forecast."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The forecast of one slot, in the unit of the value; NaN where nothing is forecast yet.

    Attributes:
        mean: The expected value.
        q05: The value that 5 % stay below; so for the other numbers. q05 to q95 hold 90 %.
    """

    mean: float
    q05: float
    q10: float
    q25: float
    q50: float
    q75: float
    q90: float
    q95: float

    @property
    def quantiles(self) -> dict[float, float]:
        """The value at each level, from 0.05 to 0.95."""
        values = (self.q05, self.q10, self.q25, self.q50, self.q75, self.q90, self.q95)
        return dict(zip(SENSOR_LEVELS, values, strict=True))

    @property
    def is_known(self) -> bool:
        """Whether anything is forecast."""
        return not math.isnan(self.mean)


@dataclass(frozen=True, slots=True)
class Forecast(Distribution):
    """How a row was forecast before its value was seen, and what follows it.

    Attributes:
        time: The row's time, in seconds or as the caller counts; its number where rows have none.
        value: The row's value; NaN where it was missing.
        log_density: The log density of the value in nats; 0 where nothing was forecast or measured.
        p_value: How often a value so far out comes by chance; 1 where nothing was forecast or
            measured.
        alarm: Whether the row is an alarm at the rate of false alarms that was asked for.
        event: What happens: value, level shift, stuck, noisy, gap, or nothing.
        n_missing: Slots without a row between this row and the one before.
        season: The season's length in slots; 0 where none is known.
    """

    time: float
    value: float
    log_density: float
    p_value: float
    alarm: bool
    event: str
    n_missing: int
    season: int
    _horizons: tuple[int, ...] = field(repr=False)
    _ahead: tuple[FloatArray, FloatArray] | None = field(repr=False, compare=False)

    def ahead(self, horizon: Horizon = 1) -> Distribution:
        """Return the forecast, made after this row, of a slot that comes later.

        Args:
            horizon: 1, 4, 16 or "season", which is 64 slots where no season is known.

        Raises:
            ValueRefusedError: Another horizon; `Sensors.path` gives those between.
        """
        at = place_of(horizon, self._horizons)
        if self._ahead is None:
            return UNKNOWN
        mean, quantiles = self._ahead
        return distribution(mean[at], quantiles[at])


@dataclass(frozen=True, slots=True)
class Path:
    """The forecasts of the next slots, one after the other.

    Attributes:
        mean: (n,).
        quantiles: (n, Q), at `SENSOR_LEVELS`.
    """

    mean: FloatArray
    quantiles: FloatArray


def place_of(horizon: Horizon, horizons: tuple[int, ...]) -> int:
    """Return the place of a horizon among those of a prediction, the season last."""
    if horizon == "season":
        return len(horizons)
    if horizon not in horizons:
        listed = ", ".join(map(str, horizons))
        raise ValueRefusedError(f"ahead() got {horizon!r}; give {listed} or 'season'.")
    return horizons.index(horizon)


def distribution(mean: float, quantiles: FloatArray, is_known: bool = True) -> Distribution:
    """Make numbers of an answer's arrays; NaN where nothing is known."""
    if not is_known:
        return UNKNOWN
    return Distribution(float(mean), *map(float, quantiles))


UNKNOWN = Distribution(*[math.nan] * (1 + len(SENSOR_LEVELS)))


def path_through(
    rolled: FloatArray, slots: tuple[int, ...], means: FloatArray, quantiles: FloatArray
) -> Path:
    """Lead a path of means through the forecasts at some slots, with their bands in between.

    Args:
        rolled: The means that follow from each other, (n,), of the slots 1 to n.
        slots: Rising, from 1 on.
        means: Forecast of those slots directly, (H,).
        quantiles: The quantiles of these forecasts, (H, Q).
    """
    at = np.arange(1, len(rolled) + 1)
    inside = [i for i, slot in enumerate(slots) if slot <= len(rolled)]
    bend = np.array([means[i] - rolled[slots[i] - 1] for i in inside])
    mean = rolled + np.interp(at, [slots[i] for i in inside], bend)
    roots = np.sqrt(np.array(slots, float))  # errors of a random walk grow so
    offsets = quantiles - means[:, None]
    spread = [np.interp(np.sqrt(at), roots, offsets[:, q]) for q in range(offsets.shape[1])]
    return Path(mean, mean[:, None] + np.stack(spread, 1))


def path_on(path: Path, seasonal: FloatArray, n: int) -> Path:
    """Go on behind a path with what was forecast one season before; beyond a season it repeats.

    Where the path ends, it and those forecasts differ by what was learned since. That is added to
    them, and fades.

    Args:
        path: The path of the first slots, fewer than a season.
        seasonal: Means and quantiles, (season, 1 + Q), of the slots of one season.
        n: The number of slots.
    """
    near, season = len(path.mean), len(seasonal)
    news = path.mean[-1] - seasonal[near - 1, 0]
    fading = np.exp(-np.arange(1, season - near + 1) / NEWS_SLOTS)
    later = seasonal[near:] + (news * fading)[:, None]
    first = np.concatenate([path.mean[:, None], path.quantiles], 1)
    whole = np.concatenate([first, later])
    repeated = whole[np.arange(n) % season]
    return Path(repeated[:, 0], repeated[:, 1:])


def require_sensors(manifest: Manifest) -> SensorForecast:
    """Return the prediction kind of a bundle of the model of sensors; BundleError for others."""
    kind = manifest.prediction
    is_sound = isinstance(kind, SensorForecast) and kind.levels == SENSOR_LEVELS
    if not is_sound or not manifest.is_filter or manifest.n_streams != 1:
        raise BundleError(
            f"{manifest.path} is not a bundle of the general model of sensors; give one that "
            "`edgefold export sensors` wrote, for one stream."
        )
    assert isinstance(kind, SensorForecast)
    return kind
