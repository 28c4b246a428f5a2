"""Keep the direct forecasts of a sensor's later slots, from which a path is joined.

`edgefold.runtime.sensors.joined_path` joins them; this module keeps what it needs between rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_arrays import require_same
from edgefold.runtime.predictions import Prediction, SensorForecast
from edgefold.runtime.predictions.sensor_forecast import NO_SEASON
from edgefold.runtime.sensors.forecasts import Path
from edgefold.runtime.sensors.joined_path import MOST_HORIZONS, AheadCounts, JoinedPath

ARRAYS = ("means", "quantiles")
"""The names of the attributes of `SlotsAhead` that a snapshot keeps, beside its counts."""
VALUES, SHAPE = "values", "further_shape"
"""The names of two tensors of the state: the last values, (1, n), slot k at place k % n; and the
weights (1, H, 4) of persistence, the season before and the means of 8 and 3 seasons at the horizons
but the first and, last, one season ahead."""
BOUNDS, UNBOUNDED = "limits_bounds", "limits_without"
"""The names of two more: the limits of the values, (1, 2); and the means and quantiles ahead as
they are without these, (1, H + 1, 1 + Q)."""


class PresentState(Protocol):
    """Shows the present state of a sensor; `NamedStates` is one."""

    @property
    def n_points(self) -> int:
        """Return how many slots it has learned."""

    def present(self) -> dict[str, Array]:
        """Return its tensors by name."""


class SlotsAhead:
    """Keeps the forecasts of the slots after the newest row of one sensor.

    Args:
        kind: The prediction kind of the bundle.

    Attributes:
        counts: The number of values, the season, and the number of slots since the last value.
        means: The means of the slots at the H horizons and, last, one season after the last value,
            (H + 1,).
        quantiles: The quantiles of the same forecasts at the kind's Q levels, (H + 1, Q).
    """

    def __init__(self, kind: SensorForecast):
        self._horizons = kind.horizons
        n, n_levels = len(kind.horizons) + 1, len(kind.levels)
        self.counts = AheadCounts()
        self.means, self.quantiles = np.zeros(n), np.zeros((n, n_levels))

    def copy(self) -> SlotsAhead:
        """Return a copy, which shares the arrays: they are replaced and never changed."""
        other = SlotsAhead.__new__(SlotsAhead)
        other.__dict__.update(self.__dict__)
        other.counts = self.counts.copy()
        return other

    def keep(self, prediction: Prediction, value: float, season: int, n_slots: int) -> None:
        """Keep the forecasts of later slots that a row brought.

        Args:
            prediction: The prediction that the row's step returned.
            value: The row's value; NaN if it has none.
            season: The season's length in slots; 0 for none.
            n_slots: The number of slots from the row before to this one.
        """
        if self.counts.see(value, season, n_slots):
            self.means = prediction.ahead_mean[0].astype(np.float64)
            self.quantiles = prediction.ahead_quantiles[0].astype(np.float64)

    def known(self, states: PresentState) -> tuple[FloatArray, FloatArray] | None:
        """Return means and quantiles, which never change, at the horizons and a season ahead.

        The result is None while too few values have come. The state of this sensor must be the
        present one of `states`.
        """
        if not self.counts.is_known(states.n_points):
            return None
        if not self.counts.age:
            return self.means, self.quantiles
        path = self._joined(states, [*self._horizons, self.counts.season or NO_SEASON])
        return path.mean, path.quantiles

    def path(self, states: PresentState, horizon: int) -> Path:
        """Forecast each of the next `horizon` slots of the sensor whose state is the present one.

        All numbers are NaN while too few values have come.
        """
        if not self.counts.is_known(states.n_points):
            unknown = np.full((horizon, 1 + self.quantiles.shape[1]), math.nan)
            return Path(unknown[:, 0], unknown[:, 1:])
        return self._joined(states, range(1, horizon + 1))

    def _joined(self, states: PresentState, slots: Sequence[int]) -> Path:
        """Forecast some slots, each given as how many slots it comes after the newest one."""
        held, counts, path = states.present(), self.counts, JoinedPath()
        path.horizons = [*self._horizons, *[0] * (MOST_HORIZONS - len(self._horizons))]
        path.n_columns = 1 + self.quantiles.shape[1]
        path.season, path.age, path.n_points = counts.season, counts.age, states.n_points
        path.values = held[VALUES].ravel()
        path.n_ring = len(path.values)
        path.made = np.column_stack([self.means, self.quantiles]).ravel()
        if UNBOUNDED in held and not counts.age:
            path.made = held[UNBOUNDED].ravel()
        if SHAPE in held:
            path.weights, path.has_shape = held[SHAPE].ravel(), True
        if BOUNDS in held:
            path.low, path.high = held[BOUNDS][0].tolist()
        path.join()
        numbers = np.empty((len(slots), path.n_columns))
        for row, slot in zip(numbers, slots, strict=True):
            path.forecast_at(slot)
            row[:] = path.forecast[: path.n_columns]
        return Path(numbers[:, 0], numbers[:, 1:])

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that a snapshot must keep for `load`."""
        own = {f"ahead_{name}": getattr(self, name) for name in ARRAYS}
        numbers = self.counts.numbers().astype(np.int64)
        return {**own, "ahead_numbers": numbers}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; raise SnapshotError if they are damaged."""
        require_same(arrays, self.arrays())
        numbers = arrays["ahead_numbers"]
        are_finite = all(np.isfinite(arrays[f"ahead_{name}"]).all() for name in ARRAYS)
        if numbers.min() < 0 or not are_finite:
            raise SnapshotError(
                "the snapshot's forecasts of a sensor are damaged; use an older copy, or start "
                "without it."
            )
        for name in ARRAYS:
            setattr(self, name, arrays[f"ahead_{name}"].copy())
        self.counts.take(numbers)

    @staticmethod
    def converted(arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the arrays of a snapshot, with the age that older versions did not keep."""
        numbers = arrays.get("ahead_numbers", np.zeros(0))
        if numbers.shape != (2,):
            return dict(arrays)
        return {**arrays, "ahead_numbers": np.append(numbers, 0)}
