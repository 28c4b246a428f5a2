"""Where the rows of a loop go: a file that a later run cuts back to a snapshot, or a pipe."""

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

from edgefold.runtime.errors import OutputError
from edgefold.runtime.files import try_lock
from edgefold.runtime.hashing import sha256

SEAM_BYTES = 4096
FILE_BLOCK = 65536
WAKE_S = 0.2
GRACE_S = 1.0
"""How long a reader of the output may stall once the loop is told to stop."""


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
        """The mark of an empty file."""
        if self._path is None or self._path == "-" or self.is_special:
            return {}
        return {"length": 0, "seam": sha256(b"").hexdigest()}

    @property
    def is_special(self) -> bool:
        """Whether it is a device or a named pipe, which cannot be cut back or overwritten."""
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
            raise OutputError(explain_existing(self.name)) from None
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
        """Cut the file back to a mark and continue behind it.

        Raises:
            OutputError: The file is gone, shorter, or another one.
        """
        if "length" in mark and self._path in (None, "-"):
            raise OutputError(
                "the snapshot continues a file of predictions; name it with --output, or start "
                "over with --force."
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
                    f"before byte {length}. Put it back, or start over with --force."
                )
            os.ftruncate(self._fd, length)
            os.lseek(self._fd, length, os.SEEK_SET)
        except FileNotFoundError:
            raise OutputError(
                f"{self.name} is gone, and the snapshot continues it behind byte {length}. "
                "Put it back, or start over with --force."
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
                    "the same command resumes from there."
                )

    def sync(self) -> dict[str, Any]:
        """Bring every row to the disk; returns a mark of the place as plain JSON."""
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
        if not try_lock(self._fd):
            raise OutputError(
                f"{self.name} is being written by another run; wait for it or stop it, or choose "
                "another name."
            )

    def _error(self, error: OSError) -> OutputError:
        return OutputError(
            f"{self.name} cannot be written: {error.strerror}. Free some space or choose another "
            "place; with a snapshot, the same command resumes from there."
        )

    def remove(self) -> None:
        """Close without what is left to write, and remove a regular file; a pipe keeps its rows."""
        self._buffer.clear()
        is_file = self._fd >= 0 and self._path != "-" and self.exists
        self.close()
        if is_file:
            os.unlink(self.name)

    def close(self) -> None:
        """Write what is left and release the file; idempotent."""
        try:
            self.flush()
        finally:
            if self._fd >= 0 and self._path != "-":
                os.close(self._fd)
            self._fd = -1


def explain_existing(name: str) -> str:
    """Say why an output that exists is not overwritten."""
    return (
        f"{name} exists and there is no snapshot to continue it from; it was left as it is. "
        "Choose another name, or overwrite it with --force."
    )
