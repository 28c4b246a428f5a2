"""Where the lines of a loop come from: a file that a later run resumes at a position, or a pipe.

    input  ... line line line | line line ...        output ... row row row | row row
                              ^ position                                    ^ length
                              └──────── both in one snapshot, written atomically ────────┘

After a kill the input is read from its position and the output is cut back to its length, so no
row is lost or counted twice. A pipe has no positions: its next run reads what comes then.

A file may be cut, rewritten or rotated while it is read. Its bytes are therefore remembered as they
were read (`edgefold.runtime.loop.read_bytes`) and compared with the file before each snapshot.
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
from edgefold.runtime.loop.read_bytes import (
    ReadBytes,
    bytes_before,
    find_rotated,
    has_rows,
    is_same_start,
    n_unread,
)
from edgefold.runtime.loop.row_source import RowSource
from edgefold.runtime.rows.csv_columns import Columns, Layout, Row
from edgefold.runtime.rows.csv_reader import N_BYTES, N_LINES, BadRow, CsvRows, first_lines

FILE_BLOCK = 65536
PIPE_BLOCK = 4096
WAKE_S = 0.2
HEAD_S = 1.0
"""How long a pipe may bring more lines once those that came show the form of its rows."""


class InputFile(RowSource):
    """Rows of a file or a pipe, with the position behind the last one.

    Args:
        path: A file, or "-" for standard input.
        stop: Asked before each block of a pipe and while it is silent, and while the end of a very
            long line is looked for; once true, `readline` gives b"" as at the end.
        whole_lines: Leave a file's last line to a later run while it has no line end: it may grow.

    Attributes:
        n_left: Bytes of such a line.
        seekable: Whether it is a regular file, which a later run can read from a position.
        is_next: Whether `resume` began with a file that follows the snapshot's.
    """

    def __init__(
        self, path: str, stop: Callable[[], bool] = lambda: False, whole_lines: bool = False
    ):
        self.name = "standard input" if path == "-" else path
        self._stop = stop
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
        """Bytes of the whole lines that `readline` has given."""
        return self._whole.position

    @property
    def layout(self) -> Layout | None:
        """Where the columns are in a line; None before the first line that can be read."""
        return self._rows.layout if self._rows else None

    @property
    def is_live(self) -> bool:
        """Whether it is a pipe, whose next line may be long in coming."""
        return not self.seekable

    @property
    def holds_row(self) -> bool:
        """Whether a whole line was read from the pipe already."""
        return not self.seekable and b"\n" in self._buffer

    def rows(
        self, columns: Columns, layout: Layout | None = None, n_lines: int = 0
    ) -> Iterator[Row | BadRow]:
        """Give the rows of the lines that come; see RowSource.

        Raises:
            DataError: A missing column, an empty input, one whose only line has no end, or a header
                that names other columns than before.
        """
        is_new = not self.seekable or self.position == 0
        self._rows = CsvRows(self, columns, self.name, layout, n_lines, is_new)
        try:
            yield from self._rows
        except DataError:
            if self._rows.layout is None and self.n_left:
                raise DataError(
                    f"{self.name} holds no whole line yet, but {self.n_left} bytes "
                    "without a line's end (LF); run again when the line is whole."
                ) from None
            raise

    def first_lines(self, is_enough: Callable[[Sequence[bytes]], bool]) -> Sequence[bytes]:
        """Return the first lines that are there; see RowSource.

        Of a pipe they are those that come until `HEAD_S` after they are enough, or until the most
        that are looked at; they stay in the buffer.
        """
        if self.seekable:
            block = os.pread(self._fd, N_BYTES, self.position)
            is_whole = len(block) < N_BYTES and not self._whole_lines
        else:
            self._wait_for_lines(is_enough)
            block, is_whole = bytes(self._buffer[:N_BYTES]), self._ended
        lines = first_lines(io.BytesIO(block), self.name)
        if lines and not lines[-1].endswith(b"\n") and not is_whole:
            lines.pop()
        return lines

    def _wait_for_lines(self, is_enough: Callable[[Sequence[bytes]], bool]) -> None:
        """Fill the buffer of a pipe with the lines that its form is found by."""
        n_lines, until = 0, math.inf
        while n_lines < N_LINES and len(self._buffer) < N_BYTES and self._fill(until):
            n_before, n_lines = n_lines, self._buffer.count(b"\n")
            if until == math.inf and n_lines > n_before:
                whole = self._buffer[: self._buffer.rfind(b"\n") + 1]
                if is_enough(io.BytesIO(whole).readlines()):
                    until = time.monotonic() + HEAD_S

    def progress(self) -> str:
        """Return the share of a file that is read; "" for a pipe."""
        n_bytes = os.fstat(self._fd).st_size if self.seekable else 0
        return f"{self.position / n_bytes:.0%}" if n_bytes else ""

    def notes(self) -> list[tuple[str, str]]:
        """Return what the summary has to say of a next file and of a line without an end."""
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
        """The next line with its end, at most `size` bytes of it; b"" at the end."""
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
        """Read another block; False at the end, at a moment, or when told to stop."""
        if not self.seekable:
            while True:
                left_s = until - time.monotonic() if until < math.inf else WAKE_S
                if self._stop() or left_s <= 0:
                    return False
                if select.select([self._fd], [], [], min(left_s, WAKE_S))[0]:
                    break
        block = os.read(self._fd, FILE_BLOCK if self.seekable else PIPE_BLOCK)
        self._ended = not block
        self._buffer += block
        return not self._ended

    def _has_line_end(self) -> bool:
        """Whether the file's present line has an end; else it is left, however long it is."""
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
        """Let `mark` stand behind the whole lines so far, which are processed; the position."""
        self._kept = self._whole
        return self.position

    def mark(self) -> dict[str, Any]:
        """Return what a later run needs to continue behind `keep`'s place, as plain JSON."""
        if not self.seekable:
            return {"position": self._kept.position}
        kept = self._kept
        return {**kept.mark(), "at_end": not n_unread(self._fd, kept.position)}

    def require_unchanged(self) -> None:
        """Compare the file with what was read of it.

        Raises:
            DataError: It was cut or rewritten since.
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
        """Look whether another file has taken the name of the one that was read.

        Raises:
            DataError: One has, and does not begin with what was read.
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
        """Continue behind a mark; a pipe continues with what comes, a file after a pipe begins.

        Args:
            mark: From `mark`.
            next_file: A file that is another one, and begins differently, is read from its start if
                the marked one was read to its end.

        Raises:
            DataError: A regular file that is neither.
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
        """Refuse a file that differs from the marked one, unless it surely is the next one."""
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
        """Release the file; idempotent."""
        if self._owned and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
