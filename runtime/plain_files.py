"""Open files that somebody else made: only regular files, because a pipe or a device could hang."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_plain(path: str | Path, flags: int = 0) -> BinaryIO:
    """Open a regular file for reading as bytes; a link is followed.

    Args:
        path: The file.
        flags: Further flags of `os.open`; `os.O_NOFOLLOW` refuses a link.

    Raises:
        OSError: The file is missing, cannot be read, or is a folder, a pipe or a device.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except ValueError as error:  # NUL, or a character that no file name can have
        raise OSError(errno.EINVAL, f"no file can have this name ({error})", str(path)) from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise
