"""Write the rows of a loop to a file, which a later run cuts back to a snapshot, or to a pipe.

A mark is a place in the output as a JSON object, which the snapshot keeps. A file that rotates
(`edgefold.runtime.sinks.rotation`) is finished in four steps. After a kill between any two of them
the next run can continue, and no snapshot needs a part that is finished:

    file to the disk ──> snapshot: next part, empty, its first rows ──> file renamed ──> next file

A new file gets its header and these rows as a whole: a power cut leaves it empty or with all of
them. So a run that finds other bytes there knows that the file is not its own.
"""

from __future__ import annotations

import errno
import io
import os
import select
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from edgefold.runtime.errors import OutputError
from edgefold.runtime.files import require_stdout, sync_name, try_lock, write_atomic
from edgefold.runtime.hashing import sha256
from edgefold.runtime.sinks.rotation import Rotation, finished_parts, lasting_name
from edgefold.runtime.sinks.row_sink import RowSink, SinkOptions
from edgefold.runtime.sources.read_bytes import SEAM_BYTES

FILE_BLOCK = 65536
WAKE_S = 0.2
GRACE_S = 1.0
"""After a stop, a reader of the output may pause for so many seconds before rows are given up."""


def open_output(path: str | None, options: SinkOptions) -> OutputFile:
    """Open a file, a pipe, standard output for "-", or nothing for None, as an output."""
    return OutputFile(path, options.stop, options.rotation, options.option)


