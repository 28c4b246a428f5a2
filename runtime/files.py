"""Replace a file as a whole, and hold one against other processes.

A replaced file is the old one or the new one, also after a power cut:

    temporary file beside it ──> fsync ──> rename ──> fsync of the folder

A lock is the system's (flock) and ends with its process, so a lock file that was left behind blocks
nobody.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def replacing(path: Path, *, shared: bool = False, mode: int = 0o666) -> Iterator[Path]:
    """Yield a temporary path; the file that the block writes there replaces `path` at the end.

    Links are followed. If anything fails, the old file is intact and the temporary one is removed.

    Args:
        path: The file to replace, or to make.
        shared: Other processes may replace it at the same time: the temporary name is then unique,
            and a killed process leaves the file behind. Otherwise the next write reuses it.
        mode: Permissions of a new file, before the process's mask.

    Raises:
        OSError: The file system refused; the error names a file.
    """
    place = Path(os.path.realpath(path))
    own = f".{os.getpid()}.{threading.get_ident()}" if shared else ""
    beside = Path(f"{place}{own}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(beside, flags, mode))
    try:
        with naming(path):
            yield beside
            _sync(beside)
            beside.replace(place)
            _sync(place.parent)
    except BaseException:
        with suppress(OSError):  # of a broken disk; the first error is the one to report
            beside.unlink(missing_ok=True)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in an OSError of the block that names none, as a full disk's."""
    try:
        yield
    except OSError as error:
        if error.errno and error.filename is None and not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_atomic(
    path: Path, data: bytes | memoryview, *, shared: bool = False, mode: int = 0o666
) -> None:
    """Replace a file by `data`; see `replacing` for the arguments and errors."""
    with replacing(path, shared=shared, mode=mode) as beside, beside.open("wb") as file:
        file.write(data)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def try_lock(handle: int) -> bool:
    """Lock an open file until it is closed; False if another process holds it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def lock_file(path: Path) -> Iterator[bool]:
    """Make and lock a file until the end of the block; yields False if another process holds it.

    Raises:
        OSError: The file cannot be made.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        yield try_lock(handle)
    finally:
        os.close(handle)
