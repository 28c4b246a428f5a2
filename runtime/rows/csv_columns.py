"""Find the wanted columns by a CSV file's first line, and read a line's fields as numbers.

It reads no files: lines come from `edgefold.runtime.rows.csv_reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_fields import (
    Clock,
    clock_of,
    is_date,
    is_number,
    parse_date,
    parse_number,
)


@dataclass(frozen=True, slots=True)
class Row:
    """A line that can be used: its numbers in the order asked for, and the fields as written."""

    line: int
    numbers: tuple[float, ...]
    texts: tuple[str, ...]


class BadLineError(Exception):
    """One line cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the wanted columns are in a line; a loop that resumes needs no first line again.

    Attributes:
        names: The wanted columns, as the input calls them.
        positions: Their places in a line.
        n_fields: Fields of a whole line.
        delimiter: The character between fields.
        header: The first line's fields if it is a header, else nothing.
    """

    names: tuple[str, ...]
    positions: tuple[int, ...]
    n_fields: int
    delimiter: str
    header: tuple[str, ...]

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Layout:
        """Rebuild a layout that `asdict` and JSON turned into lists."""
        names, positions, header = (tuple(form[n]) for n in ("names", "positions", "header"))
        return cls(names, positions, form["n_fields"], form["delimiter"], header)


class Columns:
    """Which columns are wanted, and how their fields are read.

    Args:
        defaults: The columns' names where the user gives none.
        names: The user's names; None for a default one.
        parse: Reads each column's fields; raises ValueError.
        options: The command's options that name columns.
    """

    def __init__(
        self,
        defaults: Sequence[str],
        names: Sequence[str | None],
        parse: Sequence[Callable[[str], float]],
        options: str,
    ):
        self.defaults, self._names = tuple(defaults), tuple(names)
        self._parse, self._options = tuple(parse), options
        self.wish = ",".join(defaults)

    def is_data(self, field: str) -> bool:
        """Whether a field of the first line shows that it is not a header."""
        return is_number(field)

    def layout(self, fields: list[str], delimiter: str, source: str) -> Layout:
        """Find the columns in the first line.

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
        places = _positions(header, self._names, self.defaults, source, self._options)
        names = tuple(header[place] for place in places)
        return Layout(names, places, len(header), delimiter, header)

    def names_in(self, layout: Layout, source: str) -> tuple[str, ...]:
        """Return the names that these columns have in an input whose layout is known."""
        if layout.header:
            return self.layout(list(layout.header), layout.delimiter, source).names
        return tuple(n or d for n, d in zip(self._names, self.defaults, strict=True))

    def row(self, layout: Layout, line: int, fields: list[str]) -> Row:
        """Read a line's fields; raises BadLineError."""
        if len(fields) != layout.n_fields:
            raise BadLineError(f"has {len(fields)} columns where {layout.n_fields} are expected")
        numbers, texts = [], []
        for name, place, parse in zip(layout.names, layout.positions, self._parse, strict=True):
            try:
                numbers.append(parse(fields[place]))
            except ValueError as error:
                raise BadLineError(f"has a column {name} that {error}") from None
            texts.append(fields[place].strip())
        return Row(line, tuple(numbers), tuple(texts))


class SeriesColumns(Columns):
    """Time and value, by name, or the two columns of a file that has two.

    Args:
        time: Column's name; default `time`, else the first of two columns.
        value: Column's name; default `value`, else the second of two columns.
        clock: How times are read; by default as the first row's is written.
    """

    def __init__(
        self, time: str | None = None, value: str | None = None, clock: Clock | None = None
    ):
        parse = (self._parse_time, parse_number)
        super().__init__(("time", "value"), (time, value), parse, "--time, --value")
        self.clock = clock

    def is_data(self, field: str) -> bool:
        """Whether a field is a number or a date."""
        return is_number(field) or is_date(field)

    def _parse_time(self, text: str) -> float:
        clock = self.clock or clock_of(text)
        number = parse_number(text) if clock == "number" else parse_date(text)
        self.clock = clock
        return number


class PointColumns(Columns):
    """The columns of model points: X inputs, then Y outputs; either may be none.

    Args:
        n_inputs: X.
        n_outputs: Y.
        names: X + Y column names; default x1..xX,y1..yY, else the columns of a file that has X + Y.
    """

    def __init__(self, n_inputs: int, n_outputs: int, names: Sequence[str] | None = None):
        defaults = [f"x{i + 1}" for i in range(n_inputs)] + [f"y{i + 1}" for i in range(n_outputs)]
        if names is not None and len(names) != len(defaults):
            raise DataError(
                f"{len(names)} column names were given; this bundle takes {n_inputs} inputs and "
                f"{n_outputs} outputs: name {len(defaults)}."
            )
        n = len(defaults)
        super().__init__(defaults, names or [None] * n, [parse_number] * n, "--columns")


def _positions(
    header: Sequence[str],
    asked: Sequence[str | None],
    defaults: Sequence[str],
    source: str,
    options: str,
) -> tuple[int, ...]:
    """Find the asked columns in a header; unnamed ones by default name, else by order."""
    by_order = len(header) == len(defaults)
    folded = [name.lower() for name in header]
    positions = []
    for index, (name, default) in enumerate(zip(asked, defaults, strict=True)):
        found = [i for i, n in enumerate(header) if n == name]
        if name is None:
            found = [i for i, n in enumerate(folded) if n == default] or [index] * by_order
        if len(found) != 1:
            what = "has no column" if not found else f"has {len(found)} columns named"
            raise DataError(
                f"{source} {what} {name or default!r}; its columns are {', '.join(header)[:200]}. "
                f"Name the right ones with {options}."
            )
        positions.append(found[0])
    if len(set(positions)) != len(positions):
        raise DataError(
            f"{source}: two of the wanted columns are the same one of {', '.join(header)[:200]}; "
            f"name them with {options}."
        )
    return tuple(positions)
