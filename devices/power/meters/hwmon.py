"""Numbers in files of sysfs, with an error that says which file, why, and which command helps."""

from __future__ import annotations

from pathlib import Path

from edgefold.devices import sysfs
from edgefold.runtime.errors import MeterError


def read_text(path: Path) -> str:
    """The file's text without surrounding blanks.

    Raises:
        MeterError: It cannot be read; the message tells the file's mode and the cure.
    """
    try:
        return sysfs.read_text(path)
    except MeterError as error:
        if isinstance(error.__cause__, PermissionError):
            cure = (
                f"run as root, or let root `chmod a+r {path}` (until the next boot; "
                "docs/measuring.md has a udev rule that stays)"
            )
        else:
            cure = "the driver was unloaded, the board lost the rail, or never had it"
        raise MeterError(f"{error}; {cure}") from error.__cause__


def read_number(path: Path, what: str) -> float:
    """The file's number.

    Args:
        path: The file.
        what: The unit in the plural, such as "millivolts", for the error.

    Raises:
        MeterError: The file cannot be read or holds something else.
    """
    text = read_text(path)
    try:
        return float(int(text))
    except (ValueError, OverflowError):
        raise MeterError(f"{path} holds {text[:40]!r} instead of a number of {what}") from None


def read_optional(path: Path) -> float | None:
    """The number of a file that not every driver has; None where there is none to be had."""
    return sysfs.number(sysfs.optional_text(path))
