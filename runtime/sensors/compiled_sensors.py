"""Keep sensors by their names, with the rules and the model in one library of compiled C.

    Python: (time, value) ──one call──> C: slots, model, forecast, alarm ──> numbers ──> ScoredRow

The library is that of the backend `native`. Its C is made of the same rules that
`edgefold.runtime.sensors.named_sensors` runs in Python, so the answers are equal to the bit, and
snapshots are the same files. Each sensor has a block of memory of its own.

All sensors of a library share a block in which it computes. So its functions are called with the
interpreter's lock held, one at a time in a process.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray, aligned_full
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import BackendError, DataError
from edgefold.runtime.kept_arrays import as_part, part_of
from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.rows.csv_fields import Clock
from edgefold.runtime.sensors.alarms.alarms import RATE
from edgefold.runtime.sensors.clock.notes import RowNews, notes_of, refusal_text
from edgefold.runtime.sensors.clock.seasons import Season
from edgefold.runtime.sensors.engine import ScoredRow
from edgefold.runtime.sensors.forecasts import Path
from edgefold.runtime.sensors.named_sensors import FULL, FeedView, NamedSensors
from edgefold.runtime.sensors.shipped_bundle import word_of
from edgefold.runtime.sensors.time_parsing import Kind, kind_of, seconds_of
from edgefold.runtime.sensors.timed_engine import KINDS, TimedEngine
from edgefold.runtime.stream.named_states import MOST_SENSORS
from edgefold.runtime.stream.snapshot import STREAMS
from edgefold.runtime.stream.state_slots import POINTS
from edgefold.runtime.stream.stream import Stream

PREFIX = "edgefold_native_sensor_"
DISTANCE = 1
"""The place of `Facts.distance`, the only number that a refused row writes."""
FAILED = -1
"""The answer of a push whose step failed."""
OTHER = "the library has other numbers of a sensor"
ADDRESS, NUMBER, SIZE, INT = ctypes.c_void_p, ctypes.c_double, ctypes.c_size_t, ctypes.c_int
TEXT = ctypes.c_char_p


class Facts(NamedTuple):
    """Holds the first numbers of a sensor, as `c/sensor_library.c` writes them.

    Attributes:
        n_points: The number of slots that the model has learned.
        distance: How far the row refused last was from the newest one.
        newest_time, shown_pace, is_irregular: As `FeedView` has them.
        leap, n_gap, pace, pace_before, season_news: As `RowNews` has them; words by their numbers.
        season, season_name: The season's length and the number of its name.
        is_known: Whether later slots have forecasts.
    """

    n_points: float
    distance: float
    newest_time: float
    shown_pace: float
    pace: float
    is_irregular: float
    leap: float
    n_gap: float
    pace_before: float
    season: float
    season_name: float
    season_news: float
    is_known: float


N_FACTS, N_SCORES = len(Facts._fields), 9


class _Functions:
    """Holds the functions of a library for sensors.

    Args:
        library: A loaded library.
        manifest: The manifest of its bundle.
        prediction: The bundle's prediction kind.

    Raises:
        AttributeError, ValueError: The library has no such functions.
        LookupError: They are those of another version, with other numbers or arrays.
    """

    def __init__(self, library: ctypes.CDLL, manifest: Manifest, prediction: SensorForecast):
        def function(name: str, result: Any, *arguments: Any) -> Any:
            # PYFUNCTYPE keeps the interpreter's lock.
            return ctypes.PYFUNCTYPE(result, *arguments)((PREFIX + name, library))

        def size(name: str) -> int:
            return SIZE.in_dll(library, PREFIX + name).value

        self.n_ahead, self.n_forecast = len(prediction.horizons) + 1, 1 + len(prediction.levels)
        self.n_numbers = N_FACTS + self.n_forecast + N_SCORES + self.n_ahead * self.n_forecast
        if size("numbers") != self.n_numbers:
            raise LookupError(OTHER)
        self.n_bytes = size("bytes")
        self.start = function("start", None, ADDRESS, NUMBER)
        self.push = function("push", INT, ADDRESS, NUMBER, NUMBER, INT, ADDRESS)
        self.tell = function("tell", None, ADDRESS, ADDRESS)
        self.path = function("path", INT, ADDRESS, SIZE, ADDRESS, ADDRESS)
        self.save = function("save", SIZE, ADDRESS, ADDRESS, ADDRESS)
        self.load = function("load", None, ADDRESS, ADDRESS, ADDRESS)
        self.words: Any = _texts(function("name", TEXT, INT), 1)
        fresh = CompiledSensor(self, RATE)
        own = {f"state.{tensor.name}": (tensor.dtype, tensor.shape) for tensor in manifest.state}
        kept = TimedEngine(prediction, RATE, "", {}).arrays()
        forms = {**own, **{name: (array.dtype, array.shape) for name, array in kept.items()}}
        names = _texts(partial(function("array", TEXT, ADDRESS, INT), fresh.address), 0)
        keys = [f"state.{name}" for name in names[: len(own)]] + names[len(own) :]
        # Numpy's type of all arrays of a sensor, as `save` writes them.
        self.layout = np.dtype([(key, *forms[key]) for key in keys])
        counts = np.zeros(2, np.int64)
        if self.save(fresh.address, None, counts.ctypes.data) != self.layout.itemsize:
            raise LookupError(OTHER)


def _texts(text_of: Callable[[int], bytes], first: int) -> list[str]:
    """Return the texts of all numbers from `first` on, up to an empty one; those before are ""."""
    texts = [""] * first
    while text := text_of(len(texts)):
        texts.append(text.decode())
    return texts


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
    """

    def __init__(self, functions: _Functions, rate: float):
        self._functions = functions
        self._memory = aligned_full((functions.n_bytes,), "uint8", 0)
        self.address = self._memory.ctypes.data
        self.kind: Kind | None = None
        self.n_rows = 0
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
        return ahead[:, 0], ahead[:, 1:]

    def path(self, horizon: int) -> Path:
        """Forecast each of the next `horizon` slots; NaN while too few rows have come."""
        means = np.full(horizon, math.nan)
        quantiles = np.full((horizon, self._functions.n_forecast - 1), math.nan)
        places = means.ctypes.data, quantiles.ctypes.data
        self._functions.path(self.address, horizon, *places)
        return Path(means, quantiles)

    def save(self, record: Array, counts: Array) -> None:
        """Write all arrays of the sensor into a record (1,), and `POINTS` into counts (2,)."""
        self._functions.save(self.address, record.ctypes.data, counts.ctypes.data)

    def load(self, record: Array, counts: Array, rows: Array) -> None:
        """Go on from what `save` wrote, and from the array "rows" of a `TimedEngine`."""
        self._functions.load(self.address, record.ctypes.data, counts.ctypes.data)
        kind, self.n_rows = rows.tolist()
        self.kind, self.numbers = KINDS[kind], self._told()


