"""Predict each row, then update the model with it, without end: the loop behind `edgefold run`.

    row ──> x known before the value ──> query ──> prediction ─┐
     └────> value arrives ─────────────> update                ├──> output row, counters
            every N rows: output to disk, then one snapshot  <─┘

A model of the filtering kind has one step instead: x in, prediction out. A line may hold rows of
several sensors, each with its own state (`edgefold.runtime.loop.streams`).

The snapshot holds the sensors' states and histories, the input's layout and position, the output's
length and the counters, in one file that is replaced as a whole (modules `kept_loop` and
`loop_snapshot`). If the loop is stopped or killed at any moment, the same command continues it and
gives the same output. The module `cli.commands.run` reads the arguments and prints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from edgefold.runtime.errors import DataError, EdgefoldError, PaceError
from edgefold.runtime.loop.alarm import AlarmLines
from edgefold.runtime.loop.arrival import RowAdapter
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.kept_loop import KeptLoop
from edgefold.runtime.loop.known_rows import KnownRows
from edgefold.runtime.loop.loop_snapshot import LoopSnapshot
from edgefold.runtime.loop.streams import LoopStream, LoopStreams
from edgefold.runtime.loop.watcher import LoopWatcher, Refusal, WatchedRow, Watchers
from edgefold.runtime.rows.csv_columns import Columns, Row
from edgefold.runtime.rows.csv_reader import BadRow, MissingRow
from edgefold.runtime.rows.sensor_columns import SensorsRow
from edgefold.runtime.sinks.output_file import OutputFile
from edgefold.runtime.sinks.row_sink import RowSink
from edgefold.runtime.sources.row_source import RowSource
from edgefold.runtime.stream.stream import Stream
from edgefold.runtime.trial.kept_rows import KeptRows
from edgefold.runtime.trial.trial import TAKEN_OVER, Trial, learned
from edgefold.runtime.trial.trial_files import TrialFiles

DAY_S = 86400


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """Holds the settings with which the loop runs.

    Attributes:
        every: Number of lines between two snapshots.
        anomaly_z: A value further than this many standard deviations from its predicted mean is an
            anomaly.
        strict: Whether to stop at the first bad row.
        force: Whether to start over, and overwrite an output and a snapshot that exist.
        next_file: Whether the input may be a file that follows the one in the snapshot.
        tell: Function that gets a sentence for the user.
        source: The name of the source of the rows, which the snapshot states with their numbers
            (`edgefold.runtime.stream.provenance`); "" if their source is unknown.
    """

    every: int = 100
    anomaly_z: float = 4.0
    strict: bool = False
    force: bool = False
    next_file: bool = False
    tell: Callable[[str], None] = lambda sentence: None
    source: str = ""


class PredictionLoop:
    """Predicts and learns the rows of one input, and writes the predictions to one output.

    The input may hold the rows of one sensor or of several.

    Args:
        stream: The open stream, which has received no points.
        adapters: One adapter for each sensor that may come, made by `adapter_for`.
        source: The source of the input's rows.
        output: The output for the rows with their predictions.
        snapshot: The file that keeps the loop for a later run; None keeps nothing.
        options: The loop's settings.
        columns: The columns of an input with several sensors
            (`edgefold.runtime.rows.sensor_columns`); None reads the first adapter's columns, which
            belong to a single sensor.
        alarms: The output for the alarms of the general model of sensors; None for none.
        kept_rows: Keeps the last rows for candidates to come; None keeps none.
        trial: The trial of a candidate, with its files; None without one. A candidate that writes
            other columns raises BundleError.

    Attributes:
        n_without_slot: Number of rows of this run that were refused because their sensor was new
            and there was no memory (slot) for one more.
        full: For each sensor whose state is full, by name: the first line of this run that was not
            learned.
    """

    def __init__(
        self,
        stream: Stream,
        adapters: Sequence[RowAdapter],
        source: RowSource,
        output: RowSink,
        snapshot: Path | None,
        options: LoopOptions,
        columns: Columns | None = None,
        alarms: RowSink | None = None,
        kept_rows: KeptRows | None = None,
        trial: TrialFiles | None = None,
    ):
        self._source, self._output, self._options = source, output, options
        self._columns = adapters[0].columns if columns is None else columns
        sensors = LoopStreams(stream, adapters, options.anomaly_z, columns is not None)
        if trial is not None:
            trial.require_columns(sensors.header)
        settings = {"anomaly_z": options.anomaly_z, **adapters[0].settings}
        file = LoopSnapshot(snapshot, stream, sensors, self._columns, settings)
        self._alarms = OutputFile(None, option="--alarms") if alarms is None else alarms
        self._alarm_lines = AlarmLines(self._alarms.is_json, sensors.are_named)
        self._kept_rows = kept_rows
        self._kept = KeptLoop(
            *(source, output, self._alarms, self._alarm_lines.header, file, sensors),
            *(kept_rows, trial, lambda: self._watcher.saved(), lambda: self._watcher.idle()),
            *(options.tell, self._begin_rows),
        )
        self._n_connections = 0
        self._watcher: LoopWatcher = Watchers()
        self._first_bad = ""
        self.n_without_slot, self.full = 0, dict[str, int]()
        self._mid_line = False  # a part of the present line is counted already

    @property
    def trial(self) -> Trial | None:
        """Return the trial of a candidate; None without one, and once it has taken over."""
        return self._kept.trial

    @property
    def sensors(self) -> LoopStreams:
        """Return all sensors of the model that speaks, each with its counters."""
        return self._kept.sensors

    @property
    def unassigned(self) -> Counters:
        """Return the counts of lines of no sensor; a single sensor counts them itself."""
        return self._kept.unassigned

    @property
    def known(self) -> KnownRows:
        """Return what finds the rows that were learned before."""
        return self._kept.known

    @property
    def resumed(self) -> bool:
        """Return whether rows were processed before this run."""
        return self._kept.resumed

    @property
    def counters(self) -> Counters:
        """Return the counts of all sensors together since the loop's first start."""
        return self._kept.counters

    @property
    def pace_is_known(self) -> bool:
        """Return whether it is known that rows come at the pace that the bundle was trained for.

        Before that, rows are only collected. With several sensors it is always True.
        """
        return self.sensors.are_named or self.sensors.first.adapter.pace_is_known

    @property
    def has_learned(self) -> bool:
        """Return whether any row was accepted since the loop's first start."""
        return any(sensor.counters.rows for sensor in self.sensors.all)

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        watcher: LoopWatcher | None = None,
    ) -> None:
        """Process rows until the input ends or `stop` returns True, and write everything to disk.

        Args:
            stop: Function that returns whether to stop; it is called after each line.
            watcher: Object that is called for each row and line; None for none.

        Raises:
            DataError: The input is not usable, or a row is bad and `strict` is set; the snapshot
                then stands before that row.
            OutputError, SnapshotError: The disk refused, or the files belong to another run.
        """
        self._watcher = watcher or self._watcher
        with closing(self._output), closing(self._alarms):
            self._run(stop)

    def _run(self, stop: Callable[[], bool]) -> None:
        self._kept.resume(self._options.force, self._options.next_file)
        source, since = self._source, 0
        for row in self._until(stop):
            if source.n_connections != self._n_connections:  # a broker may send rows again
                self._n_connections = source.n_connections
                self.known.expect(self.sensors.newest_times)
            self._watcher.taken()
            text = self._process(row)
            self.unassigned.lines = row.line
            source.keep()
            since = 0 if self._write(row, text) else since + 1
            self._watcher.line()
            if self.trial and self.trial.phase == TAKEN_OVER:
                self._kept.take_over()
                since = 0
            if since >= self._options.every or source.wants_snapshot:
                self._kept.save()
                since = 0
            if source.is_live and not source.holds_row:
                self._output.flush()  # the next row may be long in coming
                self._alarms.flush()
        self._kept.save()
        if stop():
            return
        if self.counters.rows:
            if self._kept.is_kept:
                source.require_in_place()
            return
        if self._first_bad:
            raise DataError(
                f"{source.name} has no usable row in {self.unassigned.lines:,} {source.unit}s; the "
                f"first, {self._first_bad}. Give rows of {self._columns.wish}."
            )
        if not self._kept.has_begun:
            raise DataError(
                f"{source.name} holds a header and no rows yet; nothing was written. Run again "
                f"when it holds rows of {self._columns.wish}."
            )

    def _begin_rows(self, sensors: LoopStreams, row: int, n_lines: int) -> None:
        """Let sensors state which rows they learn from now on, if the source is known."""
        if self._options.source:
            column = self._columns.sensor_column
            sensors.begin_rows(self._options.source, row, n_lines, column)

    def _until(self, stop: Callable[[], bool]) -> Iterator[Row | BadRow]:
        """Yield rows until the input ends or `stop` returns True.

        Rows that were already received from a pipe are still yielded after `stop`.
        """
        source = self._source
        try:
            for row in source.rows(self._columns, self._kept.layout, self.unassigned.lines):
                yield row
                if stop() and not source.holds_row:
                    return
        except DataError:
            if source.layout is not None or not stop():
                raise  # stopped before the first line it is no fault

    def _process(self, row: Row | BadRow) -> str:
        """Predict and learn the rows of one line; return the lines for the output, or ""."""
        self._mid_line = False
        return "".join(self._process_part(row.line, name, part) for name, part in _parts(row))

    def _process_part(self, line: int, name: str, part: Row | BadRow) -> str:
        """Predict and learn the row of one sensor; a refused row changes only the counts.

        Args:
            line: The line's number in the input.
            name: The sensor's name; "" for a single sensor.
            part: The sensor's row in this line, or the reason why it is bad.

        Returns:
            The line for the output; "" for a row that was refused or has no value.
        """
        if isinstance(part, MissingRow):
            self._first_bad = self._first_bad or f"{self._source.unit} {line}: {part.reason}"
            for counters in self._all_counters(name):
                counters.missing += 1
            self._mid_line = True
            return ""
        if isinstance(part, BadRow):
            self._refuse(name, line, part.reason, "unreadable")
            return ""
        if self.known.skips(name, part.numbers[0]):
            return ""
        self._kept.begin(self._options.force)
        if self._kept_rows is not None:
            self._kept_rows.add(name, part.numbers)
        own = self._kept.in_service
        trial = self.trial if self.trial and self.trial.is_running else None
        answer = trial.learn(own, name, part) if trial else learned(own, name, part)
        if answer.sensor is None:
            self._refuse_row(name, line, answer.error)
            return ""
        sensor = answer.sensor
        if sensor.counters.not_learned:
            self.full.setdefault(name, line)
        for whose, n in ((name, answer.n_refused), ("", self.unassigned.refused_in_a_row)):
            if n:
                self._watcher.resumed(whose, line, n)
        if sensor.alarm is not None:
            self._alarms.write(self._alarm_lines.text(sensor.alarm))
        self._mid_line, self.unassigned.refused_in_a_row = True, 0
        if self._watcher.wants_rows:
            self._watcher.row(_watched(part, sensor))
        return self.sensors.written(part, sensor, answer.fields or ())

    def _refuse_row(self, name: str, line: int, error: EdgefoldError | None) -> None:
        """Count and report a row that the model refused.

        Raises:
            DataError: The rows of a single sensor come at another pace than the model's.
        """
        if isinstance(error, PaceError):
            if self.sensors.are_named:  # the others go on
                self._refuse(name, line, str(error), "pace")
                return
            self._kept.withdraw()
            raise DataError(f"{self._source.name}: {error}") from None
        has_slot = self.sensors.find(name) is not None
        self.n_without_slot += not has_slot
        reason = f"the row was refused: {str(error).rstrip('.')}"
        self._refuse(name, line, reason, "refused" if has_slot else "no slot")

    def _refuse(self, name: str, line: int, reason: str, kind: Refusal) -> None:
        """Count and report a row that is skipped; with the option `strict` raise DataError.

        Args:
            name: The name of the row's sensor, or "".
            line: The line's number in the input.
            reason: The reason why the row is skipped.
            kind: The kind of reason.
        """
        reason = self._source.reason(name, reason)
        if self._options.strict:
            if not self._mid_line:  # else the last snapshot stands: it knows whole lines alone
                self._kept.save()
            raise DataError(
                f"{self._source.place(line)}: {reason}. Fix or drop it; everything "
                "before it is kept."
            )
        self._first_bad = self._first_bad or f"{self._source.unit} {line}: {reason}"
        for counters in (
            self._all_counters(name) if kind == "unreadable" else (self.counters_of(name),)
        ):
            counters.skip()
        known = name if self.sensors.find(name) else ""
        self._watcher.refused(known, line, reason, kind)

    def counters_of(self, name: str) -> Counters:
        """Return the counts of the sensor of this name, or `unassigned` if it has not come yet."""
        sensor = self.sensors.find(name)
        return sensor.counters if sensor else self.unassigned

    def _all_counters(self, name: str) -> list[Counters]:
        """Return the counts of this sensor in each model that learns; else `unassigned`."""
        trial = self.trial
        models = [self._kept.in_service, *([trial.new] if trial and trial.is_running else [])]
        found = [sensor.counters for model in models if (sensor := model.find(name))]
        return found or [self.unassigned]

    def _write(self, row: Row | BadRow, text: str) -> bool:
        """Write the output's text for one line of the input.

        Returns:
            Whether the output began a new file with this text, for which a snapshot was written.
        """
        if not text:
            return False
        day = self._day_of(row)
        # A wrong pace removes the output, which must not have finished parts before that.
        if not self.pace_is_known or not self._output.is_full(text, day):
            self._output.write(text, day)
            return False
        self._source.require_unchanged()
        self._output.turn(text, day, self._kept.write)
        return True

    def _day_of(self, row: Row | BadRow) -> int | None:
        """Return the day of a row that was written, in days since 1970; None if it has no date."""
        if not self.sensors.first.adapter.is_dated:
            return None
        return next(int(r.numbers[0] // DAY_S) for _, r in _parts(row) if isinstance(r, Row))

    @property
    def columns_by_place(self) -> str:
        """Return which columns were taken by their places, such as "a, b as x1, y1", or ""."""
        names = self._columns.taken_by_place(self._source.layout) if self._source.layout else ()
        return f"{', '.join(names)} as {', '.join(self._columns.defaults)}" if names else ""


def _watched(row: Row, sensor: LoopStream) -> WatchedRow:
    """Describe a row that a sensor has just processed."""
    newest = sensor.adapter.newest_time
    is_timed = newest == newest
    time = row.numbers[0] if is_timed else math.nan
    text = row.texts[0] if is_timed else ""
    return WatchedRow(sensor.name, row.line, time, text, sensor.view(), sensor.alarm, sensor.event)


def _parts(row: Row | BadRow) -> tuple[tuple[str, Row | BadRow], ...]:
    """Return the rows of a line as pairs of a sensor's name and its row.

    The name of a single sensor, or of a line that belongs to no sensor, is "".
    """
    return row.parts if isinstance(row, SensorsRow) else (("", row),)
