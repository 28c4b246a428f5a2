"""Where the lines of a loop come from: a file that a later run resumes at a position, or a pipe.

    input  ... line line line | line line ...        output ... row row row | row row
                              ^ position                                    ^ length
                              └──────── both in one snapshot, written atomically ────────┘

After a kill the input is read from its position and the output is cut back to its length, so no
row is lost or counted twice. A pipe has no positions: its next run reads what comes then.
"""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable
from typing import Any

from edgefold.runtime.errors import DataError
from edgefold.runtime.hashing import sha256

HEAD_BYTES = 65536
SEAM_BYTES = 4096
FILE_BLOCK = 65536
PIPE_BLOCK = 4096
WAKE_S = 0.2


class InputFile:
    """Lines of a file or a pipe, with the position behind the last one.

    Args:
        path: A file, or "-" for standard input.
        stop: Asked while a pipe is silent; once true, `readline` gives b"" as at the end.
        whole_lines: Leave a file's last line to a later run while it has no line end: it may grow.

    Attributes:
        n_left: Bytes of such a line.
        position: Bytes taken by `readline` so far.
        seekable: Whether it is a regular file, which a later run can read from a position.
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
        self.position = self.n_left = 0
        self._buffer = bytearray()
        self._ended = False

    @property
    def has_line(self) -> bool:
        """Whether a whole line was read from the pipe already."""
        return b"\n" in self._buffer

    @property
    def n_bytes(self) -> int | None:
        """Size of the whole input, if it has one."""
        return os.fstat(self._fd).st_size if self.seekable else None

    def readline(self, size: int) -> bytes:
        """The next line with its end, at most `size` bytes of it; b"" at the end."""
        while True:
            length = self._buffer.find(b"\n", 0, size) + 1
            if not length and len(self._buffer) >= size:
                length = size
            if not length and not self._fill():
                if not self._ended:
                    return b""  # stopped: half a line stays where it is
                if self._whole_lines:
                    self.n_left = len(self._buffer)
                    return b""
                length = len(self._buffer)
            if length or self._ended:
                line = bytes(self._buffer[:length])
                del self._buffer[:length]
                self.position += length
                return line

    def _fill(self) -> bool:
        """Read another block; False at the end, or when told to stop waiting."""
        if not self.seekable:
            while not select.select([self._fd], [], [], WAKE_S)[0]:
                if self._stop():
                    return False
        block = os.read(self._fd, FILE_BLOCK if self.seekable else PIPE_BLOCK)
        self._ended = not block
        self._buffer += block
        return not self._ended

    def mark(self, position: int) -> dict[str, Any]:
        """Return what a later run needs to continue behind `position`, as plain JSON."""
        if not self.seekable:
            return {"position": position}
        return {
            "position": position,
            "head": self._digest(0, min(position, HEAD_BYTES)),
            "seam": self._digest(max(0, position - SEAM_BYTES), position),
        }

    def resume(self, mark: dict[str, Any]) -> None:
        """Continue behind a mark; a pipe continues with what comes.

        Raises:
            DataError: A regular file that is not the one the mark was made of.
        """
        self.position = int(mark["position"])
        if not self.seekable or "head" not in mark:
            return
        position = self.position
        if (self.n_bytes or 0) < position or mark != self.mark(position):
            raise DataError(
                f"{self.name} is not the input that the snapshot was made of: it differs before "
                f"byte {position}. Give the same file, or start over with --force."
            )
        if position and os.pread(self._fd, 1, position - 1) != b"\n":
            rest = os.pread(self._fd, 2, position)
            end = b"\r\n" if rest == b"\r\n" else b"\n"
            if rest and not rest.startswith(end):
                raise DataError(
                    f"{self.name}: the last line that was read had no end and has grown since; "
                    "start over with --force, and append whole lines."
                )
            self.position += len(end) if rest else 0
        os.lseek(self._fd, self.position, os.SEEK_SET)

    def _digest(self, start: int, stop: int) -> str:
        return sha256(os.pread(self._fd, stop - start, start)).hexdigest()

    def close(self) -> None:
        """Release the file; idempotent."""
        if self._owned and self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
