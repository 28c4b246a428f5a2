"""Files that a command writes once its work is done: whole or not at all, or straight to a device.

A file is written beside its place and renamed, links followed. What is no regular file (a device, a
pipe) must not be replaced: it is opened and written. The rows that `edgefold run` appends are
another matter, and not here.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path


def require_writable(args: argparse.Namespace, *options: str) -> None:
    """Find out before minutes of work, not behind them, whether the options' files can be written.

    Args:
        args: With a path or None under each option's name, and usage_error.
        options: Names of options, without their dashes.

    Raises:
        OSError: A folder, or a place that is missing or forbidden.
    """
    taken: dict[Path, str] = {}
    for option in options:
        path: Path | None = getattr(args, option)
        if path is None:
            continue
        if path.is_dir():
            raise IsADirectoryError(21, "Is a directory", str(path))
        if _is_special(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(13, "Permission denied", str(path))
            continue
        place = Path(os.path.realpath(path))
        if place in taken:
            args.usage_error(f"--{taken[place]} and --{option} name the same file {path}")
        taken[place] = option
        if not place.parent.is_dir():
            raise FileNotFoundError(2, "No such folder", str(place.parent))
        if not os.access(place.parent, os.W_OK):
            raise PermissionError(13, "Permission denied", str(place.parent))


def require_kept(args: argparse.Namespace, source: Path | None, *options: str) -> None:
    """Refuse to write over what a command reads; usage_error says which option it is.

    Args:
        args: As for `require_writable`.
        source: What is read, which need not exist.
        options: Names of options, without their dashes.
    """
    for option in options:
        path: Path | None = getattr(args, option)
        if path and source and path.exists() and source.exists() and path.samefile(source):
            args.usage_error(f"--{option} would replace {source}, which is read")


def write_output(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all; a device or a pipe is written as it is.

    Raises:
        OSError: The file system refused; the error names the path.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if _is_special(path):
            with path.open("wb", buffering=0) as file:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) or 0 :]
            return
        place = Path(os.path.realpath(path))
        beside = Path(f"{place}.{os.getpid()}.tmp")  # another process may write the same file
        try:
            beside.write_bytes(data)
            beside.replace(place)
        except OSError:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            raise
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _is_special(path: Path) -> bool:
    """A device, a pipe, or a name of an open file such as /dev/stdout, whatever that is."""
    if path.exists() and not path.is_file():
        return True
    return Path(os.path.realpath(path.parent)).parts[1:2] in (("dev",), ("proc",))
