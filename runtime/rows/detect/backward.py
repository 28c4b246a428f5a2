"""Read the lines of a table from the last one to the first, below its header.

Many programs export the newest row first. The places of the lines are kept, 8 bytes for each, and
not the lines themselves.
"""

from __future__ import annotations

import codecs
import tempfile
import weakref
from array import array
from collections.abc import Sequence
from typing import IO, Any

from edgefold.runtime.rows.csv_reader import MAX_LINE_BYTES, LineSource


class BackwardLines:
    """Gives the header of a table, and then its other lines from the last one to the first.

    The input is read to its end at once. One that cannot be read twice, such as a pipe, is copied
    into a temporary file.

    Args:
        first: The first lines, which were already read; they may be cut if they are too long.
        file: The input.
        n_before: The number of lines above the first row, which keep their places.

    Attributes:
        n_lines: The number of all lines.
    """

    def __init__(self, first: Sequence[bytes], file: LineSource, n_before: int):
        self._file = _seekable(first, file)
        if self._file is not file:
            weakref.finalize(self, self._file.close)
        places = array("q")
        is_start, place = True, 0
        while piece := self._file.readline(MAX_LINE_BYTES):
            if is_start:
                places.append(place)
            is_start, place = piece.endswith(b"\n"), place + len(piece)
        self.n_lines = len(places)
        self._places = [*places[:n_before], *reversed(places[n_before:])]
        self._next, self._is_inside = 0, False

    def readline(self, size: int, /) -> bytes:
        """Return the next line with its end, or at most `size` bytes of it; b"" at the end."""
        if not self._is_inside:
            if self._next == len(self._places):
                return b""
            self._file.seek(self._places[self._next])
            self._next += 1
        piece = self._file.readline(size)
        if self._file.tell() - len(piece) == 0:
            piece = piece.removeprefix(codecs.BOM_UTF8)
        if len(piece) < size and not piece.endswith(b"\n"):
            piece += b"\n"  # the last line of the file is not the last one here
        self._is_inside = not piece.endswith(b"\n")
        return piece


def _seekable(first: Sequence[bytes], file: Any) -> IO[bytes]:
    """Return an input that stands at its start and can be read again, or a copy of it."""
    if getattr(file, "seekable", lambda: False)():
        file.seek(0)
        whole: IO[bytes] = file
        return whole
    copy = tempfile.TemporaryFile()  # noqa: SIM115  # it is read until the table's rows end
    for line in first:
        copy.write(line if line.endswith(b"\n") else line + b"\n")
    while piece := file.readline(MAX_LINE_BYTES):
        copy.write(piece)
    copy.seek(0)
    return copy
