"""Read the lines of a loop from a file, which a later run continues at a position, or from a pipe.

    input  ... line line line | line line ...        output ... row row row | row row
                              ^ position                                    ^ length
                              └──────── both in one snapshot, written atomically ────────┘

After a kill the input is read from its position and the output is cut back to its length, so no
row is lost or counted twice. A pipe has no positions: the next run reads the rows that come then.

A file may be cut, rewritten or rotated (renamed, and a new file begun) while it is read. Digests of
the bytes are therefore kept as they were read (`edgefold.runtime.sources.read_bytes`) and compared
with the file before each snapshot. A mark is such a place in a file as a JSON object.
"""

from __future__ import annotations

import io
import math
import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import Columns, Layout, Row
from edgefold.runtime.rows.csv_reader import (
    N_BYTES,
    N_LINES,
    BadRow,
    CsvRows,
    first_lines,
    is_too_long,
    require_encoding,
)
from edgefold.runtime.sources.read_bytes import (
    ReadBytes,
    bytes_before,
    find_rotated,
    has_rows,
    is_same_start,
    n_unread,
)
from edgefold.runtime.sources.row_source import RowSource, SourceOptions

FILE_BLOCK = 65536
PIPE_BLOCK = 4096
WAKE_S = 0.2
HEAD_S = 1.0
"""A pipe may send more lines for so many seconds once its lines show the form of the rows."""


class _Ahead(io.RawIOBase):
    """Reads an open file from a position on, and leaves the file's own position as it is."""

    def __init__(self, descriptor: int, position: int):
        self._descriptor, self._position = descriptor, position

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = os.pread(self._descriptor, len(buffer), self._position)
        buffer[: len(block)] = block
        self._position += len(block)
        return len(block)


def open_input(path: str, options: SourceOptions) -> InputFile:
    """Open a file, a named pipe, or standard input for "-"; raise DataError if that fails."""
    return InputFile(path, options.stop, options.snapshot is not None, options.idle)


