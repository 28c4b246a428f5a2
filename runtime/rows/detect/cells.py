"""Judge what the cells of each column of a table hold, by the first few hundred lines.

    cells of a column ──> dates in one form, times of the day, numbers, text, or nothing

`edgefold.runtime.rows.detect.choice` then decides which columns are the clock (the column or two
columns that hold the time of each row), and which are sensors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_fields import NUMBER, ungrouped, with_point
from edgefold.runtime.rows.dates import compact_format, date_forms, is_date, parse_date
from edgefold.runtime.rows.json_lines import WrittenNumber
from edgefold.runtime.rows.row_format import RowFormat

Sign = Literal[".", ","]
SIGNS: tuple[Sign, Sign] = (".", ",")
Kind = Literal["date", "time of day", "number", "text", "empty"]
MOST = 0.9
"""The share of a column's cells that must be dates, or times of the day, for the column to count as
one of dates or of times of the day."""
TIME_OF_DAY = re.compile(r"\d{1,2}:[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?", re.ASCII)
FRACTION = {
    sign: re.compile(rf"[+-]?(?:\d*|\d{{1,3}}(?:{other}\d{{3}})+){re.escape(sign)}\d+", re.ASCII)
    for sign, other in ((".", ","), (",", r"\."))
}
"""Describes, for each decimal sign, numbers that have a fraction."""
GROUPS = {
    sign: re.compile(rf"[+-]?\d{{1,3}}(?:{other}\d{{3}}){{2,}}", re.ASCII)
    for sign, other in ((".", ","), (",", r"\."))
}
"""Describes, for each decimal sign, whole numbers that the other sign splits more than once."""
GROUPED = {
    sign: re.compile(rf"[+-]?[1-9]\d{{0,2}}{re.escape(sign)}\d{{3}}", re.ASCII) for sign in ".,"
}
"""Describes numbers in which a sign may stand before a fraction or between thousands."""
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cells:
    """Holds the cells of one column and what they were judged to hold.

    Attributes:
        name: The name of the column.
        kind: The kind of most cells: "date", "time of day", "number", "text" or "empty".
        times: The dates, in seconds since 1970, or the numbers that were read from the cells, in
            the order of the lines; empty for the other kinds.
        texts: The texts of all cells, without spaces around them; "" where a line is too short.
        forms: For dates, the formats for `--time-format` that read them, the likeliest first; None
            stands for the forms that need no format.
    """

    name: str
    kind: Kind
    times: tuple[float, ...]
    texts: tuple[str, ...]
    forms: tuple[str | None, ...] = ()

    @property
    def rises(self) -> float:
        """Return the share (0 to 1) of lines whose time is later than in the line before.

        It is 1 if there is only one line.
        """
        pairs = list(pairwise(self.times))
        return sum(b > a for a, b in pairs) / len(pairs) if pairs else 1.0

    @property
    def falls(self) -> float:
        """Return the share (0 to 1) of lines whose time is earlier than in the line before."""
        pairs = list(pairwise(self.times))
        return sum(b < a for a, b in pairs) / len(pairs) if pairs else 0.0

    @property
    def usual_step(self) -> tuple[float, float]:
        """Return the most frequent difference between one line's time and the next, and its share.

        The share (0 to 1) is that among all differences. Both are 0 with fewer than two times.
        """
        steps = Counter(float(f"{b - a:.6g}") for a, b in pairwise(self.times))
        if not steps:
            return 0.0, 0.0
        step, n = steps.most_common(1)[0]
        return step, n / steps.total()

    @property
    def example(self) -> str:
        """Return the text of the first cell that is not empty; "" if all are empty."""
        return next((text for text in self.texts if text), "")


def look_at(name: str, cells: Sequence[str], format: RowFormat) -> Cells:
    """Judge what a column holds by its cells.

    Args:
        name: The column's name.
        cells: The texts of its cells, one for each line.
        format: How fields are written; its decimal sign, its missing values and, if the user gave
            one, its time format are used.
    """
    texts = tuple(
        WrittenNumber(c.strip()) if isinstance(c, WrittenNumber) else c.strip() for c in cells
    )
    filled = [text for text in texts if not format.is_missing(text)]
    if not filled:
        return Cells(name, "empty", (), texts)
    if not any(isinstance(text, WrittenNumber) for text in filled):
        if forms := _forms_of(filled, format.time_format):
            return Cells(name, "date", _dates(filled, forms[0]), texts, forms)
        if _share(filled, TIME_OF_DAY.fullmatch) >= MOST:
            return Cells(name, "time of day", (), texts)
    numbers = []
    for text in filled:
        sign = "." if isinstance(text, WrittenNumber) else format.decimal
        if NUMBER.fullmatch(point := with_point(ungrouped(text, sign), sign)):
            numbers.append(float(point))
    if len(numbers) >= len(filled) / 2:
        return Cells(name, "number", tuple(numbers), texts)
    return Cells(name, "text", (), texts)


def decimal_sign(
    columns: Sequence[Sequence[str]], delimiter: str | None, source: str
) -> tuple[Sign, bool]:
    """Return the decimal sign, point or comma, that most numbers of a table's columns have.

    Also return whether any number shows it; if none does, the sign is a point.

    Args:
        columns: The cells of the table's columns.
        delimiter: The delimiter of the table; None for JSON lines.
        source: The input's name, for messages.

    Raises:
        DataError: Numbers have one sign before three digits, and nothing shows what it separates.
    """
    certain: Counter[Sign] = Counter()
    unsure: dict[Sign, str] = {}  # the first number of each sign that can be read in two ways
    is_mixed = False  # a column has such numbers and whole numbers
    for cells in columns:
        texts = [cell.strip() for cell in cells if not isinstance(cell, WrittenNumber)]
        has_whole = any(WHOLE.fullmatch(text) for text in texts)
        for text in texts:
            for sign in SIGNS:
                if GROUPS[sign].fullmatch(text):
                    return sign, True
                if GROUPED[sign].fullmatch(text):
                    unsure.setdefault(sign, text)
                    is_mixed = is_mixed or has_whole
                else:
                    certain[sign] += FRACTION[sign].fullmatch(text) is not None
    if certain.total():
        sign = "," if certain[","] > certain["."] else "."
        return sign, True
    if not unsure:
        return ".", False
    # Where a comma is the decimal sign, programs write ; between columns. A program that writes
    # three digits behind the point writes them for each number of a column.
    (sign, text), *others = unsure.items()
    if not others and (delimiter == ";" if sign == "," else not is_mixed):
        return sign, True
    other = "," if sign == "." else "."
    raise DataError(
        f"{source} holds numbers such as {text}, which can be read in two ways: give --decimal "
        f"{other} if it is {text.replace(sign, '')}, or --decimal {sign} if it is "
        f"{text.replace(sign, '.')} with three digits behind the decimal sign."
    )


def joined(date: str, clock: str) -> str:
    """Join a date and a time of the day into one text that `parse_date` can read."""
    clock = clock.strip()
    return f"{date.strip()} {'0' * (clock.find(':') == 1)}{clock}"


def _forms_of(texts: Sequence[str], given: str | None) -> tuple[str | None, ...]:
    """Return the time formats that read at least 90 % of the texts as dates, the likeliest first.

    If the user gave a format (`given`), only this one is tried. None as a format stands for the
    forms of dates that need none. The result is empty if the texts are not dates.
    """
    if given is not None:
        return (given,) if _share(texts, lambda text: is_date(text, given)) >= MOST else ()
    if _share(texts, is_date) >= MOST:
        return (None,)
    if _share(texts, compact_format) >= MOST:
        return ("%Y%m%d",)
    if not any(sign in texts[0] for sign in "-/."):
        return ()
    counts = Counter(form for text in texts for form in date_forms(text))
    forms = [form for form, n in counts.items() if n >= MOST * len(texts)]
    return tuple(
        sorted(
            forms,
            key=lambda form: (
                _n_backward(texts, form), _unevenness(texts, form), _order(texts, form),
            ),
        )
    )  # fmt: skip


def _dates(texts: Sequence[str], form: str | None) -> tuple[float, ...]:
    return tuple(parse_date(text, form) for text in texts if is_date(text, form))


def _n_backward(texts: Sequence[str], form: str) -> int:
    """Return how many dates go against the direction of most others, if read with `form`."""
    pairs = list(pairwise(_dates(texts, form)))
    return min(sum(b < a for a, b in pairs), sum(b > a for a, b in pairs))


def _unevenness(texts: Sequence[str], form: str) -> float:
    """Return the longest time step divided by the median step, if dates are read with `form`.

    It is large where a format swaps the day and the month, because times then leap.
    """
    times = _dates(texts, form)
    steps = sorted(abs(b - a) for a, b in pairwise(times))
    return steps[-1] / max(steps[len(steps) // 2], 1e-9) if steps else 0.0


def _order(texts: Sequence[str], form: str) -> bool:
    """Return whether a format is the less usual one of two that both read the dates.

    The month usually comes first in texts with AM or PM, and the day in all others.
    """
    has_half = bool(re.search("[AaPp][Mm]", texts[0]))  # written where the month comes first
    return form.startswith("%d") == has_half


def _share(texts: Sequence[str], is_so: Callable[[str], object]) -> float:
    return sum(bool(is_so(text)) for text in texts) / len(texts)
