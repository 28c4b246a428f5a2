"""Compare the output of a loop, line by line, with the rows that it must have learned.

Finished files are compared and removed while the loop runs, as a program that moves them away would
do. The file in work is compared up to its end when the loop has ended with everything on the disk.
"""

from __future__ import annotations

import hashlib
from collections import deque
from pathlib import Path

from benchmarks.loop.simulated_loop import Loop
from benchmarks.loop.simulated_rows import REFUSED, Day


class Sent:
    """Holds the lines of the last two days by their numbers since the first day.

    Attributes:
        n: Number of lines of all days so far.
        fates: What a loop must do with each of them.
    """

    def __init__(self) -> None:
        self.n = 0
        self.fates = bytearray()
        self._days: deque[tuple[int, list[bytes]]] = deque(maxlen=2)

    def add(self, day: Day) -> None:
        """Append a day."""
        self._days.append((self.n, day.lines))
        self.fates += day.fates
        self.n += len(day.lines)

    def lines(self, start: int, stop: int) -> list[bytes]:
        """Return the lines from one number up to another one."""
        assert start >= self._days[0][0], "lines of a day before the last two are asked for"
        found: list[bytes] = []
        for first, lines in self._days:
            found += lines[max(0, start - first) : max(0, stop - first)]
        return found


class OutputCheck:
    """Compares the output with what was sent.

    Args:
        loop: The loop.
        sent: The lines that were sent.
        start: The number of the first line; that of a loop that resumes from a snapshot with all
            its output on the disk, else 0.

    Attributes:
        n_lines: Number of lines of the output that were right.
        n_files: Number of finished files.
        sha: Digest of the lines since it was set last.
    """

    def __init__(self, loop: Loop, sent: Sent, start: int = 0):
        self._loop, self._sent, self._next = loop, sent, start
        self._offset = loop.output.stat().st_size if start else 0  # in the file in work
        self._newest = ""
        self.n_lines = self.n_files = 0
        self.sha = hashlib.sha256()

    def finished(self) -> None:
        """Compare the files that were finished, and remove them.

        Raises:
            AssertionError: A line is missing, is there twice, or differs.
        """
        for path in self._loop.finished():
            if path.name > self._newest:  # a power cut may bring a removed one back
                self._compare(path)
                self._newest, self._offset = path.name, 0
                self.n_files += 1
            path.unlink()

    def all(self, n_taken: int) -> None:
        """Compare everything, of a loop that ended with everything on the disk.

        Args:
            n_taken: Number of the line before which the loop ended.

        Raises:
            AssertionError: A line is missing, is there twice, or differs.
        """
        self.finished()
        self._compare(self._loop.output)
        left = self._sent.fates[self._next : n_taken]
        assert all(fate >= REFUSED for fate in left), f"no output from line {self._next} on"

    def _compare(self, path: Path) -> None:
        with path.open("rb") as file:
            file.seek(self._offset)
            lines = file.read().splitlines(keepends=True)
            size = file.tell()
        if not self._offset:
            del lines[0]
        fates, number = self._sent.fates, self._next
        expected = iter(self._sent.lines(number, min(self._sent.n, number + 2 * len(lines) + 1000)))
        for line in lines:
            while True:
                row = next(expected, b"")
                number += 1
                if not row or fates[number - 1] < REFUSED:
                    break
            assert row and line.startswith(row[:-1] + b","), (
                f"{path.name} has {line!r} where the row {row!r}, number {number - 1}, belongs"
            )
        self.sha.update(b"".join(lines))
        self.n_lines += len(lines)
        self._next, self._offset = number, size
