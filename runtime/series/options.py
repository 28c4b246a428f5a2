"""The command-line options that name a series' file, and the file that they name."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.runtime.errors import DataError

if TYPE_CHECKING:
    from edgefold.runtime.rows.csv_reader import Series

DATA_FOLDER = Path("data")
NAMES = ("csv", "time", "value", "gaps")


def add_series_arguments(parser: argparse.ArgumentParser, csv_help: str) -> argparse._ArgumentGroup:
    """Declare --csv, --time, --value and --gaps; none has a default, so that a run's can be."""
    group = parser.add_argument_group("series")
    group.add_argument("--csv", type=Path, metavar="FILE", help=csv_help)
    group.add_argument("--time", metavar="COL", help="column of times (default time)")
    group.add_argument("--value", metavar="COL", help="column of values (default value)")
    group.add_argument(
        "--gaps",
        choices=["refuse", "interpolate"],
        help="where rows are missing: stop and say where (default), or fill them linearly",
    )
    return group


def read(args: argparse.Namespace, task: dict[str, Any] | None = None) -> Series:
    """The series that the options name; what they leave open is as a trained task has it.

    Raises:
        DataError: The file does not exist, or does not hold a clean series.
    """
    from edgefold.runtime.rows.csv_reader import read_series

    task = task or {}
    time, value = None, None
    if args.csv is None or args.csv.name == task.get("file"):
        time, value = task.get("columns", (None, None))
    if args.csv is None:
        args.csv = _require(task)
    gaps = args.gaps or task.get("gaps", "refuse")
    return read_series(args.csv, args.time or time, args.value or value, gaps)


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
