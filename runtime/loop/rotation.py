"""When a file of predictions is finished, and how its finished parts are called.

    predictions.csv                      is being written
    predictions.0001.csv                 finished, by size
    predictions.2024-03-31.csv           finished, by day

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
"""Rows of sensors that take turns may be late by so much."""
PART = re.compile(r"\.(\d{4,}|\d{4}-\d{2}-\d{2})(\.\d+)?")


@dataclass(frozen=True, slots=True)
class Rotation:
    """When the next part begins.

    Attributes:
        n_bytes: With a row that would make the file longer than this; None: with the first row of a
            later day than that of the first row in the file. Days are those of UTC. Rows that come
            a little late stay in the file. If its first row was days ahead of those that follow,
            the next file begins with them; once for a day, because sensors may stay apart.
    """

    n_bytes: int | None = None

    @property
    def by_day(self) -> bool:
        """Whether files are finished by the day."""
        return self.n_bytes is None

    def is_due(
        self, n_bytes: int, day: int | None, row_day: int | None, ahead: int | None = None
    ) -> bool:
        """Whether a row belongs to the next part.

        Args:
            n_bytes: The file's length with the row.
            day: The day of the file's first row, in days since 1970.
            row_day: The row's day.
            ahead: The latest day of a file that was followed by rows of earlier days.
        """
        if self.n_bytes is not None:
            return n_bytes > self.n_bytes
        if day is None or row_day is None:
            return False
        return row_day > day or (row_day < day - LATE_DAYS and (ahead is None or day > ahead))


def lasting_name(path: Path, part: int, day: int | None) -> Path:
    """Return a name that no file has for a finished part: by its day if it has one."""
    mark = f"{part:04d}" if day is None else (EPOCH + timedelta(days=day)).isoformat()
    found, n = path.with_name(f"{path.stem}.{mark}{path.suffix}"), 1
    while os.path.lexists(found):
        n += 1
        found = path.with_name(f"{path.stem}.{mark}.{n}{path.suffix}")
    return found


def finished_parts(path: Path) -> list[Path]:
    """Return the finished parts that lie beside an output, by name."""
    return sorted(
        found
        for found in path.parent.iterdir()
        if found.name.startswith(path.stem)
        and found.name.endswith(path.suffix)
        and PART.fullmatch(found.name[len(path.stem) : len(found.name) - len(path.suffix)])
    )
