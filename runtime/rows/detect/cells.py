"""Judge what the cells of a table's columns hold, by the first some hundred lines.

    cells of a column ──> dates in one form, times of the day, numbers, text, or nothing

Which of the columns is the clock, and which are sensors, is decided in
`edgefold.runtime.rows.detect.columns`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from edgefold.runtime.rows.csv_fields import NUMBER, with_point
from edgefold.runtime.rows.dates import compact_format, date_forms, is_date, parse_date
from edgefold.runtime.rows.json_lines import WrittenNumber
from edgefold.runtime.rows.row_format import RowFormat

Kind = Literal["date", "time of day", "number", "text", "empty"]
MOST = 0.9
"""The share of a column's cells that must be dates or times of the day, for it to be a clock."""
TIME_OF_DAY = re.compile(r"\d{1,2}:[0-5]\d(?::[0-5]\d(?:\.\d{1,9})?)?", re.ASCII)
FRACTION = {sign: re.compile(rf"[+-]?\d*{re.escape(sign)}\d+", re.ASCII) for sign in ".,"}


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of one column.

    Attributes:
        name: Of the column.
        kind: What most of them hold.
        times: Of dates and numbers: what was read, in the order of the lines.
        texts: All of them, without spaces around them; "" where a line is too short.
        forms: Of dates: the forms for `--time-format` that read them; None is the default.
    """

    name: str
    kind: Kind
    times: tuple[float, ...]
    texts: tuple[str, ...]
    forms: tuple[str | None, ...] = ()

    @property
    def rises(self) -> float:
        """The share of lines whose time is later than that of the line before; 1 of one line."""
        pairs = list(pairwise(self.times))
        return sum(b > a for a, b in pairs) / len(pairs) if pairs else 1.0

    @property
    def falls(self) -> float:
        """The share of lines whose time is earlier than that of the line before."""
        pairs = list(pairwise(self.times))
        return sum(b < a for a, b in pairs) / len(pairs) if pairs else 0.0

    @property
    def usual_step(self) -> tuple[float, float]:
        """The step from line to line that comes most often, and its share."""
        steps = Counter(float(f"{b - a:.6g}") for a, b in pairwise(self.times))
        if not steps:
            return 0.0, 0.0
        step, n = steps.most_common(1)[0]
        return step, n / steps.total()

    @property
    def example(self) -> str:
        """The first cell that is not empty."""
        return next((text for text in self.texts if text), "")


def look_at(name: str, cells: Sequence[str], format: RowFormat) -> Cells:
    """Judge a column by its cells; `format` holds the decimal sign and what is given of dates."""
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
        if NUMBER.fullmatch(point := with_point(text, sign)):
            numbers.append(float(point))
    if len(numbers) >= len(filled) / 2:
        return Cells(name, "number", tuple(numbers), texts)
    return Cells(name, "text", (), texts)


def decimal_sign(columns: Sequence[Sequence[str]]) -> Literal[".", ","]:
    """Return the sign before the fraction of most numbers of a table."""
    counts = {".": 0, ",": 0}
    for cells in columns:
        for cell in cells:
            if not isinstance(cell, WrittenNumber):
                for sign, pattern in FRACTION.items():
                    counts[sign] += pattern.fullmatch(cell.strip()) is not None
    return "," if counts[","] > counts["."] else "."


def joined(date: str, clock: str) -> str:
    """A date and a time of the day as one text that `parse_date` reads."""
    clock = clock.strip()
    return f"{date.strip()} {'0' * (clock.find(':') == 1)}{clock}"


def _forms_of(texts: Sequence[str], given: str | None) -> tuple[str | None, ...]:
    """The forms that read most of the texts as dates, the likeliest first; none if none does."""
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
    return tuple(sorted(forms, key=lambda form: (_unevenness(texts, form), _order(texts, form))))


def _dates(texts: Sequence[str], form: str | None) -> tuple[float, ...]:
    return tuple(parse_date(text, form) for text in texts if is_date(text, form))


def _unevenness(texts: Sequence[str], form: str) -> float:
    """How much the longest step is above the usual one; a swapped day and month leaps."""
    times = _dates(texts, form)
    steps = sorted(abs(b - a) for a, b in pairwise(times))
    return steps[-1] / max(steps[len(steps) // 2], 1e-9) if steps else 0.0


def _order(texts: Sequence[str], form: str) -> bool:
    """Whether a form is the less usual one of two that read dates alike."""
    has_half = bool(re.search("[AaPp][Mm]", texts[0]))  # written where the month comes first
    return form.startswith("%d") == has_half


def _share(texts: Sequence[str], is_so: Callable[[str], object]) -> float:
    return sum(bool(is_so(text)) for text in texts) / len(texts)
