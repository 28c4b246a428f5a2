"""Read rows of numbers from CSV files, JSON lines and pipes.

`CsvRows` gives rows to a loop that never ends: it takes constant memory, reads one line at a time,
and turns a bad line into a `BadRow`. A whole file for training is read by
`edgefold.runtime.series.series_file`. This module does not know what the numbers mean to a model.
"""

from __future__ import annotations

import codecs
import csv
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import (
    BadLineError,
    Columns,
    Layout,
    MissingValueError,
    Row,
)
from edgefold.runtime.rows.csv_fields import plain
from edgefold.runtime.rows.json_lines import fields_of, is_json, parse_object

MAX_LINE_BYTES = 65536
SPACES = re.compile(" +")
N_LINES = 400
N_BYTES = 1 << 21
"""The largest number of first lines, and of their bytes together, from which the delimiter, header
and columns of a table are found."""
WIDE_ENCODINGS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
"""Maps the marks at the start of a file to its encoding; UTF-32 is first, as one begins alike."""
UNMARKED = {
    "UTF-32LE": re.compile(rb"(?:[^\0]\0\0\0){2}"),
    "UTF-32BE": re.compile(rb"(?:\0\0\0[^\0]){2}"),
    "UTF-16LE": re.compile(rb"(?:[^\0]\0){2}"),
    "UTF-16BE": re.compile(rb"(?:\0[^\0]){2}"),
}
"""Maps encodings to the first bytes of a text of ASCII in them, without a mark."""
PACKED = {
    b"\x1f\x8b": "compressed with gzip; unpack it: gunzip -k",
    b"BZh": "compressed with bzip2; unpack it: bunzip2 -k",
    b"\xfd7zXZ\0": "compressed with xz; unpack it: unxz -k",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it: unzstd",
    b"\x04\x22\x4d\x18": "compressed with lz4; unpack it: unlz4",
    b"7z\xbc\xaf\x27\x1c": "compressed with 7-Zip; unpack it: 7z x",
    b"SQLite format 3\0": "an SQLite database; write a table of it as CSV: sqlite3 -csv -header",
    b"ARROW1": "an Arrow file; convert it to CSV",
    b"\x89HDF": "an HDF5 file; convert it to CSV",
    b"PK\x03\x04": "a workbook or another zip file; save its table as CSV",
    b"\xd0\xcf\x11\xe0": "an old workbook; save its table as CSV",
    b"PAR1": "a Parquet file; convert it to CSV",
}
"""Maps the first bytes of files that hold no lines of text to what they are, with advice."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """Holds the number of a line that cannot be used, and the reason."""

    line: int
    reason: str


class MissingRow(BadRow):
    """Holds the number of a line that is correct, but lacks a value in a column that is read.

    Such a cell is empty, or holds a word like NA or null.
    """

    __slots__ = ()


@contextmanager
def open_source(path: str | Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, or give standard input if the path is `-`.

    Raises:
        DataError: The file cannot be opened.
    """
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115  # only the opening is reported as DataError
    except OSError as error:
        raise DataError(
            f"cannot open {path} ({error.strerror}); give a readable file of rows."
        ) from error
    with file:
        yield file


class RefusedLine(bytes):
    """Stands for a line that its source cannot use; it becomes a `BadRow` with this reason."""

    reason: str

    @classmethod
    def because(cls, reason: str) -> RefusedLine:
        """Return the line that stands for one which is refused for this reason."""
        line = cls(b"\n")
        line.reason = reason
        return line


class LineSource(Protocol):
    """Describes any object that gives lines of bytes, as a binary file does."""

    def readline(self, size: int, /) -> bytes:
        """Return the next line with its end, at most `size` bytes of it; b"" at the end."""


