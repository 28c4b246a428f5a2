"""Any sensor, no training: one general model serves each stream from its first row.

    (time, value) ──> slots: missing ones, then the row ──> model ──> forecast ──> alarm
                      (SensorFeed)                         (Stream)               (Watch)

Several sensors share one opened bundle; each has a clock, a season and a state of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.errors import DataError, ValueRefusedError
from edgefold.runtime.predictions import Prediction
from edgefold.runtime.predictions.sensor_forecast import SENSOR_LEVELS, is_scored
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.clock.row_clock import SensorFeed
from edgefold.runtime.sensors.forecasts import (
    FIRST_SLOTS,
    FIRST_VALUES,
    NO_SEASON,
    UNKNOWN,
    Distribution,
    Forecast,
    Horizon,
    Path,
    distribution,
    path_on,
    path_through,
    place_of,
    require_sensors,
)
from edgefold.runtime.sensors.pandas_tables import run_frame
from edgefold.runtime.sensors.season_ahead import SeasonAhead
from edgefold.runtime.sensors.sensor import MOST_SENSORS, Sensor
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.runtime.sensors.snapshot import arrays_of, sensors_of
from edgefold.runtime.sensors.time_parsing import kind_of, number_of, seconds_of
from edgefold.runtime.stream.state_slots import StateSlots
from edgefold.runtime.stream.stream import Stream


class Sensors:
    """The general model of sensors, opened. Use as a context manager, or call `close`.

        with Sensors.open() as sensors:
            for time, value in rows:
                forecast = sensors.step(time, value)

    A row that is refused (late, repeated, a leap of the clock) raises DataError and changes
    nothing. `sensor` names one of several sensors; each name begins a stream of its own.
    """

    def __init__(self, stream: Stream, false_alarms: float = 1e-4):
        """Use `Sensors.open`."""
        self._stream, self._rate = stream, false_alarms
        self._prediction = require_sensors(stream.manifest)
        self._all: dict[str, Sensor] = {}
        self._present = ""
        self._spare = StateSlots(stream.manifest, 1)

    @classmethod
    def open(
        cls,
        bundle: str | FilePath | None = None,
        backend: str = "auto",
        false_alarms: float = 1e-4,
        threads: int = 1,
        engine: EngineOptions | None = None,
    ) -> Sensors:
        """Open a bundle of the general model.

        Args:
            bundle: A folder; by default the model that the installation brings.
            backend: As of `Stream.open`.
            false_alarms: The share of sound rows that may be alarms, such as 1e-4.
            threads: CPU threads of one step.
            engine: As of `Stream.open`.

        Raises:
            BundleError: There is none, or it is of another model.
            BackendError: The backend does not open.
            ValueRefusedError: `false_alarms` is not above 0 and at most 0.1.
        """
        if not 0 < false_alarms <= 0.1:
            raise ValueRefusedError(f"false_alarms is {false_alarms}; give a share such as 1e-4.")
        path = shipped_bundle() if bundle is None else bundle
        stream = Stream.open(path, backend, threads, engine=engine)
        try:
            return cls(stream, false_alarms)
        except BaseException:
            stream.close()
            raise

    def __enter__(self) -> Sensors:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the model; idempotent."""
        self._stream.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The sensors that have come; "" is the one that needs no name."""
        return tuple(self._all)

    @property
    def horizons(self) -> tuple[int, ...]:
        """Slots that each row is forecast ahead, but for the season."""
        return self._prediction.horizons

    @property
    def backend_report(self) -> dict[str, Any]:
        """What runs, and why better backends do not."""
        return self._stream.backend_report

    def feed(self, sensor: str = "") -> SensorFeed:
        """A sensor's clock: its `season` in slots, its `pace` in seconds, and `notes`."""
        return self._known(sensor).feed

    # One row -------------------------------------------------------------------------------------

    def step(
        self, time: Any, value: float | None, sensor: str = "", dated: bool | None = None
    ) -> Forecast:
        """Score a row by the forecast made before it, learn it, and forecast what follows.

        Args:
            time: Seconds, `datetime`, `numpy.datetime64`, pandas' Timestamp; None where the rows of
                this sensor have no times and come evenly.
            value: None or NaN where it is missing.
            sensor: A name, where there are several.
            dated: Whether a number is a date in seconds since 1970; by default where the first one
                lies between 1985 and 2128.

        Raises:
            DataError: The row is refused, or its value is no number or beyond 1e30; nothing
                changed, and a name that has had no row before is not known.
            BackendError, StepRefusedError: The step failed; nothing changed.
        """
        number = number_of(value)
        known = self._all.get(sensor) or self._new()
        kind = known.kind or kind_of(time, dated)
        seconds = seconds_of(time, kind, known.n_rows)
        rows = known.feed.rows(seconds, number, kind == "dates")
        self._turn_to(sensor, known)
        n_before = self._stream.n_points
        with self._whole(len(rows)):
            for row in rows[:-1]:
                self._keep_season(known, self._stream.step(row), int(row[2]))
            answer = self._stream.step(rows[-1])
        known.feed.commit()
        is_known = n_before + len(rows) > FIRST_SLOTS and known.n_values >= FIRST_VALUES
        known.kind = kind
        return self._judged(known, answer, (seconds, number), rows[-1], is_known)

    def _judged(
        self,
        known: Sensor,
        answer: Prediction,
        row: tuple[float, float],
        x: FloatArray,
        is_known: bool,
    ) -> Forecast:
        """Judge a row (time, value) that was learned, and keep what is forecast of the next."""
        (time, value), n_missing, season = row, known.feed.n_missing, int(x[2])
        quantiles = answer.quantiles[0]
        log_density, p_value = float(answer.log_density[0, 0]), float(answer.p_value[0, 0])
        verdict = known.watch.see(value, p_value, quantiles.tolist(), log_density, n_missing)
        known.n_rows += 1
        if not math.isnan(value):
            known.n_values, known.newest = known.n_values + 1, value
        known.ahead_mean[:] = answer.ahead_mean[0]
        known.ahead_quantiles[:] = answer.ahead_quantiles[0]
        known.following[2:] = season, (x[3] + 1) % max(season, 1)
        if not math.isnan(value):
            is_known = is_scored(log_density, p_value)
        self._keep_season(known, answer, season)
        own = distribution(answer.mean[0, 0], quantiles, is_known)
        return Forecast(
            *(own.mean, own.q05, own.q10, own.q25, own.q50, own.q75, own.q90, own.q95),
            time=time,
            value=value,
            log_density=log_density,
            p_value=p_value,
            alarm=bool(verdict.alarm),
            event=verdict.event,
            n_missing=n_missing,
            season=season,
            _horizons=self.horizons,
            _ahead=self._ahead(known),
        )

    def _ahead(self, known: Sensor) -> tuple[FloatArray, FloatArray] | None:
        """What is forecast of the slots to come; None where nothing is yet."""
        if self._stream.n_points < FIRST_SLOTS or known.n_values < FIRST_VALUES:
            return None
        return known.ahead_mean.copy(), known.ahead_quantiles.copy()

    def _keep_season(self, known: Sensor, answer: Prediction, season: int) -> None:
        """Keep what an answer forecasts of the slot one season later."""
        if season and self._stream.n_points >= FIRST_SLOTS:
            mean, quantiles = answer.ahead_mean[0, -1], answer.ahead_quantiles[0, -1]
            known.season_ahead.keep(self._stream.n_points + season, mean, quantiles)

    @contextmanager
    def _whole(self, n: int) -> Iterator[None]:
        """Make several steps one: where one fails, the state is as before the first."""
        if n > 1:
            self._stream.take(self._spare, 0)
        try:
            yield
        except BaseException:
            if n > 1:
                self._stream.put(self._spare, 0)
            raise

    # The slots to come ---------------------------------------------------------------------------

    def ahead(self, horizon: Horizon = 1, sensor: str = "") -> Distribution:
        """What is forecast of the slot so many slots after the newest row, as `Forecast.ahead`."""
        found = self._ahead(self._turn_to(sensor, self._known(sensor)))
        at = place_of(horizon, self.horizons)
        return UNKNOWN if found is None else distribution(found[0][at], found[1][at])

    def path(self, horizon: int, sensor: str = "") -> Path:
        """Forecast each of the next slots; the state is not changed.

        The model goes on by its own forecasts for 16 slots, and is led through those that it makes
        of 1, 4 and 16 slots ahead. What follows is what it forecast of those slots one season
        before, shifted at first by what it has learned since. Beyond a season that repeats.

        Args:
            horizon: How many, from 1 to the longest season of the model.
            sensor: A name, where there are several.

        Raises:
            ValueRefusedError: Another horizon.
        """
        most = max(self._prediction.longest_season, NO_SEASON)
        if not 1 <= horizon <= most:
            raise ValueRefusedError(f"horizon is {horizon}; give a number of slots up to {most}.")
        known = self._turn_to(sensor, self._known(sensor))
        if self._ahead(known) is None:
            nothing = np.full(horizon, math.nan)
            return Path(nothing, np.full((horizon, len(SENSOR_LEVELS)), math.nan))
        near, season = self.horizons[-1], int(known.following[2])
        seasonal = None
        if near < season:
            seasonal = known.season_ahead.find(self._stream.n_points + 1, season)
        rolled = self._roll_on(known, horizon if seasonal is None else near)
        ahead = {h: i for i, h in enumerate((*self.horizons, season or NO_SEASON))}
        slots = sorted(ahead)
        places = [ahead[slot] for slot in slots]
        means, quantiles = known.ahead_mean[places], known.ahead_quantiles[places]
        path = path_through(rolled, tuple(slots), means, quantiles)
        return path if seasonal is None else path_on(path, seasonal, horizon)

    def _roll_on(self, known: Sensor, n: int) -> FloatArray:
        """The means of the next slots, each made as if those before it had come as forecast."""
        rolled, row, stream = np.empty(n), known.following.copy(), self._stream
        stream.take(self._spare, 0)
        try:
            for i in range(n):
                rolled[i] = stream.step(row).mean[0, 0]
                row[3] = (row[3] + 1) % max(row[2], 1)
        finally:
            stream.put(self._spare, 0)
        return rolled

    # As river's forecasters ----------------------------------------------------------------------

    def learn_one(self, value: float | None, time: Any = None, sensor: str = "") -> Sensors:
        """Learn a row, as `step` does; returns this object."""
        self.step(time, value, sensor)
        return self

    def predict_one(self, horizon: int = 1, sensor: str = "") -> float:
        """The mean of the slot `horizon` slots after the newest row; NaN before the first rows."""
        if horizon in self.horizons:
            return self.ahead(horizon, sensor).mean
        return float(self.path(horizon, sensor).mean[-1])

    def forecast(self, horizon: int, sensor: str = "") -> list[float]:
        """The means of the next slots, as river's forecasters give them."""
        return [float(mean) for mean in self.path(horizon, sensor).mean]

    # Tables of pandas ----------------------------------------------------------------------------

    def run(self, data: Any) -> Any:
        """Take a Series or a DataFrame of pandas, row by row; returns a DataFrame.

        Args:
            data: Its index of dates or numbers is the clock, else its first column of dates; rows
                of neither come evenly. Each column of numbers is a sensor of its name; of a Series
                it is the sensor without a name.

        Returns:
            Columns time, value, mean, q05 to q95, log_density, p_value, alarm and event. Of a
            DataFrame a row for each sensor of each row, with a column `series` first. The event of
            a row that was refused is `refused`.

        Raises:
            DataError: The data is not of pandas, or has no column of numbers.
        """
        return run_frame(self.step, data)

    # Several sensors, and files ------------------------------------------------------------------

    def _known(self, sensor: str) -> Sensor:
        if sensor not in self._all:
            listed = ", ".join(map(repr, self._all)) or "none"
            raise DataError(f"no row of a sensor {sensor!r} has come; those that did: {listed}.")
        return self._all[sensor]

    def _turn_to(self, name: str, known: Sensor) -> Sensor:
        """Make a sensor's state the stream's present one; a new sensor begins with an empty one."""
        is_new = name not in self._all
        if name == self._present and not is_new:
            return known
        if is_new and len(self._all) == MOST_SENSORS:
            raise DataError(f"there are {MOST_SENSORS:,} sensors already; is it a name at all?")
        if self._all:
            before = self._all[self._present]
            before.slots = before.slots or StateSlots(self._stream.manifest, 1)
            self._stream.take(before.slots, 0)
        if known.slots is None:
            self._stream.reset()
        else:
            self._stream.put(known.slots, 0)
        self._all[name], self._present = known, name
        return known

    def _new(self) -> Sensor:
        n, n_levels = len(self.horizons) + 1, len(SENSOR_LEVELS)
        longest = self._prediction.longest_season
        return Sensor(
            SensorFeed(longest),
            Watch(self._rate),
            np.zeros(n),
            np.zeros((n, n_levels)),
            SeasonAhead(longest, n_levels),
        )

    def save(self, path: str | FilePath) -> None:
        """Write all that is kept of all sensors, as one file; raises as `Stream.save` does."""
        if self._all:
            present = self._all[self._present]
            present.slots = present.slots or StateSlots(self._stream.manifest, 1)
            self._stream.take(present.slots, 0)
        self._stream.save(path, arrays_of(self._all, self._present))

    def restore(self, path: str | FilePath) -> None:
        """Go on from a file of `save`; raises as `Stream.restore` does, and nothing changes."""
        slots = StateSlots(self._stream.manifest, 1)
        self._stream.take(slots, 0)
        extra = self._stream.restore(path)
        try:
            self._all, self._present = sensors_of(extra, self._stream.manifest, self._new)
        except BaseException:
            self._stream.put(slots, 0)
            raise
