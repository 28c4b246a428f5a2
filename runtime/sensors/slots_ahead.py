"""Keep the direct forecasts of a sensor's later slots, and join them to a path.

    direct forecasts   1   2       4               8 ...             48 ...            a season
    shape              .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .

A slot is one place in the even sequence of times in which rows come. The shape is what the season
before and the means of the last 3 and 8 seasons say of a slot, by their weights in the forecasts,
as far as persistence does not speak against a season. Between two slots with a direct forecast,
what the forecast says above the shape is interpolated in the logarithm of the number of slots: so a
path has the shape of a season, and the bands of the forecasts that it passes through. Behind the
season's end, where the season before is not known yet, the next forecast counts at once.

While slots have no value, the forecasts stay those that were made after the last value: one slot
ahead is then as many slots after that value, so that the bands grow over a hole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_arrays import require_same
from edgefold.runtime.predictions import Prediction, SensorForecast
from edgefold.runtime.predictions.sensor_forecast import FIRST_SLOTS, FIRST_VALUES, NO_SEASON
from edgefold.runtime.sensors.forecasts import Path
from edgefold.runtime.stream.named_states import NamedStates

ARRAYS = ("means", "quantiles")
"""The names of the attributes of `SlotsAhead` that a snapshot keeps, beside its numbers."""
VALUES, SHAPE = "values", "further_shape"
"""The names of two tensors of the state: the last values, (1, n), slot k at place k % n; and the
weights (1, H, 4) of persistence, the season before and the means of 8 and 3 seasons at the horizons
but the first and, last, one season ahead."""
BOUNDS, UNBOUNDED = "limits_bounds", "limits_without"
"""The names of two more: the limits of the values, (1, 2); and the means and quantiles ahead as
they are without these, (1, H + 1, 1 + Q)."""
N_SEASONS = (1, 8, 3)
"""The numbers of seasons whose means make the shape."""
Slots = np.ndarray[tuple[int], np.dtype[np.int64]]


class SlotsAhead:
    """Keeps the forecasts of the slots after the newest row of one sensor.

    Args:
        kind: The prediction kind of the bundle.

    Attributes:
        n_values: The number of measured values so far.
        season: The season's length in slots after the last value; 0 for none.
        age: The number of slots since the last value; 0 if the newest slot has one.
        means: The means of the slots at the H horizons and, last, one season after the last value,
            (H + 1,).
        quantiles: The quantiles of the same forecasts at the kind's Q levels, (H + 1, Q).
    """

    def __init__(self, kind: SensorForecast):
        self._horizons = kind.horizons
        n, n_levels = len(kind.horizons) + 1, len(kind.levels)
        self.n_values = self.season = self.age = 0
        self.means, self.quantiles = np.zeros(n), np.zeros((n, n_levels))

    def copy(self) -> SlotsAhead:
        """Return a copy, which shares the arrays: they are replaced and never changed."""
        other = SlotsAhead.__new__(SlotsAhead)
        other.__dict__.update(self.__dict__)
        return other

    def keep(self, prediction: Prediction, value: float, season: int, n_slots: int) -> None:
        """Keep the forecasts of later slots that a row brought.

        Args:
            prediction: The prediction that the row's step returned.
            value: The row's value; NaN if it has none.
            season: The season's length in slots; 0 for none.
            n_slots: The number of slots from the row before to this one.
        """
        if value != value and self.n_values:
            self.age += n_slots
            return
        self.n_values += value == value
        self.season, self.age = season, 0
        self.means = prediction.ahead_mean[0].astype(np.float64)
        self.quantiles = prediction.ahead_quantiles[0].astype(np.float64)

    def known(self, states: NamedStates) -> tuple[FloatArray, FloatArray] | None:
        """Return means and quantiles, which never change, at the horizons and a season ahead.

        The result is None while too few values have come. The state of this sensor must be the
        present one of `states`.
        """
        if not self._is_known(states.stream.n_points):
            return None
        if not self.age:
            return self.means, self.quantiles
        slots = np.array([*self._horizons, self.season or NO_SEASON])
        path = self.path(states, int(slots.max()))
        return path.mean[slots - 1], path.quantiles[slots - 1]

    def _is_known(self, n_points: int) -> bool:
        """Return whether enough values have come; `n_points` slots have."""
        return n_points >= FIRST_SLOTS and self.n_values >= FIRST_VALUES

    def path(self, states: NamedStates, horizon: int) -> Path:
        """Forecast each of the next `horizon` slots of the sensor whose state is the present one.

        All numbers are NaN while too few values have come.
        """
        n_points = states.stream.n_points
        if not self._is_known(n_points):
            unknown = np.full((horizon, 1 + self.quantiles.shape[1]), math.nan)
            return Path(unknown[:, 0], unknown[:, 1:])
        n = len(self._horizons)
        place = {self.season or NO_SEASON: n} | dict(zip(self._horizons, range(n), strict=True))
        made_for = {slot: slot for slot in place}  # the slot whose direct forecast is joined
        if later := [slot for slot in place if slot > self.season > 0]:
            made_for.setdefault(self.season + 1, min(later))
        slots = np.array(sorted(made_for))
        of_slots = np.array([made_for[slot] for slot in slots.tolist()])
        places = [place[slot] for slot in of_slots.tolist()]
        held, made = states.present(), np.column_stack([self.means, self.quantiles])
        if UNBOUNDED in held and not self.age:
            made = held[UNBOUNDED][0].astype(np.float64)
        values = held[VALUES].ravel()
        age = min(self.age, len(values))  # of an older value none is left to make a shape of
        ahead = np.arange(1, max(age + horizon, slots[-1]) + 1)
        weights = np.zeros((len(slots), 4))  # of a bundle before: no shape
        if SHAPE in held:
            weights = held[SHAPE][0][[max(at - 1, 0) for at in places]]
        if self.season:  # whole seasons ahead, persistence has the season's phase
            weights[slots % self.season == 0, 0] = 0.0
        at, known_at = np.log(ahead), np.log(slots)
        weights = np.stack([np.interp(at, known_at, of) for of in weights.T])
        base = shape_ahead(values, n_points, self.season, ahead, weights, self.age)
        above = made[places] - base[of_slots - 1, None]
        coming = slice(age, age + horizon)
        joined = np.stack([np.interp(at[coming], known_at, of) for of in above.T], 1)
        path = base[coming, None] + joined
        if BOUNDS in held:
            path = path.clip(*held[BOUNDS][0].tolist())
        return Path(path[:, 0], path[:, 1:])

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that a snapshot must keep for `load`."""
        own = {f"ahead_{name}": getattr(self, name) for name in ARRAYS}
        numbers = np.array([self.n_values, self.season, self.age], np.int64)
        return {**own, "ahead_numbers": numbers}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; raise SnapshotError if they are damaged."""
        require_same(arrays, self.arrays())
        n_values, season, age = arrays["ahead_numbers"].tolist()
        are_finite = all(np.isfinite(arrays[f"ahead_{name}"]).all() for name in ARRAYS)
        if min(n_values, season, age) < 0 or not are_finite:
            raise SnapshotError(
                "the snapshot's forecasts of a sensor are damaged; use an older copy, or start "
                "without it."
            )
        for name in ARRAYS:
            setattr(self, name, arrays[f"ahead_{name}"].copy())
        self.n_values, self.season, self.age = n_values, season, age

    @staticmethod
    def converted(arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return the arrays of a snapshot, with the age that older versions did not keep."""
        numbers = arrays.get("ahead_numbers", np.zeros(0))
        if numbers.shape != (2,):
            return dict(arrays)
        return {**arrays, "ahead_numbers": np.append(numbers, 0)}


