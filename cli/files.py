"""Write the files that a command makes at the end of its work, such as reports and plots.

A regular file is replaced as a whole. A device or a pipe must not be replaced: it is opened and
written. `edgefold run` appends its rows elsewhere (`edgefold.runtime.sinks.output_file`).

    stdout ──────────────┐ record            `--json -`: the record has stdout for itself
    text, C libraries ─ stderr               whatever else is printed joins stderr
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgefold.runtime.files import require_stdout, write_atomic


@contextmanager
def stdout_for_records(args: argparse.Namespace) -> Iterator[None]:
    """Reserve stdout for the option whose file is `-`; all other prints go to stderr meanwhile.

    Args:
        args: Options of the command. The attribute `record_options` names those with files, by
            default `json`. The value `-` is replaced by a path that `write_output` knows.
    """
    options = getattr(args, "record_options", ("json",))
    named = [option for option in options if getattr(args, option, None) == Path("-")]
    if not named:
        yield
        return
    if len(named) > 1:
        args.usage_error(f"--{' and --'.join(named)} cannot share standard output")
    sys.stdout.flush()
    require_stdout()
    stdout = os.dup(1)
    os.dup2(2, 1)  # libraries in C print there as well
    setattr(args, named[0], Path(f"/dev/fd/{stdout}"))
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def require_writable(args: argparse.Namespace, *options: str) -> None:
    """Check, before minutes of work, that the files of some options can be written.

    Args:
        args: Options of the command, with a path or None for each of `options`, and `usage_error`.
        options: Names of options, without their dashes.

    Raises:
        OSError: A path is a folder, or lies in a folder that is missing or forbidden.
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
        require_place(place)


def require_place(path: Path) -> None:
    """Check that a file can be made or replaced in its folder; raises OSError if not."""
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise FileNotFoundError(2, "No such folder", str(folder))
    if not os.access(folder, os.W_OK):
        raise PermissionError(13, "Permission denied", str(folder))


def require_kept(args: argparse.Namespace, source: Path | None, *options: str) -> None:
    """Refuse to write over the file that a command reads; the error names the option.

    Args:
        args: Options of the command, as for `require_writable`.
        source: File that is read, which need not exist.
        options: Names of options, without their dashes.
    """
    for option in options:
        path: Path | None = getattr(args, option)
        if path and source and path.exists() and source.exists() and path.samefile(source):
            args.usage_error(f"--{option} would replace {source}, which is read")


def write_output(path: Path, content: str | bytes) -> None:
    """Write text or bytes to a path: replace a file as a whole, write into a device or a pipe.

    Raises:
        OSError: The file system refused; the error names a path.
    """
    data = content.encode() if isinstance(content, str) else content
    if not _is_special(path):
        write_atomic(path, data)
        return
    descriptor = _descriptor(path)
    try:  # a socket, as sshd gives for stdout, cannot be opened by its name
        with (
            path.open("wb", 0)
            if descriptor is None
            else os.fdopen(os.dup(descriptor), "wb", 0) as file
        ):
            left = memoryview(data)
            while left:
                left = left[file.write(left) or 0 :]
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_record(path: Path | None, record: Any, indent: int = 1) -> None:
    """Write a record as JSON, as `write_output` does; None writes nothing."""
    if path:
        import json

        write_output(path, json.dumps(record, indent=indent) + "\n")


def written_lines(*paths: Path | None) -> list[str]:
    """Return a line such as "written  a.csv" for each path that is not None."""
    return [f"written  {name_of(path)}" for path in paths if path]


def name_of(path: Path) -> str:
    """Return the path as a text, or "standard output" for an open descriptor."""
    return str(path) if _descriptor(path) is None else "standard output"


def _descriptor(path: Path) -> int | None:
    """Return the descriptor that a path such as /dev/stdout or /dev/fd/3 names, else None."""
    match = re.fullmatch(r"/dev/(?:fd/(\d+)|std(out|err))", str(path))
    if not match:
        return None
    return int(match[1]) if match[1] else ("out", "err").index(match[2]) + 1


def _is_special(path: Path) -> bool:
    """Return whether a path is a device, a pipe, or names an open file such as /dev/stdout."""
    if path.exists() and not path.is_file():
        return True
    return Path(os.path.realpath(path.parent)).parts[1:2] in (("dev",), ("proc",))
