"""Count the bytes that `edgefold run` writes to storage, as Linux counts them for the process.

    start ──> first snapshot of the run ──────────────────────> last snapshot
      └ all of them count for the run  └ from here on for a day: the journal's files are made before

/proc/self/io counts a page when the process changes it, for files on a disk. It does not count the
blocks that the file system adds, which the kernel writes; `edgefold budget --flash` predicts both.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from edgefold.cli.text.numbers import format_bytes

DAY_S = 86400
LEAST_S = 60.0
"""A shorter time between snapshots says nothing about a day."""


def written_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process has written to storage; None where nobody counts them."""
    try:
        with open(os.path.join(root, "proc/self/io"), "rb") as file:
            fields = dict(line.split(b": ") for line in file)
        return int(fields[b"write_bytes"])
    except (OSError, ValueError, KeyError):
        return None


class DiskWrites:
    """Counts the bytes of one run, and of a day at the rate from its first snapshot to its last.

    Args:
        read: Function that returns the bytes so far, or None.
        clock: Function that returns a time in seconds that never goes back.
    """

    def __init__(
        self,
        read: Callable[[], int | None] = written_bytes,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._read, self._clock = read, clock
        self._start = read()
        self._first = self._last = (0.0, self._start)

    def saved(self) -> None:
        """Remember the bytes after a snapshot."""
        self._last = self._clock(), self._read()
        if not self._first[0]:
            self._first = self._last

    def summary(self, is_live: bool) -> str:
        """Return how many bytes were written; "" if nothing was, or nobody counts them.

        Args:
            is_live: Whether rows come at a rate that goes on, so that a day can be reckoned.
        """
        end = self._read()
        if self._start is None or end is None or end == self._start:
            return ""
        text = f"{format_bytes(end - self._start)} in this run"
        a_day = self.a_day if is_live else None
        return text if a_day is None else f"{text}, {format_bytes(a_day)} a day at this rate"

    @property
    def a_day(self) -> float | None:
        """Return the bytes of a day at the rate from the first snapshot to the last.

        It is None while snapshots say too little, or where nobody counts bytes.
        """
        (first_s, first), (last_s, last) = self._first, self._last
        if first is None or last is None or last_s - first_s < LEAST_S:
            return None
        return (last - first) / (last_s - first_s) * DAY_S
