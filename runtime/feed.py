"""The two ends of a loop that may be killed at any moment: where lines come from, where rows go.

    input  ... line line line | line line ...        output ... row row row | row row
                              ^ position                                    ^ length
                              └──────── both in one snapshot, written atomically ────────┘

After a kill the input is read on from its position and the output is cut back to its length, so no
row is lost or counted twice. A pipe can do neither: it goes on with whatever comes. This module
knows neither columns nor models.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgefold.runtime.claim import take
from edgefold.runtime.digest import sha256
from edgefold.runtime.errors import DataError, OutputError

HEAD_BYTES = 65536
SEAM_BYTES = 4096
FILE_BLOCK = 65536
PIPE_BLOCK = 4096
WAKE_S = 0.2
GRACE_S = 1.0
"""How long a reader of the output may stall once the loop is told to stop."""


class Tape:
    """Lines of a file or a pipe, with the position behind the last one.

    Args:
        path: A file, or "-" for standard input.
        stop: Asked while a pipe is silent; once true, `readline` gives b"" as at the end.
        whole_lines: Leave a file's last line to a later run while it has no end: it may grow.

    Attributes:
        n_left: Bytes of such a line.
        position: Bytes taken by `readline` so far.
        seekable: A regular file, which a later run can go on reading from a position.
    """

    def __init__(
        self, path: str, stop: Callable[[], bool] = lambda: False, whole_lines: bool = False
    ):
        self.name = "standard input" if path == "-" else path
        self._stop = stop
        self._owned = path != "-"
        try:
            # A named pipe opens at once and is waited for in `_fill`, which can be stopped.
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
        self._replayed: bytes | None = None
        self._skipped: bytes | None = None

    @property
    def has_line(self) -> bool:
        """Whether a whole line lies in the buffer, already taken from the pipe."""
        return b"\n" in self._buffer

    @property
    def n_bytes(self) -> int | None:
        """Size of the whole input, if it has one."""
        return os.fstat(self._fd).st_size if self.seekable else None

    def readline(self, size: int) -> bytes:
        """The next line with its end, at most `size` bytes of it; b"" at the end."""
        if self._replayed is not None:
            line, self._replayed = self._replayed, None
            return line
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
                if self._skipped is not None:
                    skipped, self._skipped = self._skipped, None
                    if line == skipped:
                        continue
                self.position += length
                return line

    def _fill(self) -> bool:
        """Take another block; False at the end, or when told to stop waiting."""
        if not self.seekable:
            while not select.select([self._fd], [], [], WAKE_S)[0]:
                if self._stop():
                    return False
        block = os.read(self._fd, FILE_BLOCK if self.seekable else PIPE_BLOCK)
        self._ended = not block
        self._buffer += block
        return not self._ended

    def mark(self, position: int) -> dict[str, Any]:
        """What a later run needs to go on behind `position`, as plain JSON."""
        if not self.seekable:
            return {"position": position}
        return {
            "position": position,
            "head": self._digest(0, min(position, HEAD_BYTES)),
            "seam": self._digest(max(0, position - SEAM_BYTES), position),
        }

    def resume(self, mark: dict[str, Any], first_line: bytes) -> None:
        """Go on behind a mark; the first line is given once more, to tell the columns.

        A pipe goes on with what comes; if that begins with the same first line, it is passed over.

        Raises:
            DataError: A regular file that is not the one the mark was made of.
        """
        self._replayed = first_line
        self.position = int(mark["position"])
        if not self.seekable or "head" not in mark:
            self._skipped = first_line
            return
        position = self.position
        if (self.n_bytes or 0) < position or mark != self.mark(position):
            raise DataError(
                f"{self.name} is not the input that the snapshot was made of: it differs before "
                f"byte {position}. Give the same file, or start anew with --force."
            )
        if position and os.pread(self._fd, 1, position - 1) != b"\n":
            rest = os.pread(self._fd, 2, position)
            end = b"\r\n" if rest == b"\r\n" else b"\n"
            if rest and not rest.startswith(end):
                raise DataError(
                    f"{self.name}: the last line that was read had no end and has grown since; "
                    "start anew with --force, and append whole lines."
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


class OutputFile:
    """Text rows into a file, standard output ("-") or nowhere (None).

    Nothing is created before `begin` or `resume`.

    Args:
        path: See above.
        stop: Asked while a pipe has no reader, or one that stalls.

    Raises:
        OutputError: The system refused; whatever was there before `begin` is untouched.
    """

    def __init__(self, path: str | None, stop: Callable[[], bool] = lambda: False):
        self.name = "standard output" if path == "-" else str(path)
        self._path = path
        self._stop = stop
        self._fd = -1
        self._buffer: list[str] = []
        self._n_buffered = 0

    @property
    def exists(self) -> bool:
        """Whether a regular file is there that a new run would overwrite."""
        return self._path not in (None, "-") and os.path.isfile(str(self._path))

    @property
    def first_mark(self) -> dict[str, Any]:
        """The mark of a file that is still to be created."""
        if self._path is None or self._path == "-" or self.is_special:
            return {}
        return {"length": 0, "seam": sha256(b"").hexdigest()}

    @property
    def is_special(self) -> bool:
        """A device or a named pipe, which can neither be cut back nor overwritten."""
        return os.path.exists(str(self._path)) and not self.exists

    def begin(self, force: bool = False) -> None:
        """Create the file; one that exists is overwritten only by force."""
        if self._path is None or self._path == "-":
            self._fd = -1 if self._path is None else sys.stdout.fileno()
            return
        create = os.O_CREAT | (0 if force else os.O_EXCL)
        try:
            if self.is_special:
                self._fd = self._open_special()
            else:
                self._fd = os.open(self._path, os.O_WRONLY | create, 0o666)
            if stat.S_ISREG(os.fstat(self._fd).st_mode):
                self._lock()
                os.ftruncate(self._fd, 0)
        except FileExistsError:
            raise OutputError(refusal(self.name)) from None
        except OSError as error:
            raise self._error(error) from error

    def _open_special(self) -> int:
        """Open a device or a named pipe; wait for the pipe's reader, until told to stop."""
        while True:
            try:
                handle = os.open(self.name, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ENXIO or not Path(self.name).is_fifo():
                    raise
            else:
                os.set_blocking(handle, True)
                return handle
            if self._stop():
                raise OutputError(f"{self.name} has no reader; stopped before the first row.")
            time.sleep(WAKE_S)

    def resume(self, mark: dict[str, Any]) -> None:
        """Cut the file back to a mark and go on behind it.

        Raises:
            OutputError: The file is gone, shorter, or another one.
        """
        if "length" in mark and self._path in (None, "-"):
            raise OutputError(
                "the snapshot continues a file of predictions; name it with --output, or start "
                "anew with --force."
            )
        if "length" not in mark or not (self.exists or mark["length"]):
            self.begin()
            return
        length = int(mark["length"])
        try:
            self._fd = os.open(self.name, os.O_RDWR)
            self._lock()
            if os.fstat(self._fd).st_size < length or mark != self._mark(length):
                raise OutputError(
                    f"{self.name} is not the output that the snapshot was made with: it differs "
                    f"before byte {length}. Put it back, or start anew with --force."
                )
            os.ftruncate(self._fd, length)
            os.lseek(self._fd, length, os.SEEK_SET)
        except FileNotFoundError:
            raise OutputError(
                f"{self.name} is gone, and the snapshot continues it behind byte {length}. "
                "Put it back, or start anew with --force."
            ) from None
        except OSError as error:
            raise self._error(error) from error

    def write(self, text: str) -> None:
        """Write a row; it leaves the process when a block is full, or with `flush`."""
        if self._fd >= 0:
            self._buffer.append(text)
            self._n_buffered += len(text)
            if self._n_buffered >= FILE_BLOCK:
                self.flush()

    def flush(self) -> None:
        """Hand every row to the system."""
        if not self._buffer:
            return
        block = "".join(self._buffer).encode()
        self._buffer.clear()
        self._n_buffered = 0
        try:
            is_file = stat.S_ISREG(os.fstat(self._fd).st_mode)
            piece = len(block) if is_file else select.PIPE_BUF
            while block:
                if not is_file:
                    self._await_reader()
                block = block[os.write(self._fd, block[:piece]) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._error(error) from error

    def _await_reader(self) -> None:
        """Wait until a pipe takes PIPE_BUF bytes without blocking; not for long once stopped."""
        left_s = GRACE_S
        while not select.select([], [self._fd], [], WAKE_S)[1]:
            left_s -= WAKE_S if self._stop() else 0
            if left_s <= 0:
                raise OutputError(
                    f"nobody reads {self.name}; stopped with rows not delivered. With a snapshot, "
                    "the same command goes on from there."
                )

    def sync(self) -> dict[str, Any]:
        """Bring every row to the disk, and mark the place as plain JSON."""
        self.flush()
        if self._fd < 0 or not stat.S_ISREG(os.fstat(self._fd).st_mode) or self._path == "-":
            return {}
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise self._error(error) from error
        return self._mark(os.lseek(self._fd, 0, os.SEEK_CUR))

    def _mark(self, length: int) -> dict[str, Any]:
        with Path(self.name).open("rb") as file:
            start = max(0, length - SEAM_BYTES)
            file.seek(start)
            seam = sha256(file.read(length - start)).hexdigest()
        return {"length": length, "seam": seam}

    def _lock(self) -> None:
        """Hold the file against other runs until it is closed."""
        if not take(self._fd):
            raise OutputError(
                f"{self.name} is being written by another run; wait for it or stop it, or choose "
                "another name."
            )

    def _error(self, error: OSError) -> OutputError:
        return OutputError(
            f"{self.name} cannot be written: {error.strerror}. Free some space or choose another "
            "place; with a snapshot, the same command goes on from there."
        )

    def close(self) -> None:
        """Write what is left and release the file; idempotent."""
        try:
            self.flush()
        finally:
            if self._fd >= 0 and self._path != "-":
                os.close(self._fd)
            self._fd = -1


def refusal(name: str) -> str:
    """Why an output that exists is not overwritten."""
    return (
        f"{name} exists and there is no snapshot to continue it from; it was left as it is. "
        "Choose another name, or overwrite it with --force."
    )
