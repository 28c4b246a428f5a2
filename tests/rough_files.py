"""Files as people have them, made from a signal with a fixed seed: holes, offsets, other forms.

Each maker returns the lines of a file, with what a reader must find in it.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

SEED = 20240701
HOUR, MINUTE, DAY = timedelta(hours=1), timedelta(minutes=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class RoughFile:
    """A file, and what is in it.

    Attributes:
        name: Of the file.
        lines: With the header, where it has one.
        options: What must be typed to train on it; at most one option.
        n_rows: Rows with a time and a value that are neither doubled nor impossible.
        n_history: Rows that are only history, before the first prediction.
        n_bad: Lines that cannot be used when they are met one by one.
        n_empty: Lines whose value is missing.
    """

    name: str
    lines: tuple[str, ...]
    options: tuple[str, ...]
    n_rows: int
    n_history: int
    n_bad: int = 0
    n_empty: int = 0

    @property
    def n_held_out(self) -> int:
        """Rows of the last fifth."""
        return self.n_rows - int(0.8 * self.n_rows)

    def text(self, share: float = 1.0) -> str:
        """The first lines of the file."""
        n = round(share * len(self.lines))
        return "".join(f"{line}\n" for line in self.lines[:n])


def signal(n: int, period: int) -> Iterator[float]:
    """Values with a season, a slow drift and noise, to three digits."""
    draw, level = random.Random(SEED), 20.0
    for i in range(n):
        level += draw.gauss(0, 0.05)
        yield round(level + 3 * math.sin(2 * math.pi * i / period) + draw.gauss(0, 0.2), 3)


def hourly_with_holes() -> RoughFile:
    """Hours of local time over the change to summer time, with ten holes of 1 to 5 rows."""
    start, draw = datetime(2024, 3, 20, tzinfo=timezone.utc), random.Random(SEED)
    summer = datetime(2024, 3, 31, 1, tzinfo=timezone.utc)
    gone = {
        first + k
        for first in draw.sample(range(60, 480, 12), 10)
        for k in range(draw.randint(1, 5))
    }
    lines = ["Time,Water flow [l/s]"]
    for i, value in enumerate(signal(500, 24)):
        moment = start + i * HOUR
        local = moment.astimezone(timezone(HOUR * (2 if moment >= summer else 1)))
        if i not in gone:
            lines.append(f"{local.isoformat()},{value}")
    return RoughFile("hourly.csv", tuple(lines), ("--mend",), 500 - len(gone), 25)


def minutes_of_four_sensors() -> RoughFile:
    """A column for each sensor; the one that is asked for is the third."""
    start = datetime(2024, 5, 1, tzinfo=timezone.utc)
    columns = [list(signal(600, period)) for period in (60, 90, 120, 150)]
    lines = ["time,roof,wall,cellar,yard"]
    for i, values in enumerate(zip(*columns, strict=True)):
        lines.append(f"{(start + i * MINUTE):%Y-%m-%dT%H:%M:%SZ},{','.join(map(str, values))}")
    return RoughFile("minutes.csv", tuple(lines), ("--value", "cellar"), 600, 32)


def daily_with_blanks() -> RoughFile:
    """Days as 2023/01/05, with empty cells, NA, a day that comes twice, and a torn line."""
    start = datetime(2022, 6, 1, tzinfo=timezone.utc)
    lines = ["date,temp_max"]
    for i, value in enumerate(signal(500, 365)):
        cell = {120: "", 121: "NA", 300: "nan", 420: "null"}.get(i, str(value))
        day = f"{(start + i * DAY):%Y/%m/%d}"
        lines.append(f"{day},{cell}")
        if i == 200:
            lines.append(f"{day},{value + 1}")
        if i == 350:
            lines.append(f"{day[:6]}")
    return RoughFile("daily.csv", tuple(lines), ("--mend",), 496, 32, n_bad=2, n_empty=4)


def german_dates() -> RoughFile:
    """Half hours as 01.02.2024 10:30;3,4."""
    start = datetime(2024, 1, 1, tzinfo=timezone.utc)
    lines = ["Zeit;Wert"]
    for i, value in enumerate(signal(400, 48)):
        moment = start + i * HOUR / 2
        lines.append(f"{moment:%d.%m.%Y %H:%M};{str(value).replace('.', ',')}")
    return RoughFile("german.csv", tuple(lines), ("--decimal", ","), 400, 49)


def json_lines() -> RoughFile:
    """An object a line, with more keys than are asked for."""
    start = datetime(2024, 1, 1, tzinfo=timezone.utc)
    lines = [
        json.dumps({"sensor": "a7", "time": (start + i * HOUR).isoformat(), "value": value})
        for i, value in enumerate(signal(300, 24))
    ]
    return RoughFile("sensor.jsonl", tuple(lines), (), 300, 25)


def unix_milliseconds() -> RoughFile:
    """Times as a database gives them."""
    lines = ["time,value"]
    lines += [f"{1_700_000_000_000 + 10_000 * i},{v}" for i, v in enumerate(signal(400, 60))]
    return RoughFile("unix.csv", tuple(lines), (), 400, 32)


def one_row_years_ahead() -> RoughFile:
    """Hours, one of them with a year that is 17 too far."""
    start = datetime(2024, 1, 1, tzinfo=timezone.utc)
    lines = ["time,value"]
    for i, value in enumerate(signal(400, 24)):
        moment = start + i * HOUR
        lines.append(f"{moment.replace(year=2041) if i == 250 else moment:%Y-%m-%d %H:%M},{value}")
    return RoughFile("ahead.csv", tuple(lines), ("--mend",), 399, 25, n_bad=1)


ROUGH_FILES: dict[str, Callable[[], RoughFile]] = {
    maker.__name__: maker
    for maker in (
        hourly_with_holes,
        minutes_of_four_sensors,
        daily_with_blanks,
        german_dates,
        json_lines,
        unix_milliseconds,
        one_row_years_ahead,
    )
}
