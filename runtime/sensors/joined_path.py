"""Join the direct forecasts of a sensor's later slots to a path.

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

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.kept_numbers import KeptNumbers, filled
from edgefold.runtime.predictions.sensor_forecast import FIRST_SLOTS, FIRST_VALUES, NO_SEASON

MOST_HORIZONS, MOST_KNOWN = 16, 18
"""The largest number of direct horizons, and of slots with a forecast that is joined: also one
season ahead, and the slot behind it."""
MOST_COLUMNS = 8
"""The largest number of a forecast's numbers: the mean, and quantiles."""
N_WEIGHTS, MOST_BACK = 4, 8
"""The number of weights of a shape, and the most seasons of which a mean is taken."""
NO_VALUES = np.zeros(0, np.float32)


class AheadCounts(KeptNumbers):
    """Counts the values of a sensor, and the slots since the last one.

    Attributes:
        n_values: The number of measured values so far.
        season: The season's length in slots when forecasts were last kept; 0 for none.
        age: The number of slots since the last value; 0 if the newest slot has one.
    """

    KEPT = ("n_values", "season", "age")

    n_values: int = 0
    season: int = 0
    age: int = 0

    def see(self, value: float, season: int, n_slots: int) -> bool:
        """Count a row, and return whether the forecasts that it brought are to be kept.

        Args:
            value: The row's value; NaN if it has none.
            season: The season's length in slots; 0 for none.
            n_slots: The number of slots from the row before to this one.
        """
        is_measured = value == value
        if not is_measured and self.n_values > 0:
            self.age += n_slots
            return False
        if is_measured:
            self.n_values += 1
        self.season, self.age = season, 0
        return True

    def is_known(self, n_points: int) -> bool:
        """Return whether enough values have come for a forecast; `n_points` slots have come."""
        return n_points >= FIRST_SLOTS and self.n_values >= FIRST_VALUES