class OutputFile(RowSink):
    """Writes rows of text to a file, a pipe or standard output, or nowhere.

    Nothing is created before `begin` or `resume`.

    Args:
        path: Path of a file, a named pipe or a device; "-" for standard output; None for nowhere.
        stop: Function that returns whether to stop; it is called while a pipe has no reader, or one
            that pauses.
        rotation: Decides when a file is finished and the next one begins; None never does.
        option: The command's option that names the output, for messages.

    Attributes:
        name: The output's name, for messages.
        is_json: Whether rows of alarms are JSON objects, as the end of its name says.
        n_finished: Number of files that this run has finished.
        n_removed: Number of lines that `resume` removed, which an earlier run wrote after its last
            snapshot.

    Raises:
        OutputError: The system refused; a file that was there before `begin` is untouched.
    """

    def __init__(
        self,
        path: str | None,
        stop: Callable[[], bool] = lambda: False,
        rotation: Rotation | None = None,
        option: str = "--output",
    ):
        self.name = "standard output" if path == "-" else str(path)
        self.is_json = self.name.endswith((".jsonl", ".ndjson", ".json"))
        self._path = path
        self._stop = stop
        self._rotation, self._option = rotation, option
        self._fd = -1
        self._buffer = bytearray()
        self._header = b""
        self._length = 0  # of the file, with what is in the buffer
        self._part = 1
        self._day: int | None = None
        self._ahead: int | None = None
        self.n_finished = self.n_removed = 0

    @property
    def exists(self) -> bool:
        """Return whether a regular file exists that a new run would overwrite."""
        return self._path not in (None, "-") and os.path.isfile(str(self._path))

    @property
    def first_mark(self) -> dict[str, Any]:
        """Return the mark (place as JSON) of an empty file; {} for a pipe, a device or no file."""
        if self._path is None or self._path == "-" or self.is_special:
            return {}
        return {
            "name": self.name,
            "part": 1,
            "day": None,
            "ahead": None,
            **_ending(io.BytesIO(), 0),
        }

    @property
    def is_special(self) -> bool:
        """Return whether the output is a device or a named pipe, which cannot be cut back."""
        return os.path.exists(str(self._path)) and not self.exists

    def begin(self, header: str, force: bool = False) -> None:
        """Create the file and write its first line.

        Args:
            header: The first line, with its end.
            force: Whether a file that exists is overwritten.

        Raises:
            OutputError: The file, or a finished part of it, exists already and `force` is False; or
                the file cannot be written.
        """
        if self._rotation is not None and not force and (parts := self._parts()):
            raise OutputError(explain_existing(str(parts[0])))
        self._header = header.encode()
        self._create(header, force)

    def _parts(self) -> list[Path]:
        try:
            return finished_parts(Path(os.path.realpath(self.name)))
        except OSError as error:
            raise self._error(error) from error

    def _create(self, start: str, force: bool = False) -> None:
        """Create the file with its first lines; only write them where it is no regular file."""
        self._length = 0
        place = self._path
        if self._rotation is not None:
            if place is None or place == "-" or self.is_special:
                raise OutputError(f"{self.name} has no parts that could be finished; name a file.")
            place = os.path.realpath(place)  # a link stays one, and names the part in work
        if place is None:
            self._fd = -1
            return
        if place == "-":
            require_stdout()
            self._fd = sys.stdout.fileno()
            self.write(start)
            return
        create = os.O_CREAT | (0 if force else os.O_EXCL)
        try:
            if self.is_special:
                self._fd = self._open_special()
            else:
                self._fd = os.open(place, os.O_WRONLY | create, 0o666)
            if stat.S_ISREG(os.fstat(self._fd).st_mode):
                self._lock()
                if force:  # the folder may be one in which this user can make no file
                    os.ftruncate(self._fd, 0)
                    sync_name(place)
                else:
                    self._put(place, start)
                    start = ""
        except FileExistsError:
            raise OutputError(explain_existing(self.name)) from None
        except OSError as error:
            raise self._error(error) from error
        self.write(start)

    def _put(self, place: str, start: str) -> None:
        """Replace the open file by one that holds its first lines and is on the disk."""
        write_atomic(Path(place), start.encode())
        handle = os.open(place, os.O_RDWR)
        os.close(self._fd)
        self._fd = handle
        self._lock()
        self._length = os.lseek(self._fd, 0, os.SEEK_END)

    def _open_special(self) -> int:
        """Open a device or a named pipe, and return its number; wait until the pipe has a reader.

        Raises:
            OutputError: A stop came before the pipe had a reader.
        """
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

    def resume(self, mark: dict[str, Any], header: str, is_new: bool) -> None:
        """Cut the file back to the place of a mark, and continue after it.

        Args:
            mark: The place in the output, as JSON, that the snapshot of the earlier run holds.
            header: The first line of each file, with its end.
            is_new: Whether no row was processed before the mark, so that a pipe gets the header.

        Raises:
            OutputError: The file is missing, shorter than the mark, or another file.
        """
        if "length" in mark and self._path in (None, "-"):
            raise OutputError(
                f"the snapshot continues the file {mark['name']}; name it with {self._option}, or "
                "start over with --force."
            )
        self._header = header.encode()
        if "length" not in mark:
            self._create(header if is_new else "")
            return
        self._part, self._day, self._ahead = mark["part"], mark["day"], mark.get("ahead")
        try:
            if finished := mark.get("finished"):
                self._finish(finished)
            if mark["length"] or self.exists:
                self._continue(mark)
            else:
                self._create(header + mark.get("first", ""))
        except FileNotFoundError:
            raise OutputError(self._gone(mark)) from None
        except OSError as error:
            raise self._error(error) from error

    def _continue(self, mark: dict[str, Any]) -> None:
        """Open the file and cut it to the length that a mark of it (see `sync`) states.

        The length 0 belongs to a file that an interrupted run was about to begin; it gets its
        header and first rows again.

        Raises:
            OutputError: The file is not the one of the mark, or another run writes it.
        """
        length = mark["length"]
        self._fd = os.open(self.name, os.O_RDWR)
        self._lock()
        start = self._header + (b"" if length else mark.get("first", "").encode())
        begun = os.pread(self._fd, len(start), 0)
        if not self._ends_as(mark) or not start.startswith(begun):
            raise OutputError(
                f"{self.name} is not the output that the snapshot was made with: it differs "
                f"before byte {length or len(begun)}. "
                f"{'Put it back' if length else 'Move it away'}, or start over with --force."
            )
        self.n_removed = _lines_behind(self._fd, length)
        if not length:
            self._put(self.name, start.decode())
            return
        os.ftruncate(self._fd, length)
        os.lseek(self._fd, length, os.SEEK_SET)
        self._length = length

    def _gone(self, mark: dict[str, Any]) -> str:
        before = mark["name"]
        if before != self.name:
            return (
                f"{self.name} does not exist, and the snapshot continues {before}: give that name "
                f"with {self._option} (--rotate begins new files by size or day), or start over "
                "with --force."
            )
        return (
            f"{self.name} is gone, and the snapshot continues it behind byte {mark['length']}. "
            "Put it back, or start over with --force."
        )

    def is_full(self, text: str, day: int | None = None) -> bool:
        """Return whether rows belong to the next file, as the rotation decides.

        Args:
            text: The rows.
            day: The day of the rows, in days since 1970; None for rows without a date.
        """
        if self._rotation is None or not text or self._length <= len(self._header):
            return False
        return self._rotation.is_due(self._length + len(text.encode()), self._day, day, self._ahead)

    def turn(self, text: str, day: int | None, keep: Callable[[dict[str, Any]], None]) -> None:
        """Rename the file as a finished part, and begin the next file with these rows.

        Args:
            text: The rows.
            day: The day of the rows, in days since 1970; None for rows without a date.
            keep: Function that writes a snapshot, given the mark (place in the output as JSON).
        """
        finished = self.sync()
        mark = {**self.first_mark, "part": self._part + 1, "first": text, "finished": finished}
        if finished["day"] is not None and day is not None:
            mark |= {"day": day, "ahead": finished["day" if day < finished["day"] else "ahead"]}
        keep(mark)
        try:
            self._finish(mark["finished"])
        except OSError as error:
            raise self._error(error) from error
        os.close(self._fd)
        self._fd, self._part, self._day, self._ahead = -1, mark["part"], mark["day"], mark["ahead"]
        self._create(self._header.decode() + text)
        self.write("", day)
        self.n_finished += 1

    def _finish(self, mark: dict[str, Any]) -> None:
        """Rename a file that ends at a mark (see `sync`) to the name of a finished part.

        Nothing is done if the file is missing or has another content, as after an earlier rename.
        """
        path = Path(os.path.realpath(self.name))
        if not self.exists or path.stat().st_size != mark["length"] or not self._ends_as(mark):
            return
        path.rename(lasting_name(path, mark["part"], mark["day"]))
        sync_name(path)

    def write(self, text: str, day: int | None = None) -> None:
        """Write rows into a buffer, which is flushed when it is full or by `flush`.

        Args:
            text: The rows, with their ends.
            day: The day of the rows, in days since 1970; None for rows without a date.
        """
        if self._day is None and self._rotation is not None and self._rotation.by_day:
            self._day = day
        if self._fd >= 0:
            block = text.encode()
            self._buffer += block
            self._length += len(block)
            if len(self._buffer) >= FILE_BLOCK:
                self.flush()

    def flush(self) -> None:
        """Write all buffered rows to the file or pipe; they need not be on the disk then."""
        if not self._buffer:
            return
        block = bytes(self._buffer)
        self._buffer.clear()
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
        """Wait until a pipe takes PIPE_BUF bytes without blocking.

        Raises:
            OutputError: After a stop, nobody read the pipe for `GRACE_S` seconds.
        """
        left_s = GRACE_S
        while not select.select([], [self._fd], [], WAKE_S)[1]:
            left_s -= WAKE_S if self._stop() else 0
            if left_s <= 0:
                raise OutputError(
                    f"nobody reads {self.name}; stopped with rows not delivered. With a snapshot, "
                    "the same command resumes from there."
                )

    def sync(self) -> dict[str, Any]:
        """Force every row to the disk, and return the mark (JSON) of this place; {} for a pipe."""
        self.flush()
        if self._fd < 0 or not stat.S_ISREG(os.fstat(self._fd).st_mode) or self._path == "-":
            return {}
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise self._error(error) from error
        ending = self._ending_in_sight()
        place = {"part": self._part, "day": self._day, "ahead": self._ahead}
        return {"name": self.name, **place, **ending}

    def _ending_in_sight(self) -> dict[str, Any]:
        """Return "length" and "seam" of the file's end (see `_ending`), if it still has its name.

        Raises:
            OutputError: The file was removed, renamed or replaced, so nobody would find the rows.
        """
        mine = os.fstat(self._fd)
        try:
            with open(self.name, "rb") as file:
                named = os.fstat(file.fileno())
                if (named.st_dev, named.st_ino) == (mine.st_dev, mine.st_ino):
                    return _ending(file, os.lseek(self._fd, 0, os.SEEK_CUR))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._error(error) from error
        raise OutputError(
            f"{self.name} is not the file any more that this run writes: it was removed, renamed "
            "or replaced. Put that file back, and the same command resumes from the last "
            "snapshot; --rotate begins new files by size or day."
        )

    def _ends_as(self, mark: dict[str, Any]) -> bool:
        """Return whether the file reaches the place of `mark`, with the same 4 KiB before it."""
        with open(self.name, "rb") as file:
            ending = _ending(file, mark["length"])
            return ending == {name: mark[name] for name in ending}

    def require_free(self) -> None:
        if self._path in (None, "-") or not os.path.isfile(self.name):
            return
        try:
            self._fd = os.open(self.name, os.O_RDONLY)
            self._lock()
        except OSError:  # `begin` says what is wrong with it
            return
        finally:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    def _lock(self) -> None:
        """Lock the file until it is closed; raise OutputError if another run has locked it."""
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
        """Drop the buffered rows, close the output, and remove it if it is a regular file."""
        self._buffer.clear()
        is_file = self._fd >= 0 and self._path != "-" and self.exists
        self.close()
        if is_file:
            os.unlink(self.name)

    def close(self) -> None:
        """Write the buffered rows and close the output; a second call does nothing."""
        try:
            self.flush()
        finally:
            if self._fd >= 0 and self._path != "-":
                os.close(self._fd)
            self._fd = -1


def _ending(file: BinaryIO, length: int) -> dict[str, Any]:
    """Return the part of a mark that identifies a place in an open file.

    Args:
        file: The file.
        length: The place, in bytes from the start; the end of a shorter file is taken instead.

    Returns:
        "length", the place in bytes, and "seam", the SHA-256 of the 4 KiB before it.
    """
    length = min(length, file.seek(0, os.SEEK_END))
    file.seek(max(0, length - SEAM_BYTES))
    return {"length": length, "seam": sha256(file.read(min(length, SEAM_BYTES))).hexdigest()}


def _lines_behind(handle: int, start: int) -> int:
    """Return how many lines of an open file end behind a place."""
    n_lines = 0
    while block := os.pread(handle, 1 << 16, start):
        n_lines, start = n_lines + block.count(b"\n"), start + len(block)
    return n_lines


def explain_existing(name: str) -> str:
    """Return an error message that says why an output that exists is not overwritten."""
    return (
        f"{name} exists and there is no snapshot to continue it from; it was left as it is. "
        "Choose another name, or overwrite it with --force."
    )
