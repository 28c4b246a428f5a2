"""Forecast the sensors of one shard after the other: the work of one process.

    rows of the shard ──> each sensor: blocks of rows ──> Sensors ──> forecasts/part-00007.parquet
                                                               ├──> ahead/part-00007.parquet
                                                               └──> counts, incidents, pictures

A sensor is forgotten after its last row, so that memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from socket import gethostname
from typing import Any

import numpy as np

from edgefold.fleets.forecasting.census import Key, KeyNumbers, Shard
from edgefold.fleets.forecasting.part_file import PartFile, SensorNames, part_file
from edgefold.fleets.forecasting.result_files import write_results
from edgefold.fleets.forecasting.sensor_summary import (
    IncidentWalk,
    SensorPicture,
    SensorSummary,
    SummaryCounter,
)
from edgefold.fleets.forecasting.settings import ForecastSettings
from edgefold.fleets.forecasting.shard_result import ShardResult, SummaryFile
from edgefold.fleets.forecasting.shard_rows import (
    LakeTimes,
    RowPart,
    ShardSensor,
    lake_parts,
    read_shard,
)
from edgefold.fleets.forecasting.split_rows import FOLDER, Split, split_parts, write_split
from edgefold.fleets.work.unit import Advance
from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import BackendError
from edgefold.runtime.files import write_atomic
from edgefold.runtime.sensors.forecasts import BAND
from edgefold.runtime.sensors.scored_rows import ScoredRows, joined
from edgefold.runtime.sensors.sensors import Sensors
from edgefold.runtime.sensors.tables.backtest import HorizonScores

STEP_ROWS = 1 << 14
"""Rows of a sensor that are forecast between two reports of progress."""
N_DRAWN, N_MARKED, N_PIECES = 2000, 200, 1024
"""Numbers of last rows, of last alarms, and of pieces of all rows in a picture."""
MOST_KEPT = 4 * N_DRAWN
"""Rows that are kept for the picture, as some of them may be refused."""
FAN_SLOTS, MOST_FAN = 48, 2000
LEAST_DRAWN, N_AFTER = 300, 60
"""Rows of a panel, or two seasons where those are more; rows behind the last alarm, where that is
so old that the last rows do not show it."""
REFUSED = "refused"
SPLIT, JOIN = "all splits", "all shards"
"""Arguments of the units that end the two parts of the work."""


@dataclass(frozen=True, slots=True)
class JobSetup:
    """Holds all that a process needs to forecast shards.

    Attributes:
        settings: What is forecast.
        keys: The names of all sensors, sorted.
        folder: The folder of results.
        names: The names of the units' results, in the order of the shards.
        work: The folder of unfinished work.
        edges: The place of each shard's first sensor, and the number of all sensors.
        splits: The splits of the lake; none if shards read the lake itself.
    """

    settings: ForecastSettings
    keys: tuple[Key, ...]
    folder: Path
    names: tuple[str, ...]
    work: Path
    edges: tuple[int, ...]
    splits: tuple[Split, ...] = ()


def open_job(setup: JobSetup) -> ForecastJob:
    """Make the job of a process; `edgefold.fleets.work` calls this."""
    return ForecastJob(setup)


class ForecastJob:
    """Splits a lake, and forecasts shards; the unit `JOIN` joins the results of all."""

    def __init__(self, setup: JobSetup):
        self._setup, self._stack = setup, ExitStack()
        settings = setup.settings
        lake, choice = settings.lake, settings.choice
        self._names = SensorNames([lake.columns[n] for n in choice.by], choice.names_columns)
        self._times = LakeTimes(lake.columns[choice.time] if choice.time else None)

    @cached_property
    def sensors(self) -> Sensors:
        """Return the model, which is opened for the first shard.

        Raises:
            BackendError: This machine cannot open the backend that the command has opened.
        """
        model = self._setup.settings.model
        try:
            return self._stack.enter_context(model.open())
        except BackendError as error:
            raise BackendError(
                f"{gethostname()} cannot open the backend {model.backend} for the sensors "
                f"({error}). Results of another one would differ in their last digits: run "
                "`edgefold build sensors` on every machine of the cluster, or give --backend "
                "onnxruntime."
            ) from error

    def close(self) -> None:
        """Release the model."""
        self._stack.close()

    def run(self, argument: Shard | Split | str, place: Path, advance: Advance) -> None:
        """Do a unit's work; `place` is its result."""
        setup = self._setup
        if argument == SPLIT:
            write_atomic(place, b"all rows are split")
        elif isinstance(argument, Split):
            lake, choice = setup.settings.lake, setup.settings.choice
            numbers = KeyNumbers(choice.by, {key: at for at, key in enumerate(setup.keys)})
            write_split(setup.work / FOLDER, lake, choice, argument, numbers, setup.edges)
            write_atomic(place, b"split")
        elif isinstance(argument, Shard):
            SummaryFile.write(place, self._forecast(argument, advance))
        else:
            results = (SummaryFile.read(place.parent / name) for name in setup.names)
            joined = write_results(setup.folder, setup.settings, setup.keys, results)
            SummaryFile.write(place, joined)

    def _parts(self, shard: Shard) -> Iterator[RowPart]:
        """Read the rows of a shard, from the splits or from the lake itself."""
        setup = self._setup
        lake, choice = setup.settings.lake, setup.settings.choice
        if setup.splits:
            n = len(choice.values)
            return split_parts(setup.work / FOLDER, setup.splits, shard, n)
        own = enumerate(setup.keys[shard.start : shard.stop], shard.start)
        numbers = KeyNumbers(choice.by, {key: at for at, key in own})
        return lake_parts(lake, choice, shard.sources, numbers)

    def _forecast(self, shard: Shard, advance: Advance) -> ShardResult:
        settings, folder = self._setup.settings, self._setup.folder
        name, result = f"part-{shard.number:05}.parquet", ShardResult()
        with ExitStack() as stack:
            forecasts = stack.enter_context(
                part_file(folder / "forecasts" / name, self._names, self._fields())
            )
            ahead = None
            if settings.with_ahead:
                ahead = stack.enter_context(
                    part_file(folder / "ahead" / name, self._names, self._ahead_fields())
                )
            sensors = read_shard(self._parts(shard), settings.choice, shard)
            for columns in sensors:
                for column, values in zip(settings.choice.values, columns.values, strict=True):
                    run = _SensorRun(self, columns, column, values)
                    run.forecast(forecasts, ahead, advance)
                    run.finish(result)
        return result

    def _fields(self) -> list[Any]:
        """Return the columns of forecasts behind those of the names."""
        import pyarrow as pa

        numbers = ("value", *BAND, "log_density", "p_value")
        return [
            pa.field("time", self._times.type),
            *(pa.field(name, pa.float64()) for name in numbers),
            pa.field("alarm", pa.bool_()),
            pa.field("event", pa.dictionary(pa.int8(), pa.string())),
        ]

    def _ahead_fields(self) -> list[Any]:
        """Return the columns of forecasts of later rows behind those of the names."""
        import pyarrow as pa

        return [
            pa.field("made_at", self._times.type),
            pa.field("slots_ahead", pa.int32()),
            pa.field("time", self._times.type),
            *(pa.field(name, pa.float64()) for name in BAND),
        ]


