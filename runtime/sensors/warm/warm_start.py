"""Forecast the first rows of one new sensor by its siblings' states beside its own.

    row ──> own state ───────────> forecast 0 ──┐
       ├──> state of sibling 1 ──> forecast 1 ──┼──> mixture, by evidence ──> alarm, by votes
       └──> state of sibling K ──> forecast K ──┘    (forecast, density, p-value)

Each sibling's state is a copy, which learns the rows of the new sensor. The sensor's own state
learns them as ever and does not see the siblings: after `N_ROWS` rows it goes on by itself, and
everything is as if the sensor had started cold.

A row writes the siblings' next states into spare memory; `following` returns the object that takes
the place of this one once the sensor's own state has learned the row. So a row that fails or is
interrupted changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import SnapshotError, StepRefusedError
from edgefold.runtime.kept_arrays import as_part, part_of, require_same
from edgefold.runtime.predictions import Prediction
from edgefold.runtime.predictions.sensor_forecast import is_scored, place_of_level
from edgefold.runtime.sensors.alarms.slot_place import SlotPlace
from edgefold.runtime.sensors.alarms.verdict import AlarmVerdict
from edgefold.runtime.sensors.forecasts import Path
from edgefold.runtime.sensors.slots_ahead import SlotsAhead
from edgefold.runtime.sensors.warm.fleet import Fleet
from edgefold.runtime.sensors.warm.mixture import (
    following,
    mixed_p_value,
    mixed_quantiles,
    prior_of,
    weights_of,
)
from edgefold.runtime.sensors.warm.votes import Votes
from edgefold.runtime.stream.state_slots import StateSlots

N_ROWS = 300
"""The number of first rows that siblings help to forecast."""
AHEAD = "member_"
"""The prefix of the names of the arrays of the forecasts further ahead."""


class RowForecast(NamedTuple):
    """Holds how a row was forecast and scored.

    Attributes:
        mean: The forecast mean.
        quantiles: The forecast quantiles.
        log_density: The log density of the value, in nats; 0 if nothing was scored.
        p_value: The p-value of the value; 1 if nothing was scored.
    """

    mean: float
    quantiles: list[float]
    log_density: float
    p_value: float


class SiblingSteps(NamedTuple):
    """Holds what the K siblings' states have made of a row.

    Attributes:
        slots: Their next states.
        forecasts: Their forecasts of the row; None for a state whose step failed.
        ahead: Their forecasts of later slots.
    """

    slots: StateSlots
    forecasts: list[RowForecast | None]
    ahead: list[SlotsAhead]


class MixedRow(NamedTuple):
    """Holds how a row was forecast by the mixture, and what follows.

    Attributes:
        forecast: The mixture's forecast and scores.
        verdict: Whether the row is an alarm.
        warm: What takes the place of the `WarmStart`; None after its last row.
    """

    forecast: RowForecast
    verdict: AlarmVerdict
    warm: WarmStart | None


class _Held:
    """Shows the state of one sibling as `SlotsAhead` reads the state of a sensor."""

    def __init__(self, slots: StateSlots, index: int):
        self._slots, self._index = slots, index

    @property
    def n_points(self) -> int:
        return int(self._slots.n_points[self._index])

    def present(self) -> dict[str, Array]:
        return self._slots.state(self._index)


class WarmStart:
    """Holds K siblings' states, and how likely each is, for one new sensor; it never changes.

    Args:
        fleet: The siblings, and the stream that runs them.
        slots: The present states of this sensor's siblings.
        votes: The siblings' watches.
        ahead: The siblings' forecasts of later slots.
        log_weights: The logarithms of the weights after the last row: of the sensor's own forecast
            and of the siblings', (1 + K,).
        n_rows: The number of rows so far.
        before: The slots of the row before, which nobody needs once this object is in use.
    """

    def __init__(
        self,
        fleet: Fleet,
        slots: StateSlots,
        votes: Votes,
        ahead: list[SlotsAhead],
        log_weights: FloatArray,
        n_rows: int = 0,
        before: StateSlots | None = None,
    ):
        self._fleet, self._slots, self._votes, self._ahead = fleet, slots, votes, ahead
        self._log_weights, self.n_rows, self._before = log_weights, n_rows, before

    @classmethod
    def begin(cls, fleet: Fleet, rate: float) -> WarmStart:
        """Begin a new sensor with the siblings of a fleet.

        Args:
            fleet: The fleet.
            rate: The share of sound rows that may be alarms.
        """
        n = len(fleet.siblings)
        votes = Votes.of([sibling.watch for sibling in fleet.siblings], rate)
        ahead = [SlotsAhead(fleet.kind) for _ in range(n)]
        return cls(fleet, fleet.begun(), votes, ahead, prior_of(n))

    @classmethod
    def restored(cls, fleet: Fleet, rate: float, n: int, arrays: Mapping[str, Array]) -> WarmStart:
        """Go on from the arrays that `arrays` returned of n siblings.

        Raises:
            SnapshotError: The arrays are damaged.
        """
        warm = cls.template(fleet, rate, n)
        require_same(arrays, warm.arrays(), "sensor that starts warm")
        weights, n_rows = arrays["weights"], int(arrays["rows"].item())
        is_sound = not np.isnan(weights).any() and np.max(weights) <= 1e-6 and weights[0] > -np.inf
        if not is_sound or not 0 < n_rows < N_ROWS:
            raise SnapshotError(
                "the snapshot's weights of a sensor that starts warm are damaged; use an older "
                "copy, or start without it."
            )
        warm._slots.load(arrays, n)
        warm._votes.load(arrays)
        own = part_of(arrays, AHEAD)
        for at, ahead in enumerate(warm._ahead):
            ahead.load({name: array[at] for name, array in own.items()})
        warm._log_weights, warm.n_rows = weights.copy(), n_rows
        return warm

    @classmethod
    def template(cls, fleet: Fleet, rate: float, n: int) -> WarmStart:
        """Return one with n empty states, whose arrays show names and shapes."""
        votes = Votes.of([fleet.siblings[0].watch] * n, rate)
        ahead = [SlotsAhead(fleet.kind) for _ in range(n)]
        return cls(fleet, fleet.empty(n), votes, ahead, prior_of(n))

    @property
    def n_siblings(self) -> int:
        """Return how many siblings help."""
        return len(self._ahead)

    def steps(self, x: FloatArray, value: float) -> SiblingSteps:
        """Let the siblings' states forecast and learn a row, into spare memory.

        Args:
            x: The model's inputs (n, 4): those of missing slots, then that of the row.
            value: The row's value; NaN if it is missing.
        """
        stream, spare = self._fleet.stream, self._fleet.spare(self.n_siblings)
        forecasts: list[RowForecast | None] = []
        coming = []
        for index, ahead in enumerate(self._ahead):
            forecast, later = None, ahead.copy()
            stream.put(self._slots, index)
            try:
                for slot in x:
                    prediction = stream.step(slot)
                forecast = forecast_of(prediction)
                later.keep(prediction, value, int(x[-1, 2]), len(x))
            except StepRefusedError:
                stream.put(self._slots, index)
            stream.take(spare, index)
            forecasts.append(forecast)
            coming.append(later)
        return SiblingSteps(spare, forecasts, coming)

    def following(
        self,
        steps: SiblingSteps,
        own: RowForecast,
        verdict: AlarmVerdict,
        value: float,
        is_known: bool,
        n_missing: int,
        place: SlotPlace,
    ) -> MixedRow:
        """Mix the forecasts of a row, and return what follows; nothing changes.

        Args:
            steps: The result of `steps`.
            own: The forecast of the sensor's own state.
            verdict: What the sensor's own watch says.
            value: The row's value; NaN if it is missing.
            is_known: Whether the own state had a forecast.
            n_missing: The number of missing slots just before the row.
            place: Where the row stands in the season and the day.
        """
        held = self._log_weights.copy()
        held[1:][[one is None for one in steps.forecasts]] = -np.inf
        mixed, levels = own, self._fleet.kind.levels
        if is_known:
            now = weights_of(held)
            each = [own, *(one or own for one in steps.forecasts)]
            quantiles = np.array([one.quantiles for one in each])
            mixed = own._replace(
                mean=float(np.exp(now) @ [one.mean for one in each]),
                quantiles=mixed_quantiles(now, quantiles, levels).tolist(),
            )
            if value == value:
                # Where a sibling has scored nothing, its share counts for the own forecast.
                scored = [one if _has_score(one) else own for one in each]
                log_densities = np.array([one.log_density for one in scored])
                p_values = np.array([one.p_value for one in scored])
                medians = np.array([one.quantiles[place_of_level(levels, 0.5)] for one in scored])
                mixed = mixed._replace(
                    log_density=float(np.logaddexp.reduce(now + log_densities)),
                    p_value=mixed_p_value(now, p_values, medians, value),
                )
                held = following(now, log_densities)
        middle = mixed.quantiles[place_of_level(levels, 0.5)]
        votes = self._votes.copy()
        row = value, mixed.p_value, middle, mixed.log_density, n_missing, place
        verdict = votes.judged(verdict, *row)
        n_rows, warm = self.n_rows + 1, None
        if n_rows < N_ROWS:
            warm = WarmStart(
                self._fleet, steps.slots, votes, steps.ahead, held, n_rows, self._slots
            )
        return MixedRow(mixed, verdict, warm)

    def settle(self) -> None:
        """Give back the memory of the row before; a second call changes nothing."""
        if self._before is not None:
            self._fleet.take_back(self._before)

    def known(
        self, own: tuple[FloatArray, FloatArray] | None
    ) -> tuple[FloatArray, FloatArray] | None:
        """Mix the forecasts of later slots, as `SlotsAhead.known` returns them.

        `own` are those of the sensor's own state.
        """
        if own is None:
            return None
        each = [ahead.known(held) or own for ahead, held in self._states()]
        return self._mixed([own, *each])

    def path(self, own: Path, horizon: int) -> Path:
        """Mix the forecasts of each of the next `horizon` slots.

        `own` is the path of the sensor's own state; one without forecasts stays so.
        """
        if np.isnan(own.mean).any():
            return own
        paths = [ahead.path(held, horizon) for ahead, held in self._states()]
        known = [own if np.isnan(path.mean).any() else path for path in paths]
        return Path(*self._mixed([(path.mean, path.quantiles) for path in (own, *known)]))

    def _states(self) -> Iterator[tuple[SlotsAhead, _Held]]:
        for index, ahead in enumerate(self._ahead):
            yield ahead, _Held(self._slots, index)

    def _mixed(
        self, forecasts: Sequence[tuple[FloatArray, FloatArray]]
    ) -> tuple[FloatArray, FloatArray]:
        """Mix means (n,) and quantiles (n, Q) with the weights of the next row."""
        now = weights_of(self._log_weights)
        means = np.array([mean for mean, _ in forecasts])
        quantiles = np.array([quantiles for _, quantiles in forecasts])
        return np.exp(now) @ means, mixed_quantiles(now, quantiles, self._fleet.kind.levels)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that a snapshot must keep; each has a first axis for stacking."""
        later = [ahead.arrays() for ahead in self._ahead]
        stacked = {name: np.stack([one[name] for one in later]) for name in later[0]}
        return {
            **self._slots.arrays(self.n_siblings),
            **self._votes.arrays(),
            **as_part(stacked, AHEAD),
            "weights": self._log_weights,
            "rows": np.array([self.n_rows], np.int64),
        }


def forecast_of(prediction: Prediction) -> RowForecast:
    """Return the forecast and the scores of a row in the prediction of its step."""
    tensors = prediction.tensors
    return RowForecast(
        tensors["mean"].item(),
        tensors["quantiles"].ravel().tolist(),
        tensors["log_density"].item(),
        tensors["p_value"].item(),
    )


def _has_score(forecast: RowForecast) -> bool:
    return is_scored(forecast.log_density, forecast.p_value)
