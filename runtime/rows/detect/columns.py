"""Read a table of which nothing is known: find its clock and its sensors by its first lines.

    first lines ──> delimiter, header ──> what each column holds ──> the clock, the values ──> rows

The clock is a column of dates, or a date and a time of the day, or numbers that rise (seconds since
1970 and parts of them are known by their size); a table without one has rows at even steps. Every
other column of numbers is a sensor. What is left out is told with its reason. The lines are read
once: those that were looked at come first in what `Table.rows` gives.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgefold.runtime.rows.csv_columns import (
    BadLineError,
    Columns,
    Layout,
    MissingValueError,
    Row,
)
from edgefold.runtime.rows.csv_fields import NUMBER, parse_number, plain, shown, with_point
from edgefold.runtime.rows.csv_reader import BadRow, CsvRows, LineSource
from edgefold.runtime.rows.dates import parse_date
from edgefold.runtime.rows.detect.cells import decimal_sign, joined, look_at
from edgefold.runtime.rows.detect.choice import Choice, choose
from edgefold.runtime.rows.detect.head import Replayed, read_head
from edgefold.runtime.rows.json_lines import WrittenNumber
from edgefold.runtime.rows.row_format import RowFormat
from edgefold.runtime.rows.sensor_columns import MAX_NAME, SensorsRow


class TableColumns(Columns):
    """The clock and the sensors of a table, as they were chosen; each line is a `SensorsRow`.

    A cell without a value is a row with the value NaN: the clock has gone on, and the sensor has
    told nothing.

    Args:
        choice: The columns.
        format: How fields are written.
        first_line: The line of the first row; rows of a table without a clock count from it.
    """

    may_lack = True

    def __init__(self, choice: Choice, format: RowFormat, first_line: int):
        super().__init__((*choice.time, *choice.values), (), (), "--time, --columns", format)
        self.choice, self._first_line = choice, first_line
        self._n_time, self._n_values = len(choice.time), len(choice.values)

    def row(self, layout: Layout, line: int, fields: list[str]) -> SensorsRow:
        """Read a line's fields; raises BadLineError where it has no time or names no sensor."""
        if len(fields) != layout.n_fields:
            raise BadLineError(
                f"the line has {len(fields)} columns where {layout.n_fields} are expected"
            )
        cells = [fields[place] for place in layout.positions]
        time, text = self._time(cells[: self._n_time], line)
        head = self._sensor(cells[-1]) if self.choice.series else ""
        parts = []
        values = cells[self._n_time : self._n_time + self._n_values]
        for name, cell in zip(self.choice.values, values, strict=True):
            whole = (f"{head} {name}" if self._n_values > 1 else head) if head else name
            parts.append((whole, self._value(name, cell, line, time, text)))
        return SensorsRow(line, (), (), tuple(parts))

    def _time(self, cells: list[str], line: int) -> tuple[float, str]:
        """A line's time, and how it is written."""
        if not cells:
            number = line - self._first_line + 1
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
        try:
            value = self.parse_value(cell.strip(), sign)
        except MissingValueError:
            return Row(line, (time, float("nan")), (text, ""))
        except ValueError as error:
            return BadRow(line, f"column {plain(name)} {error}")
        point = with_point(cell.strip(), sign)
        return Row(line, (time, value), (text, point if NUMBER.fullmatch(point) else cell.strip()))


@dataclass(frozen=True, slots=True)
class Table:
    """A table that was looked at, ready to be read.

    Attributes:
        columns: Which columns are read, and how.
        layout: Where they are.
        n_before: Lines before the first row.
        notes: What was assumed and left out, as sentences without a point.
    """

    columns: TableColumns
    layout: Layout
    n_before: int
    notes: tuple[str, ...]
    _source: LineSource
    _name: str

    @property
    def choice(self) -> Choice:
        """The clock and the sensors."""
        return self.columns.choice

    def rows(self) -> Iterator[SensorsRow | BadRow]:
        """Read all rows, once; a line that cannot be read is a BadRow."""
        reader = CsvRows(
            self._source, self.columns, self._name, self.layout, self.n_before, is_new=False
        )
        yield from reader  # type: ignore[misc]  # its rows are those of `TableColumns.row`


def open_table(
    file: LineSource,
    name: str = "the input",
    time: str | None = None,
    values: Sequence[str] | None = None,
    series: str | None = None,
    given: Mapping[str, Any] | None = None,
) -> Table:
    """Look at the first lines of a table, and choose its columns.

    Args:
        file: Its lines; CSV of any common form, or JSON lines.
        name: Of the input, for messages.
        time: The column of times; found by default.
        values: The columns of values; all columns of numbers by default.
        series: The column that names the sensor of each row; found where times repeat.
        given: Settings of `RowFormat` that are known; the others are found.

    Raises:
        DataError: There are no rows, or no column of numbers, or a named column is missing.
    """
    given = given or {}
    head = read_head(file, name, RowFormat(**given))
    format = head.format
    if "decimal" not in given:
        format = replace(format, decimal=decimal_sign(head.cells))
    columns = [look_at(n, c, format) for n, c in zip(head.names, head.cells, strict=True)]
    choice = choose(columns, name, time, values, series)
    if choice.clock == "dates" and format.time_format is None:
        format = replace(format, time_format=choice.time_format)
    notes = [*head.notes, *choice.notes]
    if format.decimal == "," and "decimal" not in given:
        notes.append("numbers have a decimal comma")
    wanted = (*choice.time, *choice.values, *filter(None, [choice.series]))
    return Table(
        TableColumns(choice, format, head.n_before + 1),
        head.layout(wanted),
        head.n_before,
        tuple(notes),
        Replayed(head.lines, file),
        name,
    )
