"""Choose which columns of a table are its clock (the time of each row) and which are sensors.

The clock is the column, or the two columns, that hold the time of each row.

dates, a date and a time of the day, numbers that rise ──> the clock, else rows at even steps
other numbers                                          ──> sensors
words that differ between rows of the same time        ──> the names of sensors
everything else                                        ──> left out, with the reason
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal, get_args

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_fields import plain, shown
from edgefold.runtime.rows.dates import SINCE_S, UNTIL_S
from edgefold.runtime.rows.detect.cells import Cells, joined, look_at
from edgefold.runtime.rows.detect.naming import NUMBERING, SENSOR_WORDS, STEADY, naming
from edgefold.runtime.rows.row_format import RowFormat

Clock = Literal["dates", "unix time", "numbers", "rows"]

TIME_NAMES = re.compile(
    r"(?:.*[\W_])?(?:time|times|timestamps?|datetime|date|dates|day|ts|ds|epoch|unix|unixtime|utc"
    r"|datum|zeit|zeitpunkt|zeitstempel|uhrzeit|fecha|hora|tiempo|data|ora|tempo|heure|temps|when"
    r"|seconds|sec|secs|month|year|t)(?:[\W_].*)?",
    re.IGNORECASE,
)
OFFSET = re.compile(r":\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d(?::?\d\d)?)$")
UNITS = ((1.0, "seconds"), (1e-3, "thousandths"), (1e-6, "millionths"), (1e-9, "billionths"))


@dataclass(frozen=True, slots=True)
class Choice:
    """Describes which columns of a table are read, and how.

    Attributes:
        time: The name of the column of times, or the names of the columns of the date and the time
            of the day; empty if the times are the numbers of the rows.
        clock: The kind of times: "dates", "unix time", "numbers", or "rows" without such a column.
        unit_s: The length of one unit of unix time in seconds; 1 for all other clocks.
        time_format: How the dates are written, as for `--time-format`; None for the default forms.
        values: The names of the columns of values.
        series: The name of the column that names the sensor of each row; "" if there is none.
        notes: Sentences that say what was assumed and which columns were left out.
        is_backward: Whether the newest row comes first.
    """

    time: tuple[str, ...]
    clock: Clock
    values: tuple[str, ...]
    series: str = ""
    unit_s: float = 1.0
    time_format: str | None = None
    notes: tuple[str, ...] = ()
    is_backward: bool = False

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Choice:
        """Rebuild a choice, without its notes, from the dictionary that `asdict` made.

        Raises:
            KeyError, TypeError, ValueError: The dictionary is damaged.
        """
        time, values = tuple(form["time"]), tuple(form["values"])
        series, unit_s, time_format = form["series"], form["unit_s"], form["time_format"]
        texts = (*time, *values, series, time_format or "")
        if not values or len(time) > 2 or not all(isinstance(text, str) for text in texts):
            raise ValueError("the columns of a table are damaged")
        if form["clock"] not in get_args(Clock) or unit_s not in [unit for unit, _ in UNITS]:
            raise ValueError("the clock of a table is damaged")
        return cls(time, form["clock"], values, series, unit_s, time_format)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the names of all columns that are read: times, values, and the sensor's name."""
        return (*self.time, *self.values, *filter(None, [self.series]))

    @property
    def is_named(self) -> bool:
        """Return whether the table may hold several sensors, so that each of them needs a name."""
        return len(self.values) > 1 or bool(self.series)

    @property
    def is_dated(self) -> bool:
        """Return whether the times, once they are read, are seconds since 1970."""
        return self.clock in ("dates", "unix time")

    def written(self, time: float, like: str = "") -> str:
        """Return the text of a time that is not in the table, written as the table writes times.

        Dates are written in the form of ISO 8601 in UTC, with a Z if `like` has an offset. Times
        since 1970 are numbers in the table's unit, but are written as dates if `like` is empty. The
        text is empty for times that are not finite or lie outside the years 1 to 9999.

        Args:
            time: The time, in the unit of the times that were read from the table.
            like: The text of another time in the table, which shows how the table writes times.
        """
        if not math.isfinite(time):
            return ""
        if self.clock == "unix time" and like:
            return f"{time / self.unit_s:.0f}" if self.unit_s < 1 else f"{time:.12g}"
        if not self.is_dated:
            return f"{time:.12g}"
        try:
            moment = datetime.fromtimestamp(round(time, 3), timezone.utc)
        except (ValueError, OverflowError, OSError):
            return ""
        exactly = "milliseconds" if moment.microsecond else "seconds"
        text = moment.replace(tzinfo=None).isoformat(timespec=exactly)
        return text + "Z" * bool(OFFSET.search(like) or self.clock == "unix time")


