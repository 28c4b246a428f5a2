"""Read one field as a date; where a date can be read in two ways, say with which option to read it.

Some forms need no option, because they can be read in only one way: 1958-03, 1958-03-29, 1958/03/29
and 29.03.1958 (with dots, the day comes first). All but the first may be followed by a space or a
T and a time of the day: 12:30, 12:30:05, 12:30:05.25, and then Z, +02:00, +0200 or +02.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_fields import NUMBER, is_number, parse_number, shown

# The standard library's own reader accepts more, and other forms on each version of Python.
_DATE = re.compile(
    r"(?:(?P<Y>\d{4})-(?P<m>\d\d)"
    r"|(?:(?P<Y1>\d{4})-(?P<m1>\d\d)-(?P<d1>\d\d)|(?P<Y2>\d{4})/(?P<m2>\d\d)/(?P<d2>\d\d)"
    r"|(?P<d3>\d\d)\.(?P<m3>\d\d)\.(?P<Y3>\d{4}))"
    r"(?:[Tt ](?P<H>\d\d):(?P<M>\d\d)(?::(?P<S>\d\d)(?:\.(?P<f>\d{1,9}))?)?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<oH>\d\d)(?::?(?P<oM>[0-5]\d))?)?)?)",
    re.ASCII,
)
_OTHER = (  # compiled where a text is refused: a loop that reads good rows never needs it
    r"(?:(?P<compact>\d{8})|(?P<a>\d{1,4})(?P<s>[-/.])(?P<b>\d{1,2})(?P=s)(?P<c>\d{1,4}))"
    r"(?:(?P<between>[Tt ]|, )(?P<H>\d{1,2}):\d\d(?P<S>:\d\d(?P<f>\.\d{1,6})?)?"
    r"(?P<half> ?[AaPp][Mm])?(?P<zone> ?(?:[+-]\d\d:?\d\d|Z))?)?"
)
UNIX = {"unix": 1.0, "unix-ms": 1e-3}
"""Maps each time format that counts from 1970-01-01 in UTC to the length of its unit in seconds."""
FIRST_S, END_S = -62_135_596_800.0, 253_402_300_800.0
"""The first and last time that can be written as a date, years 1 to 9999, in seconds since 1970."""
SINCE_S, UNTIL_S = 5e8, 5e9
"""The years 1985 to 2128, in seconds since 1970: numbers between these limits are taken as times.
"""
SAMPLE = datetime(2004, 10, 31, 13, 14, 15, tzinfo=timezone.utc)


def parse_date(text: str, time_format: str | None = None) -> float:
    """Read a date and return it as seconds since 1970-01-01; a date without an offset is in UTC.

    Args:
        text: The field that holds the date.
        time_format: How dates are written, as for `datetime.strptime`, or "unix" or "unix-ms" for
            a count since 1970. None reads 2020-01, and 2020-01-05, 2020/01/05 or 05.01.2020 with or
            without a time of the day, such as 12:30 or 12:30:05+02:00.

    Raises:
        ValueError: The text is not such a date; the message says what was found and what to type.
    """
    stripped = text.strip()
    if not stripped:
        raise ValueError("is empty")
    if not (stripped.isascii() and stripped.isprintable()):
        raise ValueError(f"is {shown(text)}, not a date of plain letters and digits")
    if time_format in UNIX:
        seconds = parse_number(stripped) * UNIX[time_format]
    else:
        moment = _moment(stripped) if time_format is None else _strptime(stripped, time_format)
        seconds = moment.timestamp()
    if not FIRST_S <= seconds < END_S:
        ms = time_format == "unix" and FIRST_S <= seconds * UNIX["unix-ms"] < END_S
        advice = "; --time-format unix-ms reads it" if ms else ""
        raise ValueError(f"is {shown(text)}, beyond the years 1 to 9999{advice}")
    return seconds


def _strptime(text: str, time_format: str) -> datetime:
    try:
        moment = datetime.strptime(text, time_format)
    except (ValueError, OverflowError):
        raise ValueError(f"is {shown(text)}, not a time as {time_format!r} writes it") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _moment(text: str) -> datetime:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"is {shown(text)}, {_advice(text)}")
    year, month, day = (next((match[n + i] for i in "123" if match[n + i]), None) for n in "Ymd")
    hour, minute, second = (int(match[n] or 0) for n in "HMS")
    microsecond = int((match["f"] or "").ljust(6, "0")[:6])
    zone = timezone.utc
    try:
        if match["sign"]:
            offset = timedelta(hours=int(match["oH"]), minutes=int(match["oM"] or 0))
            zone = timezone(offset if match["sign"] == "+" else -offset)
        date = int(year or match["Y"]), int(month or match["m"]), int(day or 1)
        return datetime(*date, hour, minute, second, microsecond, zone)
    except ValueError:
        raise ValueError(f"is {shown(text)}, and there is no such day or time") from None


def is_date(text: str, time_format: str | None = None) -> bool:
    """Return whether a field is a date that `parse_date` can read."""
    try:
        parse_date(text, time_format)
    except ValueError:
        return False
    return True


def is_data(text: str, time_format: str | None = None) -> bool:
    """Return whether a field of a first line is a number or a date, and so not a column's name."""
    return is_number(text) or is_date(text, time_format)


