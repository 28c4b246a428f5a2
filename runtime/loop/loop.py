"""Predict, then learn, row by row, without end: the loop behind `edgefold run`.

    row ──> x known before the value ──> query ──> prediction ─┐
     └────> value arrives ─────────────> update                ├──> output row, counters
            every N rows: output to disk, then one snapshot  <─┘

The snapshot holds the model's state, the series' history, the input's position, the output's length
and the counters, in one atomic file. Stopped or killed at any moment, the same loop goes on as if
nothing had happened. Neither arguments nor printing live here.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from edgefold.runtime.errors import (
    DataError,
    OutputError,
    SnapshotError,
    StepRefusedError,
    ValueRefusedError,
)
from edgefold.runtime.loop.counters import Counters
from edgefold.runtime.loop.input_file import InputFile
from edgefold.runtime.loop.output_file import OutputFile, refusal
from edgefold.runtime.predictions import BAND_90
from edgefold.runtime.rows.adapters import RowAdapter
from edgefold.runtime.rows.csv_reader import BadRow, Columns, CsvRows, Row
from edgefold.runtime.stream import Stream

RECORD = "loop"


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """How the loop runs.

    Attributes:
        every: Lines between two snapshots.
        anomaly_z: A value further than this many standard deviations from its mean is an anomaly.
        strict: Stop at the first malformed row.
        force: Start anew, over an output and a snapshot that exist.
    """

    every: int = 100
    anomaly_z: float = 4.0
    strict: bool = False
    force: bool = False


class PredictionLoop:
    """One input, one stream, one output.

    Args:
        stream: Opened, and empty unless the snapshot exists.
        adapter: From `adapter_for`.
        tape: The input's lines.
        output: Where rows go.
        snapshot: File to keep the loop in, or None.
        options: See there.
    """

    def __init__(
        self,
        stream: Stream,
        adapter: RowAdapter,
        tape: InputFile,
        output: OutputFile,
        snapshot: Path | None,
        options: LoopOptions,
    ):
        self._stream, self._adapter, self._tape = stream, adapter, tape
        self._output, self._snapshot, self._options = output, snapshot, options
        self._position = 0
        self._lines = _WatchedTape(tape, adapter.columns)
        self._begun = False
        self.resumed = False
        self.counters = Counters(squared_error=[0.0] * stream.manifest.n_outputs)

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        on_bad: Callable[[int, str], None] = lambda line, reason: None,
        on_row: Callable[[], None] = lambda: None,
    ) -> None:
        """Run until the input ends or `stop` says so, and leave everything on disk.

        Args:
            stop: Asked after each row.
            on_bad: Told each malformed row's line and why.
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
        lines_before, since, first_refusal = self.counters.lines, 0, ""
        for row in self._until(stop):
            if self.resumed and row.line == 1:
                continue  # the first line, given once more to tell the columns
            line = row.line + (lines_before - 1 if self.resumed else 0)
            reason = self._refusal(row, line)
            if reason:
                first_refusal = first_refusal or f"line {line}: the line {reason}"
                self._refuse(line, reason)
                on_bad(line, reason)
            self.counters.lines = line
            self._position = self._tape.position
            on_row()
            since += 1
            if since >= self._options.every:
                self._save()
                since = 0
            if not self._tape.seekable and not self._tape.has_line:
                self._output.flush()  # the next row may be long in coming
        self._save()
        if self.counters.rows or stop():
            return
        if first_refusal:
            raise DataError(
                f"{self._tape.name} has no usable row in {self.counters.malformed}; the first, "
                f"{first_refusal}. Give rows of {self._adapter.columns.wish}."
            )
        if not self._begun:
            raise DataError(
                f"{self._tape.name} holds a header and no rows yet; nothing was written. Run again "
                f"when it holds rows of {self._adapter.columns.wish}."
            )

    def _until(self, stop: Callable[[], bool]) -> Iterator[Row | BadRow]:
        """Rows until the end or `stop`; what a pipe has already given is finished first."""
        rows = self._lines.rows
        try:
            for row in rows:
                yield row
                if stop() and (self._tape.seekable or not self._tape.has_line):
                    return
        except DataError:
            if stop() and not rows.columns:
                return  # stopped before the first line: no fault
            if self._tape.n_left and not rows.columns:
                raise DataError(
                    f"{self._tape.name} holds no whole line yet, but {self._tape.n_left} bytes "
                    "without a line's end (LF); run again when the line is whole."
                ) from None
            raise

    def _refuse(self, line: int, reason: str) -> None:
        if self._options.strict:
            self._save()
            raise DataError(
                f"{self._tape.name}, line {line}: the line {reason}. Mend or drop it; everything "
                "before it is kept."
            )
        self.counters.malformed += 1
        self.counters.refused_in_a_row += 1

    def _refusal(self, row: Row | BadRow, line: int) -> str:
        """Take one row in; returns why it was refused, leaving everything as it was."""
        if isinstance(row, BadRow):
            return row.reason
        self._begin()
        try:
            self._take(row, line)
        except (DataError, ValueRefusedError, StepRefusedError) as error:
            return f"was refused: {str(error).rstrip('.')}"
        return ""

    def _take(self, row: Row, line: int) -> None:
        adapter, stream = self._adapter, self._stream
        x = adapter.inputs(row)
        if x is None:
            adapter.learned(row)
            tail = "," * (3 * stream.manifest.n_outputs)
        else:
            prediction = stream.query(x)
            means = adapter.to_values(prediction.mean[0])
            stds: list[float] = prediction.std[0].tolist()
            stream.update(x, adapter.outputs(row))
            adapter.learned(row)
            tail = self._score(adapter.values(row), means, stds)
        self.counters.rows += 1
        self.counters.refused_in_a_row = 0
        self._output.write(f"{line},{','.join(t.strip() for t in row.texts)},{tail}\n")

    def _score(self, values: tuple[float, ...], means: list[float], stds: list[float]) -> str:
        """Count one predicted row; returns its predictions, deviations, errors and flag as text."""
        counters, anomaly = self.counters, False
        errors = [value - mean for value, mean in zip(values, means, strict=True)]
        for index, (error, std) in enumerate(zip(errors, stds, strict=True)):
            counters.squared_error[index] += error * error
            counters.within_90 += abs(error) <= BAND_90 * std
            anomaly |= abs(error) > self._options.anomaly_z * std
        counters.predicted += 1
        counters.anomalies += anomaly
        numbers = ",".join(f"{number:.9g}" for number in (*means, *stds, *errors))
        return f"{numbers},{anomaly:d}"

    # Beginning, keeping and going on ------------------------------------------------------------

    def _begin(self) -> None:
        """At the first row that can be read: the output and, before it, a snapshot of nothing.

        The order makes an output without snapshot impossible: one that is found is not ours.
        """
        if self._begun:
            return
        if self._snapshot is not None:
            self._write_snapshot(self._output.first_mark)
        self._output.begin(self._options.force)
        self._output.write(self._header())
        self._begun = True

    def _header(self) -> str:
        """First line of the output, told by the bundle alone."""
        n_outputs = self._stream.manifest.n_outputs
        ends = [""] if n_outputs == 1 else [str(i + 1) for i in range(n_outputs)]
        names = [f"{name}{end}" for name in ("prediction", "std", "error") for end in ends]
        return f"line,{self._adapter.header()},{','.join(names)},anomaly\n"

    def _save(self) -> None:
        """Bring the output to the disk, then keep everything that belongs to it."""
        if not self._begun:
            return
        mark = self._output.sync()
        if self._snapshot is not None:
            self._write_snapshot(mark)

    def _write_snapshot(self, output: dict[str, Any]) -> None:
        assert self._snapshot is not None
        first_line = self._lines.first_line() if self._position else b""
        record = {
            "settings": self._settings(self._lines.rows.columns),
            "input": self._tape.mark(self._position),
            "first_line": first_line.decode("utf-8"),
            "output": output,
            "counters": asdict(self.counters),
        }
        text = json.dumps(record).encode()
        arrays = self._adapter.arrays()
        self._stream.save(self._snapshot, {RECORD: np.frombuffer(text, np.uint8), **arrays})

    def _settings(self, names: Sequence[str]) -> dict[str, Any]:
        """What must not change from run to run; `names` are the input's columns."""
        anomaly_z = self._options.anomaly_z
        return {"input": list(names), "columns": self._header(), "anomaly_z": anomaly_z}

    def _names(self, first_line: bytes) -> Sequence[str]:
        """The input's columns, as that first line tells them."""
        rows = CsvRows(io.BytesIO(first_line), self._adapter.columns, self._tape.name)
        next(iter(rows), None)
        return rows.columns

    def _resume(self) -> None:
        """Go on from the snapshot, if there is one."""
        snapshot = self._snapshot
        if self._options.force or snapshot is None or not snapshot.exists():
            if self._output.exists and not self._options.force:
                raise OutputError(refusal(self._output.name))
            return
        extra = self._stream.restore(snapshot)
        try:
            record = json.loads(extra[RECORD].tobytes())
            settings, counters = record["settings"], Counters(**record["counters"])
            first_line, mark = record["first_line"].encode(), record["input"]
            output = record["output"]
        except (KeyError, TypeError, ValueError):
            raise SnapshotError(
                f"snapshot {snapshot} was not made by `edgefold run`; choose another file."
            ) from None
        asked = self._settings(self._names(first_line) if first_line else settings.get("input", []))
        if settings != asked:
            raise SnapshotError(
                f"snapshot {snapshot} was made with {settings}, asked now is {asked}; "
                "give the same options, or start anew with --force."
            )
        if first_line:
            self._adapter.load(extra)
            self._tape.resume(mark, first_line)
            self._position = self._tape.position
        self._output.resume(output)
        if output.get("length", counters.rows) == 0:  # killed before the header was kept
            self._output.write(self._header())
        self.counters, self._begun, self.resumed = counters, True, bool(first_line)


class _WatchedTape:
    """A tape that remembers the raw line that told the columns: a later run is given it again."""

    def __init__(self, tape: InputFile, columns: Columns):
        self._tape = tape
        self.rows = CsvRows(cast(BinaryIO, self), columns, tape.name)
        self._last = b""
        self._first = b""

    def readline(self, size: int) -> bytes:
        self.first_line()
        self._last = self._tape.readline(size)
        return self._last

    def first_line(self) -> bytes:
        """The line, or b"" before it came."""
        if not self._first and self.rows.columns:
            self._first = self._last
        return self._first
