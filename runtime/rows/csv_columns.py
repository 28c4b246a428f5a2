"""Find the wanted columns by an input's first line, and read a line's fields as numbers.

It reads no files: lines come from `edgefold.runtime.rows.csv_reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_fields import (
    NUMBER,
    Clock,
    is_number,
    parse_number,
    plain,
    shown,
    with_point,
)
from edgefold.runtime.rows.dates import compact_format, is_data, parse_date
from edgefold.runtime.rows.json_lines import WrittenNumber
from edgefold.runtime.rows.row_format import RowFormat

ALSO = {"time": ("timestamp", "datetime", "date", "ts")}
"""Lists, for a column's default name, other names under which it is found if the user gives none.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """Holds one line that can be used: the numbers of its wanted columns, and their texts.

    Attributes:
        line: The number of the line in the input.
        numbers: The numbers, in the order of the wanted columns.
        texts: The fields as they are written in the input, in the same order; only a decimal comma
            is replaced with a point.
    """

    line: int
    numbers: tuple[float, ...]
    texts: tuple[str, ...]


class BadLineError(Exception):
    """Raised for a line that cannot be used; the message says why."""


class MissingValueError(BadLineError):
    """Raised for a line that is written correctly, but has a wanted cell without a value."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Describes where the wanted columns are in a line of the input.

    A loop that resumes keeps the layout, so that it does not need the input's first line again.

    Attributes:
        names: The names of the wanted columns in the input; for JSON lines, the keys.
        positions: The places of the wanted columns in a line, from 0; for JSON lines 0, 1, ...
        n_fields: The number of fields of a whole line; for JSON lines, of the wanted ones.
        delimiter: The character between fields; "" for JSON lines.
        header: The fields of the first line if it is a header, else an empty tuple.
        kind: Whether the lines are CSV or JSON.
    """

    names: tuple[str, ...]
    positions: tuple[int, ...]
    n_fields: int
    delimiter: str
    header: tuple[str, ...]
    kind: Literal["csv", "json"] = "csv"

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Layout:
        """Rebuild a layout from the dictionary that `asdict` made and that was kept as JSON.

        Raises:
            KeyError, TypeError, ValueError: The dictionary is damaged.
        """
        names, positions, header = (tuple(form[n]) for n in ("names", "positions", "header"))
        kind, n, delimiter = form.get("kind", "csv"), form["n_fields"], form["delimiter"]
        texts_are_sound = all(isinstance(text, str) for text in (*names, *header, delimiter))
        places_are_sound = all(type(place) is int and 0 <= place < n for place in positions)
        shape_is_sound = len(names) == len(positions) and len(header) in (0, n)
        if kind not in ("csv", "json") or type(n) is not int:
            raise ValueError("the kind of a layout is damaged")
        if len(delimiter) != (kind == "csv") or (delimiter and delimiter in '"\r\n\0'):
            raise ValueError("the delimiter of a layout is damaged")
        if not (texts_are_sound and places_are_sound and shape_is_sound):
            raise ValueError("a layout is damaged")
        return cls(names, positions, n, delimiter, header, kind)


class Columns:
    """Describes which columns of an input are wanted, and reads their fields.

    A subclass sets `may_lack` if JSON lines may lack some of its keys, and `merges_spaces` if
    several spaces are one delimiter where a space is the delimiter. A subclass whose columns
    were found from an input's first lines sets three attributes: `known_layout`, their places;
    `n_before`, the number of lines before the first row; and `form`, plain JSON from which a later
    run rebuilds the columns.

    `sensor_column` is the name of the column that tells the rows of several sensors apart, or
    "column" if each sensor has a column of its own.

    Args:
        defaults: The names of the columns where the user gives none.
        names: The names that the user gives, one for each column; None for the default name.
        parse: One function for each column, which gets a field and the decimal sign and returns the
            number; it raises ValueError, and MissingValueError for a cell without a value.
        options: A command's options that name columns, such as "--time, --value", for messages.
        format: How fields are written.
        remembered: The names of the columns in training. They are used for columns that the user
            does not name, if the input has all of them.
    """

    may_lack = False
    merges_spaces = False
    known_layout: Layout | None = None
    n_before = 0
    form: dict[str, Any] | None = None
    sensor_column = "column"

    def __init__(
        self,
        defaults: Sequence[str],
        names: Sequence[str | None],
        parse: Sequence[Callable[[str, str], float]],
        options: str,
        format: RowFormat | None = None,
        remembered: Sequence[str] = (),
    ):
        self.defaults, self._names = tuple(defaults), tuple(names)
        self._parse, self._options = tuple(parse), options
        self.remembered = tuple(remembered)
        self.format = format or RowFormat()
        self.wish = ",".join(defaults)

    def is_data(self, field: str) -> bool:
        """Return whether a field of the first line shows that this line is data, not a header."""
        return is_number(field)

    def layout(self, fields: list[str], delimiter: str, source: str) -> Layout:
        """Find the wanted columns in the first line of a CSV file.

        Args:
            fields: The fields of the first line, either a header or data.
            delimiter: The character between fields.
            source: The input's name, for messages.

        Raises:
            DataError: A column is not in the header, or the file has no header and its columns are
                not exactly the wanted ones.
        """
        header = tuple(field.strip() for field in fields)
        if any(map(self.is_data, header)):
            if any(self._names) or len(header) != len(self.defaults):
                raise DataError(
                    f"{source} starts with {len(header)} columns of data and no header; add a "
                    f"header line, or give exactly the columns {self.wish}."
                )
            places = tuple(range(len(header)))
            return Layout(self.defaults, places, len(header), delimiter, ())
        by_order = len(header) == len(self.defaults)
        places = self._positions(header, by_order, source)
        names = tuple(header[place] for place in places)
        return Layout(names, places, len(header), delimiter, header)

    def json_layout(self, keys: Sequence[str], source: str) -> Layout:
        """Find the wanted columns among the keys of the first object of the JSON lines in `source`.

        Raises:
            DataError: A wanted column is not among the keys.
        """
        names = tuple(keys[place] for place in self._positions(keys, False, source))
        return Layout(names, tuple(range(len(names))), len(names), "", (), "json")

    def names_in(self, layout: Layout, source: str) -> tuple[str, ...]:
        """Return the wanted columns' names in the input called `source`, whose layout is known.

        Raises:
            DataError: The layout has other columns.
        """
        if layout.header:
            return self.layout(list(layout.header), layout.delimiter, source).names
        known = layout.names if layout.kind == "json" else self.defaults
        if not len(known) == len(layout.names) == len(self._names):
            raise DataError(f"{source}: {len(layout.names)} columns were read, not {self.wish}.")
        return tuple(n or d for n, d in zip(self._names, known, strict=True))

    def taken_by_place(self, layout: Layout) -> tuple[str, ...]:
        """Return the wanted columns' names in a header that has none of the known ones, else ()."""
        if not layout.header or any(self._names):
            return ()
        known = {*self.defaults, *self.remembered, *(n for names in ALSO.values() for n in names)}
        is_new = {name.lower() for name in known}.isdisjoint(n.lower() for n in layout.names)
        return layout.names if is_new else ()

    def see(self, row: Mapping[str, Any]) -> None:
        """Look at the object of a JSON line before its fields are read; nothing is done here."""

    def row(self, layout: Layout, line: int, fields: list[str]) -> Row:
        """Read the wanted numbers from the fields of a line, which has `layout.n_fields` fields.

        Raises:
            BadLineError: A field cannot be read. For a cell without a value, the subclass
                MissingValueError is raised.
        """
        numbers, texts, without = [], [], ""
        for name, place, parse in zip(layout.names, layout.positions, self._parse, strict=True):
            text = fields[place].strip()
            decimal = "." if isinstance(fields[place], WrittenNumber) else self.format.decimal
            try:
                numbers.append(parse(text, decimal))
            except MissingValueError as error:
                without = without or f"column {plain(name)} {error}"
            except ValueError as error:
                raise BadLineError(f"column {plain(name)} {error}") from None
            point = with_point(text, decimal)
            texts.append(point if NUMBER.fullmatch(point) else text)
        if without:
            raise MissingValueError(without)
        return Row(line, tuple(numbers), tuple(texts))

    def parse_value(self, text: str, decimal: str) -> float:
        """Return the number in a cell with this decimal sign; raise ValueError if there is none.

        A cell that is empty, or holds a word like NA, raises MissingValueError.
        """
        if self.format.is_missing(text):
            raise MissingValueError("is empty" if not text else f"holds no value but {shown(text)}")
        return parse_number(text, decimal)

    def _positions(self, header: Sequence[str], by_order: bool, source: str) -> tuple[int, ...]:
        """Return the places of the wanted columns in the header of the input called `source`.

        A column is found by the user's name for it, else by its name in training, else by its
        default name or, if `by_order`, by its place.
        """
        asked = self._names
        if self.remembered:
            named = [n or r for n, r in zip(asked, self.remembered, strict=True)]
            asked = tuple(named) if all(header.count(name) == 1 for name in named) else asked
        folded = [name.lower() for name in header]
        positions = []
        for index, (name, default) in enumerate(zip(asked, self.defaults, strict=True)):
            places = [i for i, n in enumerate(header) if n == name]
            if name is None:
                places = [i for i, n in enumerate(folded) if n == default]
                places = places or [i for i, n in enumerate(folded) if n in ALSO.get(default, ())]
                places = places or [index] * by_order
            if len(places) != 1:
                what = "has no column" if not places else f"has {len(places)} columns named"
                raise DataError(
                    f"{source} {what} {name or default!r}; its columns are {_list(header)}. "
                    f"Name the right ones with {self._options}."
                )
            positions.append(places[0])
        if len(set(positions)) != len(positions):
            raise DataError(
                f"{source}: two of the wanted columns are the same one of {_list(header)}; name "
                f"them with {self._options}."
            )
        return tuple(positions)


