"""Decide when a file of predictions is finished and a new one begins, and name the finished parts.

    predictions.csv                      is being written
    predictions.0001.csv                 a finished part, where a size was chosen
    predictions.2024-03-31.csv           a finished part, where files end with the day

A finished part is never touched again: it may be deleted, compressed or moved at any time.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

EPOCH = date(1970, 1, 1)
LATE_DAYS = 1
"""Rows up to so many days earlier than a file's first row begin no new file, because sensors take
turns."""
PART = re.compile(r"\.(\d{4,}|\d{4}-\d{2}-\d{2})(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Rotation:
    """Decides with which row the next part (file) begins: by size or by day.

    By day, the next part begins with a row of a later day (UTC) than that of the file's first row.
    Rows of the day before stay in the file, because sensors may be late. A row of a still earlier
    day also begins the next part, since the file's first row was ahead of time. Once a part has
    ended so, only parts of later days than its day can: the clocks of sensors may stay days apart.

    Attributes:
        n_bytes: The most bytes of a part: the next one begins with the row that would make it
            longer. None decides by day.
    """

    n_bytes: int | None = None

    @property
    def by_day(self) -> bool:
        """Return whether parts are finished by day and not by size."""
        return self.n_bytes is None

    def is_due(
        self, n_bytes: int, day: int | None, row_day: int | None, ahead: int | None = None
    ) -> bool:
        """Return whether a row belongs to the next part.

        Args:
            n_bytes: The file's length with the row, in bytes.
            day: The day of the file's first row, in days since 1970; None if not known.
            row_day: The row's day, in days since 1970; None for a row without a date.
            ahead: The day of the last part that ended with a row of an earlier day, in days since
                1970; None if there was none. Only a part of a later day can end so again.
        """
        if self.n_bytes is not None:
            return n_bytes > self.n_bytes
        if day is None or row_day is None:
            return False
        return row_day > day or (row_day < day - LATE_DAYS and (ahead is None or day > ahead))


def lasting_name(path: Path, part: int, day: int | None) -> Path:
    """Return the path that a finished part gets; no file has this path yet.

    Args:
        path: The output's path, such as predictions.csv.
        part: Number of the part, from 1, used in the name where the part has no day.
        day: The part's day, in days since 1970, or None.
    """
    mark = f"{part:04d}" if day is None else (EPOCH + timedelta(days=day)).isoformat()
    found, n = path.with_name(f"{path.stem}.{mark}{path.suffix}"), 1
    while os.path.lexists(found):
        n += 1
        found = path.with_name(f"{path.stem}.{mark}.{n}{path.suffix}")
    return found


def finished_parts(path: Path) -> list[Path]:
    """Return the paths of an output's finished parts in its folder, sorted by name."""
    return sorted(
        found
        for found in path.parent.iterdir()
        if found.name.startswith(path.stem)
        and found.name.endswith(path.suffix)
        and PART.fullmatch(found.name[len(path.stem) : len(found.name) - len(path.suffix)])
    )
