"""Read rows of numbers from CSV files and pipes.

`read_series` reads a whole file for training and refuses what is not a clean series. `CsvRows`
feeds a loop without end: constant memory, one line at a time, and a bad line becomes a `BadRow`.
What the numbers mean to a model is not known here.
"""

from __future__ import annotations

import codecs
import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import (
    BadLineError,
    Columns,
    Layout,
    Row,
    SeriesColumns,
)
from edgefold.runtime.rows.csv_fields import Clock

MAX_LINE_BYTES = 65536
WIDE_ENCODINGS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that cannot be used, and why."""

    line: int
    reason: str


@contextmanager
def open_source(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`.

    Raises:
        DataError: It cannot be opened.
    """
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115  # only the opening is reported as DataError
    except OSError as error:
        raise DataError(
            f"cannot open {path} ({error.strerror}); give a readable CSV file."
        ) from error
    with file:
        yield file


class LineSource(Protocol):
    """Gives lines of bytes, as a binary file does."""

    def readline(self, size: int, /) -> bytes:
        """Return the next line with its end, at most `size` bytes of it; b"" at the end."""


class CsvRows:
    """Good and bad rows of a source, one by one, in constant memory.

    The first line decides: if it holds numbers where columns are wanted it is data, else a header.
    A last line without a newline counts if it is whole. Blank lines are skipped silently.

    Iterating raises DataError where no later line could be better: a missing column, an empty
    source, an encoding other than UTF-8.

    Args:
        file: The lines.
        columns: The wanted columns.
        name: The source's name, for messages.
        layout: From an earlier part of the same input: no first line is needed again. A header that
            a new source of the same input begins with is skipped and not counted.
        line: Lines that were read before.

    Attributes:
        layout: Where the columns are; None before the first line that can be read.
    """

    def __init__(
        self,
        file: LineSource,
        columns: Columns,
        name: str = "the input",
        layout: Layout | None = None,
        line: int = 0,
    ):
        self.layout = layout
        self._file, self._wanted, self._name, self._line = file, columns, name, line

    def __iter__(self) -> Iterator[Row | BadRow]:
        first_bad, header = "", self.layout.header if self.layout else ()
        for line, text in self._lines():
            try:
                if isinstance(text, BadLineError):
                    raise text
                if self.layout is None:
                    delimiter = max(",;\t", key=text.count)  # the first of equals: a comma
                    fields = self._fields(text, delimiter)
                    self.layout = self._wanted.layout(fields, delimiter, self._name)
                    if self.layout.header:
                        continue
                else:
                    fields = self._fields(text, self.layout.delimiter)
                    if header and tuple(field.strip() for field in fields) == header:
                        self._line -= 1
                        continue
                yield self._wanted.row(self.layout, line, fields)
            except BadLineError as error:
                first_bad = first_bad or f"line {line} {error}"
                yield BadRow(line, str(error))
            finally:
                header = ()
        if self.layout is None:
            found = f"no line that can be read ({first_bad})" if first_bad else "no lines"
            raise DataError(
                f"{self._name} holds {found}; it needs a header and rows: {self._wanted.wish}."
            )

    def _lines(self) -> Iterator[tuple[int, str | BadLineError]]:
        is_first = True
        while raw := self._read():
            self._line += 1
            if is_first:
                if self.layout is None:
                    self._require_encoding(raw)
                raw = raw.removeprefix(codecs.BOM_UTF8)
                is_first = False
            if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
                rest = raw
                while rest and not rest.endswith(b"\n"):
                    rest = self._read()
                yield self._line, BadLineError(f"is longer than {MAX_LINE_BYTES} bytes")
                continue
            try:
                text = raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                yield self._line, BadLineError("is not UTF-8 text; is it binary or encoded?")
                continue
            if "\0" in text:
                yield self._line, BadLineError("holds NUL bytes; is it binary or UTF-16?")
            elif text.strip():
                yield self._line, text

    def _require_encoding(self, raw: bytes) -> None:
        """Refuse a file whose first line shows UTF-16, or lines that end with CR alone."""
        if raw.startswith(WIDE_ENCODINGS):
            raise DataError(
                f"{self._name} is encoded as UTF-16; convert it: iconv -f UTF-16 -t UTF-8."
            )
        # A field's own CR stands between quotes.
        if not raw.endswith(b"\n") and b"\r" in raw.rstrip(b"\r") and not set(b'\0"') & set(raw):
            raise DataError(
                f"{self._name} ends its lines with CR alone, as old Macs did; convert it: "
                "tr '\\r' '\\n'."
            )

    def _read(self) -> bytes:
        try:
            return self._file.readline(MAX_LINE_BYTES)
        except OSError as error:
            raise DataError(
                f"cannot read {self._name} ({error.strerror}); give a readable CSV file."
            ) from error

    def _fields(self, text: str, delimiter: str) -> list[str]:
        try:
            return next(csv.reader([text], delimiter=delimiter, strict=True))
        except (csv.Error, StopIteration):
            raise BadLineError("has a misplaced quote or line break") from None


