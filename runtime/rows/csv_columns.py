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
"""Further names of a column that the user does not name."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line that can be used: its numbers in the order asked for, and the fields as written.

    Numbers with a decimal comma are written with a point.
    """

    line: int
    numbers: tuple[float, ...]
    texts: tuple[str, ...]


class BadLineError(Exception):
    """One line cannot be used; the message says why."""


class MissingValueError(BadLineError):
    """One line is sound, and a cell of it holds no value."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the wanted columns are in a line; a loop that resumes needs no first line again.

    Attributes:
        names: The wanted columns, as the input calls them; the keys of JSON lines.
        positions: Their places in a line; of JSON lines 0, 1, ...
        n_fields: Fields of a whole line; of JSON lines the wanted ones.
        delimiter: The character between fields; "" of JSON lines.
        header: The first line's fields if it is a header, else nothing.
        kind: How a line is written.
    """

    names: tuple[str, ...]
    positions: tuple[int, ...]
    n_fields: int
    delimiter: str
    header: tuple[str, ...]
    kind: Literal["csv", "json"] = "csv"

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Layout:
        """Rebuild a layout that `asdict` and JSON turned into lists.

        Raises:
            KeyError, TypeError, ValueError: It is damaged.
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
    """Which columns are wanted, and how their fields are read.

    A subclass sets `may_lack` if JSON lines need not hold all of its keys. One whose columns were
    found by an input's first lines sets `known_layout`, with the lines before the first row, and
    `form`, from which a later run rebuilds it.

    Args:
        defaults: The columns' names where the user gives none.
        names: The user's names; None for a default one.
        parse: Reads each column's fields, given the decimal sign; raises ValueError, and
            MissingValueError for a cell without a value.
        options: The command's options that name columns.
        format: How fields are written.
        remembered: The names of training, for columns that the user does not name; they are taken
            from an input that has them all.
    """

    may_lack = False
    known_layout: Layout | None = None
    n_before = 0
    form: dict[str, Any] | None = None

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
        """Whether a field of the first line shows that it is not a header."""
        return is_number(field)

    def layout(self, fields: list[str], delimiter: str, source: str) -> Layout:
        """Find the columns in the first line of a CSV file.

        Raises:
            DataError: They are not in it, or it has no header and other columns.
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
        """Find the columns among the keys of the first object of JSON lines.

        Raises:
            DataError: They are not among them.
        """
        names = tuple(keys[place] for place in self._positions(keys, False, source))
        return Layout(names, tuple(range(len(names))), len(names), "", (), "json")

    def names_in(self, layout: Layout, source: str) -> tuple[str, ...]:
        """Return the names that these columns have in an input whose layout is known.

        Raises:
            DataError: The layout has other columns.
        """
        if layout.header:
            return self.layout(list(layout.header), layout.delimiter, source).names
        known = layout.names if layout.kind == "json" else self.defaults
        if not len(known) == len(layout.names) == len(self._names):
            raise DataError(f"{source}: {len(layout.names)} columns were read, not {self.wish}.")
        return tuple(n or d for n, d in zip(self._names, known, strict=True))

    def row(self, layout: Layout, line: int, fields: list[str]) -> Row:
        """Read the fields of a line that has as many as the layout says.

        Raises:
            BadLineError: They cannot be read; for a cell without a value its subclass.
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
        """Read a number, or raise MissingValueError or ValueError."""
        if self.format.is_missing(text):
            raise MissingValueError("is empty" if not text else f"holds no value but {shown(text)}")
        return parse_number(text, decimal)

    def _positions(self, header: Sequence[str], by_order: bool, source: str) -> tuple[int, ...]:
        """Find columns: as the user names them, as training did, by default name, by order."""
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
    """Time and value, by name, or the two columns of a file that has two.

    Args:
        time: Column's name; default `time`, else the one of `ALSO`, else the first of two columns.
        value: Column's name; default `value`, else the second of two columns.
        clock: How times are read; by default as the first row's is written.
        format: See Columns.
        remembered: See Columns.
    """

    second = "value"
    """The default name of the second column, and of the option that names it."""

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
        """Whether a field is a number or a date."""
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
    """The columns of model points: X inputs, then Y outputs; either may be none.

    Args:
        n_inputs: X.
        n_outputs: Y.
        names: X + Y column names; default x1..xX,y1..yY, else the columns of a file that has X + Y.
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
