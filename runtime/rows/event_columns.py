"""Find time and mark of events in a line, and turn a mark's name into its number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgefold.runtime.rows.csv_columns import MissingValueError, SeriesColumns
from edgefold.runtime.rows.csv_fields import Clock, shown
from edgefold.runtime.rows.row_format import RowFormat

MOST_NAMED = 20
"""Marks that a message lists."""


class EventColumns(SeriesColumns):
    """Time and mark, by name, or the two columns of a file that has two.

    Args:
        time: See `SeriesColumns`.
        mark: Column's name; default `mark`, else the second of two columns.
        clock: See `SeriesColumns`.
        format: See `Columns`.
        remembered: See `Columns`.
        marks: Names of the marks, by their numbers, which may stand for them; None to number names
            as they come.

    Attributes:
        numbers: The marks' numbers by name.
    """

    second = "mark"

    def __init__(
        self,
        time: str | None = None,
        mark: str | None = None,
        clock: Clock | None = None,
        format: RowFormat | None = None,
        remembered: Sequence[str] = (),
        marks: Sequence[str] | None = None,
    ):
        super().__init__(time, mark, clock, format, remembered)
        self.numbers = {name: number for number, name in enumerate(marks or ())}
        self._learns = marks is None

    def parse_value(self, text: str, decimal: str) -> float:
        """Read a mark as its number, or raise MissingValueError or ValueError."""
        number = self.numbers.get(text)
        if number is not None:
            return float(number)
        if self.format.is_missing(text):
            raise MissingValueError("is empty" if not text else f"holds no mark but {shown(text)}")
        if self._learns:
            return float(self.numbers.setdefault(text, len(self.numbers)))
        if text.isdecimal() and text.isascii() and int(text) < len(self.numbers):
            return float(int(text))
        raise ValueError(f"is {shown(text)}, none of the marks {_listed(self.numbers)}")


def _listed(numbers: Mapping[str, int]) -> str:
    names = list(numbers)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(shown, names[:MOST_NAMED])) + more