@dataclass(frozen=True, slots=True)
class Series:
    """A whole, regular series: times increase by about one step a row, values are finite.

    Attributes:
        times: (n,), seconds since 1970 for dates, else as written.
        values: (n,).
        clock: What the times are.
        columns: The names of the two columns.
        n_filled: Rows that were missing and interpolated.
    """

    times: FloatArray
    values: FloatArray
    clock: Clock
    columns: tuple[str, str]
    n_filled: int


def read_series(
    path: str | Path,
    time: str | None = None,
    value: str | None = None,
    gaps: Literal["refuse", "interpolate"] = "refuse",
) -> Series:
    """Read a series for training; a line that is not clean is an error.

    Args:
        path: A CSV file, or `-` for standard input.
        time: Column of times; see `SeriesColumns`.
        value: Column of values.
        gaps: What to do where rows are missing: refuse, or fill them linearly.

    Raises:
        DataError: One line that names the file, the line and what to do.
    """
    source = "standard input" if str(path) == "-" else str(path)
    columns = SeriesColumns(time, value)
    good: list[Row] = []
    with open_source(path) as file:
        rows = CsvRows(file, columns, source)
        for row in rows:
            if isinstance(row, BadRow):
                raise DataError(f"{source}, line {row.line} {row.reason}; fix or drop the line.")
            good.append(row)
    if len(good) < 3:
        raise DataError(f"{source} holds {len(good)} rows of data; a series needs at least 3.")
    assert columns.clock is not None and rows.layout is not None
    times = np.array([row.numbers[0] for row in good])
    values = np.array([row.numbers[1] for row in good])
    steps = _check_times(source, good, times, gaps)
    filled = np.cumsum(np.concatenate([[0], steps]))  # each row's place among all rows
    whole = np.arange(filled[-1] + 1)
    return Series(
        np.interp(whole, filled, times),
        np.interp(whole, filled, values),
        columns.clock,
        (rows.layout.names[0], rows.layout.names[1]),
        len(whole) - len(good),
    )


def _check_times(
    source: str, rows: list[Row], times: FloatArray, gaps: Literal["refuse", "interpolate"]
) -> NDArray[np.int64]:
    """Count the steps from each row to the next, 1 where none is missing; (n - 1,)."""
    elapsed = np.diff(times)
    for index in np.flatnonzero(elapsed <= 0):
        before, here = rows[index], rows[index + 1]
        where = f"{source}, line {here.line}: the time {here.texts[0]}"
        if elapsed[index] == 0:
            raise DataError(f"{where} is also that of line {before.line}; keep one of them.")
        raise DataError(
            f"{where} is before line {before.line}'s {before.texts[0]}; sort the rows by time."
        )
    ratio = elapsed / np.median(elapsed)
    steps = np.maximum(np.rint(ratio), 1).astype(np.int64)
    for index in np.flatnonzero((ratio < 0.5) | (steps > 1)):
        before, here = rows[index], rows[index + 1]
        where = f"{source}, line {here.line}"
        if ratio[index] < 0.5:
            raise DataError(
                f"{where}: {here.texts[0]} comes {ratio[index]:.2g} of a usual step after line "
                f"{before.line}; resample the series to even steps."
            )
        if gaps == "refuse":
            raise DataError(
                f"{where}: {steps[index] - 1} rows are missing between {before.texts[0]} and "
                f"{here.texts[0]}; fill them, or let them be filled with --gaps interpolate."
            )
    if steps.sum() >= 2 * len(rows):
        raise DataError(
            f"{source}: more rows are missing ({steps.sum() + 1 - len(rows)}) than there are "
            f"({len(rows)}); resample the series to even steps."
        )
    return steps
