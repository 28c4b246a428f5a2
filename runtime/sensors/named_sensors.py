"""Keep sensors by their names, with Python's rules and one opened stream for the model.

`edgefold.runtime.sensors.compiled_sensors` has the same methods, and runs the rules as compiled C.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, get_args

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.sensors.alarms.verdict import Event
from edgefold.runtime.sensors.engine import ScoredRow
from edgefold.runtime.sensors.forecasts import Path
from edgefold.runtime.sensors.scored_rows import RowShape, ScoredRows, Times, one_by_one
from edgefold.runtime.sensors.timed_engine import TimedEngine
from edgefold.runtime.sensors.warm.fleet import Fleet
from edgefold.runtime.sensors.warm.kept_starts import restored_starts, warm_arrays
from edgefold.runtime.stream.named_states import MOST_SENSORS, NamedStates
from edgefold.runtime.stream.stream import Stream

FULL = "there are {n:,} sensors already; is it a name at all?"


class FeedView(Protocol):
    """Says how the rows of a sensor come; its properties are those of the newest row.

    `edgefold.runtime.sensors.clock.row_clock.SensorFeed` describes them.
    """

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences for the user about what the newest row changed: gaps, pace, season."""

    @property
    def season(self) -> int:
        """Return the season's length in slots; 0 if there is no season."""

    @property
    def season_name(self) -> str:
        """Return "day", "week" or "year" for a season of the calendar; empty for any other."""

    @property
    def newest_time(self) -> float:
        """Return the time of the newest row; NaN before the first."""

    @property
    def pace(self) -> float:
        """Return the time between two slots; NaN before it is known."""

    @property
    def is_irregular(self) -> bool:
        """Return whether the rows come so unevenly that each row counts as one slot."""


class NamedSensors:
    """Serves sensors by their names; Python runs the rules.

    Args:
        stream: An open stream of the general model, which runs nothing else.
        prediction: The prediction kind of the bundle.
        rate: The share of sound rows that may be alarms.
        fleet: The siblings by which new sensors start warm; None lets them start cold.

    Attributes:
        rules: The language in which the rules run.
        engines: The sensors by their names.
        fleet: The siblings.
    """

    rules = "Python"

    def __init__(
        self, stream: Stream, prediction: SensorForecast, rate: float, fleet: Fleet | None = None
    ):
        self._stream, self._prediction, self._rate = stream, prediction, rate
        self.fleet = fleet
        self._states = NamedStates(stream, MOST_SENSORS, FULL)
        self.engines: dict[str, TimedEngine] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that have come, in the order of their first rows."""
        return self._states.names

    def __contains__(self, name: str) -> bool:
        """Return whether a row of a sensor has come; end first what an interrupted call began."""
        self._states.settle()
        return name in self.engines

    def take(self, time: Any, value: float, name: str, dated: bool | None) -> ScoredRow:
        """Score and learn a row; the arguments and errors are those of `Sensors.step`."""
        self._states.settle()
        engine = self.engines.get(name)
        if engine is None:
            engine = TimedEngine(self._prediction, self._rate, name, self.engines, self.fleet)
        return engine.take(self._states, time, value, dated)

    def take_rows(
        self, times: Times, values: FloatArray, name: str, dated: bool | None, with_ahead: bool
    ) -> ScoredRows:
        """Score and learn some rows; the arguments are those of `Sensors.step_rows`."""
        kind = self._prediction
        shape = RowShape(len(kind.levels), len(kind.horizons) + 1, list(get_args(Event)))
        return one_by_one(self, shape, times, values, name, dated, with_ahead)

    def emptied(self) -> NamedSensors:
        """Return sensors on the same stream of which no row has come."""
        new = NamedSensors(self._stream, self._prediction, self._rate, self.fleet)
        new._states.begin_fresh()
        return new

    def feed(self, name: str) -> FeedView:
        """Return a sensor's clock and season."""
        return self.engines[name].feed

    def known(self, name: str) -> tuple[FloatArray, FloatArray] | None:
        """Return a sensor's forecasts of later slots, as `SlotsAhead.known` does."""
        self._states.turn_to(name)
        engine = self.engines[name]
        own = engine.ahead.known(self._states)
        return own if engine.warm is None else engine.warm.known(own)

    def n_points(self, name: str) -> int:
        """Return how many slots of a sensor the model has learned."""
        self._states.turn_to(name)
        return self._stream.n_points

    def path(self, name: str, horizon: int) -> Path:
        """Forecast each of the next `horizon` slots of a sensor; NaN while too few rows came."""
        self._states.turn_to(name)
        engine = self.engines[name]
        own = engine.ahead.path(self._states, horizon)
        return own if engine.warm is None else engine.warm.path(own, horizon)

    def in_python(self) -> NamedSensors:
        """Return this object: Python runs its rules. End first what an interrupted call began."""
        self._states.settle()
        return self

    def taken_from(self, other: NamedSensors) -> NamedSensors:
        """Return what takes the place of this object, to go on from other sensors."""
        return other

    def turn_to(self, name: str) -> None:
        """Make a sensor's state that of the stream."""
        self._states.turn_to(name)

    def arrays(self) -> dict[str, Array]:
        """Return the arrays that a snapshot must keep of all sensors, stacked by their names."""
        engines = [self.engines[name] for name in self.names]
        return {**self._states.arrays(engines), **warm_arrays([one.warm for one in engines])}

    def load(self, arrays: Mapping[str, Array], names: Sequence[str]) -> None:
        """Restore the arrays that `arrays` returned; no row may have come before.

        Raises:
            SnapshotError: There are more names than may come, or the arrays do not fit them.
        """
        for name in names:
            self.engines[name] = TimedEngine(self._prediction, self._rate, name, self.engines)
        self._states.load(arrays, names, list(self.engines.values()))
        starts = restored_starts(arrays, len(names), self.fleet, self._rate)
        for name, warm in zip(names, starts, strict=True):
            self.engines[name].warm = warm
