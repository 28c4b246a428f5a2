"""Read one field of a line as a finite number, and write fields safely in messages and CSV lines.

Dates are in `edgefold.runtime.rows.dates`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Literal, TextIO

Clock = Literal["date", "number"]
"""Says how the times of a series are written: as dates, which are read as seconds since 1970, or as
plain numbers."""

MAX_NUMBER = 1e100
"""The largest size of a number that is read: larger ones are not measurements, and their squares
would become infinite."""

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def parse_number(text: str, decimal: str = ".") -> float:
    """Read a finite number of at most 1e100 in size; only `decimal` is read as its decimal sign.

    Raises:
        ValueError: The text is anything else; the message says what was found.
    """
    stripped = text.strip()
    if not stripped:
        raise ValueError("is empty")
    if not NUMBER.fullmatch(with_point(stripped, decimal)):
        raise ValueError(f"is {shown(text)}, {_objection(stripped, decimal)}")
    number = float(with_point(stripped, decimal))
    if abs(number) > MAX_NUMBER:
        raise ValueError(f"is {shown(text)}, beyond {MAX_NUMBER:g}")
    return number


def with_point(text: str, decimal: str) -> str:
    """Return a number's text with a point as its decimal sign.

    Where `decimal` is a comma, commas and points change places, so that a text that is not a number
    with a decimal comma does not become a number.

    Args:
        text: The number as it is written in the input.
        decimal: The decimal sign of the input, `.` or `,`.
    """
    return text.translate(_SWAP) if decimal == "," else text


def ungrouped(text: str, decimal: str) -> str:
    """Return a number's text without the signs between its thousands, as 1,000.5 or 1.000,5 has.

    Any other text is returned as it is.

    Args:
        text: The number as it is written in the input.
        decimal: The decimal sign of the input; the other one of `.` and `,` is between thousands.
    """
    other = "," if decimal == "." else "."
    return text.replace(other, "") if other in text and _GROUPED[decimal].fullmatch(text) else text


_GROUPED = {
    sign: re.compile(rf"[+-]?[1-9]\d{{0,2}}(?:{other}\d{{3}})+(?:{point}\d*)?", re.ASCII)
    for sign, point, other in ((".", r"\.", ","), (",", ",", r"\."))
}
_SWAP = str.maketrans(",.", ".,")


def is_number(text: str) -> bool:
    """Return whether a field is written as a number, with a decimal point or comma or none."""
    return NUMBER.fullmatch(text.strip().replace(",", ".")) is not None


def _objection(text: str, decimal: str) -> str:
    other = "," if decimal == "." else "."
    if NUMBER.fullmatch(with_point(text, other)):
        return f"not a number; --decimal {other} reads it as {with_point(text, other)}"
    if "_" in text and NUMBER.fullmatch(text.replace("_", "")):
        return "not a number; write it without _"
    try:
        number = float(text)
    except ValueError:
        return "not a number"
    return "not a number of the digits 0 to 9" if math.isfinite(number) else "not a finite number"


def shown(text: str) -> str:
    """Return a field for a message: quoted, at most 40 characters, control characters escaped."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def plain(text: str) -> str:
    """Return a column's name for a message, with characters that do not print escaped as in `repr`.

    So a terminal does not obey a name that holds control characters.
    """
    if not text:
        return "''"
    return text if text.isprintable() else repr(text)[1:-1]


def quoted(texts: Iterable[str]) -> list[str]:
    """Return texts as CSV fields: a text with a comma, a quote or a line break gets quotes."""
    return [
        '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') else text
        for text in texts
    ]


def write_fields(file: TextIO, *texts: str) -> None:
    """Write texts to a file as one line of CSV, quoted where necessary."""
    file.write(",".join(quoted(texts)) + "\n")
