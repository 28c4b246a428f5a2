"""Serve any sensor without training: one general model forecasts each stream from its first row.

Several sensors share one opened bundle; each has a clock, a season and a state of its own. The
modules `edgefold.runtime.sensors.named_sensors` and `compiled_sensors` take their rows; this module
adds the checks of arguments, tables and files.

Only one call runs at a time, as with `Stream` (`edgefold.runtime.stream.call_guard`). A call that
was refused, failed or was interrupted has learned all of its row or nothing
(`edgefold.runtime.stream.named_states`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import astuple
from functools import partial
from numbers import Real
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.errors import BackendError, DataError, SnapshotError, ValueRefusedError
from edgefold.runtime.predictions.sensor_forecast import NO_SEASON
from edgefold.runtime.sensors.compiled_sensors import CompiledSensors
from edgefold.runtime.sensors.engine import ScoredRow
from edgefold.runtime.sensors.forecasts import (
    UNKNOWN,
    Distribution,
    Forecast,
    Horizon,
    Path,
    distribution,
    is_whole,
    place_of,
    require_sensors,
)
from edgefold.runtime.sensors.named_sensors import FeedView, NamedSensors
from edgefold.runtime.sensors.scored_rows import ScoredRows, joined, row_blocks
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.runtime.sensors.tables.table_runs import Progress, run_table, score_table
from edgefold.runtime.sensors.time_parsing import number_of
from edgefold.runtime.sensors.warm.fleet import Fleet
from edgefold.runtime.sensors.warm.siblings import Paths, read_siblings
from edgefold.runtime.stream.call_guard import OneCaller, one_call
from edgefold.runtime.stream.snapshot import path_of, read_snapshot
from edgefold.runtime.stream.stream import Stream

RECORD = "sensors"
"""The name under which a snapshot keeps the names of the sensors, as JSON in an array of bytes."""
NOTHING = list(astuple(UNKNOWN))


class Sensors(OneCaller):
    """Serves sensors with the opened general model; use it as a context manager, or call `close`.

        with Sensors.open() as sensors:
            for time, value in rows:
                forecast = sensors.step(time, value)

    A row that is refused (late, repeated, a leap of the clock) raises DataError and changes
    nothing. The argument `sensor` of the methods names one of several sensors; each new name begins
    a stream of its own. A slot is one place in the even sequence of times in which the rows of a
    sensor come; a missing row leaves its slot empty.

    Several threads may call one after the other. A call while another one runs, also from a
    signal's handler, raises BusyError and changes nothing. An error or Ctrl-C in the middle of a
    call leaves each row either learned as a whole or not at all.
    """

    called = "Sensors"

    def __init__(
        self,
        stream: Stream,
        false_alarms: float = 1e-4,
        compiled: bool = True,
        fleet: Fleet | None = None,
    ):
        """Serve sensors with an open stream; programs call `Sensors.open` instead.

        A fleet holds the siblings of new sensors. Its stream is closed with this object.
        """
        super().__init__()
        self._stream, rate = stream, _require_rate(false_alarms)
        self._prediction, self._fleet = require_sensors(stream.manifest), fleet
        self._fresh = partial(NamedSensors, stream, self._prediction, rate, fleet)
        # `restore` replaces all sensors as a whole.
        self._all: NamedSensors | CompiledSensors = self._fresh()
        self._refused = {"rules_refused": "compiled is False"}
        if compiled:
            try:
                self._all = CompiledSensors.of(stream, self._prediction, rate, fleet)
                self._refused = {}
            except BackendError as error:
                self._refused = {"rules_refused": str(error)}

    @classmethod
    def open(
        cls,
        bundle: str | FilePath | None = None,
        backend: str = "auto",
        false_alarms: float = 1e-4,
        threads: int = 1,
        engine: EngineOptions | None = None,
        compiled: bool = True,
        siblings: Paths | None = None,
    ) -> Sensors:
        """Open a bundle of the general model.

        Args:
            bundle: The bundle's folder; None opens the model that is installed with the package.
            backend: The name of the backend; see `Stream.open`. "auto" opens one on the CPU, where
                a row takes less time than a GPU takes to launch its steps.
            false_alarms: The share of sound rows that may be alarms, such as 1e-4.
            threads: The number of CPU threads that one step uses.
            engine: Options of the backend; see `Stream.open`.
            compiled: Whether clock, season and alarms run as compiled C where the backend's library
                has them. Python's rules give the same answers to the bit and take longer; the entry
                "rules" of `backend_report` says which ones run.
            siblings: Snapshots of sensors like those that will come, or a folder of them, by which
                new sensors start warm: their first 300 rows are forecast by the states of up to 8
                siblings, too (docs/sensors.md). A new sensor then takes some 0.8 MB more.

        Raises:
            BundleError: There is no bundle, or it holds another model.
            BackendError: The backend does not open.
            SnapshotError: The siblings are missing, too young, damaged or of another bundle.
            ValueRefusedError: `false_alarms` is not a number above 0 and at most 0.1.
        """
        _require_rate(false_alarms)
        path = shipped_bundle() if bundle is None else bundle
        with ExitStack() as opened:
            stream = opened.enter_context(Stream.open(path, backend, threads, engine=engine))
            fleet = None
            if siblings is not None:
                found = read_siblings(siblings, stream.manifest)
                other = Stream.open(path, backend, threads, engine=engine)
                fleet = Fleet(opened.enter_context(other), found)
            sensors = cls(stream, false_alarms, compiled, fleet)
            opened.pop_all()
        return sensors

    def __enter__(self) -> Sensors:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the model; a second call does nothing.

        Raises:
            BackendError: Something could not be released; everything else was.
            BusyError: Another thread's call is running; nothing was released.
        """
        if not self._closed:
            self._release()

    @one_call
    def _release(self) -> None:
        self._closed = "these Sensors were closed; open them again with Sensors.open()."
        with ExitStack() as opened:
            opened.callback(self._stream.close)
            if self._fleet is not None:
                opened.callback(self._fleet.stream.close)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all sensors that have sent a row; "" is the one without a name."""
        return self._all.names

    @property
    def siblings(self) -> tuple[str, ...]:
        """Return the siblings by which new sensors start warm: their snapshots, with their names.

        The tuple is empty if new sensors start cold.
        """
        return () if self._fleet is None else tuple(one.name for one in self._fleet.siblings)

    @property
    def horizons(self) -> tuple[int, ...]:
        """Return how many slots (row intervals) ahead each forecast is, such as (1, 2, 4, 8).

        The forecast for one season ahead is not included.
        """
        return self._prediction.horizons

    @property
    def bundle_hash(self) -> str:
        """Return the SHA-256 of the bundle's manifest, which holds the hashes of its files."""
        return self._stream.manifest.bundle_hash

    @property
    def backend_report(self) -> dict[str, Any]:
        """Return a report that says what runs, and why nothing better does.

        It is that of `Stream`, with "rules": "C", or "Python" and the reason, "rules_refused".
        """
        return {**self._stream.backend_report, "rules": self._all.rules, **self._refused}

    @one_call
    def feed(self, sensor: str = "") -> FeedView:
        """Return the object with a sensor's season (in slots), its pace (in seconds) and notes."""
        self._require_known(sensor)
        return self._all.feed(sensor)

    # One row -------------------------------------------------------------------------------------

    @one_call
    def step(
        self, time: Any, value: float | None, sensor: str = "", dated: bool | None = None
    ) -> Forecast:
        """Score a row by the forecast made before it, learn it, and forecast the slots after it.

        Args:
            time: The row's time: a number, a text with a number or a date, a `datetime`, a
                `numpy.datetime64` or a Timestamp of pandas; None if the rows of this sensor have no
                times and come evenly.
            value: The measured value; None or NaN if it is missing.
            sensor: The sensor's name, if there are several.
            dated: Whether a time that is a number is a date in seconds since 1970. None: it is if
                the first one lies between 1985 and 2128.

        Raises:
            DataError: The row is refused, its value is not a number or is beyond 1e30, or the name
                is not a text; nothing changed, and a name that has had no row before is still
                unknown.
            BackendError, StepRefusedError: The step failed; nothing changed.
            BusyError: Another call is running; nothing changed.
        """
        row = self._take(time, number_of(value), sensor, dated)
        own = [row.mean, *row.quantiles] if row.is_known else NOTHING
        mean, q05, q10, q25, q50, q75, q90, q95 = own
        return Forecast(
            *(mean, q05, q10, q25, q50, q75, q90, q95),
            time=row.time,
            value=row.value,
            log_density=row.log_density,
            p_value=row.p_value,
            alarm=row.alarm,
            event=row.event,
            n_missing=row.n_missing,
            season=row.season,
            since=row.n_since,
            size=row.size,
            _horizons=self.horizons,
            _ahead=self._all.known(sensor),
        )

    def _take(self, time: Any, value: float, sensor: str, dated: bool | None) -> ScoredRow:
        """Score a row and learn it; `step` describes the arguments and errors."""
        _require_text(sensor)
        return self._all.take(time, value, sensor, dated)

    # The slots to come ---------------------------------------------------------------------------

    @one_call
    def ahead(self, horizon: Horizon = 1, sensor: str = "") -> Distribution:
        """Return the forecast for `horizon` slots (row intervals) after the newest row.

        `horizon` is one of `horizons` or "season"; `sensor` is the sensor's name.

        Raises:
            DataError: No row of this sensor has come.
            ValueRefusedError: The horizon is another one; `path` gives those between.
        """
        self._require_known(sensor)
        known = self._all.known(sensor)
        at = place_of(horizon, self.horizons)
        return UNKNOWN if known is None else distribution(known[0][at], known[1][at])

    @one_call
    def path(self, horizon: int, sensor: str = "") -> Path:
        """Forecast the next `horizon` slots (times when rows are due); the state does not change.

        The path goes through the forecasts that the model makes directly, at `horizons` and one
        season ahead. Between two of them it has the shape of the mean of the last seasons, and what
        the forecasts are above that is interpolated. Beyond the farthest the shape goes on.

        Args:
            horizon: How many slots to forecast, from 1 to the longest season of the model.
            sensor: The sensor's name, if there are several.

        Raises:
            DataError: No row of this sensor has come.
            ValueRefusedError: `horizon` is outside this range, or not a whole number.
        """
        most = max(self._prediction.longest_season, NO_SEASON)
        if not (is_whole(horizon) and 1 <= horizon <= most):
            raise ValueRefusedError(
                f"horizon is {horizon!r:.40}; give a whole number of slots from 1 to {most}. A "
                "season has feed(sensor).season slots."
            )
        self._require_known(sensor)
        return self._all.path(sensor, int(horizon))

    # As river's forecasters ----------------------------------------------------------------------

    def learn_one(self, value: float | None, time: Any = None, sensor: str = "") -> Sensors:
        """Learn a row, as `step` does, and return this object."""
        self.step(time, value, sensor)
        return self

    def predict_one(self, horizon: int = 1, sensor: str = "") -> float:
        """Return the mean forecast for `horizon` slots (row intervals) after the newest row.

        It is NaN before the first rows.
        """
        if is_whole(horizon) and horizon in self.horizons:
            return self.ahead(horizon, sensor).mean
        return float(self.path(horizon, sensor).mean[-1])

    def forecast(self, horizon: int, sensor: str = "") -> list[float]:
        """Return the mean forecasts of the next `horizon` rows, as river's forecasters do."""
        return [float(mean) for mean in self.path(horizon, sensor).mean]

    # Many rows -----------------------------------------------------------------------------------

    @one_call
    def step_rows(
        self,
        times: Any,
        values: Any,
        sensor: str = "",
        dated: bool | None = None,
        with_ahead: bool = False,
    ) -> ScoredRows:
        """Take many rows of one sensor, as `step` takes each of them; compiled C takes less time.

        Args:
            times: An array of numbers (N,), seconds since 1970 if they are dates; a list of times
                of any kind that `step` takes; or None.
            values: The measured values, (N,) with N >= 1; NaN where one is missing.
            sensor: The sensor's name, if there are several.
            dated: Whether times that are numbers are dates; as for `step`.
            with_ahead: Whether the result has the forecasts of later slots that were made after
                each row.

        Returns:
            The rows as columns. A row that `step` would refuse is in `refused` with its DataError;
            it changed nothing, and the rows after it were taken.

        Raises:
            DataError: There are no values, or as many times as other values; nothing changed.
            BackendError, StepRefusedError: A step failed; the rows before it are learned.
            BusyError: Another call is running; nothing changed.
        """
        _require_text(sensor)
        values = np.asarray(values, np.float64)
        if times is not None and not isinstance(times, list):
            times = np.asarray(times, np.float64)
        if (
            values.ndim != 1
            or not len(values)
            or len(values if times is None else times) != len(values)
        ):
            raise DataError(
                f"step_rows() got values of shape {values.shape} and "
                f"{'no' if times is None else len(times)} times; give one time for each of at "
                "least one value, or None."
            )
        return joined([*row_blocks(self._all, times, values, sensor, dated, with_ahead)])

    @one_call
    def run(self, data: Any, progress: Progress | None = None) -> Any:
        """Take a table of pandas, polars or Arrow, and return the forecast of each row.

        Args:
            data: A Series or DataFrame of pandas or polars, or a Table or column of pyarrow. Its
                times are pandas' index of dates or numbers, else the first column of dates; without
                both, rows come evenly. Each column of numbers is a sensor of that name; a Series is
                the sensor without a name. The rows of one column come before those of the next.
            progress: Function that is called with the numbers of rows that are done and of all
                rows. None writes a line on standard error where that is a terminal.

        Returns:
            A table of the same library. For a Series, a DataFrame (of pandas with the same index)
            with the columns value, mean, q05 to q95, log_density, p_value, alarm and event. For a
            DataFrame, a longer one with the columns series and time before these: all rows of the
            first sensor, then those of the next. Times keep their type and zone. A number that does
            not exist is NaN in pandas and null elsewhere: the first rows have no forecast, and rows
            without a forecast or a value have neither log_density nor p_value. A row that was
            refused has the event `refused`, and a warning says how many there are and why the first
            one was.

        Raises:
            DataError: The data is no such table, has no column of numbers, or goes from new to old.
            BackendError, StepRefusedError: A step failed; the rows before it are learned.
        """
        return run_table(self._all, data, progress)

    @one_call
    def backtest(self, data: Any, skip: int = 0, progress: Progress | None = None) -> Any:
        """Take a table as `run` does, and return how good the forecasts were.

        Each forecast was made before its row came. The rows are learned.

        Args:
            data: The table, as for `run`.
            skip: The number of each sensor's first rows that are learned and not scored.
            progress: As for `run`.

        Returns:
            A table of the same library with a row for each sensor and horizon (`horizons` and
            "season" ahead; as texts in polars and Arrow) and the columns series, horizon, n, mae,
            persistence, ratio, coverage_90 and crps; see
            `edgefold.runtime.sensors.tables.backtest.BacktestScore`. A Series gives no column
            series. A warning says how many rows were refused.

        Raises:
            DataError: As for `run`.
            ValueRefusedError: `skip` is not a whole number of at least 0.
            BackendError, StepRefusedError: A step failed; the rows before it are learned.
        """
        if not (is_whole(skip) and skip >= 0):
            raise ValueRefusedError(
                f"skip is {skip!r:.40}; give a whole number of rows, 0 or more."
            )
        return score_table(self._all, self.horizons, data, skip, progress)

    # Several sensors, and files ------------------------------------------------------------------

    @one_call
    def reset(self) -> None:
        """Forget all sensors; the next row of each begins a stream of its own."""
        self._all = self._all.emptied()

    def _require_known(self, sensor: str) -> None:
        """Refuse a sensor of which no row has come; end first what an interrupted call began."""
        _require_text(sensor)
        if sensor not in self._all:
            listed = ", ".join(map(repr, self.names)) or "none"
            raise DataError(f"no row of a sensor {sensor!r} has come; those that did: {listed}.")

    @one_call
    def save(self, path: str | FilePath) -> None:
        """Write the states of all sensors to one file; raise the errors of `Stream.save`."""
        python = self._all.in_python()
        arrays = python.arrays()
        names = np.frombuffer(json.dumps(python.names).encode(), np.uint8)
        self._stream.save(path, {RECORD: names, **arrays})

    @one_call
    def restore(self, path: str | FilePath) -> None:
        """Go on from a file that `save` wrote; raise the errors of `Stream.restore`.

        After an error, all sensors are as before.
        """
        manifest = self._stream.manifest
        # The state of the stream itself is among those of the sensors, where it is checked.
        extra = read_snapshot(path_of(path), manifest, [t.name for t in manifest.state])[2]
        python = self._fresh()
        python.load(extra, _names_in(extra))
        self._all = self._all.taken_from(python)


def _require_rate(rate: float) -> float:
    """Return a rate of false alarms; raise ValueRefusedError for one that no alarm can have."""
    if not (isinstance(rate, Real) and 0 < rate <= 0.1):
        raise ValueRefusedError(
            f"false_alarms is {rate!r:.40}; give the share of sound rows that may be alarms as a "
            "number above 0 and at most 0.1, such as 1e-4."
        )
    return float(rate)


def _require_text(sensor: object) -> None:
    """Refuse a name that is not a text."""
    if not isinstance(sensor, str):
        raise DataError(
            f"the sensor's name is {sensor!r:.40} of type {type(sensor).__name__}; give a "
            "text, such as 'roof'."
        )


def _names_in(extra: Mapping[str, Array]) -> list[str]:
    """Return the names of the sensors in a snapshot; raise SnapshotError if it holds none."""
    try:
        names = json.loads(extra[RECORD].tobytes())
        if not isinstance(names, list) or len({str(name) for name in names}) != len(names):
            raise ValueError("names are damaged")
        return [str(name) for name in names]
    except (KeyError, ValueError, RecursionError) as error:
        raise SnapshotError(
            f"the snapshot is not of these sensors, or is damaged ({error}); use an older copy, or "
            "start without it."
        ) from None
