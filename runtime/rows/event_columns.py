"""Find the time and the mark of an event in a line, and turn a mark's name into its number.

A mark is the kind of an event. Files name it, and models take its number, from 0 on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgefold.runtime.rows.csv_columns import MissingValueError, SeriesColumns
from edgefold.runtime.rows.csv_fields import Clock, shown
from edgefold.runtime.rows.row_format import RowFormat

MOST_NAMED = 20
"""The largest number of marks that a message lists."""


class EventColumns(SeriesColumns):
    """Finds the two columns of events, time and mark, by name or by their order, and reads them.

    Args:
        time: The name of the column of times. By default it is `time`, else `timestamp`,
            `datetime`, `date` or `ts`, else the first column of a file that has two.
        mark: The name of the column of marks. By default it is `mark`, else the second column of a
            file that has two.
        clock: Whether times are dates or numbers; by default as in the first row.
        format: How fields are written.
        remembered: The names of the two columns in training. They are used for columns that the
            user does not name, if the input has both.
        marks: The names of the marks in the order of their numbers; a file may also hold the
            numbers. None: each new name gets the next number as it comes.

    Attributes:
        numbers: The number of each mark, by its name.
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
        """Return the number of the mark that a cell names; the decimal sign does not matter.

        A cell without a mark raises MissingValueError, an unknown mark ValueError.
        """
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
