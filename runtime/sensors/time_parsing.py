"""Turn times of any kind into seconds: numbers, dates of Python, numpy or pandas, or None."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from typing import Any, Literal

import numpy as np

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_fields import is_number, parse_number
from edgefold.runtime.rows.dates import SINCE_S, UNTIL_S, compact_format, parse_date

Kind = Literal["dates", "numbers", "rows"]


def kind_of(time: Any, dated: bool | None = None) -> Kind:
    """Return "dates", "numbers" or "rows" (no times): a sensor's kind of times, by its first one.

    Args:
        time: The first time: a number, a date or None.
        dated: Whether a number is a date in seconds since 1970. None: it is if it lies between
            `SINCE_S` and `UNTIL_S`, in the years 1985 to 2128.

    Raises:
        DataError: The time is neither a number nor a date.
    """
    if time is None:
        return "rows"
    if _is_date(time):
        return "dates"
    if dated is None:
        dated = SINCE_S <= _float(time) <= UNTIL_S
    return "dates" if dated else "numbers"


def seconds_of(time: Any, kind: Kind, n_rows: int) -> float:
    """Return a time as a number: a date in seconds since 1970, a number in the caller's own unit.

    Args:
        time: A number, a text with a number or a date, a `datetime`, a `numpy.datetime64`, a
            Timestamp of pandas, or None. A date without an offset is in UTC.
        kind: The kind of the sensor's times.
        n_rows: The number of rows that came before, which is the time if rows have no times.

    Raises:
        DataError: The time is not of this kind, or is not a time.
    """
    if (time is None) != (kind == "rows"):
        some, others = ("no time", "have times") if time is None else ("a time", "have none")
        raise DataError(f"the row has {some}, and the rows before it {others}; give all or none.")
    if time is None:
        return float(n_rows)
    if kind == "numbers" and _is_date(time):
        raise DataError(
            f"the time {time!s:.40} is a date, and the times of the rows before it are numbers; "
            "give numbers again, or begin a sensor of another name."
        )
    if isinstance(time, np.datetime64):
        time = (time - np.datetime64(0, "s")) / np.timedelta64(1, "s")
    elif isinstance(time, date):
        if time != time:
            raise DataError("the row has no time (NaT); drop it.")
        moment = time if isinstance(time, datetime) else datetime(time.year, time.month, time.day)
        time = (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
    elif isinstance(time, str) and _is_date(time):
        try:
            time = parse_date(time)
        except ValueError as error:
            raise DataError(f"the time {error}") from None
    return _float(time)


def number_of(value: Any) -> float:
    """Return a measured value as a float; NaN for None.

    Raises:
        DataError: The value is not a number.
    """
    try:
        return math.nan if value is None else float(value)
    except (TypeError, ValueError):
        raise DataError(
            f"the value {value!r:.40} is not a number; give None where none is."
        ) from None
    except OverflowError:
        raise DataError("the value is a whole number beyond 1e308; drop the row.") from None


def _is_date(time: Any) -> bool:
    """Return whether a time is a date, or a text that holds no number and so must be a date.

    Raises:
        DataError: The text can be both.
    """
    if not isinstance(time, str):
        return isinstance(time, (date, np.datetime64))
    if not is_number(time):
        return True
    if compact_format(time):
        raise DataError(
            f"the time {time!r} may be a date without dashes or a number; give a datetime, or "
            f"float({time!r})."
        )
    return False


def _float(time: Any) -> float:
    try:
        return parse_number(time) if isinstance(time, str) else float(time)
    except (TypeError, ValueError):
        raise DataError(
            f"the time {time!r:.40} is neither a number nor a date; give one of them, or None."
        ) from None
    except OverflowError:
        raise DataError("the time is a whole number beyond 1e308; drop the row.") from None
