"""Read one field of a CSV line: a finite number or an ISO date."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Literal

Clock = Literal["date", "number"]
"""How a series' times are written: ISO dates, read as seconds since 1970, or plain numbers."""

MAX_NUMBER = 1e100
"""Larger numbers are not measurements, and their squares would be infinite."""


def parse_number(text: str) -> float:
    """Read a finite number, up to 1e100 in size.

    Raises:
        ValueError: Anything else; the message says what was found.
    """
    stripped = text.strip()
    if not stripped:
        raise ValueError("is empty")
    try:
        number = float(stripped)
    except ValueError:
        raise ValueError(f"is {_shown(text)}, not a number") from None
    if not math.isfinite(number) or "_" in stripped:
        raise ValueError(f"is {_shown(text)}, not a finite number")
    if abs(number) > MAX_NUMBER:
        raise ValueError(f"is {_shown(text)}, beyond {MAX_NUMBER:g}")
    return number


def parse_date(text: str) -> float:
    """Read an ISO date or date with time as seconds since 1970-01-01; UTC if it has no offset.

    Accepts 1958-03, 1958-03-29, 1958-03-29T12:30, with seconds, fractions, a space for T, Z.

    Raises:
        ValueError: Anything else; the message says what was found.
    """
    stripped = text.strip()
    iso = stripped[:-1] + "+00:00" if stripped[-1:] in ("Z", "z") else stripped
    iso = f"{iso}-01" if re.fullmatch(r"\d{4}-\d{2}", iso) else iso
    # Python 3.10 reads only fractions of 3 or 6 digits.
    iso = re.sub(r"\.(\d{1,9})", lambda found: "." + found[1].ljust(6, "0")[:6], iso, count=1)
    try:
        moment = datetime.fromisoformat(iso)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=timezone.utc)
        return moment.timestamp()
    except (ValueError, OverflowError):
        raise ValueError(f"is {_shown(text)}, not a date like 1958-03-29 or a number") from None


def clock_of(text: str) -> Clock:
    """Tell a plain number from a date."""
    return "number" if _reads(parse_number, text) else "date"


def is_number(text: str) -> bool:
    """Whether a field is meant as a number, finite or not."""
    return _reads(float, text)


def is_date(text: str) -> bool:
    """Whether a field is a date that `parse_date` reads."""
    return _reads(parse_date, text)


def _reads(parse: Callable[[str], float], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
