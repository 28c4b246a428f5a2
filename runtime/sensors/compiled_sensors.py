"""Keep sensors by their names, with the rules and the model in one library of compiled C.

    Python: (time, value) ──one call──> C: slots, model, forecast, alarm ──> numbers ──> ScoredRow

The library is that of the backend `native`. Its C is made of the same rules that
`edgefold.runtime.sensors.named_sensors` runs in Python, so the answers are equal to the bit, and
snapshots are the same files. Each sensor has a block of memory of its own.

All sensors of a library share a block in which it computes. So its functions are called with the
interpreter's lock held, one at a time in a process.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray, aligned_full
from edgefold.runtime.errors import BackendError, DataError
from edgefold.runtime.kept_arrays import as_part, part_of
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.rows.csv_fields import Clock
from edgefold.runtime.sensors.clock.notes import RowNews, notes_of, refusal_text
from edgefold.runtime.sensors.clock.row_clock import SensorFeed
from edgefold.runtime.sensors.clock.seasons import Season
from edgefold.runtime.sensors.compiled_functions import (
    N_FACTS,
    N_SCORES,
    Facts,
    SensorFunctions,
)
from edgefold.runtime.sensors.engine import ScoredRow, mixed_row
from edgefold.runtime.sensors.forecasts import Path
from edgefold.runtime.sensors.named_sensors import FULL, FeedView, NamedSensors
from edgefold.runtime.sensors.scored_rows import (
    AheadRows,
    BoolArray,
    RowShape,
    ScoredRows,
    Times,
    one_by_one,
)
from edgefold.runtime.sensors.shipped_bundle import word_of
from edgefold.runtime.sensors.time_parsing import Kind, kind_of, seconds_of
from edgefold.runtime.sensors.timed_engine import KINDS
from edgefold.runtime.sensors.warm.fleet import Fleet
from edgefold.runtime.sensors.warm.warm_start import SiblingSteps, WarmStart
from edgefold.runtime.stream.named_states import MOST_SENSORS
from edgefold.runtime.stream.snapshot import STREAMS
from edgefold.runtime.stream.state_slots import POINTS
from edgefold.runtime.stream.stream import Stream

DISTANCE = 1
"""The place of `Facts.distance`, the only number that a refused row writes."""
FAILED = -1
"""The answer of a push whose step failed."""


def _clock_of(kind: Kind | None) -> Clock:
    return "date" if kind == "dates" else "number"


class CompiledSensor:
    """Holds the memory of one sensor, and what its newest row told; it is also its `FeedView`.

    Args:
        functions: The library's functions.
        rate: The share of sound rows that may be alarms.

    Attributes:
        kind, n_rows: As `TimedEngine` has them.
        numbers: The numbers of the sensor after its newest row; they never change in place.
        warm: As `SensorEngine` has it.
        clock: Gives the siblings' states the same inputs as the library computes; None without
            siblings.
    """

    def __init__(self, functions: SensorFunctions, rate: float):
        self._functions = functions
        self._memory = aligned_full((functions.n_bytes,), "uint8", 0)
        self.address = self._memory.ctypes.data
        self.kind: Kind | None = None
        self.n_rows = 0
        self.warm: WarmStart | None = None
        self.clock: SensorFeed | None = None
        functions.start(self.address, rate)
        self.numbers = self._told()

    def _told(self) -> FloatArray:
        numbers = np.zeros(self._functions.n_numbers)
        self._functions.tell(self.address, numbers.ctypes.data)
        return numbers

    @property
    def facts(self) -> Facts:
        """Return what is known after the newest row."""
        return Facts(*self.numbers[:N_FACTS].tolist())

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences for the user about what the newest row changed: gaps, pace, season."""
        facts, words = self.facts, self._functions.words
        if not (
            facts.leap or facts.n_gap or facts.season_news or not math.isnan(facts.pace_before)
        ):
            return ()
        news = RowNews(
            words[int(facts.leap)],
            int(facts.n_gap),
            facts.pace,
            facts.pace_before,
            Season(self.season, words[int(facts.season_name)]),
            words[int(facts.season_news)],
        )
        return notes_of(news, _clock_of(self.kind))

    @property
    def season(self) -> int:
        """Return the season's length in slots; 0 if there is no season."""
        return int(self.facts.season)

    @property
    def season_name(self) -> str:
        """Return "day", "week" or "year" for a season of the calendar; empty for any other."""
        name: str = self._functions.words[int(self.facts.season_name)]
        return name

    @property
    def newest_time(self) -> float:
        """Return the time of the newest row; NaN before the first."""
        return self.facts.newest_time

    @property
    def pace(self) -> float:
        """Return the time between two slots; NaN before it is known."""
        return self.facts.shown_pace

    @property
    def is_irregular(self) -> bool:
        """Return whether the rows come so unevenly that each row counts as one slot."""
        return bool(self.facts.is_irregular)

    def row(self, time: float, value: float) -> ScoredRow:
        """Return the newest row, of this time and value."""
        functions = self._functions
        at = N_FACTS + functions.n_forecast
        mean, *quantiles = self.numbers[N_FACTS:at].tolist()
        log_density, p_value, size, n_since, n_missing, season, event, alarm, is_known = (
            self.numbers[at : at + N_SCORES].tolist()
        )
        return ScoredRow(
            *(time, value, is_known != 0.0, mean, quantiles, log_density, p_value),
            *(int(n_missing), int(season), alarm != 0.0, functions.words[int(event)]),
            *(int(n_since), size),
        )

    def known(self) -> tuple[FloatArray, FloatArray] | None:
        """Return the forecasts of later slots, as `SlotsAhead.known` does."""
        if not self.numbers[N_FACTS - 1]:
            return None
        functions = self._functions
        ahead = self.numbers[N_FACTS + functions.n_forecast + N_SCORES :]
        ahead = ahead.reshape(functions.n_ahead, functions.n_forecast)
        own = ahead[:, 0], ahead[:, 1:]
        return own if self.warm is None else self.warm.known(own)

    def path(self, horizon: int) -> Path:
        """Forecast each of the next `horizon` slots; NaN while too few rows have come."""
        means = np.full(horizon, math.nan)
        quantiles = np.full((horizon, self._functions.n_forecast - 1), math.nan)
        places = means.ctypes.data, quantiles.ctypes.data
        self._functions.path(self.address, horizon, *places)
        own = Path(means, quantiles)
        return own if self.warm is None else self.warm.path(own, horizon)

    def save(self, record: Array, counts: Array) -> None:
        """Write all arrays of the sensor into a record (1,), and `POINTS` into counts (2,)."""
        self._functions.save(self.address, record.ctypes.data, counts.ctypes.data)

    def load(self, record: Array, counts: Array, rows: Array) -> None:
        """Go on from what `save` wrote, and from the array "rows" of a `TimedEngine`."""
        self._functions.load(self.address, record.ctypes.data, counts.ctypes.data)
        kind, self.n_rows = rows.tolist()
        self.kind, self.numbers = KINDS[kind], self._told()