class _SensorRun:
    """Forecasts all rows of one sensor."""

    def __init__(self, job: ForecastJob, columns: ShardSensor, column: str, values: FloatArray):
        setup = job._setup
        self._sensors, self._times, self._settings = job.sensors, job._times, setup.settings
        self._columns, self._column, self._values = columns, column, values
        self._key = setup.keys[columns.place]
        self._name = "/".join(job._names.texts(self._key, column))
        self._last: list[ScoredRows] = []  # at least `N_DRAWN` rows, or all
        self._around: list[ScoredRows] = []  # the blocks around the last alarm; none without one
        self._alarm_row = 0
        self._alarms: list[tuple[float, float]] = []
        self._taken = np.ones(len(values), np.bool_)
        self._incidents = IncidentWalk(self._name)
        self._counter = SummaryCounter(columns.place, column)
        scored = self._settings.with_scores
        self._scores = HorizonScores(self._sensors.horizons) if scored else None

    @property
    def _summary(self) -> SensorSummary:
        return self._counter.summary

    def forecast(self, to: PartFile, ahead_to: PartFile | None, advance: Advance) -> None:
        """Forecast the rows, and write them."""
        self._sensors.reset()
        ticks, n = self._columns.ticks, len(self._values)
        seconds = None if ticks is None else self._times.seconds(ticks)
        with_ahead = ahead_to is not None or self._scores is not None
        for start in range(0, n, STEP_ROWS):
            own = slice(start, min(start + STEP_ROWS, n))
            rows = self._sensors.step_rows(
                None if seconds is None else seconds[own],
                self._values[own],
                dated=self._times.dated,
                with_ahead=with_ahead,
            )
            at = np.arange(own.start, own.stop) if ticks is None else ticks[own]
            to.add(self._key, self._column, self._table(rows, at))
            if ahead_to is not None:
                ahead_to.add(self._key, self._column, self._ahead_table(rows, at))
            if self._scores is not None:
                self._scores.add(rows, max(self._settings.n_skipped - start, 0))
            self._keep(rows, start)
            advance(len(rows))

    def _keep(self, rows: ScoredRows, start: int) -> None:
        """Count the rows from number `start` on, and keep what a picture may show of them."""
        self._counter.add(rows)
        self._incidents.add(rows)
        self._taken[start : start + len(rows)] = rows.taken
        alarms = np.flatnonzero(rows.is_alarm)
        marks = zip(rows.times[alarms].tolist(), rows.values[alarms].tolist(), strict=True)
        self._alarms = [*self._alarms, *marks][-N_MARKED:]
        block = replace(rows, ahead=None)
        if len(alarms):
            self._around, self._alarm_row = [*self._last, block], start + int(alarms[-1])
        elif self._around and self._alarm_row + N_AFTER >= start:
            self._around.append(block)
        self._last.append(block)
        while len(self._last) > 1 and sum(map(len, self._last[1:])) >= MOST_KEPT:
            del self._last[0]

    def _table(self, rows: ScoredRows, ticks: Array) -> dict[str, Any]:
        import pyarrow as pa

        scored = rows.is_scored
        words = [*rows.words[1:], REFUSED]
        codes = (rows.event_numbers - 1).astype(np.int8)
        codes[[*rows.refused]] = len(words) - 1
        used = sorted({*codes.tolist()} - {-1})
        places = np.full(len(words) + 1, -1, np.int8)
        places[used] = np.arange(len(used))
        codes = places[codes]
        events = pa.DictionaryArray.from_arrays(
            pa.array(codes, mask=codes < 0), pa.array([words[at] for at in used], pa.string())
        )
        return {
            "time": self._times.array(ticks),
            "value": rows.values,
            **dict(zip(BAND, rows.forecasts.T, strict=True)),
            "log_density": np.where(scored, rows.column("log_density"), np.nan),
            "p_value": np.where(scored, rows.column("p_value"), np.nan),
            "alarm": rows.is_alarm,
            "event": events,
        }

    def _ahead_table(self, rows: ScoredRows, ticks: Array) -> dict[str, Any]:
        """Return a line for each horizon of each row, and one for a season ahead."""
        assert rows.ahead is not None
        horizons = self._sensors.horizons
        steps = np.tile([*horizons, 0], (len(rows), 1))
        seasons = np.nan_to_num(rows.column("season")).astype(np.int64)
        steps[:, -1] = np.where(np.isin(seasons, horizons), 0, seasons)
        order = np.argsort(steps, axis=1, kind="stable")
        lines = np.arange(len(rows))[:, None]
        steps = steps[lines, order]
        is_line = (steps > 0) & rows.ahead.is_known[:, None]
        band = np.concatenate([rows.ahead.means[:, :, None], rows.ahead.quantiles], axis=2)
        made, at = np.repeat(lines, steps.shape[1], axis=1)[is_line], steps[is_line]
        later = rows.times[made] + at * rows.ahead.paces[made]
        return {
            "made_at": self._times.array(ticks[made]),
            "slots_ahead": at.astype(np.int32),
            "time": self._times.array_of_seconds(later),
            **dict(zip(BAND, band[lines, order][is_line].T, strict=True)),
        }

    def finish(self, result: ShardResult) -> None:
        """Add what came of the sensor to the result of the shard."""
        own, columns, n = self._summary, self._columns, len(self._values)
        own.n_moved, own.n_timeless = columns.n_moved, columns.n_timeless
        own.n_rows += own.n_timeless
        if n and self._sensors.names:
            feed = self._sensors.feed()
            own.pace, own.season, own.season_name = feed.pace, feed.season, feed.season_name
            own.is_irregular = feed.is_irregular
        if n:
            ends = np.array([0, n - 1]) if columns.ticks is None else columns.ticks[[0, -1]]
            own.first, own.last = ends.tolist()
        result.summaries.append(own)
        for incident in self._incidents.end():
            for name in ("begin", "alarmed", "end"):
                row = getattr(incident, name)
                setattr(incident, name, self._text(int(row)) if row else "")
            result.incidents.append((own.place, own.column, incident.fields))
        if self._scores is not None:
            for horizon, score in self._scores.result():
                result.scores.append((own.place, own.column, str(horizon), *score))
        result.keep_worst(own.rank, self._picture)

    def _text(self, row: int) -> str:
        ticks = self._columns.ticks
        if ticks is None:
            return str(row)
        return self._times.written(self._times.array(ticks[row : row + 1]))[0]

    def _picture(self) -> SensorPicture | None:
        """Return what a picture shows of the sensor; None if none of its rows was taken."""
        if not self._sensors.names:
            return None
        own, rows = self._summary, joined(self._last)
        shown = np.flatnonzero(rows.taken)[-N_DRAWN:]
        path = self._sensors.path(max(min(own.season, MOST_FAN), FAN_SLOTS))
        fan = np.column_stack([path.mean, path.quantiles])
        n_drawn = max(LEAST_DRAWN, 2 * own.season)
        if self._around and not rows.is_alarm[shown[-n_drawn:]].any():
            rows = joined(self._around)
            shown = np.flatnonzero(rows.taken)
            last = int(np.flatnonzero(rows.is_alarm[shown])[-1])
            shown = shown[: last + 1 + N_AFTER][-N_DRAWN:]
            fan[:] = np.nan  # it follows the last row, which is not shown
        ticks, taken = self._columns.ticks, self._taken
        times = np.arange(len(taken), dtype=float) if ticks is None else self._times.seconds(ticks)
        return SensorPicture(
            own,
            rows.times[shown],
            rows.values[shown],
            rows.forecasts[shown],
            rows.event_numbers[shown],
            rows.is_alarm[shown],
            rows.column("n_missing")[shown].astype(np.int64),
            _pieces(times[taken], self._values[taken]),
            np.array(self._alarms).reshape(-1, 2).T,
            fan,
            self._counter.n_below / own.n_scored if own.n_scored else np.full(7, np.nan),
        )


def _pieces(times: FloatArray, values: FloatArray) -> FloatArray:
    """Return the course of n rows in at most `N_PIECES` pieces; see `SensorPicture`."""
    width = -(-len(times) // N_PIECES)
    edges = np.arange(0, len(times), width)
    low, high = (f.reduceat(values, edges) for f in (np.fmin, np.fmax))
    return np.stack([times[edges], low, high])