class InputFile(RowSource):
    """Reads the rows of a file or a pipe, and remembers the position after the last one.

    Args:
        path: Path of a file or a named pipe, or "-" for standard input.
        stop: Function that is called before each block of a pipe, while the pipe is silent, and
            while the end of a very long line is searched; once it returns True, `readline` returns
            b"" as at the end.
        whole_lines: Whether a file's last line without a line end is left to a later run, because
            it may still grow.
        idle: Function that is called several times a second while a pipe is silent, and for each
            block that comes.

    Attributes:
        n_left: Number of bytes of a last line that was left to a later run.
        seekable: Whether the input is a regular file, which a later run can read from a position.
        is_next: Whether `resume` began a file that follows the one in the snapshot.
    """

    def __init__(
        self,
        path: str,
        stop: Callable[[], bool] = lambda: False,
        whole_lines: bool = False,
        idle: Callable[[], None] = lambda: None,
    ):
        self.name = "standard input" if path == "-" else path
        self._stop, self._idle = stop, idle
        self._owned = path != "-"
        try:
            # A named pipe opens at once; `_fill` waits for its writer and can be stopped.
            flags = os.O_RDONLY | os.O_NONBLOCK
            self._fd = os.open(path, flags) if self._owned else sys.stdin.fileno()
            if self._owned:
                os.set_blocking(self._fd, True)
            mode = os.fstat(self._fd).st_mode
        except OSError as error:
            raise DataError(
                f"cannot read {path} ({error.strerror}); give a readable CSV file."
            ) from error
        if stat.S_ISDIR(mode):
            os.close(self._fd)
            raise DataError(f"cannot read {path} (a folder); give a readable CSV file.")
        self.seekable = stat.S_ISREG(mode) and os.lseek(self._fd, 0, os.SEEK_CUR) == 0
        self._whole_lines = whole_lines and self.seekable
        self.n_left = 0
        self.is_next = False
        self._start_at(ReadBytes())
        self._buffer = bytearray()
        self._ended = False
        self._rows: CsvRows | None = None

    def _start_at(self, place: ReadBytes) -> None:
        self._taken = self._whole = self._kept = place

    @property
    def position(self) -> int:
        """Return how many bytes the whole lines take that `readline` has returned so far."""
        return self._whole.position

    @property
    def layout(self) -> Layout | None:
        """Return the places of the columns in a line; None before the first readable line."""
        return self._rows.layout if self._rows else None

    @property
    def is_live(self) -> bool:
        """Return whether the input is a pipe, whose next line may come late."""
        return not self.seekable

    @property
    def holds_row(self) -> bool:
        """Return whether a whole line from the pipe waits in the buffer."""
        return not self.seekable and b"\n" in self._buffer

    def rows(
        self, columns: Columns, layout: Layout | None = None, n_lines: int = 0
    ) -> Iterator[Row | BadRow]:
        """Yield the rows of the input, good and bad ones; see `RowSource.rows`.

        Raises:
            DataError: A column is missing, the input is empty, its only line has no end, or its
                header names other columns than before.
        """
        is_new = not self.seekable or self.position == 0
        self._rows = CsvRows(self, columns, self.name, layout, n_lines, is_new)
        try:
            yield from self._rows
        except DataError:
            if self._rows.layout is None and self.n_left:
                require_encoding(os.pread(self._fd, FILE_BLOCK, 0), self.name)
                raise DataError(
                    f"{self.name} holds no whole line yet, but {self.n_left} bytes "
                    "without a line's end (LF); run again when the line is whole."
                ) from None
            raise

    def first_lines(self, is_enough: Callable[[Sequence[bytes]], bool]) -> Sequence[bytes]:
        """Return the first lines of the input, which `rows` yields later too.

        For a pipe, these are the lines that come until `HEAD_S` seconds after `is_enough` is True
        for them, but not more than `N_LINES` lines or `N_BYTES` bytes; they stay in the buffer.
        """
        if self.seekable:
            lines = first_lines(io.BufferedReader(_Ahead(self._fd, self.position)), self.name)
            is_whole = not self._whole_lines
        else:
            self._wait_for_lines(is_enough)
            lines, is_whole = first_lines(io.BytesIO(self._buffer), self.name), self._ended
        if lines and not (lines[-1].endswith(b"\n") or is_too_long(lines[-1]) or is_whole):
            lines.pop()
        return lines

    def _wait_for_lines(self, is_enough: Callable[[Sequence[bytes]], bool]) -> None:
        """Read lines from a pipe, until `HEAD_S` seconds after `is_enough` is True for them."""
        n_lines, until = 0, math.inf
        while n_lines < N_LINES and len(self._buffer) < N_BYTES and self._fill(until):
            n_before, n_lines = n_lines, self._buffer.count(b"\n")
            if until == math.inf and n_lines > n_before:
                whole = self._buffer[: self._buffer.rfind(b"\n") + 1]
                if is_enough(io.BytesIO(whole).readlines()):
                    until = time.monotonic() + HEAD_S

    def progress(self) -> str:
        """Return which part of a file is read, such as "45%"; "" for a pipe or an empty file."""
        n_bytes = os.fstat(self._fd).st_size if self.seekable else 0
        return f"{self.position / n_bytes:.0%}" if n_bytes else ""

    def notes(self) -> list[tuple[str, str]]:
        """Return remarks for the summary of a run, as pairs of label and sentence.

        They report that a next file was begun, and that a last line without an end was left.
        """
        notes = []
        if self.is_next:
            sentence = "is another file than before, which was read to its end; it was read from"
            notes.append(("next file", f"{self.name} {sentence} its start"))
        if self.n_left:
            sentence = (
                f"the last line has no end yet ({self.n_left:,} bytes); the next run reads it"
            )
            notes.append(("left over", f"{sentence} once it is whole"))
        return notes

    def readline(self, size: int) -> bytes:
        """Return the next line with its end, at most `size` bytes of it; b"" at the input's end."""
        while True:
            length = self._buffer.find(b"\n", 0, size) + 1
            if not length and len(self._buffer) >= size:
                if self._whole_lines and self._taken is self._whole and not self._has_line_end():
                    return b""
                length = size
            if not length and not self._fill():
                if not self._ended:
                    return b""  # stopped: half a line stays where it is
                if self._whole_lines:
                    self.n_left = self._taken.position - self.position + len(self._buffer)
                    return b""
                length = len(self._buffer)
            if length or self._ended:
                return self._take(length)

    def _take(self, length: int) -> bytes:
        piece = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._taken = self._taken.followed_by(piece)
        if self._ended or piece.endswith(b"\n"):
            self._whole = self._taken
        return piece

    def _fill(self, until: float = math.inf) -> bool:
        """Read another block into the buffer.

        Args:
            until: Time of `time.monotonic`, in seconds, until which a pipe is waited for.

        Returns:
            Whether a block was read: False at the input's end, at `until`, or after a stop.
        """
        if not self.seekable:
            while True:
                left_s = until - time.monotonic() if until < math.inf else WAKE_S
                if self._stop() or left_s <= 0:
                    return False
                is_ready = select.select([self._fd], [], [], min(left_s, WAKE_S))[0]
                self._idle()  # also where bytes come that give no row: blank lines, half a line
                if is_ready:
                    break
        block = os.read(self._fd, FILE_BLOCK if self.seekable else PIPE_BLOCK)
        self._ended = not block
        self._buffer += block
        return not self._ended

    def _has_line_end(self) -> bool:
        """Return whether the line that begins at `position` has an end in the file.

        If it has none, `n_left` becomes its length: the line is left to a later run.
        """
        at = self.position
        while not self._stop():
            block = os.pread(self._fd, FILE_BLOCK, at)
            if b"\n" in block:
                return True
            at += len(block)
            if not block:
                self.n_left = at - self.position
                return False
        return False

    # For a later run ------------------------------------------------------------------------------

    def keep(self) -> int:
        """Record that all whole lines so far are processed; `mark` returns the place after them.

        Returns:
            The position after these lines, in bytes.
        """
        self._kept = self._whole
        return self.position

    def mark(self) -> dict[str, Any]:
        """Return the place that `keep` recorded last as a JSON object, for a later run.

        "at_end" states whether nothing but blank lines follows in the file.
        """
        if not self.seekable:
            return {"position": self._kept.position}
        kept = self._kept
        return {**kept.mark(), "at_end": not n_unread(self._fd, kept.position)}

    def require_unchanged(self) -> None:
        """Check that the file still begins with the bytes that were read from it.

        Raises:
            DataError: The file was cut or rewritten after it was read.
        """
        if not self.seekable:
            return
        kept, n_bytes = self._kept, os.fstat(self._fd).st_size
        if n_bytes < kept.position:
            what = f"cut to {n_bytes:,} bytes after {kept.position:,} had been read"
        elif not kept.is_in(self._fd):
            what = f"rewritten: its first {kept.position:,} bytes are not those that had been read"
        else:
            return
        raise DataError(
            f"{self.name} was {what}. The last snapshot stands where the file was still whole: "
            "with that file in its place the same command goes on from there; without it, start "
            "over with --force."
        )

    def require_in_place(self) -> None:
        """Check that the input's name still belongs to the file that was read.

        Raises:
            DataError: Another file has this name now, and does not begin with what was read.
        """
        try:
            flags = os.O_RDONLY | os.O_NONBLOCK  # a pipe may have taken the name
            other = os.open(self.name, flags) if self._owned and self.seekable else -1
        except OSError:
            return  # it was removed, after it had been read
        if other < 0:
            return
        try:
            if stat.S_ISREG(os.fstat(other).st_mode) and self._kept.is_in(other):
                return
        finally:
            os.close(other)
        raise DataError(
            f"{self.name} is now another file: the one that was read got another name or was "
            "removed. Everything up to its end was read and kept"
            + (f", but for {self.n_left:,} bytes without a line's end" if self.n_left else "")
            + ". If the new file continues it, give the same command with --next-file."
        )

    def resume(self, mark: dict[str, Any], next_file: bool = False) -> None:
        """Continue after the place of a mark.

        A pipe continues with the lines that come now. A file is read from its start if the mark
        is of a pipe.

        Args:
            mark: The result of `mark` in an earlier run.
            next_file: Whether another file, which begins differently, may be read from its start if
                the marked file was read to its end.

        Raises:
            DataError: The file is neither the marked one nor one that may follow it.
        """
        position = int(mark["position"])
        if not self.seekable or "head" not in mark:
            self._start_at(ReadBytes(0 if self.seekable else position))
            return
        place = bytes_before(self._fd, position)
        if place is None or not place.is_marked_in(mark):
            self._require_next(mark, next_file)
            self.is_next = True
            return
        if position and os.pread(self._fd, 1, position - 1) != b"\n":
            rest = os.pread(self._fd, 2, position)
            end = b"\r\n" if rest == b"\r\n" else b"\n"
            if rest and not rest.startswith(end):
                raise DataError(
                    f"{self.name}: the last line that was read had no end and has grown since; "
                    "start over with --force, and append whole lines."
                )
            place = place.followed_by(end if rest else b"")
        self._start_at(place)
        os.lseek(self._fd, self.position, os.SEEK_SET)

    def _require_next(self, mark: dict[str, Any], next_file: bool) -> None:
        """Raise DataError unless this file follows the file of `mark`, which was read to its end.

        Without `next_file`, a file that follows is refused as well.
        """
        position = mark["position"]
        found = (
            f"{self.name} is not the input that the snapshot was made of: it differs before byte "
            f"{position}"
        )
        if not has_rows(self._fd):
            raise DataError(
                f"{self.name} holds no rows yet, and is not the input that the snapshot was made "
                "of. Run again when it holds some."
            )
        if is_same_start(self._fd, mark):
            raise DataError(
                f"{found}, but begins alike: it was cut or changed. Give the same file, or start "
                "over with --force. A file that follows it is told apart by its first rows."
            )
        former, n_unread = find_rotated(self.name, mark)
        if n_unread:
            raise DataError(
                f"{found}. That one is now {former}, and {n_unread:,} bytes of it are not read "
                f"yet: run the same command with --input {former} first, then with --input "
                f"{self.name} --next-file."
            )
        if former is None and not mark.get("at_end"):
            raise DataError(
                f"{found}, and that one was not read to its end. Give it with --input under its "
                f"present name first, then {self.name} with --next-file; or start over with "
                "--force."
            )
        if not next_file:
            raise DataError(
                f"{found}; that one was read to its end. If this file continues it, give the same "
                "command with --next-file; else give the same file, or start over with --force."
            )

    def close(self) -> None:
        """Close the file; a second call does nothing, and standard input stays open."""
        if self._owned and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