class _Pushed(NamedTuple):
    """Notes rows of a sensor that are about to be pushed.

    Attributes:
        name: The sensor's name.
        sensor: The sensor.
        kind: The kind of its times.
        time, value: Those of the row; of several rows any.
        siblings: What its siblings' states have made of the row; None if it goes by itself.
    """

    name: str
    sensor: CompiledSensor
    kind: Kind
    time: float = math.nan
    value: float = math.nan
    siblings: _Siblings | None = None


class _Siblings(NamedTuple):
    """Holds what the siblings of a sensor knew before a row, and what their states made of it."""

    warm: WarmStart
    steps: SiblingSteps
    clock: SensorFeed


class CompiledSensors:
    """Serves sensors by their names as `NamedSensors` does; a library runs rules and model.

    An error or Ctrl-C may end a call between any two lines. A push is one call of C, which changes
    a sensor as a whole. It is noted before, and `settle`, with which every call begins, does what
    is left to do.

    Args:
        stream: The open stream of the library's bundle, which holds the states of snapshots.
        prediction: The prediction kind of the bundle.
        rate: The share of sound rows that may be alarms.
        functions: The library's functions.
        fleet: The siblings by which new sensors start warm; None lets them start cold.
    """

    rules = "C"

    def __init__(
        self,
        stream: Stream,
        prediction: SensorForecast,
        rate: float,
        functions: SensorFunctions,
        fleet: Fleet | None = None,
    ):
        self._stream, self._prediction, self._rate = stream, prediction, rate
        self._fleet = fleet
        self._row: ScoredRow | None = None  # the row that was learned last
        self._functions = functions
        self._sensors: dict[str, CompiledSensor] = {}
        self._present: str | None = None  # the sensor whose state Python's stream would hold
        self._pushed: _Pushed | None = None
        self._numbers = np.zeros(functions.n_numbers)  # of the newest push
        self._place = self._numbers.ctypes.data
        self._n_rows = np.zeros(1, np.int64)  # of the sensor that was pushed last, with these rows
        self._shape = RowShape(
            functions.n_forecast - 1, functions.n_ahead, cast(list[str], functions.words)
        )

    @classmethod
    def of(
        cls, stream: Stream, prediction: SensorForecast, rate: float, fleet: Fleet | None = None
    ) -> CompiledSensors:
        """Return sensors that run on the library of a stream's backend.

        Raises:
            BackendError: The backend has no library, or one without rules, as those of wheels.
        """
        library = stream.library
        if library is None:
            raise BackendError("the backend runs no library of compiled C.")
        try:
            functions = SensorFunctions(library, stream.manifest, prediction)
        except (AttributeError, ValueError, LookupError) as error:
            raise BackendError(
                f"the library has no rules of this version ({error}); run `edgefold build "
                f"{word_of(str(stream.manifest.path))}`."
            ) from error
        return cls(stream, prediction, rate, functions, fleet)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that have come, in the order of their first rows."""
        return tuple(self._sensors)

    def __contains__(self, name: str) -> bool:
        """Return whether a row of a sensor has come; end first what an interrupted call began."""
        self._settle()
        return name in self._sensors

    def take(self, time: Any, value: float, name: str, dated: bool | None) -> ScoredRow:
        """Score and learn a row; the arguments and errors are those of `Sensors.step`."""
        self._settle()
        sensor = self._sensors.get(name)
        is_beyond = sensor is None and len(self._sensors) == MOST_SENSORS
        if sensor is None:
            sensor = CompiledSensor(self._functions, self._rate)
        kind = sensor.kind or kind_of(time, dated)
        seconds = seconds_of(time, kind, sensor.n_rows)
        siblings = self._siblings(sensor, name, seconds, value, kind == "dates")
        self._numbers[0] = 0.0  # a row that is learned counts at least one slot
        if not is_beyond:
            self._n_rows[0] = sensor.n_rows + 1
            self._pushed = _Pushed(name, sensor, kind, seconds, value, siblings)
        try:
            refusal = self._functions.push(
                sensor.address, seconds, value, kind == "dates", self._place
            )
        finally:
            self._settle()
        if refusal == FAILED:
            self._raise_failure(time, value, name, dated)
        if refusal:
            raise self._refusal(refusal, seconds, value, self._numbers[DISTANCE].item(), kind)
        if is_beyond:
            raise DataError(FULL.format(n=MOST_SENSORS))
        assert self._row is not None
        return self._row

    def _siblings(
        self, sensor: CompiledSensor, name: str, time: float, value: float, dated: bool
    ) -> _Siblings | None:
        """Let the siblings' states of a sensor take a row, if it still starts warm."""
        warm, clock = sensor.warm, sensor.clock
        if name not in self._sensors and self._fleet is not None:
            warm = WarmStart.begin(self._fleet, self._rate)
            clock = SensorFeed(self._prediction.longest_season)
        if warm is None or clock is None:
            return None
        try:
            x = clock.rows(time, value, dated)
        except DataError:  # the library refuses the row, too
            return None
        return _Siblings(warm, warm.steps(x, value), clock)

    def _refusal(
        self, refusal: int, time: float, value: float, distance: float, kind: Kind
    ) -> DataError:
        """Return the error that says why a row is refused."""
        word = self._functions.words[refusal]
        return DataError(refusal_text(word, time, value, distance, _clock_of(kind)))

    def take_rows(
        self, times: Times, values: FloatArray, name: str, dated: bool | None, with_ahead: bool
    ) -> ScoredRows:
        """Score and learn some rows in one call of C; the arguments are as for `step_rows`.

        Rows go one by one where the library has no such function, before a sensor's first row,
        while it starts warm, and for times of another kind than before or that are no numbers.
        """
        self._settle()
        sensor, functions = self._sensors.get(name), self._functions
        if (
            functions.push_rows is None
            or sensor is None
            or sensor.kind is None
            or sensor.warm is not None
            or isinstance(times, list)
            or (times is None) != (sensor.kind == "rows")
        ):
            return one_by_one(self, self._shape, times, values, name, dated, with_ahead)
        kind, n = sensor.kind, len(values)
        values = np.ascontiguousarray(values, np.float64)
        given = None if times is None else np.ascontiguousarray(times, np.float64)
        answers, numbers = np.zeros(n, np.intc), np.full((n, self._shape.n_numbers), math.nan)
        n_ahead = functions.n_ahead * functions.n_forecast
        ahead = np.full((n, 3 + n_ahead), math.nan) if with_ahead else None
        self._numbers[0], self._n_rows[0] = 0.0, sensor.n_rows
        first = sensor.n_rows
        self._pushed = _Pushed(name, sensor, kind)
        try:
            n_done = functions.push_rows(
                *(sensor.address, n, None if given is None else given.ctypes.data),
                *(values.ctypes.data, kind == "dates", self._n_rows.ctypes.data, self._place),
                *(answers.ctypes.data, numbers.ctypes.data),
                None if ahead is None else ahead.ctypes.data,
            )
        finally:
            self._settle()
        taken = answers == 0
        seconds = (first + np.cumsum(taken) - taken).astype(float) if given is None else given
        if n_done < n:
            time = None if given is None else seconds[n_done].item()
            self._raise_failure(time, values[n_done].item(), name, dated)
        refused = dict[int, DataError]()
        for at in np.flatnonzero(answers).tolist():
            row = seconds[at].item(), values[at].item(), numbers[at, 0].item()
            refused[at] = self._refusal(answers[at].item(), *row, kind)
            numbers[at] = math.nan
        found = None if ahead is None else self._ahead_of(ahead, taken)
        return ScoredRows(seconds, values, numbers, self._shape.words, refused, found)

    def _ahead_of(self, numbers: FloatArray, taken: BoolArray) -> AheadRows:
        """Return the forecasts of later slots that C wrote for n rows, (n, 3 + forecasts)."""
        functions = self._functions
        is_known = taken & (numbers[:, 2] == 1.0)
        ahead = numbers[:, 3:].reshape(len(numbers), functions.n_ahead, functions.n_forecast)
        ahead[~is_known] = math.nan
        n_points = np.where(taken, numbers[:, 0], 0).astype(np.int64)
        return AheadRows(n_points, numbers[:, 1], is_known, ahead[:, :, 0], ahead[:, :, 1:])

    def _settle(self) -> None:
        """End what an interrupted push has begun; a second call changes nothing."""
        pushed = self._pushed
        if pushed is not None and self._numbers[0]:
            sensor = pushed.sensor
            sensor.kind, sensor.n_rows = pushed.kind, self._n_rows.item()
            sensor.numbers = self._numbers.copy()
            self._row = row = sensor.row(pushed.time, pushed.value)
            if pushed.siblings is not None:
                warm, steps, clock = pushed.siblings
                self._row, sensor.warm = mixed_row(row, warm, steps, clock.place)
                sensor.clock = None if sensor.warm is None else clock.prepared()
                if sensor.warm is not None:
                    sensor.warm.settle()
            self._sensors[pushed.name] = sensor
            self._present = pushed.name
        self._pushed = None

    def _raise_failure(self, time: Any, value: float, name: str, dated: bool | None) -> None:
        """Let Python's rules take a row whose step failed, and raise their error."""
        self._python([name] if name in self._sensors else []).take(time, value, name, dated)
        raise BackendError(
            "a step of the compiled model failed where Python's did not; nothing was learned of "
            "the row. Run `edgefold build` again, or open with compiled=False."
        )

    def emptied(self) -> CompiledSensors:
        """Return sensors on the same library of which no row has come."""
        return CompiledSensors(
            self._stream, self._prediction, self._rate, self._functions, self._fleet
        )

    def feed(self, name: str) -> FeedView:
        """Return a sensor's clock and season."""
        return self._sensors[name]

    def known(self, name: str) -> tuple[FloatArray, FloatArray] | None:
        """Return a sensor's forecasts of later slots, as `SlotsAhead.known` does."""
        self._present = name
        return self._sensors[name].known()

    def n_points(self, name: str) -> int:
        """Return how many slots of a sensor the model has learned."""
        return int(self._sensors[name].facts.n_points)

    def path(self, name: str, horizon: int) -> Path:
        """Forecast each of the next `horizon` slots of a sensor; NaN while too few rows came."""
        self._present = name
        return self._sensors[name].path(horizon)

    def in_python(self) -> NamedSensors:
        """Return the same sensors with Python's rules; the stream then holds the present state."""
        self._settle()
        python = self._python(list(self._sensors))
        python.fleet = self._fleet
        for name, sensor in self._sensors.items():
            python.engines[name].warm = sensor.warm
        if self._present is not None:
            python.turn_to(self._present)
        return python

    def _python(self, names: list[str]) -> NamedSensors:
        """Return some of the sensors with Python's rules."""
        records = np.empty(len(names), self._functions.layout)
        counts, rows = np.empty((2, len(names), 2), np.int64)
        for number, name in enumerate(names):
            sensor = self._sensors[name]
            sensor.save(records[number : number + 1], counts[number])
            rows[number] = KINDS.index(sensor.kind), sensor.n_rows
        arrays = {key: records[key] for key in self._functions.layout.fields or ()}
        arrays |= {name: counts[:, at] for at, name in enumerate(POINTS)} | {"rows": rows}
        python = NamedSensors(self._stream, self._prediction, self._rate)
        if names:
            python.load(as_part(arrays, STREAMS), names)
        return python

    def taken_from(self, other: NamedSensors) -> CompiledSensors:
        """Return what takes the place of this object, to go on from sensors of Python's."""
        new = self.emptied()
        arrays = part_of(other.arrays(), STREAMS)
        record = np.empty(1, self._functions.layout)
        for number, name in enumerate(other.names):
            for key in self._functions.layout.fields or ():
                record[key] = arrays[key][number]
            counts = np.array([arrays[key][number] for key in POINTS], np.int64)
            sensor = new._sensors[name] = CompiledSensor(self._functions, self._rate)
            sensor.load(record, counts, arrays["rows"][number])
            engine = other.engines[name]
            if engine.warm is not None:
                sensor.warm, sensor.clock = engine.warm, engine.feed
        return new