def shape_ahead(
    values: Array, n_points: int, season: int, ahead: Slots, weights: FloatArray, age: int = 0
) -> FloatArray:
    """Return the shape of the slots to come, (n,); 0 without a season.

    Args:
        values: The last values, (N,); slot k of the stream lies at k % N.
        n_points: The number of slots that have come.
        season: The season's length in slots; 0 for none.
        ahead: How many slots later each slot comes, from 1 on, (n,).
        weights: Those of persistence and of the means of `N_SEASONS`, (4, n).
        age: The number of the last slots that have no value; `ahead` is counted from before them.
    """
    if season < 2:
        return np.zeros(len(ahead))
    persistence, *of_means = weights
    means = season_means(values, n_points - 1, season, ahead, age)
    total = np.sum(of_means, 0)
    mixed = (np.array(of_means) * means).sum(0) / np.where(total > 0, total, 1.0)
    shape: FloatArray = (1.0 - persistence) * mixed
    return shape


def season_means(values: Array, newest: int, season: int, ahead: Slots, age: int = 0) -> FloatArray:
    """Return the means of the last `N_SEASONS` values at the phase of each slot to come, (3, n).

    Args:
        values: The last values, (N,); slot k of the stream lies at k % N.
        newest: The number of the newest slot.
        season: The season's length in slots; one has come.
        ahead: How many slots later each slot comes, from 1 on, (n,).
        age: The number of the last slots that have no value; `ahead` is counted from before them.
    """
    last = newest - age + ahead - season * -(-ahead // season)
    total, count = np.zeros((2, len(ahead)))
    means = dict[int, FloatArray]()
    for back in range(max(N_SEASONS)):
        at = last - back * season
        held = (at >= 0) & (at > newest - len(values))
        total += np.where(held, values[at % len(values)], 0.0)
        count += held
        means[back + 1] = total / np.where(count > 0, count, 1.0)
    return np.stack([means[n] for n in N_SEASONS])