class JoinedPath(KeptNumbers):
    """Forecasts any slot after the newest one of a sensor.

    The attributes are set before `join`.

    Attributes:
        horizons: How many slots ahead direct forecasts are, rising; 0 behind the last of them.
        n_columns: How many numbers a forecast has: the mean, and quantiles.
        season: The season's length in slots; 0 for none.
        n_points: The number of slots that have come.
        age: The number of slots since the last value.
        values: The last values; slot k of the stream lies at k % n_ring.
        n_ring: The length of the ring `values`.
        made: The direct forecasts, n_columns numbers for each horizon and, last, for a season.
        weights: The weights of persistence and of the means of 1, 8 and 3 seasons, at each horizon
            but the first and, last, a season ahead.
        has_shape: Whether there are such weights; older bundles have none.
        low: The least number that a forecast may have; -inf without a limit.
        high: The largest one.
        forecast: The numbers that `forecast_at` computed last.
    """

    horizons: list[int] = filled(0, MOST_HORIZONS)
    n_columns: int = MOST_COLUMNS
    season: int = 0
    n_points: int = 0
    age: int = 0
    values: FloatArray = NO_VALUES
    n_ring: int = 1
    made: FloatArray = NO_VALUES
    weights: FloatArray = NO_VALUES
    has_shape: bool = False
    low: float = -math.inf
    high: float = math.inf
    forecast: list[float] = filled(0.0, MOST_COLUMNS)
    # The slots with a direct forecast, rising: their logarithms, the place of the forecast, and the
    # slot of which it is.
    _n_known: int = 0
    _slots: list[int] = filled(0, MOST_KNOWN)
    _logs: list[float] = filled(0.0, MOST_KNOWN)
    _places: list[int] = filled(0, MOST_KNOWN)
    _made_for: list[int] = filled(0, MOST_KNOWN)
    _known_weights: list[float] = filled(0.0, MOST_KNOWN * N_WEIGHTS)
    _above: list[float] = filled(0.0, MOST_KNOWN * MOST_COLUMNS)

    def join(self) -> None:
        """Compute what lies above the shape at each slot with a direct forecast."""
        self._n_known, self._slots = 0, filled(0, MOST_KNOWN)
        season, n_horizons = self.season, 0
        for place, horizon in enumerate(self.horizons):
            if horizon > 0:
                self._add(horizon, place, horizon)
                n_horizons = place + 1
        ahead = season if season else NO_SEASON
        self._add(ahead, n_horizons, ahead)
        if season:
            for k in range(self._n_known):
                if self._slots[k] > season:  # the season before is not known yet from here on
                    self._add(season + 1, self._places[k], self._slots[k])
                    break
        self._weigh()
        above = filled(0.0, MOST_KNOWN * MOST_COLUMNS)
        for k in range(self._n_known):
            base = self._shape(self._made_for[k])
            for column in range(self.n_columns):
                made = float(self.made[self._places[k] * self.n_columns + column])
                above[k * MOST_COLUMNS + column] = made - base
        self._above = above

    def _add(self, slot: int, place: int, made_for: int) -> None:
        """Add a slot with a direct forecast, unless it is there.

        Args:
            slot: How many slots ahead.
            place: The place of the forecast among the direct ones.
            made_for: The slot of which it is.
        """
        if slot in self._slots:
            return
        slots, places, all_made_for = [*self._slots], [*self._places], [*self._made_for]
        at = self._n_known
        while at > 0 and slots[at - 1] > slot:
            slots[at], places[at], all_made_for[at] = (
                slots[at - 1],
                places[at - 1],
                all_made_for[at - 1],
            )
            at -= 1
        slots[at], places[at], all_made_for[at] = slot, place, made_for
        self._slots, self._places, self._made_for = slots, places, all_made_for
        self._n_known += 1

    def _weigh(self) -> None:
        """Take over the weights of the shape at each slot with a direct forecast."""
        weights, logs = filled(0.0, MOST_KNOWN * N_WEIGHTS), filled(0.0, MOST_KNOWN)
        for k in range(self._n_known):
            slot = self._slots[k]
            logs[k] = math.log(slot)
            if self.has_shape:
                row = max(self._places[k] - 1, 0) * N_WEIGHTS
                for j in range(N_WEIGHTS):
                    weights[k * N_WEIGHTS + j] = float(self.weights[row + j])
            if self.season and slot % self.season == 0:
                weights[k * N_WEIGHTS] = 0.0  # persistence has the season's phase here
        self._known_weights, self._logs = weights, logs

    def forecast_at(self, ahead: int) -> None:
        """Write the forecast of the slot that comes `ahead` slots after the newest one."""
        ahead += min(self.age, self.n_ring)  # of an older value none is left to make a shape of
        base, before = self._shape(ahead), self._before(ahead)
        part = self._part(ahead, before)
        after = min(before + 1, self._n_known - 1)
        forecast = [*self.forecast]
        for column in range(self.n_columns):
            low = self._above[before * MOST_COLUMNS + column]
            high = self._above[after * MOST_COLUMNS + column]
            number = base + low + part * (high - low)
            forecast[column] = min(max(number, self.low), self.high)
        self.forecast = forecast

    def _before(self, ahead: int) -> int:
        """Return the place of the last direct forecast up to a slot, or of the first one."""
        before = 0
        for k in range(1, self._n_known):
            if self._slots[k] <= ahead:
                before = k
        return before

    def _part(self, ahead: int, before: int) -> float:
        """Return where a slot is between two with a direct forecast, from 0 to 1."""
        if ahead <= self._slots[before] or before + 1 >= self._n_known:
            return 0.0
        low, high = self._logs[before], self._logs[before + 1]
        return (math.log(ahead) - low) / (high - low)

    def _shape(self, ahead: int) -> float:
        """Return the shape of a slot to come; 0 without a season."""
        season = self.season
        if season < 2 or not self.has_shape:
            return 0.0
        newest = self.n_points - 1
        age = min(self.age, self.n_ring)
        last = newest - age + ahead - season * ((ahead + season - 1) // season)
        before = self._before(ahead)
        part = self._part(ahead, before)
        after = min(before + 1, self._n_known - 1)
        weights = filled(0.0, N_WEIGHTS)
        for j in range(N_WEIGHTS):
            low = self._known_weights[before * N_WEIGHTS + j]
            weights[j] = low + part * (self._known_weights[after * N_WEIGHTS + j] - low)
        mixed, total, n = 0.0, 0.0, 0
        for back in range(MOST_BACK):
            at = last - back * season
            if at >= 0 and at > newest - self.n_ring:
                total += float(self.values[at % self.n_ring])
                n += 1
            mean = total / max(n, 1)
            if back == 0:
                mixed += weights[1] * mean
            elif back == 2:
                mixed += weights[3] * mean
            elif back == MOST_BACK - 1:
                mixed += weights[2] * mean
        share = weights[1] + weights[2] + weights[3]
        return (1.0 - weights[0]) * mixed / (share if share > 0.0 else 1.0)
