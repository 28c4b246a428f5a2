"""Predict, then update, row by row, without end: the loop behind `edgefold run`.

    row ──> x known before the value ──> query ──> prediction ─┐
     └────> value arrives ─────────────> update                ├──> output row, counters
            every N rows: output to disk, then one snapshot  <─┘

A model of the filtering kind has one step instead: x in, prediction out. A line may bring rows of
several sensors, each with a state of its own (`edgefold.runtime.loop.streams`).

The snapshot holds the sensors' states and histories, the input's layout and position, the output's
length and the counters, in one atomic file (`edgefold.runtime.loop.record`). Stopped or killed at
any moment, the same loop resumes and gives the same output. Arguments and printing are elsewhere
(`cli.commands.run`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgefold.runtime.errors import (
    DataError,
    OutputError,
    PaceError,
    SnapshotError,
    StepRefusedError,
    ValueRefusedError,
)
from edgefold.runtime.loop.arrival import RowAdapter
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.output_file import OutputFile, explain_existing
from edgefold.runtime.loop.record import DAMAGE, RECORD, LoopRecord, read_record
from edgefold.runtime.loop.row_source import RowSource
from edgefold.runtime.loop.streams import LoopStreams
from edgefold.runtime.rows.csv_columns import Columns, Layout, Row
from edgefold.runtime.rows.csv_fields import plain
from edgefold.runtime.rows.csv_reader import BadRow, MissingRow
from edgefold.runtime.rows.sensor_columns import SensorsRow
from edgefold.runtime.stream.snapshot import EXTRA_BYTES
from edgefold.runtime.stream.stream import Stream

DAY_S = 86400


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """How the loop runs.

    Attributes:
        every: Lines between two snapshots.
        anomaly_z: A value further than this many standard deviations from its mean is an anomaly.
        strict: Stop at the first malformed row.
        force: Start over, over an output and a snapshot that exist.
        next_file: Go on with a file that follows the one that the snapshot was made of.
    """

    every: int = 100
    anomaly_z: float = 4.0
    strict: bool = False
    force: bool = False
    next_file: bool = False


OnBad = Callable[[str, int, str], None]
OnEnd = Callable[[str, int, int], None]


class PredictionLoop:
    """One input, one stream, one output; one sensor or several.

    Args:
        stream: Opened, and empty unless the snapshot exists.
        adapters: From `adapter_for`, one for each sensor that may come.
        source: The input's rows.
        output: Where rows go.
        snapshot: File to keep the loop in, or None.
        options: See there.
        columns: Where several sensors are in a line (`edgefold.runtime.rows.sensor_columns`); None
            for the adapter's own, which are of a single sensor.

    Attributes:
        sensors: Each with its counters.
        unassigned: Counts of lines that belong to no sensor; one that is alone counts them itself.
        n_without_slot: Rows of this run whose sensor came when every slot was taken.
        full: The first line of this run that was not learned, by the name of a full sensor.
        resumed: Whether rows were processed before this run.
    """

    def __init__(
        self,
        stream: Stream,
        adapters: Sequence[RowAdapter],
        source: RowSource,
        output: OutputFile,
        snapshot: Path | None,
        options: LoopOptions,
        columns: Columns | None = None,
    ):
        self._stream, self._source = stream, source
        self._output, self._snapshot, self._options = output, snapshot, options
        self._columns = adapters[0].columns if columns is None else columns
        self.sensors = LoopStreams(stream, adapters, options.anomaly_z, columns is not None)
        self._layout: Layout | None = None  # of the input, as the snapshot keeps it
        self._begun = False
        self.resumed = False
        self._on_bad: OnBad = lambda name, line, reason: None
        self._on_end: OnEnd = lambda name, line, n_refused: None
        self._first_bad = ""
        self.n_without_slot, self.full = 0, dict[str, int]()
        self._mid_line = False  # a part of the present line is counted already
        n_errors = self.sensors.first.columns.n_errors
        self.unassigned = Counters(squared_error=[0.0] * n_errors)

    @property
    def counters(self) -> Counters:
        """Counts over every restart, of all sensors together."""
        return self.unassigned.plus(sensor.counters for sensor in self.sensors.all)

    @property
    def pace_is_known(self) -> bool:
        """Whether rows come as the bundle was trained for; before that they are only collected."""
        return self.sensors.are_named or self.sensors.first.adapter.pace_is_known

    @property
    def has_learned(self) -> bool:
        """Whether any row was ever taken."""
        return any(sensor.counters.rows for sensor in self.sensors.all)

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_bad: OnBad = lambda name, line, reason: None,
        on_row: Callable[[], None] = lambda: None,
        on_end: OnEnd = lambda name, line, n_refused: None,
    ) -> None:
        """Run until the input ends or `stop` says so, and leave everything on disk.

        Args:
            stop: Asked after each row.
            on_bad: Called with each malformed row's sensor, line and reason; the name is empty
                where the loop has one sensor, or the row belongs to none.
            on_row: Called after each line.
            on_end: Called with a good row's sensor and line after refused ones, and their number.

        Raises:
            DataError: No usable input, or a malformed row with `strict`; the snapshot then stands
                before that row.
            OutputError, SnapshotError: The disk refused, or the files belong to another run.
        """
        self._on_bad, self._on_end = on_bad, on_end
        try:
            self._run(stop, on_row)
        finally:
            self._output.close()

    def _run(self, stop: Callable[[], bool], on_row: Callable[[], None]) -> None:
        self._require_room()
        self._resume()
        source, since = self._source, 0
        for row in self._until(stop):
            text = self._process(row)
            self.unassigned.lines = row.line
            source.keep()
            since = 0 if self._write(row, text) else since + 1
            on_row()
            if since >= self._options.every:
                self._save()
                since = 0
            if source.is_live and not source.holds_row:
                self._output.flush()  # the next row may be long in coming
        self._save()
        if stop():
            return
        if self.counters.rows:
            if self._snapshot is not None:
                source.require_in_place()
            return
        if self._first_bad:
            raise DataError(
                f"{source.name} has no usable row in {self.unassigned.lines:,} lines; the first, "
                f"{self._first_bad}. Give rows of {self._columns.wish}."
            )
        if not self._begun:
            raise DataError(
                f"{source.name} holds a header and no rows yet; nothing was written. Run again "
                f"when it holds rows of {self._columns.wish}."
            )

    def _until(self, stop: Callable[[], bool]) -> Iterator[Row | BadRow]:
        """Yield rows until the end or `stop`; what a pipe has already given is finished first."""
        source = self._source
        try:
            for row in source.rows(self._columns, self._layout, self.unassigned.lines):
                yield row
                if stop() and not source.holds_row:
                    return
        except DataError:
            if source.layout is not None or not stop():
                raise  # stopped before the first line it is no fault

    def _process(self, row: Row | BadRow) -> str:
        """Predict and update with a line; returns its rows of the output."""
        self._mid_line = False
        return "".join(self._process_part(row.line, name, part) for name, part in _parts(row))

    def _process_part(self, line: int, name: str, part: Row | BadRow) -> str:
        """Predict and update with a sensor's row; one that is refused changes nothing."""
        if isinstance(part, MissingRow):
            self._first_bad = self._first_bad or f"line {line}: {part.reason}"
            self.counters_of(name).missing += 1
            self._mid_line = True
            return ""
        if isinstance(part, BadRow):
            self._refuse(name, line, part.reason)
            return ""
        self._begin()
        try:
            sensor = self.sensors.turn_to(name)
            n_refused = sensor.counters.refused_in_a_row
            fields = sensor.process(part)
        except PaceError as error:
            if self.sensors.are_named:  # the others go on
                self._refuse(name, line, str(error))
                return ""
            self._withdraw()
            raise DataError(f"{self._source.name}: {error}") from None
        except (DataError, ValueRefusedError, StepRefusedError) as error:
            self.n_without_slot += self.sensors.find(name) is None
            self._refuse(name, line, f"the row was refused: {str(error).rstrip('.')}")
            return ""
        if sensor.counters.not_learned:
            self.full.setdefault(name, line)
        for whose, n in ((name, n_refused), ("", self.unassigned.refused_in_a_row)):
            if n:
                self._on_end(whose, line, n)
        self._mid_line, self.unassigned.refused_in_a_row = True, 0
        return self.sensors.written(part, sensor, fields)

    def _refuse(self, name: str, line: int, reason: str) -> None:
        """Count and report a row that is skipped; name: of its sensor, if it has one."""
        reason = f"stream {plain(name)}: {reason}" if name else reason
        if self._options.strict:
            if not self._mid_line:  # else the last snapshot stands: it knows whole lines alone
                self._save()
            raise DataError(
                f"{self._source.name}, line {line}: {reason}. Fix or drop it; everything "
                "before it is kept."
            )
        self._first_bad = self._first_bad or f"line {line}: {reason}"
        self.counters_of(name).skip()
        self._on_bad(name if self.sensors.find(name) else "", line, reason)

    def counters_of(self, name: str) -> Counters:
        """Return the counts of a sensor; of the rows that belong to none if it is not known."""
        sensor = self.sensors.find(name)
        return sensor.counters if sensor else self.unassigned

    def _write(self, row: Row | BadRow, text: str) -> bool:
        """Write a line's rows; returns whether a new file and a snapshot began with them."""
        if not text:
            return False
        day = self._day_of(row)
        # A wrong pace removes the output, which must not have finished parts before that.
        if not self.pace_is_known or not self._output.is_full(text, day):
            self._output.write(text, day)
            return False
        self._source.require_unchanged()
        self._output.turn(text, day, self._write_snapshot)
        return True

    def _day_of(self, row: Row | BadRow) -> int | None:
        """Return the day of a row that was written, in days since 1970; None if it has no date."""
        if not self.sensors.first.adapter.is_dated:
            return None
        return next(int(r.numbers[0] // DAY_S) for _, r in _parts(row) if isinstance(r, Row))

    # Beginning, keeping and resuming --------------------------------------------------------------

    def _begin(self) -> None:
        """At the first row that can be read: the output and, before it, a snapshot of nothing.

        The order makes an output without snapshot impossible: one that is found is another run's.
        """
        if self._begun:
            return
        self._write_snapshot(self._output.first_mark)
        self._output.begin(self.sensors.header, self._options.force)
        self._begun = True

    def _save(self) -> None:
        """Bring the output to the disk, then keep everything that belongs to it."""
        self._source.require_unchanged()
        if self._begun:
            self._write_snapshot(self._output.sync())

    def _withdraw(self) -> None:
        """Remove output and snapshot of a loop that has learned nothing: they would block others.

        Rows at a wrong pace are found after a few rows, which are in the output without prediction.
        """
        self._output.remove()
        if self._snapshot is not None:
            self._snapshot.unlink(missing_ok=True)

    def _write_snapshot(self, output: dict[str, Any]) -> None:
        if self._snapshot is None:
            return
        layout = self._source.layout
        assert layout is not None
        sensors, unassigned = self.sensors, self.unassigned
        named = sensors.named
        record = LoopRecord(
            self._settings(layout.names),
            self._source.mark(),
            layout if self.unassigned.lines else None,
            output,
            unassigned if sensors.are_named else unassigned.plus([sensors.first.counters]),
            tuple(sensor.name for sensor in named),
            tuple(sensor.counters for sensor in named),
            self._columns.form,
        )
        arrays = sensors.arrays()
        self._stream.save(self._snapshot, {RECORD: record.to_array(), **arrays})

    def _settings(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return what must not change from run to run; `names` are the input's columns."""
        own = {"anomaly_z": self._options.anomaly_z, **self.sensors.first.adapter.settings}
        return {"input": list(names), "columns": self.sensors.header, **own}

    def _require_room(self) -> None:
        """Refuse more than a snapshot can hold before the last sensor comes."""
        most = self.sensors.most_bytes
        if self._snapshot is not None and most > EXTRA_BYTES:
            n = EXTRA_BYTES * len(self.sensors.all) // most
            fewer = f"allow at most {n:,} sensors in a run with --streams, or " if n else ""
            raise SnapshotError(
                f"a snapshot of this run may need {most:,} bytes and can hold {EXTRA_BYTES:,}; "
                f"{fewer}leave out --snapshot."
            )

    def _resume(self) -> None:
        """Continue from the snapshot, if there is one."""
        snapshot, columns = self._snapshot, self._columns
        if self._options.force or snapshot is None or not snapshot.exists():
            if self._output.exists and not self._options.force:
                raise OutputError(explain_existing(self._output.name))
            return
        extra = self._stream.restore(snapshot)
        try:
            n_errors = self.sensors.first.columns.n_errors
            record = read_record(extra.get(RECORD), columns, n_errors)
        except SnapshotError as error:
            raise SnapshotError(f"snapshot {snapshot}: {error} choose another file.") from None
        layout, settings = record.layout, record.settings
        names = columns.names_in(layout, self._source.name) if layout else settings["input"]
        asked = self._settings(tuple(names))
        if settings != asked:
            raise SnapshotError(
                f"snapshot {snapshot} was made with {settings}, asked now is {asked}; "
                "give the same options, or start over with --force."
            )
        counters = record.counters
        if layout:
            own = record.sensors if self.sensors.are_named else [replace(counters)]
            try:
                self.sensors.load(extra, record.names, own)
            except DAMAGE as error:
                raise SnapshotError(
                    f"snapshot {snapshot} holds other rows than a series' ({error}); use an older "
                    "copy, or start over with --force."
                ) from None
            self.unassigned.lines = counters.lines
            if self.sensors.are_named:
                self.unassigned = counters
            self._source.resume(record.input, self._options.next_file)
            self._layout = layout
        self._output.resume(record.output, self.sensors.header, self.counters.rows == 0)
        self._begun, self.resumed = True, layout is not None


def _parts(row: Row | BadRow) -> tuple[tuple[str, Row | BadRow], ...]:
    """Return what a line brings to each of its sensors; one that is alone has no name."""
    return row.parts if isinstance(row, SensorsRow) else (("", row),)
