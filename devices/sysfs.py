"""Files by which the kernel answers: the text, or an error that names file and mode."""

from __future__ import annotations

import math
from pathlib import Path

from edgefold.runtime.errors import MeterError


def read_text(path: Path, cure: str = "") -> str:
    """The whole file without the blanks and zeros at its ends.

    Args:
        path: What to read.
        cure: What to do about it when it cannot be read; ends the error's line.

    Raises:
        MeterError: It cannot be read; the message names the file and the mode that bars it.
    """
    try:
        return path.read_text(errors="replace").strip("\0\n ")
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        why = "no such file" if missing else f"{error.strerror}; {access_of(path)}"
        raise MeterError(f"{path} cannot be read ({why}){cure and '; ' + cure}") from error


def access_of(path: Path) -> str:
    """What the way to a file looks like to this user: its mode, or that of the folder in front."""
    for place in (path, *path.parents):
        try:
            mode = f"mode {place.stat().st_mode & 0o777:o}"
        except PermissionError:
            continue  # a folder further up is closed: its own mode can be seen
        except OSError:
            return "no such file" if place == path else f"no such folder as {place}"
        return mode if place == path else f"{place} has {mode}"
    return "no mode to be seen"


def optional_text(path: Path) -> str | None:
    """The text, or None where there is none to be had."""
    try:
        return read_text(path) or None
    except MeterError:
        return None


def number(text: str | None) -> float | None:
    """The finite number that a file holds, or None where it holds none."""
    try:
        found = float(text) if text else math.nan
    except ValueError:
        return None
    return found if math.isfinite(found) else None
