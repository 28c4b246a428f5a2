"""The command-line options that name a series' file, and the file that they name.

What training was told is kept in the task, so that the same file is read again without an option.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.row_format import NAMES as FORMAT_NAMES
from edgefold.runtime.rows.row_format import (
    add_format_arguments,
    given_format,
    kept_columns,
    kept_format,
)

if TYPE_CHECKING:
    from edgefold.runtime.series.series_file import Mending, Series

DATA_FOLDER = Path("data")
MENDING_NAMES = ("gaps", "duplicates", "bad_rows")
NAMES = ("csv", "time", "value", *MENDING_NAMES, "mend", *FORMAT_NAMES)
EVENT_NAMES = ("csv", "time", "bad_rows", *FORMAT_NAMES)
"""Those that a file of events has too."""


def foreign_options(args: argparse.Namespace, task: dict[str, Any]) -> list[str]:
    """The options that were given and do not belong to the file of a trained task, if it has one.

    Args:
        args: The command's options.
        task: The description of a task that is no series.
    """
    known = EVENT_NAMES if task.get("rows") == "events" and "file" in task else ()
    names = [name for name in NAMES if getattr(args, name) and name not in known]
    return [f"--{name.replace('_', '-')}" for name in names]


def add_series_arguments(parser: argparse.ArgumentParser, csv_help: str) -> argparse._ArgumentGroup:
    """Declare the options of a series; none has a default, so that a run's can be."""
    group = parser.add_argument_group("series")
    group.add_argument("--csv", type=Path, metavar="FILE", help=f"{csv_help}; CSV or JSON lines")
    group.add_argument(
        "--time",
        metavar="COL",
        help="column or key of times (default time, timestamp, datetime, date or ts, or the first "
        "of two columns)",
    )
    group.add_argument(
        "--value",
        metavar="COL",
        help="column or key of values (default value, or the second of two columns)",
    )
    group.add_argument(
        "--gaps",
        choices=["refuse", "interpolate"],
        help="where rows or values are missing: refuse the file and name the lines (default), or "
        "bridge them as the loop does; no missing row is learned or scored",
    )
    group.add_argument(
        "--duplicates",
        choices=["refuse", "keep-first", "keep-last"],
        help="where a time comes twice with two values: refuse the file (default), or keep the "
        "first or the last of these rows",
    )
    group.add_argument(
        "--bad-rows",
        choices=["refuse", "skip"],
        help="where a row cannot be read or is out of order: refuse the file (default), or skip "
        "the row",
    )
    group.add_argument(
        "--mend",
        action="store_true",
        default=None,
        help="read a rough file: --gaps interpolate --duplicates keep-first --bad-rows skip",
    )
    add_format_arguments(group)
    return group


def mending_of(args: argparse.Namespace, task: dict[str, Any]) -> Mending:
    """What to do with a file that is not clean: as the options say, else --mend, else the task."""
    from edgefold.runtime.series.series_file import MENDED, Mending

    def chosen(name: str) -> Any:
        mended = getattr(MENDED, name) if args.mend else None
        return getattr(args, name) or mended or task.get(name) or "refuse"

    return Mending(*map(chosen, MENDING_NAMES))


def read(args: argparse.Namespace, task: dict[str, Any] | None = None) -> Series:
    """The series that the options name; what they leave open is as a trained task has it.

    Raises:
        DataError: The file does not exist, or does not hold a clean series.
    """
    from edgefold.runtime.rows.csv_columns import SeriesColumns
    from edgefold.runtime.series.series_file import read_columns

    task = task or {}
    if args.csv is None:
        args.csv = _require(task)
    columns = SeriesColumns(
        args.time,
        args.value,
        format=kept_format(task, given_format(args)),
        remembered=kept_columns(task),
    )
    return read_columns(args.csv, columns, mending_of(args, task))


def find_series(task: dict[str, Any]) -> Path | None:
    """A trained series' file, where it is at hand: its name is kept, its place is not."""
    name = task.get("file")
    if name is None:
        return None
    return next((path for path in (Path(name), DATA_FOLDER / name) if path.is_file()), None)


def _require(task: dict[str, Any]) -> Path:
    found, name = find_series(task), task.get("file")
    if found is not None:
        return found
    if name is None:
        raise DataError("the model does not say which series it was trained on; give --csv FILE.")
    raise DataError(
        f"the series {name} is neither here nor in {DATA_FOLDER}/; say where it is with --csv FILE."
    )
