"""Keep the direct forecasts of a sensor's later slots, and join them to a path.

    direct forecasts   1   2       4               8 ...             48 ...            a season
    shape              .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .   .

A slot is one place in the even sequence of times in which rows come. The shape is what the season
before and the means of the last 3 and 8 seasons say of a slot, by their weights in the forecasts,
as far as persistence does not speak against a season. Between two slots with a direct forecast,
what the forecast says above the shape is interpolated in the logarithm of the number of slots: so a
path has the shape of a season, and the bands of the forecasts that it passes through. Behind the
season's end, where the season before is not known yet, the next forecast counts at once.
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
        season: The season's length in slots; 0 for none.
        means: The means of the slots at the H horizons and, last, one season ahead, (H + 1,).
        quantiles: The quantiles of the same forecasts at the kind's Q levels, (H + 1, Q).
    """

    def __init__(self, kind: SensorForecast):
        self._horizons = kind.horizons
        n, n_levels = len(kind.horizons) + 1, len(kind.levels)
        self.n_values = self.season = 0
        self.means, self.quantiles = np.zeros(n), np.zeros((n, n_levels))

    def copy(self) -> SlotsAhead:
        """Return a copy, which shares the arrays: they are replaced and never changed."""
        other = SlotsAhead.__new__(SlotsAhead)
        other.__dict__.update(self.__dict__)
        return other

    def keep(self, prediction: Prediction, value: float, season: int) -> None:
        """Keep the forecasts of later slots that a row brought.

        Args:
            prediction: The prediction that the row's step returned.
            value: The row's value; NaN if it has none.
            season: The season's length in slots; 0 for none.
        """
        self.n_values += value == value
        self.season = season
        self.means = prediction.ahead_mean[0].astype(np.float64)
        self.quantiles = prediction.ahead_quantiles[0].astype(np.float64)

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
        held, made = states.present(), np.column_stack(known)
        if UNBOUNDED in held:
            made = held[UNBOUNDED][0].astype(np.float64)
        ahead = np.arange(1, max(horizon, slots[-1]) + 1)
        weights = np.zeros((len(slots), 4))  # of a bundle before: no shape
        if SHAPE in held:
            weights = held[SHAPE][0][[max(at - 1, 0) for at in places]]
        if self.season:  # whole seasons ahead, persistence has the season's phase
            weights[slots % self.season == 0, 0] = 0.0
        at, known_at = np.log(ahead), np.log(slots)
        weights = np.stack([np.interp(at, known_at, of) for of in weights.T])
        base = shape_ahead(held[VALUES].ravel(), n_points, self.season, ahead, weights)
        above = made[places] - base[of_slots - 1, None]
        joined = np.stack([np.interp(at[:horizon], known_at, of) for of in above.T], 1)
        path = base[:horizon, None] + joined
        if BOUNDS in held:
            path = path.clip(*held[BOUNDS][0].tolist())
        return Path(path[:, 0], path[:, 1:])

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that a snapshot must keep for `load`."""
        own = {f"ahead_{name}": getattr(self, name) for name in ARRAYS}
        return {**own, "ahead_numbers": np.array([self.n_values, self.season], np.int64)}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; raise SnapshotError if they are damaged."""
        require_same(arrays, self.arrays())
        n_values, season = arrays["ahead_numbers"].tolist()
        are_finite = all(np.isfinite(arrays[f"ahead_{name}"]).all() for name in ARRAYS)
        if min(n_values, season) < 0 or not are_finite:
            raise SnapshotError(
                "the snapshot's forecasts of a sensor are damaged; use an older copy, or start "
                "without it."
            )
        for name in ARRAYS:
            setattr(self, name, arrays[f"ahead_{name}"].copy())
        self.n_values, self.season = n_values, season


def shape_ahead(
    values: Array, n_points: int, season: int, ahead: Slots, weights: FloatArray
) -> FloatArray:
    """Return the shape of the slots to come, (n,); 0 without a season.

    Args:
        values: The last values, (N,); slot k of the stream lies at k % N.
        n_points: The number of slots that have come.
        season: The season's length in slots; 0 for none.
        ahead: How many slots later each slot comes, from 1 on, (n,).
        weights: Those of persistence and of the means of `N_SEASONS`, (4, n).
    """
    if season < 2:
        return np.zeros(len(ahead))
    persistence, *of_means = weights
    means = season_means(values, n_points - 1, season, ahead)
    total = np.sum(of_means, 0)
    mixed = (np.array(of_means) * means).sum(0) / np.where(total > 0, total, 1.0)
    shape: FloatArray = (1.0 - persistence) * mixed
    return shape


def season_means(values: Array, newest: int, season: int, ahead: Slots) -> FloatArray:
    """Return the means of the last `N_SEASONS` values at the phase of each slot to come, (3, n).

    Args:
        values: The last values, (N,); slot k of the stream lies at k % N.
        newest: The number of the newest slot.
        season: The season's length in slots; one has come.
        ahead: How many slots later each slot comes, from 1 on, (n,).
    """
    last = newest + ahead - season * -(-ahead // season)
    total, count = np.zeros((2, len(ahead)))
    means = dict[int, FloatArray]()
    for back in range(max(N_SEASONS)):
        at = last - back * season
        held = (at >= 0) & (at > newest - len(values))
        total += np.where(held, values[at % len(values)], 0.0)
        count += held
        means[back + 1] = total / np.where(count > 0, count, 1.0)
    return np.stack([means[n] for n in N_SEASONS])
