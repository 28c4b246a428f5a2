"""Tables of which nothing is told, through `edgefold forecast` and `edgefold run sensors`.

The numbers that a table was made from are known. Demanded of each:

    every series has its name, and each of its rows the right time and value, exactly once
    a table that can be read in two ways is refused, and the refusal names the option for each
    keys that come late are counted
    a table that begins with its newest row is turned by `forecast`, and refused by `run`

Most tables are read as both commands read them, without the model; every tenth case is a short
table through the commands, whose outputs are compared with the truth.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from pathlib import Path

from attack.changes.tables import Made, draw
from attack.commands import call
from attack.outcomes import Outcome, random_of
from edgefold.runtime.errors import DataError
from edgefold.runtime.loop.sensor_rows import find_columns
from edgefold.runtime.rows.csv_columns import Row
from edgefold.runtime.rows.csv_reader import BadRow, open_source
from edgefold.runtime.rows.detect.columns import open_table
from edgefold.runtime.rows.sensor_columns import SensorsRow
from edgefold.runtime.sources.input_file import InputFile

N_ROWS = (40, 150, 1000, 4000, 7500)
"""Numbers of rows of the tables; with the short ones of commands, 2,300 in the mean."""
N_SHORT, EACH = 60, 10
Read = dict[str, list[tuple[float, float]]]


class Cases:
    """Cases of tables."""

    def __init__(self, subjects: Path, scratch: Path):
        self._folder = scratch

    def _draw(self, number: int) -> tuple[Made, Path]:
        random = random_of("tables", number)
        n_rows = N_SHORT if number % EACH == EACH - 1 else int(random.choice(N_ROWS))
        made = draw(random, n_rows)
        path = self._folder / "table.csv"
        path.write_bytes(made.data)
        return made, path

    def describe(self, number: int) -> str:
        """Say what the table is like."""
        made, path = self._draw(number)
        return f"{made.about}, in {path}"

    def play(self, number: int) -> Outcome:
        """Read one table as both commands do, or run both commands."""
        made, path = self._draw(number)
        if number % EACH == EACH - 1:
            return _by_commands(made, path)
        ends = [_judged(made, _of_forecast, path, False), _judged(made, _of_run, path, True)]
        failed = [end for end in ends if end.failed]
        return failed[0] if failed else ends[0]


def _of_forecast(path: Path) -> tuple[Read, str, dict[str, int]]:
    with open_source(path) as file:
        table = open_table(file, path.name)
        return _read(table.rows()), " ".join(table.notes), table.columns.unread


def _of_run(path: Path) -> tuple[Read, str, dict[str, int]]:
    source = InputFile(str(path))
    try:
        table = find_columns(source)
        assert table is not None
        return _read(source.rows(table.columns)), " ".join(table.notes), table.columns.unread
    finally:
        source.close()


def _read(rows: Iterable[Row | BadRow]) -> Read:
    """The series of a table; a row that was refused is a NaN time."""
    found: Read = {}
    for row in rows:
        parts = row.parts if isinstance(row, SensorsRow) else (("refused", row),)
        for name, part in parts:
            numbers = part.numbers if isinstance(part, Row) else (math.nan, math.nan)
            found.setdefault(name, []).append((numbers[0], numbers[1]))
    return found


def _judged(made: Made, read: object, path: Path, is_run: bool) -> Outcome:
    """Read a table and compare it with its truth."""
    assert callable(read)
    who = "run" if is_run else "forecast"
    try:
        found, notes, unread = read(path)
    except DataError as error:
        return _refusal(made, str(error), who, is_run)
    if is_run and made.is_backward:
        return Outcome("wrong", "run reads a table that begins with its newest row")
    if made.refusals and "" not in made.refusals:
        return Outcome("wrong", f"{who} believes a table that has two readings")
    if wrong := _difference(made.truth, found):
        if made.may_swap and "--time-format" in notes:
            return Outcome("accepted", "days and months are exchanged, and it is said")
        if "any number" in made.refusals:
            return Outcome("accepted", "thousands are read as fractions where ; is the delimiter")
        return Outcome("wrong", f"{who}: {wrong}")
    if unread != made.unread:
        return Outcome("wrong", f"{who} does not count late keys")
    return Outcome("accepted", "read")


def _refusal(made: Made, text: str, who: str, is_run: bool) -> Outcome:
    if is_run and made.is_backward and "newest row" in text:
        return Outcome("refused", "newest row first")
    if any(word and word in text for word in made.refusals):
        return Outcome("refused", "two readings")
    return Outcome("wrong", f"{who} refuses a table: {text.partition('(')[0][:60]}")


def _difference(truth: Read, found: Read) -> str:
    """Say how series that were read differ from the truth; "" if they do not."""
    (first, *_) = truth
    if len(truth) == 1 and list(found) in ([""], [first]):
        found = {first: found[next(iter(found))]}
    if list(truth) != list(found) and set(truth) != set(found):
        return "other series"
    for name, rows in truth.items():
        if len(rows) != len(found[name]):
            return "another number of rows"
        for (time, value), (read_time, read_value) in zip(rows, found[name], strict=True):
            if time != read_time:
                return "another time"
            if value != read_value and not (value != value and read_value != read_value):
                return "another value"
    return ""


def _by_commands(made: Made, path: Path) -> Outcome:
    """Run `forecast` and `run sensors`, and compare the series and values that they write."""
    out = path.with_name("out.csv")
    for words in (["forecast", str(path)], ["run", "sensors", "--input", str(path)]):
        is_run = words[0] == "run"
        ended = call([*words, "--output" if is_run else "--out", str(out), "--force"])
        judged = ended.judged()
        if judged.failed:
            return judged
        if ended.error:
            end = _refusal(made, ended.error, words[0], is_run)
            if end.failed:
                return end
            continue
        if made.refusals and "" not in made.refusals:
            return Outcome("wrong", f"{words[0]} believes a table that has two readings")
        (first, *_) = made.truth
        found: dict[str, list[float]] = {}
        with out.open(newline="") as file:
            for row in csv.DictReader(file, strict=True):
                value = float(row["value"]) if row["value"] else math.nan
                found.setdefault(row.get("series", first), []).append(value)
        expected = {name: [value for _, value in rows] for name, rows in made.truth.items()}
        if repr(sorted(found.items())) != repr(sorted(expected.items())):
            if "any number" in made.refusals or (made.may_swap and "--time-format" in ended.out):
                continue
            return Outcome("wrong", f"{words[0]} writes other series or values")
    return Outcome("accepted", "forecast")
