"""Which columns of a CSV file are wanted, found by the first line, and a line's fields as numbers.

It reads no files: lines come from `edgefold.runtime.rows.csv_reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    """A good line: its numbers in the order asked for, and the same fields as written."""

    line: int
    numbers: tuple[float, ...]
    texts: tuple[str, ...]


class BadLineError(Exception):
    """One line cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the wanted columns are in a line."""

    names: tuple[str, ...]
    positions: tuple[int, ...]
    n_fields: int
    parse: tuple[Callable[[str], float], ...]

    def row(self, line: int, fields: list[str]) -> Row:
        if len(fields) != self.n_fields:
            raise BadLineError(f"has {len(fields)} columns where {self.n_fields} are expected")
        numbers, texts = [], []
        for name, position, parse in zip(self.names, self.positions, self.parse, strict=True):
            try:
                numbers.append(parse(fields[position]))
            except ValueError as error:
                raise BadLineError(f"has a column {name} that {error}") from None
            texts.append(fields[position].strip())
        return Row(line, tuple(numbers), tuple(texts))


class Columns:
    """Which columns are wanted, and how their fields are read."""

    wish: str
    """The rows a source should hold, for error messages."""

    def layout(self, fields: list[str], source: str) -> tuple[Layout, bool]:
        """Where the columns are, told by the first line, and whether that line is a header."""
        raise NotImplementedError


class SeriesColumns(Columns):
    """Time and value, by name, or the two columns of a file that has two.

    Args:
        time: Column's name; default `time`, else the first of two columns.
        value: Column's name; default `value`, else the second of two columns.
        clock: How times are read; by default as the first row's is written.
    """

    wish = "time,value"

    def __init__(
        self, time: str | None = None, value: str | None = None, clock: Clock | None = None
    ):
        self._names = (time, value)
        self.clock = clock

    def layout(self, fields: list[str], source: str) -> tuple[Layout, bool]:
        stripped = [field.strip() for field in fields]
        is_header = not any(is_number(field) or is_date(field) for field in stripped)
        names = ["time", "value"]
        if is_header:
            positions = _positions(
                stripped, self._names, ("time", "value"), source, "--time, --value"
            )
            names = [stripped[position] for position in positions]
        elif self._names != (None, None) or len(stripped) != 2:
            raise DataError(
                f"{source} starts with {len(stripped)} columns of data, not with column names; "
                "add a header line such as time,value."
            )
        else:
            positions = (0, 1)
        parse = (self._parse_time, parse_number)
        return Layout(tuple(names), positions, len(stripped), parse), is_header

    def _parse_time(self, text: str) -> float:
        if self.clock is None:
            clock = clock_of(text)
            number = parse_number(text) if clock == "number" else parse_date(text)
            self.clock = clock
            return number
        return parse_number(text) if self.clock == "number" else parse_date(text)


class PointColumns(Columns):
    """The columns of model points: X inputs, then Y outputs.

    Args:
        n_inputs: X.
        n_outputs: Y.
        names: X + Y column names; default x1..xX,y1..yY, else the columns of a file that has X + Y.
    """

    def __init__(self, n_inputs: int, n_outputs: int, names: Sequence[str] | None = None):
        self._defaults = tuple(
            [f"x{i + 1}" for i in range(n_inputs)] + [f"y{i + 1}" for i in range(n_outputs)]
        )
        if names is not None and len(names) != len(self._defaults):
            raise DataError(
                f"{len(names)} column names were given; this bundle takes {n_inputs} inputs and "
                f"{n_outputs} outputs: name {len(self._defaults)}."
            )
        self._names: tuple[str | None, ...] = tuple(names or [None] * len(self._defaults))
        self.wish = ",".join(self._defaults)

    def layout(self, fields: list[str], source: str) -> tuple[Layout, bool]:
        stripped = [field.strip() for field in fields]
        is_header = not any(is_number(field) for field in stripped)
        names = list(self._defaults)
        if is_header:
            positions = _positions(stripped, self._names, self._defaults, source, "--columns")
            names = [stripped[position] for position in positions]
        elif any(self._names) or len(stripped) != len(names):
            raise DataError(
                f"{source} starts with {len(stripped)} columns of data and no header; this bundle "
                f"needs {self.wish}: add a header line, or give exactly these columns."
            )
        else:
            positions = tuple(range(len(names)))
        parse = (parse_number,) * len(names)
        return Layout(tuple(names), positions, len(stripped), parse), is_header


def _positions(
    header: list[str],
    asked: Sequence[str | None],
    defaults: Sequence[str],
    source: str,
    options: str,
) -> tuple[int, ...]:
    """Places of the asked columns in a header; unnamed ones by default name, else by order."""
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
