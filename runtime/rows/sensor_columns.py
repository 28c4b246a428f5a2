"""Find the sensors in the lines of one input.

An input is long if a column names the sensor of each line, or wide if each sensor has a column:

    long                      wide
    time,value,sensor         time,roof,cellar
    12:00,21.5,roof           12:00,21.5,8.2
    12:00,8.2,cellar          12:10,,8.1        roof has no value in this line

Each line becomes a `SensorsRow`, which holds for each sensor of the line a row, or the reason why
the row cannot be used. The columns of a single sensor read the fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import (
    BadLineError,
    Columns,
    Layout,
    MissingValueError,
    Row,
)
from edgefold.runtime.rows.csv_fields import plain, shown
from edgefold.runtime.rows.csv_reader import BadRow, MissingRow

MAX_NAME = 100


@dataclass(frozen=True, slots=True)
class SensorsRow(Row):
    """Holds one line as the rows of its sensors; the inherited `numbers` and `texts` are empty.

    Attributes:
        parts: A pair for each sensor of the line: the sensor's name, and its row or a `BadRow` with
            the reason why the row cannot be used.
    """

    parts: tuple[tuple[str, Row | BadRow], ...]


class LongColumns(Columns):
    """Finds and reads the columns of a long input, where one column names each line's sensor.

    Args:
        rows: The columns of one sensor, such as time and value, which read its fields.
        stream: The name of the column that names the sensor.
        what: The word for a sensor in messages.
        option: The command's option that names the column `stream`.
    """

    def __init__(self, rows: Columns, stream: str, what: str = "sensor", option: str = "--stream"):
        self._rows, self._stream, self._what, self._option = rows, stream, what, option
        self.sensor_column = stream
        self.defaults, self.format = (*rows.defaults, stream), rows.format
        self.wish = ",".join(self.defaults)
        self._known: Layout | None = None  # of the last line, whose part for one sensor is kept
        self._own: Layout

    def is_data(self, field: str) -> bool:
        """Return whether a field of the first line shows that this line is data, not a header."""
        return self._rows.is_data(field)

    def layout(self, fields: list[str], delimiter: str, source: str) -> Layout:
        """Find the columns in the first line, which must be a header; raise DataError otherwise."""
        header = tuple(field.strip() for field in fields)
        return self._with_stream(self._rows.layout(fields, delimiter, source), header, source)

    def json_layout(self, keys: Sequence[str], source: str) -> Layout:
        """Find the columns among the keys of the first object; raise DataError if one is absent."""
        layout = self._with_stream(self._rows.json_layout(keys, source), keys, source)
        return replace(
            layout, positions=tuple(range(len(layout.names))), n_fields=len(layout.names)
        )

    def _with_stream(self, layout: Layout, header: Sequence[str], source: str) -> Layout:
        """Add the column that names the sensor to a layout of one sensor's columns.

        The column is sought in `header`; messages call the input `source`.
        """
        if list(header).count(self._stream) != 1:
            raise DataError(
                f"{source} has {list(header).count(self._stream) or 'no'} columns named "
                f"{self._stream!r} in its first line, {plain(', '.join(header)[:200])}; name with "
                f"{self._option} the one that names the {self._what}."
            )
        if self._stream in layout.names:
            raise DataError(
                f"{source}: the column {self._stream!r} cannot both name the {self._what} and be "
                f"one of {self._rows.wish}; name another one with {self._option}."
            )
        place = list(header).index(self._stream)
        return replace(
            layout, names=(*layout.names, self._stream), positions=(*layout.positions, place)
        )

    def taken_by_place(self, layout: Layout) -> tuple[str, ...]:
        """Return (): a table with a column of sensors has names."""
        return ()

    def names_in(self, layout: Layout, source: str) -> tuple[str, ...]:
        """Return the wanted columns' names in the input called `source`, whose layout is known."""
        if layout.kind == "csv":
            return self.layout(list(layout.header), layout.delimiter, source).names
        return (*self._rows.names_in(_without_last(layout), source), self._stream)

    def row(self, layout: Layout, line: int, fields: list[str]) -> SensorsRow:
        """Read the fields of a line; raise BadLineError if the line names no sensor."""
        name = fields[layout.positions[-1]].strip()
        if not 1 <= len(name) <= MAX_NAME:
            what = f"is longer than {MAX_NAME} characters" if name else "is empty"
            raise BadLineError(f"column {plain(self._stream)} {what}")
        if not name.isprintable():
            raise BadLineError(
                f"column {plain(self._stream)} is {shown(name)}, which cannot be printed"
            )
        if layout is not self._known:
            self._known, self._own = layout, _without_last(layout)
        return SensorsRow(line, (), (), ((name, _read(self._rows, self._own, line, fields)),))


class WideColumns(Columns):
    """Finds and reads the columns of a wide input: one of times, and one of values for each sensor.

    Args:
        one: The columns of one sensor, which read its fields.
        time: The name of the column of times; None if it is called "time".
        values: The names of the columns of values, which are also the names of the sensors.
    """

    may_lack = True  # a line may hold the values of only some sensors

    def __init__(self, one: Columns, time: str | None, values: Sequence[str]):
        self._one = one
        # If the user names no column of times, the one of training is taken.
        remembered = (*one.remembered[:1], *values) if one.remembered else ()
        super().__init__(
            ("time", *values), (time, *values), (), "--time, --value", one.format, remembered
        )
        self._known: Layout | None = None  # of the last line, whose parts for the sensors are kept
        self._own: tuple[Layout, ...] = ()

    def is_data(self, field: str) -> bool:
        """Return whether a field of the first line shows that this line is data, not a header."""
        return self._one.is_data(field)

    def row(self, layout: Layout, line: int, fields: list[str]) -> SensorsRow:
        """Read the fields of a line; raise BadLineError if no sensor can use the line."""
        if layout is not self._known:
            self._known, self._own = layout, _pairs(layout)
        parts = [(own.names[1], _read(self._one, own, line, fields)) for own in self._own]
        reasons = {part for _, part in parts}
        if len(parts) > 1 and len(reasons) == 1 and isinstance(bad := reasons.pop(), BadRow):
            raise BadLineError(bad.reason)  # of the time, which all of them share
        return SensorsRow(line, (), (), tuple(parts))


def _without_last(layout: Layout) -> Layout:
    """Return the layout of one sensor's columns, without the column that names the sensor."""
    return replace(layout, names=layout.names[:-1], positions=layout.positions[:-1])


def _pairs(layout: Layout) -> tuple[Layout, ...]:
    """Return a layout for each sensor: the column of times and the column of its values."""
    (time, *names), (at, *places) = layout.names, layout.positions
    return tuple(
        replace(layout, names=(time, name), positions=(at, place))
        for name, place in zip(names, places, strict=True)
    )


def _read(columns: Columns, layout: Layout, line: int, fields: list[str]) -> Row | BadRow:
    try:
        return columns.row(layout, line, fields)
    except MissingValueError as error:
        return MissingRow(line, str(error))
    except BadLineError as error:
        return BadRow(line, str(error))
