"""Rows of numbers from CSV files and pipes.

Two uses, one parser. `read_series` takes a whole file for training and refuses what is not a clean
series. `CsvRows` feeds a loop that never ends: constant memory, one line at a time, and a bad line
becomes a `BadRow` instead of an end. Neither knows what a model makes of the numbers.
"""

from __future__ import annotations

import codecs
import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import (
    BadLineError,
    Columns,
    Layout,
    PointColumns,
    Row,
    SeriesColumns,
)
from edgefold.runtime.rows.csv_fields import Clock

__all__ = [
    "BadRow",
    "Columns",
    "CsvRows",
    "PointColumns",
    "Row",
    "Series",
    "SeriesColumns",
    "open_source",
    "read_series",
]

FloatArray = NDArray[np.float64]
MAX_LINE_BYTES = 65536
WIDE_ENCODINGS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that was passed over, and why."""

    line: int
    reason: str


@contextmanager
def open_source(path: str | Path) -> Iterator[BinaryIO]:
    """The bytes of a file, or of standard input for `-`.

    Raises:
        DataError: It cannot be opened.
    """
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115  # the caller's own OSErrors are not ours to word
    except OSError as error:
        raise DataError(
            f"cannot open {path} ({error.strerror}); give a readable CSV file."
        ) from error
    with file:
        yield file


class CsvRows:
    """Good and bad rows of a source, one by one, in constant memory.

    The first line decides: if it holds numbers where columns are wanted it is data, else a header.
    A last line without a newline counts if it is whole. Blank lines are passed over in silence.

    Iterating raises DataError where no later line could be better: no such column, an empty source,
    an encoding that is not UTF-8's family.
    """

    def __init__(self, file: BinaryIO, columns: Columns, name: str = "the input"):
        self.columns: tuple[str, ...] = ()
        """The columns' names, once the first line is read."""
        self._file = file
        self._wanted = columns
        self._name = name
        self._delimiter = ","

    def __iter__(self) -> Iterator[Row | BadRow]:
        layout: Layout | None = None
        first_bad = ""
        for line, text in self._lines():
            if isinstance(text, BadLineError):
                first_bad = first_bad or f"line {line} {text}"
                yield BadRow(line, str(text))
                continue
            try:
                if layout is None:
                    self._delimiter = _delimiter_of(text)
                    fields = self._fields(text)
                    layout, is_header = self._wanted.layout(fields, self._name)
                    self.columns = layout.names
                    if is_header:
                        continue
                    yield layout.row(line, fields)
                else:
                    yield layout.row(line, self._fields(text))
            except BadLineError as error:
                first_bad = first_bad or f"line {line} {error}"
                yield BadRow(line, str(error))
        if layout is None:
            found = f"no line that can be read ({first_bad})" if first_bad else "no lines"
            raise DataError(
                f"{self._name} holds {found}; it needs a header and rows: {self._wanted.wish}."
            )

    def _lines(self) -> Iterator[tuple[int, str | BadLineError]]:
        line = 0
        while raw := self._read():
            line += 1
            if line == 1 and raw.startswith(WIDE_ENCODINGS):
                raise DataError(
                    f"{self._name} is encoded as UTF-16; convert it: iconv -f UTF-16 -t UTF-8."
                )
            if line == 1 and b"\0" not in raw and _ends_in_cr(raw):
                raise DataError(
                    f"{self._name} ends its lines with CR alone, as old Macs did; convert it: "
                    "tr '\\r' '\\n'."
                )
            if line == 1:
                raw = raw.removeprefix(codecs.BOM_UTF8)
            if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
                rest = raw
                while rest and not rest.endswith(b"\n"):
                    rest = self._read()
                yield line, BadLineError(f"is longer than {MAX_LINE_BYTES} bytes")
            elif b"\0" in raw:
                yield line, BadLineError("holds NUL bytes; is it binary or UTF-16?")
            else:
                try:
                    text = raw.decode("utf-8").rstrip("\r\n")
                except UnicodeDecodeError:
                    yield (
                        line,
                        BadLineError("is not UTF-8 text; is it binary or encoded?"),
                    )
                else:
                    if text.strip():
                        yield line, text

    def _read(self) -> bytes:
        try:
            return self._file.readline(MAX_LINE_BYTES)
        except OSError as error:
            raise DataError(
                f"cannot read {self._name} ({error.strerror}); give a readable CSV file."
            ) from error

    def _fields(self, text: str) -> list[str]:
        try:
            return next(csv.reader([text], delimiter=self._delimiter, strict=True))
        except (csv.Error, StopIteration):
            raise BadLineError("has a misplaced quote or line break") from None


def _ends_in_cr(raw: bytes) -> bool:
    """Whether a first line without LF is several lines: a field's own CR stands between quotes."""
    return not raw.endswith(b"\n") and b"\r" in raw.rstrip(b"\r") and b'"' not in raw


def _delimiter_of(text: str) -> str:
    return max(",;\t", key=text.count)  # the first of equals: a comma


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
    """Read a series for training; whatever is not clean is refused, at its first bad line.

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
                raise DataError(f"{source}, line {row.line} {row.reason}; mend or drop the line.")
            good.append(row)
    if len(good) < 3:
        raise DataError(f"{source} holds {len(good)} rows of data; a series needs at least 3.")
    assert columns.clock is not None
    times = np.array([row.numbers[0] for row in good])
    values = np.array([row.numbers[1] for row in good])
    steps = _check_times(source, good, times, gaps)
    filled = np.cumsum(np.concatenate([[0], steps]))  # each row's place among all rows
    whole = np.arange(filled[-1] + 1)
    return Series(
        np.interp(whole, filled, times),
        np.interp(whole, filled, values),
        columns.clock,
        (rows.columns[0], rows.columns[1]),
        len(whole) - len(good),
    )


def _check_times(
    source: str, rows: list[Row], times: FloatArray, gaps: Literal["refuse", "interpolate"]
) -> NDArray[np.int64]:
    """Steps from each row to the next, 1 where none is missing; (n - 1,)."""
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
