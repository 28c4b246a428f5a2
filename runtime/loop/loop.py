"""Predict, then update, row by row, without end: the loop behind `edgefold run`.

    row ──> x known before the value ──> query ──> prediction ─┐
     └────> value arrives ─────────────> update                ├──> output row, counters
            every N rows: output to disk, then one snapshot  <─┘

A model of the filtering kind has one step instead: x in, prediction out.

The snapshot holds the model's state, the series' history, the input's layout and position, the
output's length and the counters, in one atomic file. Stopped or killed at any moment, the same loop
resumes and gives the same output. Arguments and printing are elsewhere (`cli.commands.run`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime.errors import (
    DataError,
    OutputError,
    PaceError,
    SnapshotError,
    StepRefusedError,
    ValueRefusedError,
)
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.input_file import InputFile
from edgefold.runtime.loop.output_columns import OutputColumns
from edgefold.runtime.loop.output_file import OutputFile, explain_existing
from edgefold.runtime.rows.adapters import RowAdapter
from edgefold.runtime.rows.csv_columns import Layout, Row
from edgefold.runtime.rows.csv_reader import BadRow, CsvRows
from edgefold.runtime.stream import Stream

RECORD = "loop"


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


class PredictionLoop:
    """One input, one stream, one output.

    Args:
        stream: Opened, and empty unless the snapshot exists.
        adapter: From `adapter_for`.
        source: The input's lines.
        output: Where rows go.
        snapshot: File to keep the loop in, or None.
        options: See there.

    Attributes:
        columns: What the loop writes of a prediction.
        counters: Counts over every restart.
        resumed: Whether rows were processed before this run.
    """

    def __init__(
        self,
        stream: Stream,
        adapter: RowAdapter,
        source: InputFile,
        output: OutputFile,
        snapshot: Path | None,
        options: LoopOptions,
    ):
        self._stream, self._adapter, self._source = stream, adapter, source
        self._output, self._snapshot, self._options = output, snapshot, options
        self._rows = CsvRows(source, adapter.columns, source.name)
        self._begun = False
        self.resumed = False
        self.columns = OutputColumns(stream.manifest, adapter, options.anomaly_z)
        self.counters = Counters(squared_error=[0.0] * self.columns.n_errors)

    @property
    def pace_is_known(self) -> bool:
        """Whether rows come as the bundle was trained for; before that they are only collected."""
        return self._adapter.pace_is_known

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_bad: Callable[[int, str], None] = lambda line, reason: None,
        on_row: Callable[[], None] = lambda: None,
    ) -> None:
        """Run until the input ends or `stop` says so, and leave everything on disk.

        Args:
            stop: Asked after each row.
            on_bad: Called with each malformed row's line and the reason.
            on_row: Called after each line.

        Raises:
            DataError: No usable input, or a malformed row with `strict`; the snapshot then stands
                before that row.
            OutputError, SnapshotError: The disk refused, or the files belong to another run.
        """
        try:
            self._run(stop, on_bad, on_row)
        finally:
            self._output.close()

    def _run(
        self,
        stop: Callable[[], bool],
        on_bad: Callable[[int, str], None],
        on_row: Callable[[], None],
    ) -> None:
        self._resume()
        source, since, first_bad = self._source, 0, ""
        for row in self._until(stop):
            reason = self._process(row)
            if reason:
                first_bad = first_bad or f"line {row.line}: the line {reason}"
                self._skip(row.line, reason)
                on_bad(row.line, reason)
            self.counters.lines = row.line
            source.keep()
            on_row()
            since += 1
            if since >= self._options.every:
                self._save()
                since = 0
            if not source.seekable and not source.has_line:
                self._output.flush()  # the next row may be long in coming
        self._save()
        if stop():
            return
        if self.counters.rows:
            if self._snapshot is not None:
                source.require_in_place()
            return
        if first_bad:
            raise DataError(
                f"{source.name} has no usable row in {self.counters.malformed}; the first, "
                f"{first_bad}. Give rows of {self._adapter.columns.wish}."
            )
        if not self._begun:
            raise DataError(
                f"{source.name} holds a header and no rows yet; nothing was written. Run again "
                f"when it holds rows of {self._adapter.columns.wish}."
            )

    def _until(self, stop: Callable[[], bool]) -> Iterator[Row | BadRow]:
        """Yield rows until the end or `stop`; what a pipe has already given is finished first."""
        source = self._source
        try:
            for row in self._rows:
                yield row
                if stop() and (source.seekable or not source.has_line):
                    return
        except DataError:
            if self._rows.layout is not None:
                raise
            if stop():
                return  # stopped before the first line: no fault
            if source.n_left:
                raise DataError(
                    f"{source.name} holds no whole line yet, but {source.n_left} bytes "
                    "without a line's end (LF); run again when the line is whole."
                ) from None
            raise

    def _skip(self, line: int, reason: str) -> None:
        if self._options.strict:
            self._save()
            raise DataError(
                f"{self._source.name}, line {line}: the line {reason}. Fix or drop it; everything "
                "before it is kept."
            )
        self.counters.malformed += 1
        self.counters.refused_in_a_row += 1

    def _process(self, row: Row | BadRow) -> str:
        """Predict and update with a row; returns why it was refused, with nothing changed."""
        if isinstance(row, BadRow):
            return row.reason
        self._begin()
        try:
            fields = self._predict_and_update(row)
        except PaceError as error:
            self._withdraw()
            raise DataError(f"{self._source.name}: {error}") from None
        except (DataError, ValueRefusedError, StepRefusedError) as error:
            return f"was refused: {str(error).rstrip('.')}"
        self.counters.rows += 1
        self.counters.refused_in_a_row = 0
        texts = "".join(f"{text.strip()}," for text in row.texts)
        self._output.write(f"{row.line},{texts}{fields}\n")
        return ""

    def _predict_and_update(self, row: Row) -> str:
        adapter, stream = self._adapter, self._stream
        x = adapter.inputs(row)
        if x is None:  # too little history
            adapter.commit(row)
            return self.columns.empty
        if stream.manifest.is_filter:
            prediction = stream.step(x)
        else:
            prediction = stream.query(x)
            stream.update(x, adapter.outputs(row))
        values = self.columns.values(prediction)
        adapter.commit(row)
        return self.columns.fields(values, adapter.values(row), self.counters)

    # Beginning, keeping and resuming --------------------------------------------------------------

    def _begin(self) -> None:
        """At the first row that can be read: the output and, before it, a snapshot of nothing.

        The order makes an output without snapshot impossible: one that is found is another run's.
        """
        if self._begun:
            return
        if self._snapshot is not None:
            self._write_snapshot(self._output.first_mark)
        self._output.begin(self._options.force)
        self._output.write(self._header())
        self._begun = True

    def _header(self) -> str:
        """Return the first line of the output, which depends on the bundle alone."""
        return f"{','.join(['line', *self._adapter.header, *self.columns.names])}\n"

    def _save(self) -> None:
        """Bring the output to the disk, then keep everything that belongs to it."""
        self._source.require_unchanged()
        if not self._begun:
            return
        mark = self._output.sync()
        if self._snapshot is not None:
            self._write_snapshot(mark)

    def _withdraw(self) -> None:
        """Remove output and snapshot of a loop that has learned nothing: they would block others.

        Rows at a wrong pace are found after a few rows, which are in the output without prediction.
        """
        self._output.remove()
        if self._snapshot is not None:
            self._snapshot.unlink(missing_ok=True)

    def _write_snapshot(self, output: dict[str, Any]) -> None:
        assert self._snapshot is not None and self._rows.layout is not None
        record = {
            "settings": self._settings(self._rows.layout.names),
            "input": self._source.mark(),
            "layout": asdict(self._rows.layout) if self.counters.lines else None,
            "output": output,
            "counters": asdict(self.counters),
        }
        text = json.dumps(record).encode()
        arrays = self._adapter.arrays()
        self._stream.save(self._snapshot, {RECORD: np.frombuffer(text, np.uint8), **arrays})

    def _settings(self, names: tuple[str, ...]) -> dict[str, Any]:
        """Return what must not change from run to run; `names` are the input's columns."""
        anomaly_z = self._options.anomaly_z
        return {"input": list(names), "columns": self._header(), "anomaly_z": anomaly_z}

    def _resume(self) -> None:
        """Continue from the snapshot, if there is one."""
        snapshot, columns = self._snapshot, self._adapter.columns
        if self._options.force or snapshot is None or not snapshot.exists():
            if self._output.exists and not self._options.force:
                raise OutputError(explain_existing(self._output.name))
            return
        extra = self._stream.restore(snapshot)
        try:
            record = json.loads(extra[RECORD].tobytes())
            layout = self._layout_of(record)
            settings, counters = record["settings"], Counters(**record["counters"])
            output, mark = record["output"], record["input"]
            names = tuple(settings["input"])
        except (KeyError, TypeError, ValueError):
            raise SnapshotError(
                f"snapshot {snapshot} was not made by `edgefold run`; choose another file."
            ) from None
        asked = self._settings(columns.names_in(layout, self._source.name) if layout else names)
        if settings != asked:
            raise SnapshotError(
                f"snapshot {snapshot} was made with {settings}, asked now is {asked}; "
                "give the same options, or start over with --force."
            )
        if layout:
            self._adapter.load(extra)
            self._source.resume(mark, self._options.next_file)
            self._rows = CsvRows(self._source, columns, self._source.name, layout, counters.lines)
        self._output.resume(output)
        if output.get("length", counters.rows) == 0:  # killed before the header was kept
            self._output.write(self._header())
        self.counters, self._begun, self.resumed = counters, True, layout is not None

    def _layout_of(self, record: dict[str, Any]) -> Layout | None:
        """Read the layout that a snapshot holds; None if no line was processed."""
        if "layout" in record:
            return Layout.from_json(record["layout"]) if record["layout"] else None
        # Snapshots of version 0.1 hold the first line instead; drop this with the next version.
        rows = CsvRows(io.BytesIO(record["first_line"].encode()), self._adapter.columns)
        if record["first_line"]:
            next(iter(rows), None)
        return rows.layout
