"""Read one field as a finite number; show and write fields that came from outside.

Dates are in `edgefold.runtime.rows.dates`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Literal

Clock = Literal["date", "number"]
"""How a series' times are written: dates, read as seconds since 1970, or plain numbers."""

MAX_NUMBER = 1e100
"""Larger numbers are not measurements, and their squares would be infinite."""

NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def parse_number(text: str, decimal: str = ".") -> float:
    """Read a finite number, up to 1e100 in size; a decimal comma is no point and the reverse.

    Raises:
        ValueError: Anything else; the message says what was found.
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
    """Write a number with a decimal point; what is not a number with `decimal` does not become one.

    Args:
        text: The number.
        decimal: `.` or `,`.
    """
    return text.translate(_SWAP) if decimal == "," else text


_SWAP = str.maketrans(",.", ".,")


def is_number(text: str) -> bool:
    """Whether a field is written as a number, with a point or a comma."""
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
    """Write a field between quotes, shortened, with control characters escaped, for a message."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def plain(text: str) -> str:
    """Write a column's name for a message; what a terminal would obey is escaped as in `repr`."""
    if not text:
        return "''"
    return text if text.isprintable() else repr(text)[1:-1]


def quoted(texts: Iterable[str]) -> list[str]:
    """Write texts as fields of a CSV line: those with a comma, quote or line break get quotes."""
    return [
        '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\r\n') else text
        for text in texts
    ]
