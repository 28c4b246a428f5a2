"""Read a table whose form is unknown: find its clock and its sensors by its first lines.

    first lines ──> delimiter, header ──> what each column holds ──> the clock, the values ──> rows

The clock holds the time of each row. It is a column of dates, or one of dates and one of times of
the day, or one of numbers that rise (numbers that count seconds or parts of them since 1970 are
recognized by their size). A table without a clock has rows at even steps. Every other column of
numbers is a sensor. The notes of a table say which columns are left out, and why.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import (
    BadLineError,
    Columns,
    Layout,
    MissingValueError,
    Row,
)
from edgefold.runtime.rows.csv_fields import (
    NUMBER,
    Clock,
    parse_number,
    plain,
    shown,
    ungrouped,
    with_point,
)
from edgefold.runtime.rows.csv_reader import (
    BadRow,
    CsvRows,
    LineSource,
    first_lines,
    is_too_long,
)
from edgefold.runtime.rows.dates import is_data, parse_date
from edgefold.runtime.rows.detect.backward import BackwardLines
from edgefold.runtime.rows.detect.cells import decimal_sign, joined, look_at
from edgefold.runtime.rows.detect.choice import Choice, choose
from edgefold.runtime.rows.detect.head import column_names, read_head
from edgefold.runtime.rows.json_lines import WrittenNumber
from edgefold.runtime.rows.row_format import RowFormat
from edgefold.runtime.rows.sensor_columns import MAX_NAME, SensorsRow

MOST_UNREAD = 20
"""The largest number of JSON keys whose lines are counted though the key is not read."""


class TableColumns(Columns):
    """Reads the chosen clock and sensors of a table; each line becomes a `SensorsRow`.

    A cell without a value becomes a row with the value NaN: time has passed, and the sensor has
    measured nothing.

    Args:
        choice: Which columns are the clock and the sensors.
        format: How fields are written.
        layout: Where the columns are in a line.
        n_before: The number of lines before the first row. In a table without a clock, the time of
            a row is its number, counted from there.
        reads_groups: Whether numbers may have signs between their thousands, as 1,000.5 has. This
            is so where it is known which sign is the decimal one.
        keys: For JSON lines, all keys of the lines by which the table was found.

    Attributes:
        clock: Whether times are dates, in seconds since 1970, or numbers.
        names_single: Whether the rows of a sensor that is the only one carry the name of its column
            (True) or an empty name.
        unread: For JSON lines, the number of lines that have a key which the first lines do not
            have, by key; at most `MOST_UNREAD` keys are counted.
    """

    may_lack = merges_spaces = True
    names_single = True

    def __init__(
        self,
        choice: Choice,
        format: RowFormat,
        layout: Layout,
        n_before: int,
        reads_groups: bool = True,
        keys: Sequence[str] = (),
    ):
        super().__init__(choice.columns, (), (), "--time, --columns", format)
        self.choice, self.n_before = choice, n_before
        self.sensor_column = choice.series or self.sensor_column
        self.reads_groups = reads_groups
        self._keys, self.unread = frozenset(keys), dict[str, int]()
        self._between = _between(choice.values)
        self.known_layout = self._layout = layout
        self.clock: Clock = "date" if choice.is_dated else "number"
        self._n_time, self._n_values = len(choice.time), len(choice.values)

    @property
    def form(self) -> dict[str, Any]:  # type: ignore[override]
        """Return the choice, format, layout and `n_before` as plain JSON, for a snapshot."""
        parts = asdict(self.choice), self.format.to_json(), asdict(self._layout)
        choice, format, layout = parts
        del choice["notes"], choice["is_backward"]
        return {
            "choice": choice,
            "format": format,
            "layout": layout,
            "n_before": self.n_before,
            "reads_groups": self.reads_groups,
            "keys": sorted(self._keys),
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> TableColumns:
        """Rebuild the columns from the JSON that the property `form` returned.

        Raises:
            DataError, KeyError, TypeError, ValueError: The JSON is damaged.
        """
        choice, layout = Choice.from_json(form["choice"]), Layout.from_json(form["layout"])
        n_before, reads_groups = form["n_before"], form.get("reads_groups", False)
        keys = form.get("keys", ())
        if type(n_before) is not int or n_before < 0 or len(layout.names) != len(choice.columns):
            raise ValueError("a table is damaged")
        if layout.kind == "csv" and layout.names != choice.columns:
            raise ValueError("the columns of a table are damaged")
        if type(reads_groups) is not bool or not all(isinstance(key, str) for key in keys):
            raise ValueError("a table is damaged")
        format = RowFormat.from_json(form["format"])
        return cls(choice, format, layout, n_before, reads_groups, keys)

    def is_data(self, field: str) -> bool:
        """Return whether a field of the first line shows that this line is data, not a header."""
        return is_data(field, self.format.time_format)

    def layout(self, fields: list[str], delimiter: str, source: str) -> Layout:
        """Find the chosen columns in a new header, which may have another order of columns.

        An input that continues in a new file may begin with such a header.

        Args:
            fields: The fields of the new header.
            delimiter: The character between fields.
            source: The input's name, for messages.

        Raises:
            DataError: A column is not in the header.
        """
        names = column_names([field.strip() for field in fields])
        for name in self.defaults:
            if name not in names:
                listed = ", ".join(map(plain, names))[:200]
                raise DataError(f"{source} has no column {name!r}; its columns are {listed}.")
        places = tuple(names.index(name) for name in self.defaults)
        return Layout(self.defaults, places, len(names), delimiter, tuple(names))

    def names_in(self, layout: Layout, source: str) -> tuple[str, ...]:
        """Return the names of the chosen columns, or of the keys; `source` is not used."""
        return layout.names

    def see(self, row: Mapping[str, Any]) -> None:
        """Count the keys of a JSON line that no line had by which the table was found."""
        if not self._keys:  # of an older snapshot, which does not hold them
            return
        for key in row.keys() - self._keys:
            if key in self.unread or len(self.unread) < MOST_UNREAD:
                self.unread[key] = self.unread.get(key, 0) + 1

    def row(self, layout: Layout, line: int, fields: list[str]) -> SensorsRow:
        """Read the fields of a line; raise BadLineError if it has no time or names no sensor."""
        cells = [fields[place] for place in layout.positions]
        time, text = self._time(cells[: self._n_time], line)
        head = self._sensor(cells[-1]) if self.choice.series else ""
        parts = []
        values = cells[self._n_time : self._n_time + self._n_values]
        for name, cell in zip(self.choice.values, values, strict=True):
            if head:
                whole = f"{head}{self._between}{name}" if self._n_values > 1 else head
            else:
                whole = name if self.names_single or self._n_values > 1 else ""
            parts.append((whole, self._value(name, cell, line, time, text)))
        return SensorsRow(line, (), (), tuple(parts))

    def _time(self, cells: list[str], line: int) -> tuple[float, str]:
        """Return the time of a line as a number and as text, from the cells of the time columns.

        In a table without such columns, the time is the row's number.
        """
        if not cells:
            number = line - self.n_before
            return float(number), str(number)
        text = joined(*cells) if len(cells) == 2 else cells[0].strip()
        try:
            if not text or self.format.is_missing(text):
                raise ValueError("is empty" if not text else f"holds no time but {shown(text)}")
            if self.choice.clock == "dates":
                return parse_date(text, self.format.time_format), text
            sign = "." if isinstance(cells[0], WrittenNumber) else self.format.decimal
            point = with_point(text, sign)
            return parse_number(text, sign) * self.choice.unit_s, point
        except ValueError as error:
            raise BadLineError(f"column {plain(self.choice.time[0])} {error}") from None

    def _sensor(self, cell: str) -> str:
        name = cell.strip()
        if not (1 <= len(name) <= MAX_NAME and name.isprintable()):
            raise BadLineError(
                f"column {plain(self.choice.series)} is {shown(name)}, which names no sensor"
            )
        return name

    def _value(self, name: str, cell: str, line: int, time: float, text: str) -> Row | BadRow:
        sign = "." if isinstance(cell, WrittenNumber) else self.format.decimal
        written = cell.strip()
        whole = ungrouped(written, sign)
        if self.reads_groups:
            written = whole
        try:
            value = self.parse_value(written, sign)
        except MissingValueError:
            return Row(line, (time, float("nan")), (text, ""))
        except ValueError as error:
            reason, other = str(error), "," if sign == "." else "."
            if whole != written:
                reason = (
                    f"is {shown(written)}, which --decimal {sign} reads as {whole} and --decimal "
                    f"{other} as {written.replace(',', '.')}"
                )
            return BadRow(line, f"column {plain(name)} {reason}")
        point = with_point(written, sign)
        return Row(line, (time, value), (text, point if NUMBER.fullmatch(point) else written))


def _between(values: Sequence[str]) -> str:
    """Return what stands between a sensor's name and a column's, so that no two names are alike.

    A space would make the sensor `x` with the column `a b` the same as `x a` with `b`.
    """
    known = set(values)
    for sign in (" ", ": ", " / ", " | "):
        parts = [name.split(sign) for name in values]
        if not any(sign.join(p[i:]) in known for p in parts for i in range(1, len(p))):
            return sign
    return " || "


def _at_line(row: SensorsRow | BadRow, line: int) -> SensorsRow | BadRow:
    """Return a row with another line number."""
    if isinstance(row, SensorsRow):
        parts = tuple((name, replace(part, line=line)) for name, part in row.parts)
        return replace(row, line=line, parts=parts)
    return replace(row, line=line)


@dataclass(frozen=True, slots=True)
class Table:
    """Holds a table whose columns were chosen by its first lines, ready to be read.

    Attributes:
        columns: The columns that are read: which they are, where they stand and how they are read.
        notes: Sentences, without a full stop, that say what was assumed and left out.
        n_named: The number of sensors that the first lines name, if a column names them; else 0.
    """

    columns: TableColumns
    notes: tuple[str, ...]
    n_named: int
    _source: LineSource
    _name: str

    @property
    def choice(self) -> Choice:
        """Return which columns are the clock and the sensors."""
        return self.columns.choice

    def rows(self) -> Iterator[SensorsRow | BadRow]:
        """Iterate over all rows of the table, once; a line that cannot be read is a BadRow.

        The oldest row is the first, also of a table that begins with its newest row.
        """
        rows: Iterator[SensorsRow | BadRow] = iter(
            CsvRows(self._source, self.columns, self._name)  # type: ignore[arg-type]  # as of `row`
        )
        if not isinstance(self._source, BackwardLines):
            yield from rows
            return
        last = self._source.n_lines + self.columns.n_before + 1
        for row in rows:
            yield _at_line(row, last - row.line)


class _Replayed:
    """Gives the first lines of a file, which were already read, again, and then the other lines."""

    def __init__(self, lines: Sequence[bytes], file: LineSource):
        ended = (one for line in lines for one in ([line, b"\n"] if is_too_long(line) else [line]))
        self._lines, self._file = list(ended)[::-1], file

    def readline(self, size: int, /) -> bytes:
        """Return the next line with its end, or at most `size` bytes of it; b"" at the end."""
        return self._lines.pop() if self._lines else self._file.readline(size)


def open_table(
    file: LineSource,
    name: str = "the input",
    time: str | None = None,
    values: Sequence[str] | None = None,
    series: str | None = None,
    given: Mapping[str, Any] | None = None,
    beside: Sequence[str] = (),
) -> Table:
    """Choose the columns of a table by its first lines, and return the table ready to be read.

    Args:
        file: The lines of the table, which are read once; CSV of any common form, or JSON lines.
        name: The input's name, for messages.
        time: The name of the column of times; found if None.
        values: The names of the columns of values; if None, all other columns of numbers.
        series: The name of the column that names the sensor of each row; found if None.
        given: The settings of `RowFormat` that are known, by name; the others are found.
        beside: The names of columns that are read in addition, as the last ones of the values.

    Raises:
        DataError: There are no rows, or no column of numbers, or a named column is missing.
    """
    lines = first_lines(file, name)
    if beside:
        table = _find_with_beside(lines, name, time, values, series, given, beside)
    else:
        table = find_table(lines, name, time, values, series, given, turns=True)
    if not table.choice.is_backward:
        return replace(table, _source=_Replayed(lines, file))
    return replace(table, _source=BackwardLines(lines, file, table.columns.n_before))


def _find_with_beside(
    lines: Sequence[bytes],
    name: str,
    time: str | None,
    values: Sequence[str] | None,
    series: str | None,
    given: Mapping[str, Any] | None,
    beside: Sequence[str],
) -> Table:
    """Return what `find_table` does, with columns that are read beside those of values.

    The arguments are those of `open_table`, with the table's first lines.

    Raises:
        DataError: A column beside is that of times, holds no numbers, or is one of the values; no
            column of values is left; or a column names the sensors.
    """
    found = find_table(lines, name, time, values, series, given, turns=True).choice
    if found.series:
        raise DataError(
            f"{name}: --with needs a column for each sensor, and the column {found.series!r} names "
            "the sensor of each row; write the table with a line for each time."
        )
    own = [column for column in found.values if values is not None or column not in beside]
    for column in beside:
        if column in found.time:
            raise DataError(
                f"{name}: the column {column!r} tells the times; leave it out of --with."
            )
        if column in own:
            raise DataError(f"{name}: the column {column!r} is in --columns and in --with.")
    if not own:
        raise DataError(f"{name} has no column of numbers but those named with --with.")
    table = find_table(lines, name, time, [*own, *beside], series, given, turns=True)
    rows = [dict(row.parts) for row in table.rows() if isinstance(row, SensorsRow)]
    for column in beside:
        cells = [row[column] for row in rows if column in row]
        bad = [cell for cell in cells if isinstance(cell, BadRow)]
        if bad and 2 * len(bad) > len(cells):
            raise DataError(
                f"{name}, line {bad[0].line}: {bad[0].reason.rstrip('.')}. A column of --with "
                "holds numbers; write a switch as 0 and 1."
            )
    return table


def find_table(
    lines: Sequence[bytes],
    name: str = "the input",
    time: str | None = None,
    values: Sequence[str] | None = None,
    series: str | None = None,
    given: Mapping[str, Any] | None = None,
    options: tuple[str, str] = ("--columns", "--series"),
    turns: bool = False,
) -> Table:
    """Choose the columns of a table by its first lines, and return a table of only these lines.

    Args:
        lines: The first lines, with their ends.
        name: The input's name, for messages.
        time: The name of the column of times; found if None.
        values: The names of the columns of values; if None, all other columns of numbers.
        series: The name of the column that names the sensor of each row; found if None; "" if
            all rows are of one sensor.
        given: The settings of `RowFormat` that are known, by name; the others are found.
        options: The command's options that name the columns of values and of the sensors' names.
        turns: Whether a table may begin with its newest row.

    Raises:
        DataError: There are no rows, or no column of numbers, or a named column is missing, or the
            table can be read in two ways.
    """
    given = given or {}
    head = read_head(lines, name, RowFormat(**given))
    late = head.add_keys(values or ()) if head.keys else []
    format, reads_groups = head.format, True
    if "decimal" not in given:
        decimal, reads_groups = decimal_sign(head.cells, format.delimiter, name)
        format = replace(format, decimal=decimal)
    columns = [look_at(n, c, format) for n, c in zip(head.names, head.cells, strict=True)]
    choice = choose(columns, name, time, values, series, options, turns)
    if choice.clock == "dates" and format.time_format is None:
        format = replace(format, time_format=choice.time_format)
    notes = [*head.notes, *choice.notes]
    if choice.is_backward:
        notes.append("the newest row comes first; the rows are read from the last to the first")
    notes += [f"none of the first lines has the key {plain(key)}" for key in late]
    if format.decimal == "," and "decimal" not in given:
        notes.append("numbers have a decimal comma")
    sensors = {text for cells in columns if cells.name == choice.series for text in cells.texts}
    return Table(
        TableColumns(
            choice,
            format,
            head.layout(choice.columns),
            head.n_before,
            reads_groups,
            head.keys,
        ),
        tuple(notes),
        len(sensors) * len(choice.values),
        _Replayed(lines, io.BytesIO()),
        name,
    )