class SeriesColumns(Columns):
    """Finds the two columns of a series, time and value, by name or by their order, and reads them.

    Args:
        time: The name of the column of times. By default it is `time`, else a name in `ALSO`, else
            the first column of a file that has two.
        value: The name of the column of values. By default it is `value`, else the second column of
            a file that has two.
        clock: "date" or "number", the form of all times; None takes the form of the first row.
        format, remembered: See `Columns`.
    """

    second = "value"
    """The default name of the second column, and the name of the option that names this column."""

    def __init__(
        self,
        time: str | None = None,
        value: str | None = None,
        clock: Clock | None = None,
        format: RowFormat | None = None,
        remembered: Sequence[str] = (),
    ):
        names, parse = (time, value), (self._parse_time, self.parse_value)
        options = f"--time, --{self.second}"
        super().__init__(("time", self.second), names, parse, options, format, remembered)
        self.clock = clock

    def is_data(self, field: str) -> bool:
        """Return whether a field of the first line is a number or a date, so not a name."""
        return is_data(field, self.format.time_format)

    def _parse_time(self, text: str, decimal: str) -> float:
        clock = self.clock
        if clock is None:
            is_plain = NUMBER.fullmatch(with_point(text, decimal))
            clock = "number" if is_plain and not self.format.time_format else "date"
            form = compact_format(text) if clock == "number" else None
            if form:
                raise ValueError(f"is {shown(text)}, a date that --time-format {form} reads")
        if clock == "number":
            number = parse_number(text, decimal)
        else:
            number = parse_date(text, self.format.time_format)
        self.clock = clock
        return number


class PointColumns(Columns):
    """Finds and reads the columns of a model's points: X inputs, then Y outputs.

    Args:
        n_inputs: X, the number of inputs; may be 0.
        n_outputs: Y, the number of outputs; may be 0.
        names: The names of the X + Y columns. By default they are x1..xX,y1..yY, else all columns
            of a file that has X + Y.
        format: See Columns.
    """

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        names: Sequence[str] | None = None,
        format: RowFormat | None = None,
    ):
        defaults = [f"x{i + 1}" for i in range(n_inputs)] + [f"y{i + 1}" for i in range(n_outputs)]
        if names is not None and len(names) != len(defaults):
            raise DataError(
                f"{len(names)} column names were given; this bundle takes {n_inputs} inputs and "
                f"{n_outputs} outputs: name {len(defaults)}."
            )
        n = len(defaults)
        super().__init__(defaults, names or [None] * n, [self.parse_value] * n, "--columns", format)


def _list(names: Sequence[str]) -> str:
    return plain(", ".join(name or "''" for name in names)[:200])
