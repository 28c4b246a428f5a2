"""Keep the forecasts of a sensor's next slots (evenly spaced times), and join them to a path.

A model that takes its own forecasts as input again and again loses the shape of a season that has
sharp parts, such as nights without sun. Forecasts that were made one season ahead keep this shape,
so they are stored in a ring of fixed size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_arrays import require_same
from edgefold.runtime.predictions import Prediction, SensorForecast
from edgefold.runtime.predictions.sensor_forecast import FIRST_SLOTS, FIRST_VALUES
from edgefold.runtime.sensors.forecasts import (
    NO_SEASON,
    Path,
    path_on,
    path_through,
)
from edgefold.runtime.stream.named_states import NamedStates

ARRAYS = ("means", "quantiles", "following", "season_slots", "season_forecasts")
"""The names of the attributes of `SlotsAhead` that a snapshot keeps."""


class SlotsAhead:
    """Keeps the forecasts of the slots after the newest row of one sensor.

    Args:
        kind: The prediction kind of the bundle.

    Attributes:
        n_values: The number of measured values so far.
        means: The means of the slots at the H horizons and, last, one season ahead, (H + 1,).
        quantiles: The quantiles of the same forecasts at the kind's Q levels, (H + 1, Q).
        following: The model's input for the next slot as if its row were missing: 0, 0, the
            season's length and the slot's phase.
        season_slots: The number of the slot at each place of the ring buffer; -1 for none.
        season_forecasts: The mean and the quantiles of the slot at each place of the ring buffer,
            as forecast one season before, (longest season, 1 + Q).
    """

    def __init__(self, kind: SensorForecast):
        self._horizons = kind.horizons
        n, n_levels, longest = len(kind.horizons) + 1, len(kind.levels), kind.longest_season
        self.n_values = 0
        self.means, self.quantiles = np.zeros(n), np.zeros((n, n_levels))
        self.following = np.zeros(4)
        self.season_slots = np.full(longest, -1, np.int64)
        self.season_forecasts = np.zeros((longest, 1 + n_levels), np.float32)
        self._waiting: list[tuple[int, FloatArray]] = []  # slots that are not in the ring yet

    def copy(self) -> SlotsAhead:
        """Return a copy, which shares the ring of forecasts with this object.

        Only one of the two may go on: forecasts one season ahead wait, and are written into the
        ring when the next row comes or somebody reads it. Writing them twice changes nothing.
        """
        self._write()
        other = SlotsAhead.__new__(SlotsAhead)
        other.__dict__.update(self.__dict__)
        other._waiting = []
        return other

    def _write(self) -> None:
        """Write the forecasts that wait into the ring."""
        for slot, forecast in self._waiting:
            at = slot % len(self.season_slots)
            self.season_slots[at] = slot
            self.season_forecasts[at] = forecast

    def keep(self, prediction: Prediction, value: float, x: FloatArray, n_points: int) -> None:
        """Keep the forecasts of later slots that a row brought.

        Args:
            prediction: The prediction that the row's step returned.
            value: The row's value; NaN if it has none.
            x: The model's input for the row, (4,).
            n_points: The number of slots that the state has learned, including the row's.
        """
        season = int(x[2])
        self.n_values += value == value
        # New arrays: the ones before may be in use, and a row is taken as a whole or not at all.
        self.means = prediction.ahead_mean[0].astype(np.float64)
        self.quantiles = prediction.ahead_quantiles[0].astype(np.float64)
        self.following = np.array([0.0, 0.0, season, (x[3] + 1) % max(season, 1)])
        self.keep_season(prediction, season, n_points)

    def keep_season(self, prediction: Prediction, season: int, n_points: int) -> None:
        """Keep the forecast of the slot `season` slots (one season) after slot `n_points`."""
        if season and n_points >= FIRST_SLOTS:
            forecast = np.append(prediction.ahead_mean[0, -1], prediction.ahead_quantiles[0, -1])
            self._waiting.append((n_points + season, forecast))

    def known(self, n_points: int) -> tuple[FloatArray, FloatArray] | None:
        """Return `means` and `quantiles`, which never change; None while too few values have come.

        `n_points` is the number of slots that the state has learned.
        """
        if n_points < FIRST_SLOTS or self.n_values < FIRST_VALUES:
            return None
        return self.means, self.quantiles

    def path(self, states: NamedStates, horizon: int) -> Path:
        """Forecast each of the next `horizon` slots of the sensor whose state is the present one.

        All numbers are NaN while too few values have come.
        """
        n_points = states.stream.n_points
        known = self.known(n_points)
        if known is None:
            return Path(
                np.full(horizon, math.nan), np.full((horizon, self.quantiles.shape[1]), math.nan)
            )
        means, quantiles = known
        near, season = self._horizons[-1], int(self.following[2])
        seasonal = self._find_season(n_points + 1, season) if near < season else None
        rolled = self._roll_on(states, horizon if seasonal is None else near)
        place_of = {h: i for i, h in enumerate((*self._horizons, season or NO_SEASON))}
        slots = sorted(place_of)
        places = [place_of[slot] for slot in slots]
        path = path_through(rolled, tuple(slots), means[places], quantiles[places])
        return path if seasonal is None else path_on(path, seasonal, horizon)

    def _find_season(self, first: int, n: int) -> FloatArray | None:
        """Return the stored means and quantiles, (n, 1 + Q), of n slots; None if one is missing.

        Args:
            first: The number of the first of these slots.
            n: How many slots follow each other.
        """
        self._write()
        slots = np.arange(first, first + n)
        places = slots % len(self.season_slots)
        if n > len(self.season_slots) or (self.season_slots[places] != slots).any():
            return None
        return self.season_forecasts[places].astype(np.float64)

    def _roll_on(self, states: NamedStates, n: int) -> FloatArray:
        """Return the means (n,) of the next slots, each made from the forecasts before it."""
        rolled, row = np.empty(n), self.following.copy()
        with states.borrowed() as stream:
            for i in range(n):
                rolled[i] = stream.step(row).mean[0, 0]
                row[3] = (row[3] + 1) % max(row[2], 1)
        return rolled

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that a snapshot must keep for `load`."""
        self._write()
        own = {f"ahead_{name}": getattr(self, name) for name in ARRAYS}
        return {**own, "ahead_n_values": np.array([self.n_values], np.int64)}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; raise SnapshotError if they are damaged."""
        require_same(arrays, self.arrays())
        n_values = int(arrays["ahead_n_values"].item())
        if n_values < 0 or not all(np.isfinite(arrays[f"ahead_{name}"]).all() for name in ARRAYS):
            raise SnapshotError(
                "the snapshot's forecasts of a sensor are damaged; use an older copy, or start "
                "without it."
            )
        for name in ARRAYS:
            setattr(self, name, arrays[f"ahead_{name}"].copy())
        self.n_values, self._waiting = n_values, []
