"""Turn the lines that a board prints into rows, each line by itself.

    line                             sensors, at the time of receipt
    21.5                             value
    temperature:21.5,humidity:40     temperature, humidity      (as Arduino's plotter reads it)
    {"temperature": 21.5}            temperature
    21.5,40                          column 1, column 2, or the names that --value or a header gives
    2026-01-01T10:00:00Z,21.5        value, at that time

A board may be reset at any moment, and then prints a header again, a greeting, or bytes that are no
text. So a header is known when it comes, and a line that is none of these forms is a refused row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import BadLineError
from edgefold.runtime.rows.csv_fields import NUMBER, is_number, shown, with_point
from edgefold.runtime.rows.csv_reader import RefusedLine, split_line
from edgefold.runtime.rows.dates import is_data
from edgefold.runtime.rows.row_format import RowFormat
from edgefold.runtime.sources.message import Message
from edgefold.runtime.sources.message_rows import (
    FIRST_S,
    RECEIVED,
    TIME_KEYS,
    MessageKeys,
    MessageRows,
    iso,
    object_of,
)

LONGEST = 8192
"""A line of so many bytes without an end is refused."""
CLOCKS = {*TIME_KEYS, "millis", "micros", "ms", "us", "uptime"} - {"t"}
"""Names of times. A number below them that is no time counts from the start of a board that has no
clock, and is not a value either."""
NAME = re.compile(r"[^\W\d][^:=]{0,99}")
PAIR = re.compile(r"([^\W\d][^:=]{0,99}?)\s*[:=]\s*(\S+)")
NOISE = 3
"""So many lines in a row that are no text are reported at once, since the speed may be wrong."""


class LineFields(dict[str, Any]):
    """Holds the fields of a line that is no JSON, as texts by their names."""


class LineRows(MessageRows):
    """Turns the lines of a serial line into lines of JSON.

    Args:
        keys, of_sensors: See `MessageRows`.
        columns: Names of the fields in a line without names. A line with one field more begins
            with its time.
        format: How the fields are written.
        tell: Function that gets a sentence for the user.
    """

    def __init__(
        self,
        keys: MessageKeys,
        of_sensors: bool,
        columns: Sequence[str] = (),
        format: RowFormat | None = None,
        tell: Callable[[str], None] = lambda sentence: None,
    ):
        super().__init__(keys, of_sensors, tell)
        self._columns, self._format = tuple(columns), format or RowFormat()
        self._time_name = keys.time if keys.time not in (None, RECEIVED) else "time"
        self._header: tuple[str, ...] = ()
        self._n_fields = 0  # of the last line without names
        self._has_rows = False  # whether a row took its names from the header, or had none
        self._n_noise = 0

    def place(self) -> dict[str, Any]:
        """Return, as a JSON object, how the lines so far were named."""
        return {"header": list(self._header), "fields": self._n_fields}

    def resume(self, place: Mapping[str, Any]) -> None:
        """Go on with the names of an earlier run, as `place` returned them.

        Raises:
            DataError: The names are damaged.
        """
        header, n_fields = place.get("header", []), place.get("fields", 0)
        is_named = isinstance(header, list) and all(isinstance(name, str) for name in header)
        if not is_named or type(n_fields) is not int:
            raise DataError("the names of a serial line's fields are damaged in the snapshot.")
        self._header, self._n_fields = tuple(header), n_fields
        self._has_rows = bool(header or n_fields)

    def lines(self, message: Message) -> list[bytes]:
        """Return the lines of JSON for a line of the board; none for a header."""
        try:
            row = self._row(self._text(message.payload))
        except BadLineError as error:
            return [RefusedLine.because(str(error))]
        if row is None:
            return []
        if self._of_sensors:
            return self._lines_of(row, message)
        times = {RECEIVED: iso(message.received)}
        if not any(key.lower() in TIME_KEYS for key in row):
            times["time"] = times[RECEIVED]
        return [json.dumps({**times, **row}).encode() + b"\n"]

    def is_header(self, payload: bytes) -> bool:
        """Return whether a line names fields, or may do so."""
        try:
            return self._names_fields(self._split(payload.decode())[0])
        except (BadLineError, UnicodeDecodeError):
            return False

    def _text(self, payload: bytes) -> str:
        """Return a line as text; raise BadLineError for bytes that are no text."""
        text = payload.decode(errors="replace").strip()
        n_bad = sum(sign == "\ufffd" or not (sign.isprintable() or sign == "\t") for sign in text)
        is_noise = 3 * n_bad >= len(text)
        self._n_noise = self._n_noise + 1 if is_noise else 0
        if self._n_noise == NOISE:
            self._tell(f"{NOISE} lines in a row are no text; is the baud rate right?")
        if n_bad:
            why = "; is the baud rate right?" if is_noise else ", as when a board is reset"
            raise BadLineError(f"{n_bad} of {len(text)} characters are no text{why}")
        if len(payload) >= LONGEST:
            raise BadLineError(f"the line has no end in {LONGEST:,} bytes")
        return text

    def _row(self, text: str) -> dict[str, Any] | None:
        """Return the numbers of a line by their names; None for a header.

        Raises:
            BadLineError: The line has none of the known forms.
        """
        if text.startswith("{"):
            if (found := object_of(text.encode())) is None:
                raise BadLineError(f"the line is not a JSON object: {shown(text)}")
            return found
        fields, is_split = self._split(text)
        if pairs := self._pairs(text, fields, is_split):
            return LineFields(pairs)
        if self._names_fields(fields):
            self._take_header(tuple(fields))
            return None
        if not any(is_number(field) or self._format.is_missing(field) for field in fields):
            raise BadLineError(f"the line holds no number: {shown(text)}")
        names = self._names(fields)
        self._has_rows = True
        return LineFields(zip(names, fields, strict=True))

    def _split(self, text: str) -> tuple[list[str], bool]:
        """Return the fields of a line, and whether a sign other than spaces stands between them."""
        given = self._format.delimiter
        for sign in [given] if given else [*";\t,"]:
            if sign in text and sign != self._format.decimal:
                fields = split_line(text.strip(), sign, merges_spaces=True)
                return [field.strip() for field in fields], True
        return text.split(), False

    def _pairs(self, text: str, fields: Sequence[str], is_split: bool) -> list[tuple[str, str]]:
        """Return the names and values of a line whose fields are all NAME:VALUE; else none."""
        if not is_split:
            fields = re.sub(r"\s*([:=])\s*", r"\1", text).split()
        found = [PAIR.fullmatch(field) for field in fields]
        return [(match[1], match[2]) for match in found if match] if all(found) else []

    def _names_fields(self, fields: Sequence[str]) -> bool:
        """Return whether the fields of a line can be a header: two names or more, no number."""
        is_named = all(
            NAME.fullmatch(field) and not self._format.is_missing(field) for field in fields
        )
        return len(set(fields)) == len(fields) > 1 and is_named

    def _take_header(self, header: tuple[str, ...]) -> None:
        """Name the fields of later lines.

        Raises:
            BadLineError: Rows before it had other names, and none is given.
        """
        is_other = self._has_rows and not set(header) & set(self._header)
        if is_other and not self._columns:
            former = f"were named {', '.join(self._header)}" if self._header else "had no header"
            raise BadLineError(
                f"the line holds the words {', '.join(header)[:200]}, and rows before it {former}"
            )
        self._header = header

    def _names(self, fields: Sequence[str]) -> Sequence[str]:
        """Return the names of the fields of a line that has none itself.

        Raises:
            BadLineError: It has another number of fields than are named, or than the line before.
        """
        n, given, header = len(fields), self._columns, self._header
        if len(header) == n and set(given) <= set(header):
            return header
        for named in (given, (self._time_name, *given) if given else ()):
            if len(named) == n:
                return named
        if given or header:
            what = f"{len(given)} are named" if given else f"the header has {len(header)}"
            raise BadLineError(f"the line has {n} fields where {what}")
        former, self._n_fields = self._n_fields, n
        if former not in (0, n):
            raise BadLineError(f"the line has {n} fields where the one before it has {former}")
        if n == 1:
            return ("value",)
        names = [f"column {i + 1}" for i in range(n)]
        if self._is_time(fields[0]):
            names[0] = self._time_name
            names[1:] = ["value"] if n == 2 else names[1:]
        return names

    def _is_time(self, text: str) -> bool:
        point = with_point(text, self._format.decimal)
        if NUMBER.fullmatch(point):
            return float(point) >= FIRST_S
        return is_data(text, self._format.time_format)

    def _series(self, message: Message, key: str) -> str:
        return key

    def _values(self, row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        if self._keys.values or not isinstance(row, LineFields):
            yield from super()._values(row)
            return
        skipped = {self._keys.time, *self._clocks(row)}
        yield from ((name, text) for name, text in row.items() if name not in skipped)

    def _clocks(self, row: Mapping[str, Any]) -> set[str]:
        return super()._clocks(row) | {key for key in row if key.lower() in CLOCKS}
