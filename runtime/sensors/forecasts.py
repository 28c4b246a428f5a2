"""Define the forecasts of a row, and of the slots (places in an even sequence of times) after it.

A slot is one place in the even sequence of times in which the rows of a sensor come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeGuard

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
BAND = band_names()
"""The names of a `Distribution`'s numbers, and of the columns that hold them."""
ROW_NAMES = ("time", "value", *BAND, "log_density", "p_value", "alarm", "event")
"""The names of the columns of a table that shows rows and how they were forecast."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Holds the forecast of one slot, in the unit of the value; NaN if there is none yet.

    Attributes:
        mean: The expected value.
        q05: The quantile at 5 %: the value stays below it with a chance of 5 %. The other quantiles
            are named in the same way; 90 % of values lie between q05 and q95.
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
        """Return the quantiles by their levels, from 0.05 to 0.95."""
        values = (self.q05, self.q10, self.q25, self.q50, self.q75, self.q90, self.q95)
        return dict(zip(SENSOR_LEVELS, values, strict=True))

    @property
    def is_known(self) -> bool:
        """Return whether there is a forecast: the numbers are not NaN."""
        return not math.isnan(self.mean)


@dataclass(frozen=True, slots=True)
class Forecast(Distribution):
    """Holds a row with the forecast made before its value was seen, and forecasts of later slots.

    Attributes:
        time: The row's time, in seconds or in the caller's unit; the row's number if it has none.
        value: The row's value; NaN if it is missing.
        log_density: The log density of the value in nats; 0 if nothing was forecast or measured.
        p_value: The probability that chance brings a value this far from the forecast, on either
            side; 1 if nothing was forecast or measured.
        alarm: Whether the row is an alarm, at the stated rate of false alarms.
        event: What happens to the sensor: value, level shift, stuck, gap, absent, drift, rhythm,
            quiet or noisy; empty for nothing.
        n_missing: The number of slots without a row between this row and the one before.
        season: The season's length in slots; 0 if none is known.
        since: The number of rows before this one at which the event began, of the rows that have a
            value; 0 if it began with this row.
        size: The size of an event that lasts: the change of a drift in the unit of the value, a
            factor of other events; 0 for an event that has no size.
    """

    time: float
    value: float
    log_density: float
    p_value: float
    alarm: bool
    event: str
    n_missing: int
    season: int
    since: int
    size: float
    _horizons: tuple[int, ...] = field(repr=False)
    _ahead: tuple[FloatArray, FloatArray] | None = field(repr=False, compare=False)

    def ahead(self, horizon: Horizon = 1) -> Distribution:
        """Return the forecast, made after this row, of a slot that comes later.

        Args:
            horizon: The number of slots after this row, one of `Sensors.horizons`, or "season",
                which is 64 slots if no season is known.

        Raises:
            ValueRefusedError: The horizon is another one; `Sensors.path` gives those between.
        """
        at = place_of(horizon, self._horizons)
        if self._ahead is None:
            return UNKNOWN
        mean, quantiles = self._ahead
        return distribution(mean[at], quantiles[at])


@dataclass(frozen=True, slots=True)
class Path:
    """Holds the forecasts of the next n slots, one after the other, in the unit of the value.

    Attributes:
        mean: The means, (n,).
        quantiles: The quantiles at the Q levels `SENSOR_LEVELS`, (n, Q).
    """

    mean: FloatArray
    quantiles: FloatArray


def place_of(horizon: Horizon, horizons: tuple[int, ...]) -> int:
    """Return the index of a horizon (slots ahead) in `horizons`; "season" comes after the last.

    Raises:
        ValueRefusedError: The prediction does not have this horizon.
    """
    if isinstance(horizon, str) and horizon == "season":
        return len(horizons)
    if not is_whole(horizon) or horizon not in horizons:
        listed = ", ".join(map(str, horizons))
        raise ValueRefusedError(f"ahead() got {horizon!r:.40}; give {listed} or 'season'.")
    return horizons.index(horizon)


def is_whole(number: object) -> TypeGuard[int]:
    """Return whether an argument is a whole number of Python or numpy; True and False are none."""
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def distribution(mean: float, quantiles: FloatArray, is_known: bool = True) -> Distribution:
    """Make a `Distribution` of a mean and quantiles (Q,); `UNKNOWN`, all NaN, if not `is_known`."""
    if not is_known:
        return UNKNOWN
    return Distribution(float(mean), *map(float, quantiles))


UNKNOWN = Distribution(*[math.nan] * (1 + len(SENSOR_LEVELS)))


def require_sensors(manifest: Manifest) -> SensorForecast:
    """Return the prediction kind of a bundle of the general model of sensors.

    Raises:
        BundleError: The bundle holds another model, or is not for exactly one stream.
    """
    kind = manifest.prediction
    is_sound = isinstance(kind, SensorForecast) and kind.levels == SENSOR_LEVELS
    if not is_sound or not manifest.is_filter or manifest.n_streams != 1:
        raise BundleError(
            f"{manifest.path} is not a bundle of the general model of sensors; give one that "
            "`edgefold export sensors` wrote, for one stream."
        )
    assert isinstance(kind, SensorForecast)
    return kind
