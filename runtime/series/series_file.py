"""Read the file of a series as a whole, for training and evaluation, and mend what may be mended.

    lines ──> rows that can be read ──> repeats dropped ──> rows in order of time
          ──> one row a time ──> rows at even steps, with gaps ──> Series

Each stage leaves out the rows that it cannot use, and notes why. At the end, one error names all
faults that the caller did not allow. No row is made up: a gap stays a gap. A step is the usual time
between two rows.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import Row, SeriesColumns
from edgefold.runtime.rows.csv_fields import Clock
from edgefold.runtime.rows.csv_reader import BadRow, CsvRows, MissingRow, open_source
from edgefold.runtime.rows.row_format import RowFormat
from edgefold.runtime.series.admission import MAX_GAP_STEPS
from edgefold.runtime.series.durations import elapsed
from edgefold.runtime.series.pace import FASTEST

SHOWN_PROBLEMS = 10
MOST_STEPS = 1e12
"""The number of steps (usual times between two rows) that a longer gap counts as."""
Gaps = Literal["refuse", "interpolate"]
Duplicates = Literal["refuse", "keep-first", "keep-last"]
BadRows = Literal["refuse", "skip"]


@dataclass(frozen=True, slots=True)
class Mending:
    """Says how to treat each kind of fault in a file; `refuse` stops and names the lines.

    Attributes:
        gaps: The way to treat missing rows or values: `refuse`, or `interpolate`, which computes
            them from the rows around them.
        duplicates: The way to treat rows with one time and two values: `refuse`, `keep-first` or
            `keep-last`.
        bad_rows: The way to treat rows that cannot be read or are out of order: `refuse`, or
            `skip`, which leaves them out.
    """

    gaps: Gaps = "refuse"
    duplicates: Duplicates = "refuse"
    bad_rows: BadRows = "refuse"


MENDED = Mending("interpolate", "keep-first", "skip")


@dataclass(frozen=True, slots=True)
class SeriesReport:
    """Counts what was mended in a file.

    Attributes:
        n_gaps: The number of places where up to 1000 rows are missing.
        n_missing: The number of rows that are missing at these places; they are bridged, but never
            learned or scored.
        n_pauses: The number of places where more rows are missing; history starts over after them,
            unless a season is longer.
        n_empty: The number of lines without a value; those between two rows count as missing too.
        n_repeats: The number of rows that were dropped because their time and value came before.
        n_duplicates: The number of rows that were dropped because another row has the same time
            and another value.
        n_skipped: The number of lines that could not be read, or were out of order.
    """

    n_gaps: int = 0
    n_missing: int = 0
    n_pauses: int = 0
    n_empty: int = 0
    n_repeats: int = 0
    n_duplicates: int = 0
    n_skipped: int = 0


@dataclass(frozen=True, slots=True)
class Series:
    """Holds the rows of a series that are in its file, without missing ones.

    Times increase by about one step from row to row, or by several steps over a gap.

    Attributes:
        times: The times, (n,), in seconds since 1970 for dates, else as they are written.
        values: The values, (n,), all finite.
        clock: Whether the times are dates or numbers.
        columns: The names of the two columns, of times and of values.
        report: The counts of what was mended.
    """

    times: FloatArray
    values: FloatArray
    clock: Clock
    columns: tuple[str, str]
    report: SeriesReport


@dataclass(frozen=True, slots=True)
class _Problem:
    line: int
    text: str
    kind: Literal["gaps", "duplicates", "bad_rows", "order"]


ADVICE = {
    "gaps": "fill them in, or let them be bridged with --gaps interpolate",
    "duplicates": "keep one of them, by hand or with --duplicates keep-first or keep-last",
    "bad_rows": "fix or drop the line, or skip such lines with --bad-rows skip",
    "order": "fix the time, drop the line, or skip such lines with --bad-rows skip",
}
SEVERAL = "mend them, or let --mend bridge the gaps, keep the first of duplicates and skip the rest"


def read_series(
    path: str | Path,
    time: str | None = None,
    value: str | None = None,
    gaps: Gaps = "refuse",
    duplicates: Duplicates = "refuse",
    bad_rows: BadRows = "refuse",
    format: RowFormat | None = None,
) -> Series:
    """Read a series for training; a fault in its file that is not allowed is an error.

    Args:
        path: The path of a CSV file or a file of JSON lines, or `-` for standard input.
        time: The name of the column of times. None stands for `time`, `timestamp`, `datetime`,
            `date` or `ts`, else the first of two columns.
        value: The name of the column of values. None stands for `value`, else the second of two
            columns.
        gaps: The way to treat missing rows or values: `refuse` or `interpolate`; see Mending.
        duplicates: The way to treat rows of one time: `refuse`, `keep-first` or `keep-last`.
        bad_rows: The way to treat rows that are unreadable or out of order: `refuse` or `skip`.
        format: How the rows are written.

    Raises:
        DataError: The series is refused; the message names the file, its first bad lines and what
            to do.
    """
    columns = SeriesColumns(time, value, format=format)
    return read_columns(path, columns, Mending(gaps, duplicates, bad_rows))


def read_columns(path: str | Path, columns: SeriesColumns, mending: Mending) -> Series:
    """Read a series from given columns, and treat faults as `mending` says; see read_series."""
    source = "standard input" if str(path) == "-" else str(path)
    problems: list[_Problem] = []
    rows: list[Row] = []
    with open_source(path) as file:
        lines = CsvRows(file, columns, source)
        for row in lines:
            if isinstance(row, BadRow):
                kind: Literal["gaps", "bad_rows"]
                kind = "gaps" if isinstance(row, MissingRow) else "bad_rows"
                problems.append(_Problem(row.line, row.reason, kind))
            else:
                rows.append(row)
    n_empty = sum(problem.kind == "gaps" for problem in problems)
    n_read = len(rows)
    rows = _without_repeats(rows)
    n_repeats = n_read - len(rows)
    clock = columns.clock or "number"
    rows = _in_order(rows, clock, problems)
    rows = _one_a_time(rows, mending.duplicates == "keep-last", problems)
    if len(rows) < 3:
        why = f" (line {problems[0].line}: {problems[0].text})" if problems else ""
        raise DataError(f"{source} holds {len(rows)} rows of data{why}; a series needs at least 3.")
    rows, steps = _at_even_steps(rows, problems)
    gaps = steps[steps > 1] - 1
    _refuse(source, problems, mending, len(rows))
    bridged = gaps[gaps < MAX_GAP_STEPS]
    n = {kind: sum(p.kind == kind for p in problems) for kind in ADVICE}
    assert lines.layout is not None
    return Series(
        np.array([row.numbers[0] for row in rows]),
        np.array([row.numbers[1] for row in rows]),
        clock,
        (lines.layout.names[0], lines.layout.names[1]),
        SeriesReport(
            len(bridged),
            int(bridged.sum()),
            len(gaps) - len(bridged),
            n_empty,
            n_repeats,
            n["duplicates"],
            n["bad_rows"] + n["order"],
        ),
    )


def _refuse(source: str, problems: list[_Problem], mending: Mending, n_rows: int) -> None:
    """Raise DataError if a fault may not be mended, or if more lines were skipped than kept.

    Args:
        source: The name of the file, for the message.
        problems: The faults that were found in the file.
        mending: The treatment of each kind of fault.
        n_rows: The number of rows that were kept.
    """
    allowed = {
        "gaps": mending.gaps == "interpolate",
        "duplicates": mending.duplicates in ("keep-first", "keep-last"),
        "bad_rows": mending.bad_rows == "skip",
        "order": mending.bad_rows == "skip",
    }
    refused = sorted((p for p in problems if not allowed[p.kind]), key=lambda p: p.line)
    skipped = [p for p in problems if p.kind in ("bad_rows", "order")]
    n_unordered = sum(p.kind == "order" for p in problems)
    sort = "sort the rows by time; or " if n_unordered > SHOWN_PROBLEMS else ""
    if refused:
        kinds = sorted({p.kind for p in refused})
        advice = ADVICE[kinds[0]] if len(kinds) == 1 else SEVERAL
        if any(option in p.text for p in refused for option in ("--decimal", "--time-format")):
            advice = f"give the option that is named there; or {advice}"
        first = "; ".join(f"line {p.line}: {p.text}" for p in refused[:SHOWN_PROBLEMS])
        left = len(refused) - SHOWN_PROBLEMS
        rest = f"; and {left:,} more" if left > 0 else ""
        joint = ", " if len(refused) == 1 else f", {len(refused):,} places to mend: "
        raise DataError(f"{source}{joint}{first}{rest}. To go on, {sort}{advice}.")
    if len(skipped) > n_rows:
        worst = min(skipped, key=lambda p: p.line)
        raise DataError(
            f"{source}: more lines cannot be used ({len(skipped):,}) than can ({n_rows:,}); the "
            f"first is line {worst.line}: {worst.text}. {sort[:1].upper()}{sort[1:-5]}"
            f"{'. ' if sort else ''}Check the columns and how they are written."
        )


def _without_repeats(rows: list[Row]) -> list[Row]:
    """Return the rows without those that repeat time and value of an earlier row."""
    seen: set[tuple[float, ...]] = set()
    kept = []
    for row in rows:
        if row.numbers not in seen:
            seen.add(row.numbers)
            kept.append(row)
    return kept


def _in_order(rows: list[Row], clock: Clock, problems: list[_Problem]) -> list[Row]:
    """Keep as many rows as possible in order of time, and add a problem for each other row.

    So a single row whose time is far ahead is dropped, not the rows after it.
    """
    times = [row.numbers[0] for row in rows]
    kept = _longest_order(times)
    if len(kept) == len(rows):
        return rows
    following = dict(zip(kept, [*kept[1:], None], strict=True))
    before, after = None, kept[0] if kept else None
    for index, row in enumerate(rows):
        if index in following:
            before, after = index, following[index]
            continue
        text, time = row.texts[0], times[index]
        if after is not None and time > times[after]:
            what = f"is after line {rows[after].line}'s {rows[after].texts[0]}"
            if before is not None:
                ahead = elapsed(time - times[before], clock)
                what = (
                    f"is {ahead} after line {rows[before].line}, and the rows after it come before "
                    "it"
                )
        else:
            assert before is not None
            behind = elapsed(times[before] - time, clock)
            what = f"is {behind} before line {rows[before].line}'s {rows[before].texts[0]}"
        problems.append(_Problem(row.line, f"the time {text} {what}", "order"))
    return [rows[index] for index in kept]


def _longest_order(times: Sequence[float]) -> list[int]:
    """Return the indices of a longest subsequence of the times that never decreases.

    If several subsequences are equally long, the one with the lowest last time is taken.
    """
    ends: list[float] = []  # the lowest last time of a choice of each length
    last: list[int] = []  # the place of that time
    before = [-1] * len(times)
    for index, time in enumerate(times):
        length = bisect_right(ends, time)
        before[index] = last[length - 1] if length else -1
        ends[length : length + 1] = [time]
        last[length : length + 1] = [index]
    places = last[-1:]
    while places and before[places[-1]] >= 0:
        places.append(before[places[-1]])
    return places[::-1]


def _one_a_time(rows: list[Row], keep_last: bool, problems: list[_Problem]) -> list[Row]:
    """Keep one row for each time, the first or the last, and add a problem for each other row.

    The rows must be in order of time. A problem is a fault in the file, with its line.
    """
    kept: list[Row] = []
    for row in rows:
        if not kept or kept[-1].numbers[0] < row.numbers[0]:
            kept.append(row)
            continue
        text = (
            f"the time {row.texts[0]} is also that of line {kept[-1].line}, which has the value "
            f"{kept[-1].texts[1]} and not {row.texts[1]}"
        )
        problems.append(_Problem(row.line, text, "duplicates"))
        if keep_last:
            kept[-1] = row
    return kept


def _at_even_steps(
    rows: list[Row], problems: list[_Problem]
) -> tuple[list[Row], NDArray[np.int64]]:
    """Drop rows that come less than half a step after the row before.

    A step is the median time between two rows. Dropped rows and gaps are added to `problems`.

    Returns:
        The rows that are kept, and the number of steps between each of them and the next.
    """
    times = np.array([row.numbers[0] for row in rows])
    step = float(np.median(np.diff(times)))
    unused = sorted(p.line for p in problems if p.kind != "duplicates")
    kept, newest = [rows[0]], rows[0]
    steps = []
    for row in rows[1:]:
        ratio = (row.numbers[0] - newest.numbers[0]) / step
        if ratio < FASTEST:
            text = (
                f"the time {row.texts[0]} comes {ratio:.2g} of a usual step after line "
                f"{newest.line}"
            )
            problems.append(_Problem(row.line, text, "bad_rows"))
            continue
        n = max(round(min(ratio, MOST_STEPS)), 1)
        n_unused = bisect_right(unused, row.line) - bisect_right(unused, newest.line)
        if n - 1 > n_unused:  # else lines that are named already leave the gap
            rows_are = "1 row is" if n == 2 else f"{n - 1:,} rows are"
            text = f"{rows_are} missing between {newest.texts[0]} and {row.texts[0]}"
            problems.append(_Problem(row.line, text, "gaps"))
        steps.append(n)
        kept.append(row)
        newest = row
    return kept, np.array(steps, dtype=np.int64)
