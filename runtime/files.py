"""Replace a file as a whole, and lock a file against other processes.

Whoever opens the file sees the whole old file or the whole new one, also after a power cut:

    temporary file in the same folder ──> fsync ──> rename ──> fsync of the folder

Each temporary file has its own name, PATH.HOST-RANDOM.tmp, and is locked while it is written: any
number of processes may replace one file at the same time, and the last wins. A killed process
leaves a temporary file without a lock, which the next replacement removes.

A loop replaces its snapshot for years, so no `Path` is made here for each time: pathlib puts every
part of a path into CPython's table of unique strings, which never gets smaller.

A lock is the system's (flock) and ends with its process, so a lock file that was left behind blocks
nobody.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgefold.runtime.errors import OutputError

OTHER_HOST_S = 3600.0
"""A temporary file of another machine counts as left behind at this age, in seconds.

The lock of such a file may not be visible on this machine.
"""


@contextmanager
def replacing(path: Path, *, mode: int | None = None) -> Iterator[Path]:
    """Yield a temporary path; the file that the block writes there replaces `path` at the end.

    Links are followed. If anything fails, the old file is intact and the temporary one is removed.

    Args:
        path: The file to replace, or to make.
        mode: Permissions of the file; None for those of the old file, or, without an old file,
            those that the process's mask allows.

    Raises:
        OSError: The file system refused; the error names a file.
    """
    with _replacing(path, mode) as (beside, _):
        yield Path(beside)


@contextmanager
def _replacing(path: Path, mode: int | None, durable: bool = True) -> Iterator[tuple[str, int]]:
    """Do what `replacing` does; yield the temporary path and the number of its open file."""
    place = os.path.realpath(path)
    if durable:
        _remove_leftovers(place)
    if mode is None:
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(os.stat(place).st_mode) & 0o777
    # A link at the temporary name is never followed, and a file there is never taken.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = -1
    try:
        while handle < 0:
            beside = f"{place}.{_host()}-{os.urandom(4).hex()}.tmp"
            handle = os.open(beside, flags, 0o666 if mode is None else 0o600)
            if not _hold(handle):
                os.close(handle)
                handle = -1
        with naming(path):
            if mode is not None:
                _set_mode(handle, mode)
            yield beside, handle
            if durable:
                os.fsync(handle)
            os.replace(beside, place)
            if durable:
                sync(os.path.dirname(place))
    except BaseException:
        with suppress(OSError):  # of a broken disk; the first error is the one to report
            if handle >= 0:
                os.unlink(beside)
        raise
    finally:
        if handle >= 0:
            os.close(handle)


def _hold(handle: int) -> bool:
    """Lock a new temporary file by its open file's number; return whether it still exists.

    Another process may have removed it as left behind before it was locked.
    """
    try:
        return try_lock(handle) and os.fstat(handle).st_nlink > 0
    except OSError:  # a file system without locks: there nobody removes leftovers either
        return True


def _set_mode(handle: int, mode: int) -> None:
    with suppress(PermissionError):  # a file system without permissions, such as FAT
        os.fchmod(handle, mode)


def _host() -> str:
    return f"{zlib.crc32(os.fsencode(os.uname().nodename)):08x}"


def _remove_leftovers(place: str) -> None:
    """Remove the temporary files of processes that were killed while they replaced `place`."""
    folder, name = os.path.split(place)
    named = re.compile(re.escape(name) + r"\.([0-9a-f]{8})-[0-9a-f]{8}\.tmp")
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if found := named.fullmatch(entry.name):
                _remove_unlocked(entry.path, found[1] == _host())


def _remove_unlocked(path: str, is_own_host: bool) -> None:
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            old = time.time() - os.fstat(handle).st_mtime > OTHER_HOST_S
            if (is_own_host or old) and try_lock(handle):
                os.unlink(path)
        finally:
            os.close(handle)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the file's name to an OSError of the block that names no file, as from a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None and not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_atomic(
    path: Path, data: bytes | memoryview, *, mode: int | None = None, durable: bool = True
) -> None:
    """Replace a file's content by `data`; see `replacing` for the other arguments and errors.

    Args:
        path: The file.
        data: Its new content.
        mode: The file's permissions.
        durable: Whether the file is forced to the disk, and what killed processes left beside it is
            removed. Of many files both take far longer than the writing.
    """
    writing = _replacing(path, mode, durable)
    with writing as (_, handle), open(handle, "wb", closefd=False) as file:
        file.write(data)


def sync(path: str | Path) -> None:
    """Force what is in a file, or the list of names in a folder, to the disk; raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_name(path: str | Path) -> None:
    """Force a file's name to the disk, so that a power cut cannot undo its creation or renaming.

    A file that is found may have got its name from a process that was killed before this step, so
    whoever relies on a file of an earlier run calls it too. Links are followed.

    Raises:
        OSError: The folder is missing, or the disk failed.
    """
    with suppress(PermissionError):  # a folder in which files may be made, and not listed
        sync(os.path.dirname(os.path.realpath(path)))


def require_stdout() -> None:
    """Raise OutputError if the process's standard output is closed or cannot be written."""
    try:
        if fcntl.fcntl(1, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    except OSError as error:
        raise OutputError(
            "standard output is closed, so nothing can be written there; leave it open, or name a "
            "file."
        ) from error


def try_lock(handle: int) -> bool:
    """Lock an open file, given by its number, until it is closed; False if it is locked already."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def lock_file(path: Path) -> Iterator[bool]:
    """Make a lock file if it is missing, and hold its lock until the end of the `with` block.

    Yields:
        True if this process holds the lock, False if another process holds it.

    Raises:
        OSError: The file cannot be made or opened.
        OutputError: The file system of the file has no locks.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            held = try_lock(handle)
        except OSError as error:
            raise OutputError(
                f"{path} cannot be locked ({error.strerror}): its file system has no locks, so "
                "nothing keeps a second process away. Choose a place on another file system."
            ) from error
        yield held
    finally:
        os.close(handle)