class _Pushed(NamedTuple):
    """Notes a row that is about to be pushed.

    Attributes:
        name: The sensor's name.
        sensor: The sensor.
        kind: The kind of its times.
        n_rows: The number of its rows with this one.
    """

    name: str
    sensor: CompiledSensor
    kind: Kind
    n_rows: int


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
    """

    rules = "C"

    def __init__(
        self, stream: Stream, prediction: SensorForecast, rate: float, functions: _Functions
    ):
        self._stream, self._prediction, self._rate = stream, prediction, rate
        self._functions = functions
        self._sensors: dict[str, CompiledSensor] = {}
        self._present: str | None = None  # the sensor whose state Python's stream would hold
        self._pushed: _Pushed | None = None
        self._numbers = np.zeros(functions.n_numbers)  # of the newest push
        self._place = self._numbers.ctypes.data

    @classmethod
    def of(cls, stream: Stream, prediction: SensorForecast, rate: float) -> CompiledSensors:
        """Return sensors that run on the library of a stream's backend.

        Raises:
            BackendError: The backend has no library, or one without rules, as those of wheels.
        """
        library = stream.library
        if library is None:
            raise BackendError("the backend runs no library of compiled C.")
        try:
            functions = _Functions(library, stream.manifest, prediction)
        except (AttributeError, ValueError, LookupError) as error:
            raise BackendError(
                f"the library has no rules of this version ({error}); run `edgefold build "
                f"{word_of(str(stream.manifest.path))}`."
            ) from error
        return cls(stream, prediction, rate, functions)

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
        self._numbers[0] = 0.0  # a row that is learned counts at least one slot
        if not is_beyond:
            self._pushed = _Pushed(name, sensor, kind, sensor.n_rows + 1)
        try:
            refusal = self._functions.push(
                sensor.address, seconds, value, kind == "dates", self._place
            )
        finally:
            self._settle()
        if refusal == FAILED:
            self._raise_failure(time, value, name, dated)
        if refusal:
            distance = self._numbers[DISTANCE].item()
            word = self._functions.words[refusal]
            raise DataError(refusal_text(word, seconds, value, distance, _clock_of(kind)))
        if is_beyond:
            raise DataError(FULL.format(n=MOST_SENSORS))
        return sensor.row(seconds, value)

    def _settle(self) -> None:
        """End what an interrupted push has begun; a second call changes nothing."""
        pushed = self._pushed
        if pushed is not None and self._numbers[0]:
            sensor = pushed.sensor
            sensor.kind, sensor.n_rows = pushed.kind, pushed.n_rows
            sensor.numbers = self._numbers.copy()
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
        new = CompiledSensors(self._stream, self._prediction, self._rate, self._functions)
        arrays = part_of(other.arrays(), STREAMS)
        record = np.empty(1, self._functions.layout)
        for number, name in enumerate(other.names):
            for key in self._functions.layout.fields or ():
                record[key] = arrays[key][number]
            counts = np.array([arrays[key][number] for key in POINTS], np.int64)
            sensor = new._sensors[name] = CompiledSensor(self._functions, self._rate)
            sensor.load(record, counts, arrays["rows"][number])
        return new