class CsvRows:
    """Iterates over the good and bad rows of a source of lines, one by one, in constant memory.

    The first line decides how the source is read. If it begins with {, the source holds JSON lines,
    one object each, and the columns are keys. If a field of the first line is a number, or
    a date where times are read, that line is data, else a header. A last line without a newline
    counts if it is whole. Blank lines are skipped silently.

    Iterating raises DataError where no later line could be better: a missing column, an empty
    source, an encoding other than UTF-8, a new source whose header names other columns.

    Args:
        file: The source of the lines.
        columns: The wanted columns.
        name: The source's name, for messages.
        layout: The layout from an earlier part of the same input, so that no first line is needed
            again. A new source of the same input may begin with a header, which is not counted as a
            line and may have the columns in another order. None: the first line is examined.
        line: The number of lines that were read before.
        is_new: Whether the lines begin a new source; False if they are the rest of one.

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
        is_new: bool = True,
    ):
        self._n_before = 0
        if layout is None and columns.known_layout is not None:
            layout, self._n_before = columns.known_layout, columns.n_before
        self.layout, self._is_new = layout, is_new
        self._file, self._wanted, self._name, self._line = file, columns, name, line

    def __iter__(self) -> Iterator[Row | BadRow]:
        first_bad, is_first = "", self.layout is not None and self._is_new and not self._n_before
        for line, text in self._lines():
            try:
                if isinstance(text, BadLineError):
                    raise text
                if self.layout is None:
                    self.layout = self._layout_of(text)
                    if self.layout.header:
                        continue
                fields = self._fields(text, self.layout)
                if is_first and self._is_new_header(fields, self.layout):
                    self._line -= 1
                    continue
                if len(fields) != (n := self.layout.n_fields):
                    raise BadLineError(f"the line has {len(fields)} columns where {n} are expected")
                yield self._wanted.row(self.layout, line, fields)
            except MissingValueError as error:
                yield MissingRow(line, str(error))
            except BadLineError as error:
                first_bad = first_bad or f"line {line}: {error}"
                yield BadRow(line, str(error))
            finally:
                is_first = False
        if self.layout is None:
            content = f"no line that can be read ({first_bad})" if first_bad else "no lines"
            raise DataError(
                f"{self._name} holds {content}; it needs a header and rows: {self._wanted.wish}."
            )

    def _lines(self) -> Iterator[tuple[int, str | BadLineError]]:
        for _ in range(self._n_before):
            raw = self._read()
            self._line += bool(raw)
            self._skip_rest(raw)
        is_first = not self._n_before
        while raw := self._read():
            self._line += 1
            if isinstance(raw, RefusedLine):
                yield self._line, BadLineError(raw.reason)
                continue
            is_cut = len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n")
            if is_first:
                if self.layout is None:
                    require_encoding(raw, self._name)
                raw = raw.removeprefix(codecs.BOM_UTF8) if self._is_new else raw
                is_first = False
            if is_cut:
                self._skip_rest(raw)
                yield self._line, BadLineError(f"the line is longer than {MAX_LINE_BYTES} bytes")
                continue
            try:
                text = raw.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                yield (
                    self._line,
                    BadLineError("the line is not UTF-8 text; is it binary or encoded?"),
                )
                continue
            if "\0" in text:
                yield self._line, BadLineError("the line holds NUL bytes; is it binary or UTF-16?")
            elif text.strip():
                yield self._line, text

    def stay_on_line(self) -> None:
        """Give the line that is read next the number of the one before, as parts of one message."""
        self._line -= 1

    def _read(self) -> bytes:
        try:
            return self._file.readline(MAX_LINE_BYTES)
        except OSError as error:
            raise DataError(
                f"cannot read {self._name} ({error.strerror}); give a readable file of rows."
            ) from error

    def _skip_rest(self, raw: bytes) -> None:
        """Read on to the end of a line whose first bytes are `raw`, if they do not hold its end."""
        while raw and not raw.endswith(b"\n"):
            raw = self._read()

    def _layout_of(self, text: str) -> Layout:
        """Find the wanted columns in `text`, the first line that can be read."""
        if is_json(text):
            return self._wanted.json_layout(list(_object(text)), self._name)
        delimiter = self._wanted.format.delimiter or _find_delimiter(
            text, self._wanted.format.decimal
        )
        return self._wanted.layout(split_line(text, delimiter), delimiter, self._name)

    def _is_new_header(self, fields: list[str], known: Layout) -> bool:
        """Return whether `fields`, the first line of a new source, are a header and not a row.

        If so, the attribute `layout` becomes that of this header; `known` is the layout before.

        Raises:
            DataError: The header names other columns than were read before.
        """
        names = [field.strip() for field in fields]
        if known.kind == "json" or any(map(self._wanted.is_data, names)):
            return False
        if not set(names) & set(known.names):  # a bad row in the middle of a source
            return False
        layout = self._wanted.layout(fields, known.delimiter, self._name)
        if layout.names != known.names:
            raise DataError(
                f"{self._name} begins with the columns {plain(', '.join(names)[:200])}; "
                f"{plain(', '.join(known.names)[:200])} were read before. Bring the columns back, "
                "or start over with --force."
            )
        self.layout = layout
        return True

    def _fields(self, text: str, layout: Layout) -> list[str]:
        if layout.kind == "csv":
            return split_line(text, layout.delimiter, self._wanted.merges_spaces)
        row = _object(text)
        self._wanted.see(row)
        try:
            return fields_of(row, layout.names, self._wanted.may_lack)
        except ValueError as error:
            raise BadLineError(str(error)) from None


def require_encoding(raw: bytes, name: str) -> None:
    """Refuse a source that is not text, or is UTF-16, or whose lines end with only a CR.

    Args:
        raw: The first line of the source, with its end.
        name: The source's name, for messages.

    Raises:
        DataError: The line shows such a source; the message says how to convert it.
    """
    for start, what in PACKED.items():
        if raw.startswith(start):
            raise DataError(f"{name} is {what}.")
    marked = [known for mark, known in WIDE_ENCODINGS.items() if raw.startswith(mark)]
    unmarked = [known for known, start in UNMARKED.items() if start.match(raw)]
    for wide in (marked + unmarked)[:1]:
        raise DataError(f"{name} is encoded as {wide[:6]}; convert it: iconv -f {wide} -t UTF-8.")
    # A field's own CR stands between quotes.
    if not raw.endswith(b"\n") and b"\r" in raw.rstrip(b"\r") and not set(b'\0"') & set(raw):
        raise DataError(
            f"{name} ends its lines with CR alone, as old Macs did; convert it: tr '\\r' '\\n'."
        )


def first_lines(file: LineSource, name: str) -> list[bytes]:
    """Read the first lines of a source, at most `N_LINES` lines and about `N_BYTES` bytes.

    Of a line that is too long to be read, only the first `MAX_LINE_BYTES` bytes are returned; the
    others are passed over.

    Raises:
        DataError: The source cannot be read.
    """
    lines: list[bytes] = []
    n_bytes = 0
    while len(lines) < N_LINES and n_bytes < N_BYTES:
        try:
            raw = rest = file.readline(MAX_LINE_BYTES)
            while len(rest) == MAX_LINE_BYTES and not rest.endswith(b"\n"):
                rest = file.readline(MAX_LINE_BYTES)
        except OSError as error:
            raise DataError(f"cannot read {name} ({error.strerror}); give a file.") from error
        if not raw:
            break
        lines.append(raw)
        n_bytes += len(raw)
    return lines


def is_too_long(raw: bytes) -> bool:
    """Return whether one of `first_lines` is the start of a line that is too long to be read."""
    return len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n")


def _object(text: str) -> dict[str, Any]:
    try:
        return parse_object(text)
    except ValueError as error:
        raise BadLineError(str(error)) from None


def split_line(text: str, delimiter: str, merges_spaces: bool = False) -> list[str]:
    """Return the fields of a CSV line; raise BadLineError if a quote is misplaced.

    Args:
        text: The line without its end.
        delimiter: The character between fields.
        merges_spaces: Whether several spaces are one delimiter, if the delimiter is a space.
    """
    if merges_spaces and delimiter == " ":
        # Every second part is outside of quotes.
        parts = [SPACES.sub(" ", p) if i % 2 == 0 else p for i, p in enumerate(text.split('"'))]
        text = '"'.join(parts).strip(" ")
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        raise BadLineError("the line has a misplaced quote or line break") from None


def _find_delimiter(text: str, decimal: str) -> str:
    """Return the sign of , ; tab and | that most likely separates the fields of a line.

    It is the sign that the line holds most often. A comma between digits does not count, since it
    may be a decimal one; where `decimal` is a comma, commas count only if there is no other sign.
    """
    others = ";\t|"
    best = max(others, key=text.count)
    if best not in text:
        return ","
    if decimal == ",":
        return best
    commas = re.sub(r"(?<=\d),(?=\d)", "", text).count(",")
    return "," if commas >= text.count(best) else best
