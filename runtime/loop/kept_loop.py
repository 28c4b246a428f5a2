"""Keep a loop for a later run, and resume it: its models, its counts, and all its files.

    first row  ──> snapshot of the beginning, then the output          (`begin`)
    now and then   output to the disk, then one snapshot that fits it  (`save`)
    next start ──> snapshot, output cut back to it, input after it     (`resume`)

`edgefold.runtime.loop.loop` processes the rows between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from edgefold.runtime.errors import OutputError, OverlapError
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.known_rows import LIMIT_S, KnownRows
from edgefold.runtime.loop.loop_snapshot import LoopSnapshot
from edgefold.runtime.loop.record import LoopRecord
from edgefold.runtime.loop.streams import LoopStreams
from edgefold.runtime.rows.csv_columns import Layout
from edgefold.runtime.sinks.output_file import explain_existing
from edgefold.runtime.sinks.row_sink import RowSink
from edgefold.runtime.sources.row_source import RowSource
from edgefold.runtime.trial.ended_trial import EndedTrial
from edgefold.runtime.trial.kept_rows import KeptRows
from edgefold.runtime.trial.trial import Trial
from edgefold.runtime.trial.trial_files import TrialFiles


class KeptLoop:
    """Holds what a loop has learned and counted, and the files that keep it.

    Args:
        source: The source of the input's rows.
        output: The output for the rows with their predictions.
        alarms: The output for the alarms.
        alarm_header: The first line of the alarms.
        snapshot: The snapshot of the model in service.
        sensors: The sensors of the model in service.
        kept_rows: Keeps the last rows for candidates to come; None keeps none.
        trial: The trial of a candidate, with its files; None without one.
        saved: Function that is called after each snapshot.
        idle: Function that is called for each kept row that a candidate learns.
        tell: Function that gets a sentence for the user.
        begin_rows: Function that lets sensors state which rows they learn from now on. It gets the
            sensors, the number of the next row, and the number of lines before it.

    Attributes:
        in_service: The sensors of the model in service, which learn whoever speaks.
        unassigned: Counts of lines that belong to no sensor; a single sensor counts them itself.
        known: Finds the rows that were learned before.
        layout: The places of the columns in the input, as the snapshot keeps them; None without.
        has_begun: Whether the output exists.
        resumed: Whether rows were processed before this run.
    """

    def __init__(
        self,
        source: RowSource,
        output: RowSink,
        alarms: RowSink,
        alarm_header: str,
        snapshot: LoopSnapshot,
        sensors: LoopStreams,
        kept_rows: KeptRows | None,
        trial: TrialFiles | None,
        saved: Callable[[], None],
        idle: Callable[[], None],
        tell: Callable[[str], None],
        begin_rows: Callable[[LoopStreams, int, int], None],
    ):
        self._source, self._output, self._alarms = source, output, alarms
        self._alarm_header, self._snapshot, self.in_service = alarm_header, snapshot, sensors
        self._kept_rows, self._trial_files, self._saved = kept_rows, trial, saved
        self._idle, self._tell, self._begin_rows_of = idle, tell, begin_rows
        self._ended: EndedTrial | None = None  # until a snapshot drops it
        self._has_row = self._states_rows = False
        self.unassigned = Counters(squared_error=[0.0] * sensors.first.columns.n_errors)
        self.known = KnownRows()
        self.layout: Layout | None = None
        self.has_begun = self.resumed = False

    @property
    def trial(self) -> Trial | None:
        """Return the trial of a candidate; None without one, and once it has taken over."""
        return self._trial_files.trial if self._trial_files else None

    @property
    def sensors(self) -> LoopStreams:
        """Return all sensors of the model that speaks, each with its counters."""
        trial = self.trial
        return trial.new if trial and trial.is_heard else self.in_service

    @property
    def counters(self) -> Counters:
        """Return the counts of all sensors together since the loop's first start."""
        return self.unassigned.plus(sensor.counters for sensor in self.sensors.all)

    @property
    def is_kept(self) -> bool:
        """Return whether there are snapshots."""
        return self._snapshot.path is not None

    def begin(self, force: bool) -> None:
        """Write a first snapshot, then create the output, at the first row that can be read.

        In this order an output never exists without a snapshot: if one is found, it belongs to
        another run.

        Args:
            force: Whether an output that exists is overwritten.
        """
        self._has_row = True
        if not self._states_rows:
            layout = self._source.layout
            self._begin_rows(0, int(bool(layout and layout.header)))
        if self.has_begun:
            return
        self.write(self._output.first_mark)
        self._output.begin(self.sensors.header, force)
        self._alarms.begin(self._alarm_header, force)
        self.has_begun = True

    def save(self) -> None:
        """Force the output to the disk, then write a snapshot that fits it."""
        self._source.require_unchanged()
        if not self.has_begun:  # nothing was learned that a later run would miss
            self._source.kept()
        elif self._source.layout is not None:  # else no line was read, and the snapshot stands
            self.write(self._output.sync())

    def withdraw(self) -> None:
        """Remove the output and the snapshot, so that a new run need not overwrite them.

        This is called when the first rows come at a wrong pace: the output then holds rows without
        a prediction, and nothing was learned.
        """
        self._output.remove()
        self._alarms.remove()
        self._snapshot.remove()

    def write(self, output: dict[str, Any]) -> None:
        """Write a snapshot; `output` is the mark (place as JSON) in the output that fits it."""
        if not self.is_kept:
            return
        layout = self._source.layout
        assert layout is not None
        alarms = (self._alarms.sync() if self.has_begun else self._alarms.first_mark) or None
        mark, known = self._source.mark(), self.known.pending
        trial = None
        if self._trial_files is not None:
            trial = self._trial_files.write(layout, self.unassigned, mark)
        elif self._ended is not None and not self._has_row:
            trial = self._ended.mark  # its candidate has missed nothing
        rows = self._kept_rows.mark() if self._kept_rows else None
        self._snapshot.write(layout, self.unassigned, mark, output, alarms, known, trial, rows)
        self._source.kept()
        self._saved()
        if self._ended is not None and trial is None:
            self._ended.remove_files()
            self._ended = None

    def resume(self, force: bool, next_file: bool) -> None:
        """Restore the loop from its snapshot, if there is one and `force` is not set.

        Args:
            force: Whether to start over.
            next_file: Whether the input may be a file that follows the one in the snapshot.

        Raises:
            SnapshotError: The snapshot is damaged, or was made with other settings.
            OutputError: There is an output without a snapshot, or not the one of the snapshot.
        """
        self._snapshot.require_room()
        source = self._source
        if force or not self._snapshot.exists:
            if not force:
                self._require_no_output()
            for output in (self._output, self._alarms):
                output.require_free()  # before anything of the former run is replaced
            if force:
                source.start_over()
            self._begin_trial(None)
            return
        record = self._snapshot.restore(source.name)
        if record is None:  # of a program: the input and the output begin
            self._require_no_output()
            self._begin_trial(None)
            return
        layout = record.layout
        if layout:
            self.unassigned.lines = record.counters.lines
            if self.sensors.are_named:
                self.unassigned = record.counters
            source.resume(record.input, next_file)
            self.layout = layout
            times = self.sensors.newest_times
            again = {name: times[name] for name in record.known if name in times}
            self.known.expect(again, LIMIT_S if source.is_live else math.inf)
            if "head" not in record.input and not source.is_live:  # a file after a pipe
                self.unassigned.lines = int(bool(layout.header))
                self.known.expect(self.sensors.newest_times, math.inf)
        self._output.resume(record.output, self.sensors.header, self.counters.rows == 0)
        is_new = self.counters.rows == 0 or bool(self._alarms.first_mark)  # or a file, not a pipe
        self._alarms.resume(record.alarms or {}, self._alarm_header, is_new)
        self.has_begun, self.resumed = True, layout is not None
        self._begin_trial(record)
        if layout:
            row = record.row
            if row is None:
                row = max(record.counters.lines - bool(layout.header), 0)
            self._begin_rows(row, self.unassigned.lines)

    def _require_no_output(self) -> None:
        for output in (self._output, self._alarms):
            if output.exists:
                raise OutputError(explain_existing(output.name))

    def _begin_rows(self, row: int, n_lines: int) -> None:
        """State from now on which rows the models learn.

        Args:
            row: The number of the next row of the input.
            n_lines: The number of lines before it.

        Raises:
            OverlapError: The snapshot has learned rows that are to come.
        """
        try:
            for sensors in (self.in_service, *([self.trial.new] if self.trial else [])):
                self._begin_rows_of(sensors, row, n_lines)
        except OverlapError as error:
            raise OverlapError(
                f"{self._snapshot.path} has learned rows that {self._source.name} is about to "
                f"give: {error} If they are other rows, name their source with --source."
            ) from None
        self._states_rows = True

    def _begin_trial(self, record: LoopRecord | None) -> None:
        """Open the kept rows, and restore the candidate or let it learn them.

        Args:
            record: The record of the snapshot from which the loop resumes; None without one.
        """
        if self._kept_rows is not None:
            self._kept_rows.open(record.rows if record else None)
        if self._trial_files is not None:
            mark = record.trial if record else None
            self._trial_files.begin(mark, self._source.name, self._rows_to_learn())
        elif record is not None and record.trial is not None:
            assert self._snapshot.path is not None
            self._ended = EndedTrial(self._snapshot.path, record.trial)
            if sentence := self._ended.sentence:
                self._tell(sentence)

    def _rows_to_learn(self) -> Iterator[tuple[str, tuple[float, ...]]]:
        """Yield the kept rows, the oldest first."""
        for row in () if self._kept_rows is None else self._kept_rows.rows():
            self._idle()
            yield row

    def take_over(self) -> None:
        """Go on with the candidate alone, and let the snapshot be its own from now on."""
        assert self._trial_files is not None and self._snapshot.path is not None
        self.in_service = self._trial_files.trial.new
        self._snapshot = self._trial_files.of_loop(self._snapshot.path)
        self._snapshot.take_over()
        files, self._trial_files = self._trial_files, None
        self.save()
        files.remove()
