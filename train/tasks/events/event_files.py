"""Read events from files: rows of time and mark, of one sequence or of several, and JODIE's files.

JODIE's files (Kumar et al. 2019) hold interactions of users with items, one a line; behind the
first four columns come features whose number the header does not give. A user is a sequence and an
item a mark, as in Shchur et al. 2020.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import Row
from edgefold.runtime.rows.csv_fields import Clock
from edgefold.runtime.rows.csv_reader import BadRow, CsvRows, open_source
from edgefold.runtime.rows.event_columns import EventColumns
from edgefold.runtime.rows.sensor_columns import LongColumns, SensorsRow

JODIE_HEADER = "user_id,item_id,timestamp,state_label,comma_separated_list_of_features"
JODIE_URL = "http://snap.stanford.edu/jodie/"
JODIE = {"mooc.csv": (411_749, 7_047, 97), "reddit.csv": (672_447, 10_000, 984)}
"""Numbers of rows, users and items of the published files, by file name."""
MOST_MARKS = 10_000


@dataclass(frozen=True, slots=True)
class EventFile:
    """Holds the events of a file.

    Attributes:
        sequences: Arrays (n, 2), one a sequence: times in their order, and numbers of marks.
        marks: Names of the marks, in the order of their numbers.
        columns: Names of the columns of times and marks.
        clock: Kind of the times: "date" for seconds since 1970, or "number".
        is_jodie: Whether the file has the form of JODIE's files.
        n_bad: Number of lines that were skipped.
        n_moved: Number of events that stood behind a later one of their sequence.
    """

    sequences: tuple[FloatArray, ...]
    marks: tuple[str, ...]
    columns: tuple[str, str]
    clock: Clock
    is_jodie: bool
    n_bad: int
    n_moved: int


def read_events(
    path: Path, columns: EventColumns, sequence: str | None = None, skip_bad: bool = False
) -> EventFile:
    """Read a file of events; each sequence is sorted by time, and equal times keep their order.

    Args:
        path: CSV or JSON lines, or one of JODIE's files, which its header shows.
        columns: Columns of times and marks.
        sequence: Name of the column that names each row's sequence; None where all rows are one.
        skip_bad: Leave out lines that cannot be read, instead of refusing the file.

    Raises:
        DataError: The file is not there, a line cannot be read, or it has too many marks.
    """
    if str(path) == "-":
        raise DataError("events are read again by `edgefold evaluate`: give a file, no pipe.")
    if path.name in JODIE and not path.exists():
        n_rows, n_users, n_items = JODIE[path.name]
        raise DataError(
            f"{path} is not there. Download {JODIE_URL}{path.name} ({n_rows:,} rows of {n_users:,} "
            f"users and {n_items:,} items under the header {JODIE_HEADER}) and give its place with "
            "--csv."
        )
    bad: list[BadRow] = []
    by_name: dict[str, list[tuple[float, ...]]] = {}
    with open_source(path) as file:
        first = file.readline(1000).decode(errors="replace").strip()
        is_jodie = first == JODIE_HEADER
        if is_jodie:
            names = ("timestamp", "item_id")
            _collect(_jodie_rows(file, columns), by_name, bad)
        else:
            file.seek(0)
            named = LongColumns(columns, sequence or "", "sequence", "--sequence")
            lines = CsvRows(file, named if sequence else columns, str(path))
            _collect(lines, by_name, bad)
            assert lines.layout is not None
            names = (lines.layout.names[0], lines.layout.names[1])
    if bad and not skip_bad:
        more = f" and {len(bad) - 1:,} more lines" if len(bad) > 1 else ""
        raise DataError(
            f"{path}, line {bad[0].line}: {bad[0].reason}{more}. Fix or drop such lines, or leave "
            "them out with --bad-rows skip."
        )
    if not by_name:
        raise DataError(f"{path} holds no events; give rows of {columns.wish}.")
    if len(columns.numbers) > MOST_MARKS:
        raise DataError(
            f"{path} has {len(columns.numbers):,} different marks in the column {names[1]}, more "
            f"than {MOST_MARKS:,}; name with --mark a column of kinds of events."
        )
    sequences, n_moved = [], 0
    marks, numbers = _in_order(columns.numbers)
    for rows in by_name.values():
        events = np.array(rows)
        n_moved += int((np.diff(events[:, 0]) < 0).sum())
        events = events[np.argsort(events[:, 0], kind="stable")]
        events[:, 1] = numbers[events[:, 1].astype(int)]
        sequences.append(events)
    clock = columns.clock or "number"
    return EventFile(tuple(sequences), marks, names, clock, is_jodie, len(bad), n_moved)


def _collect(
    rows: Iterable[Row | BadRow], by_name: dict[str, list[tuple[float, ...]]], bad: list[BadRow]
) -> None:
    """Append the numbers of each row to the list of its sequence, and bad rows to `bad`."""
    for row in rows:
        for name, part in row.parts if isinstance(row, SensorsRow) else (("", row),):
            if isinstance(part, BadRow):
                bad.append(part)
            else:
                by_name.setdefault(name, []).append(part.numbers)


def _jodie_rows(file: Iterable[bytes], columns: EventColumns) -> Iterable[SensorsRow | BadRow]:
    columns.clock = "number"
    for line, raw in enumerate(file, 2):
        user, *fields = raw.decode(errors="replace").split(",", 4)
        try:
            item, time = fields[:2]
            float(user)
            numbers = float(time), columns.parse_value(item.strip(), ".")
            if not np.isfinite(numbers[0]):
                raise ValueError
        except ValueError:
            yield BadRow(line, f"is not {JODIE_HEADER} as at {JODIE_URL}")
            continue
        yield SensorsRow(line, (), (), ((user, Row(line, numbers, ())),))


def _in_order(numbers: dict[str, int]) -> tuple[tuple[str, ...], Array]:
    """Number the marks so that the order of a file's lines does not matter.

    Names that are numbers are sorted by size, words by alphabet.

    Args:
        numbers: Number of each mark by its name, in the order of the file.

    Returns:
        The names in their new order, and an array with the new number of each old number.
    """
    all_numbers = all(name.isdecimal() for name in numbers)
    names = sorted(numbers, key=(lambda name: (int(name), name)) if all_numbers else str)
    new = np.zeros(len(names), int)
    for number, name in enumerate(names):
        new[numbers[name]] = number
    return tuple(names), new
