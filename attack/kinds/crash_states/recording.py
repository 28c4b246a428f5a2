"""Record every operation on the disk that a run makes in one folder, in their order.

The functions of `os` and `open` are replaced in a process of its own. A file object that is opened
for writing writes through the replaced `os.write`. `Cases` replays the operations and compares the
result with the folder byte by byte, so that an operation that is not recorded is noticed.
"""

from __future__ import annotations

import builtins
import io
import os
import stat
from pathlib import Path
from typing import Any, NamedTuple

TRUE_OPEN: Any = io.open


class Operation(NamedTuple):
    """Holds one operation on the disk, or an acknowledgement to the broker between two of them.

    Attributes:
        kind: One of begin, create, open, truncate, write, sync, sync folder, rename, unlink,
            acknowledge.
        path: The file or folder by its path within the recorded folder; of operations on an open
            file it is empty.
        file: The number of the open file, which is new with each open.
        place: The offset of a write, the length after truncating, or for acknowledge the number of
            messages that the broker has forgotten.
        data: The bytes that are written.
        to: The new path of a rename.
    """

    kind: str
    path: str = ""
    file: int = 0
    place: int = 0
    data: bytes = b""
    to: str = ""


class _RecordedFile(io.FileIO):
    """Writes through the functions of `os`, which are recorded."""

    def write(self, data: Any, /) -> int:
        return os.write(self.fileno(), data)

    def truncate(self, size: int | None = None, /) -> int:
        length = self.tell() if size is None else size
        os.ftruncate(self.fileno(), length)
        return length


class Recording:
    """Replaces the functions of this process that change files, and records what they do.

    Args:
        folder: The folder whose files are recorded, without links in its path.

    Attributes:
        operations: What happened so far.
    """

    def __init__(self, folder: Path):
        self._folder = f"{folder}/"
        self.operations = [Operation("begin")]
        self._files: dict[int, int] = {}  # by the number that the system gave
        self._folders: dict[int, str] = {}
        self._n_opened = 0
        self._true = {name: getattr(os, name) for name in REPLACED}

    def begin(self) -> None:
        """Replace the functions, until the end of the process."""
        for name in REPLACED:
            setattr(os, name, getattr(self, f"_{name}"))
        builtins.open = io.open = self._file_object

    def note_acknowledged(self, n: int) -> None:
        """Record that the broker has forgotten the first `n` messages."""
        self.operations.append(Operation("acknowledge", place=n))

    def _within(self, path: Any) -> str | None:
        """Return a path relative to the folder; None for a path outside of it."""
        whole = os.path.abspath(os.fsdecode(path))
        return whole.removeprefix(self._folder) if whole.startswith(self._folder) else None

    def _open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: Any = None) -> int:
        place = self._within(path)
        is_new = place is not None and not os.path.lexists(path)
        handle: int = self._true["open"](path, flags, mode, dir_fd=dir_fd)
        self._files.pop(handle, None)
        self._folders.pop(handle, None)
        if place is None and f"{os.path.abspath(os.fsdecode(path))}/" == self._folder:
            place = ""
        if place is None:
            return handle
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            self._folders[handle] = place
            return handle
        self._n_opened += 1
        self._files[handle] = self._n_opened
        self.operations.append(Operation("create" if is_new else "open", place, self._n_opened))
        if flags & os.O_TRUNC and not is_new:
            self.operations.append(Operation("truncate", file=self._n_opened, place=0))
        return handle

    def _close(self, handle: int) -> None:
        self._files.pop(handle, None)
        self._folders.pop(handle, None)
        self._true["close"](handle)

    def _write(self, handle: int, data: Any) -> int:
        if handle not in self._files:
            return int(self._true["write"](handle, data))
        place = os.lseek(handle, 0, os.SEEK_CUR)
        n = int(self._true["write"](handle, data))
        self._note_write(handle, place, bytes(data)[:n])
        return n

    def _pwrite(self, handle: int, data: Any, place: int) -> int:
        n = int(self._true["pwrite"](handle, data, place))
        if handle in self._files:
            self._note_write(handle, place, bytes(data)[:n])
        return n

    def _note_write(self, handle: int, place: int, data: bytes) -> None:
        self.operations.append(Operation("write", "", self._files[handle], place, data))

    def _ftruncate(self, handle: int, length: int) -> None:
        self._true["ftruncate"](handle, length)
        if handle in self._files:
            self.operations.append(Operation("truncate", file=self._files[handle], place=length))

    def _fsync(self, handle: int) -> None:
        self._true["fsync"](handle)
        if handle in self._folders:
            self.operations.append(Operation("sync folder", self._folders[handle]))
        elif handle in self._files:
            self.operations.append(Operation("sync", file=self._files[handle]))

    def _fdatasync(self, handle: int) -> None:
        self._true["fdatasync"](handle)
        if handle in self._files:
            self.operations.append(Operation("sync", file=self._files[handle]))

    def _rename(self, path: Any, to: Any, **folders: Any) -> None:
        self._true["rename"](path, to, **folders)
        source, target = self._within(path), self._within(to)
        if source is not None and target is not None:
            self.operations.append(Operation("rename", source, to=target))

    def _replace(self, path: Any, to: Any, **folders: Any) -> None:
        self._rename(path, to, **folders)

    def _unlink(self, path: Any, *, dir_fd: Any = None) -> None:
        self._true["unlink"](path, dir_fd=dir_fd)
        place = self._within(path)
        if place is not None:
            self.operations.append(Operation("unlink", place))

    def _remove(self, path: Any, *, dir_fd: Any = None) -> None:
        self._unlink(path, dir_fd=dir_fd)

    def _file_object(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        *more: Any,
        closefd: bool = True,
        **named: Any,
    ) -> Any:
        is_ours = file in self._files if isinstance(file, int) else self._within(file) is not None
        if not is_ours or not set(mode) & set("wax+"):
            return TRUE_OPEN(file, mode, buffering, *more, closefd=closefd, **named)
        if "b" not in mode:
            raise NotImplementedError(f"{file} is opened as text, which is not recorded")
        opener = None if isinstance(file, int) else lambda path, flags: os.open(path, flags, 0o666)
        raw = _RecordedFile(file, mode.replace("b", ""), closefd=closefd, opener=opener)
        if not buffering:
            return raw
        return io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)


REPLACED = (
    *("open", "close", "write", "pwrite", "ftruncate", "fsync", "fdatasync"),
    *("rename", "replace", "unlink", "remove"),
)