def choose(
    columns: Sequence[Cells],
    source: str,
    time: str | None = None,
    values: Sequence[str] | None = None,
    series: str | None = None,
    options: tuple[str, str] = ("--columns", "--series"),
    turns: bool = False,
) -> Choice:
    """Choose the clock, the columns of values and the column that names the sensors.

    Args:
        columns: What the columns of the table hold.
        source: The input's name, for messages.
        time: The name of the column of times; chosen if None.
        values: The names of the columns of values; chosen if None.
        series: The name of the column that names the sensors; chosen if None, and "" if all rows
            are of one sensor.
        options: The command's options that name the columns of values and of the sensors' names.
        turns: Whether a table may begin with its newest row.

    Raises:
        DataError: A named column is missing, the clock holds no times or runs backward, no column
            has numbers, or a column may name the sensors and it cannot be decided.
    """
    by_name = {cells.name: cells for cells in columns}
    for name in (*filter(None, [time, series]), *(values or ())):
        if name not in by_name:
            listed = ", ".join(plain(n) for n in by_name)[:200]
            raise DataError(f"{source} has no column {name!r}; its columns are {listed}.")
    free = [cells for cells in columns if cells.name not in (values or ())]
    clock = (
        _named_clock(by_name[time], free, source)
        if time is not None
        else _clock(free, bool(values))
    )
    if clock.is_backward and not turns:
        raise DataError(
            f"{source} begins with its newest row, and a stream with its oldest: turn the rows "
            f"around, as `(head -n 1 FILE; tail -n +2 FILE | tac) > TURNED.csv` does."
        )
    if series is None:
        candidates = [cells for cells in free if cells.name not in clock.time]
        series = naming(columns, clock.time, candidates, source, options, values is not None)
    named = series
    used = (*clock.time, *([named] if named else []))
    others = [cells for cells in columns if cells.name not in used]
    taken, left = _sensors(others, values)
    if not taken:
        held = "; ".join(f"{plain(c.name)} holds {_held(c)}" for c in columns)[:300]
        raise DataError(
            f"{source} has no column of numbers beside its times ({held}). Name the columns with "
            f"--time and {options[0]}, or say with --decimal how numbers are written."
        )
    return Choice(
        clock.time, clock.kind, tuple(taken), named, clock.unit_s, clock.form,
        (*clock.notes, *left), clock.is_backward,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Clock:
    time: tuple[str, ...]
    kind: Clock
    unit_s: float = 1.0
    form: str | None = None
    notes: tuple[str, ...] = ()
    is_backward: bool = False


def _named_clock(cells: Cells, columns: Sequence[Cells], source: str) -> _Clock:
    """Describe the clock (the times of the rows) in the column that the user named.

    Args:
        cells: The column that the user named.
        columns: The columns of the table. If `cells` holds dates without times of the day, a column
            of such times is looked for here and added to the clock.
        source: The input's name, for messages.

    Raises:
        DataError: The column holds neither dates nor numbers.
    """
    if cells.kind == "date":
        return _dates(cells, columns)
    if cells.kind != "number":
        raise DataError(
            f"{source}: the column {plain(cells.name)} holds {_held(cells)}, not times; "
            "--time-format tells how times are written."
        )
    return _numbers(cells)


def _clock(columns: Sequence[Cells], are_values_named: bool) -> _Clock:
    """Choose the clock among the columns of a table; without one, its rows are at even steps.

    Args:
        columns: The columns, without those of values where the user named these.
        are_values_named: Whether the user named the columns of values. If not, a table's only
            column of numbers is one.
    """
    dates = [cells for cells in columns if cells.kind == "date" and len(set(cells.times)) > 1]
    # Dates that rise with the rows are preferred to those that leap, then columns of a known name.
    dates.sort(key=lambda c: (c.falls > 1 - STEADY, not TIME_NAMES.fullmatch(c.name)))
    if dates or (dates := [cells for cells in columns if cells.kind == "date"]):
        return _dates(dates[0], columns)
    numbers = [cells for cells in columns if cells.kind == "number"]
    is_one_row = all(len(cells.texts) == 1 for cells in columns)
    rising = [
        c for c in numbers if is_one_row or (c.falls <= 1 - STEADY and c.times[-1] > c.times[0])
    ]
    if are_values_named or len(numbers) + sum(cells.kind == "empty" for cells in columns) > 1:
        for cells in rising:
            if TIME_NAMES.fullmatch(cells.name) and not NUMBERING.fullmatch(cells.name):
                return _numbers(cells)
        for cells in numbers:
            if _is_backward(cells) and TIME_NAMES.fullmatch(cells.name):
                return _numbers(cells)
        for cells in rising:
            if _unit_of(cells) and cells.rises >= STEADY:
                return _numbers(cells)
        for first in columns[:1]:
            is_steady = first.usual_step[1] >= 0.5 or (is_one_row and len(columns) == 2)
            if first in rising and first.rises >= STEADY and is_steady:
                return _numbers(first)
    return _Clock((), "rows", notes=("no column tells times: rows are taken as evenly spaced",))


def _dates(cells: Cells, columns: Sequence[Cells]) -> _Clock:
    """Make the clock from a column of dates.

    If the dates have no times of the day and one of `columns` has, both make the clock together.
    """
    notes: tuple[str, ...] = ()
    form = cells.forms[0]
    if len(cells.forms) > 1:
        which = ("day", "month") if str(form).startswith("%d") else ("month", "day")
        notes = (
            f"dates such as {shown(cells.example)} are read with the {which[0]} first; "
            f"--time-format '{cells.forms[1]}' reads the {which[1]} first",
        )
    clocks = [c for c in columns if c.kind == "time of day"]
    if clocks and ":" not in cells.example:
        both = [joined(*pair) for pair in zip(cells.texts, clocks[0].texts, strict=True)]
        whole = look_at(cells.name, both, RowFormat())
        if whole.kind == "date":
            time, backward = (cells.name, clocks[0].name), _is_backward(whole)
            return _Clock(time, "dates", 1.0, whole.forms[0], notes, backward)
    return _Clock((cells.name,), "dates", 1.0, form, notes, _is_backward(cells))


def _numbers(cells: Cells) -> _Clock:
    """Make the clock from a column of numbers: a count since 1970, or any other numbers."""
    unit, backward = _unit_of(cells), _is_backward(cells)
    if unit is None:
        return _Clock((cells.name,), "numbers", is_backward=backward)
    return _Clock((cells.name,), "unix time", unit[0], is_backward=backward)


def _is_backward(cells: Cells) -> bool:
    """Return whether the newest time stands in the first line and the oldest in the last."""
    times = cells.times
    return len(times) > 2 and times[-1] < times[0] and cells.rises <= 1 - STEADY


def _unit_of(cells: Cells) -> tuple[float, str] | None:
    """Return the unit (seconds, name) in which numbers count since 1970; None if they do not.

    The median of the numbers decides: in the unit, it must lie in the years 1985 to 2128.
    """
    middle = sorted(cells.times)[len(cells.times) // 2]
    return next((unit for unit in UNITS if SINCE_S <= middle * unit[0] <= UNTIL_S), None)


def _sensors(columns: Sequence[Cells], values: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """Return the names of the columns of values, and notes that say why others are left out.

    If the user named such columns (`values`), these are returned, without notes.
    """
    if values:
        return list(values), []
    taken, left = [], []
    for cells in columns:
        if cells.kind != "number":
            left.append(f"{plain(cells.name)} left out: it holds {_held(cells)}")
        elif _numbers_rows(cells):
            left.append(f"{plain(cells.name)} left out: it numbers the rows")
        elif _is_address(cells):
            left.append(f"{plain(cells.name)} left out: it is {cells.example} in all first lines")
        elif _is_clock(cells):
            left.append(f"{plain(cells.name)} left out: it is another clock")
        else:
            taken.append(cells.name)
    return taken, left


def _numbers_rows(cells: Cells) -> bool:
    return bool(NUMBERING.fullmatch(cells.name)) and cells.usual_step in ((1.0, 1.0),)


def _is_address(cells: Cells) -> bool:
    """Return whether a column holds the name or number of the only sensor, equal in all lines."""
    is_named = SENSOR_WORDS.fullmatch(cells.name) or NUMBERING.fullmatch(cells.name)
    return bool(is_named) and len(set(cells.texts)) == 1


def _is_clock(cells: Cells) -> bool:
    is_named = TIME_NAMES.fullmatch(cells.name) is not None
    return is_named and cells.rises >= STEADY and _unit_of(cells) is not None


def _held(cells: Cells) -> str:
    """Return words for a message that say what a column holds, such as "dates"."""
    if cells.kind == "text":
        return f"text such as {shown(cells.example)}"
    return {
        "date": "dates",
        "time of day": "times of the day",
        "number": "numbers",
        "empty": "nothing in the first lines",
    }[cells.kind]
