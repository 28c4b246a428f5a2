"""Define the options that name the file of a series and say how it is read.

A trained task keeps the options of its training, so that the same file is read again without them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from edgefold.runtime.errors import DataError
from edgefold.runtime.options import option
from edgefold.runtime.rows.row_format import FormatOptions, kept_columns, kept_format

if TYPE_CHECKING:
    from edgefold.runtime.series.series_file import Mending, Series

DATA_FOLDER = Path("data")
MENDING_NAMES = ("gaps", "duplicates", "bad_rows")


@dataclass(frozen=True, slots=True)
class SeriesOptions:
    """Holds the options for a series' file; for an option that is None, a trained task decides."""

    title: ClassVar[str] = "series"
    csv: Path | None = option(
        "the series, needed; its last fifth is held out; CSV or JSON lines", "FILE"
    )
    time: str | None = option(
        "column or key of times (default time, timestamp, datetime, date or ts, or the first of "
        "two columns)",
        "COL",
    )
    value: str | None = option(
        "column or key of values (default value, or the second of two columns)", "COL"
    )
    gaps: Literal["refuse", "interpolate"] | None = option(
        "where rows or values are missing: refuse the file and name the lines (default), or bridge "
        "them as the loop does; no missing row is learned or scored",
    )
    duplicates: Literal["refuse", "keep-first", "keep-last"] | None = option(
        "where a time comes twice with two values: refuse the file (default), or keep the first or "
        "the last of these rows",
    )
    bad_rows: Literal["refuse", "skip"] | None = option(
        "where a row cannot be read or is out of order: refuse the file (default), or skip the row",
    )
    mend: bool | None = option(
        "read a rough file: --gaps interpolate --duplicates keep-first --bad-rows skip"
    )
    format: FormatOptions = field(default_factory=FormatOptions)

    def mending(self, task: dict[str, Any]) -> Mending:
        """Return how to treat a file that is not clean.

        For each kind of fault, these options decide, else `mend`, else the trained task; a fault
        about which they all say nothing is refused.
        """
        from edgefold.runtime.series.series_file import MENDED, Mending

        def chosen(name: str) -> Any:
            mended = getattr(MENDED, name) if self.mend else None
            return getattr(self, name) or mended or task.get(name) or "refuse"

        return Mending(*map(chosen, MENDING_NAMES))

    def path(self, task: dict[str, Any]) -> Path:
        """Return the file that the options name, else the task's; raise DataError if not found."""
        return _require(task) if self.csv is None else self.csv

    def read(self, task: dict[str, Any]) -> Series:
        """Read the series; an option that is not given is as the trained task keeps it.

        Raises:
            DataError: The file does not exist, or does not hold a clean series.
        """
        from edgefold.runtime.rows.csv_columns import SeriesColumns
        from edgefold.runtime.series.series_file import read_columns

        path = self.path(task)
        format, names = kept_format(task, self.format.given), kept_columns(task)
        columns = SeriesColumns(self.time, self.value, format=format, remembered=names)
        return read_columns(path, columns, self.mending(task))


def find_series(task: dict[str, Any]) -> Path | None:
    """Find the file of a trained series by the name that the task keeps; None if it is not here.

    The file is sought in the current folder and in the folder `data`.
    """
    name = task.get("file")
    if name is None:
        return None
    return next((path for path in (Path(name), DATA_FOLDER / name) if path.is_file()), None)


def _require(task: dict[str, Any]) -> Path:
    path, name = find_series(task), task.get("file")
    if path is not None:
        return path
    if name is None:
        raise DataError("the model does not say which series it was trained on; give --csv FILE.")
    raise DataError(
        f"the series {name} is neither here nor in {DATA_FOLDER}/; say where it is with --csv FILE."
    )