def compact_format(text: str) -> str | None:
    """Return the format %Y%m%d for a number that looks like the date 20200105; None for others."""
    looks_so = re.fullmatch(r"(?:19|20)\d{6}", text.strip(), re.ASCII)
    return "%Y%m%d" if looks_so and is_date(text, "%Y%m%d") else None


def require_time_format(time_format: str) -> None:
    """Refuse a time format that is not valid, or from which a date and an hour cannot be read back.

    Raises:
        DataError: The format is refused; the message says what is wrong with it.
    """
    if time_format in UNIX:
        return
    advice = "write it as strftime does, such as '%d/%m/%Y %H:%M', or give unix or unix-ms."
    if "%Z" in time_format:
        raise DataError(f"the time format {time_format!r} has %Z, which is not read; take %z.")
    try:
        back = datetime.strptime(SAMPLE.strftime(time_format), time_format)
    except (ValueError, IndexError, KeyError, re.error) as error:
        raise DataError(f"the time format {time_format!r} is none ({error}); {advice}") from None
    is_whole = back.year == SAMPLE.year and back.month in (1, SAMPLE.month)
    if not is_whole or back.day not in (1, SAMPLE.day) or back.hour not in (0, SAMPLE.hour):
        raise DataError(
            f"the time format {time_format!r} does not tell the year, the day or the half of the "
            f"day (%I needs %p); {advice}"
        )


def _advice(text: str) -> str:
    """Return a message's words: why a text is not read as a date, and which formats read it."""
    if NUMBER.fullmatch(text):
        size = abs(float(text))
        form = "unix" if 1e8 < size < 1e11 else "unix-ms" if 1e11 < size < 1e14 else ""
        if form:
            return f"a number where dates are expected; --time-format {form} reads it"
    forms = date_forms(text)
    if not forms:
        return "not a date like 1958-03-29; --time-format tells how times are written"
    if len(forms) == 1:
        return f"which --time-format '{forms[0]}' reads"
    return (
        f"which can be two dates: give --time-format '{forms[0]}' if the day comes first, "
        f"--time-format '{forms[1]}' if the month does"
    )


def date_forms(text: str) -> list[str]:
    """Return the formats for `--time-format` that read a text: none, one or two.

    If there are two, the first one reads the day first and the second one the month.
    """
    match = re.fullmatch(_OTHER, text, re.ASCII)
    if match is None:
        return []
    if match["compact"]:
        dates = ["%Y%m%d"]
    elif len(match["a"]) == 4:
        dates = ["%Y{0}%m{0}%d".format(match["s"])]
    else:
        year = "%Y" if len(match["c"]) == 4 else "%y"
        dates = [f"{a}{match['s']}{b}{match['s']}{year}" for a, b in (("%d", "%m"), ("%m", "%d"))]
    clock = ""
    if match["H"]:
        half = match["half"] or ""
        clock = f"{match['between']}{'%I' if half else '%H'}:%M{':%S' if match['S'] else ''}"
        clock += ".%f" if match["f"] else ""
        clock += (" " if half[:1] == " " else "") + "%p" if half else ""
        zone = match["zone"] or ""
        clock += (" " if zone[:1] == " " else "") + "%z" if zone else ""
    return [date + clock for date in dates if is_date(text, date + clock)]
