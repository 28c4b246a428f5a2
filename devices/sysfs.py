"""Read files of the kernel: the text or the number, or an error that names file and mode.

A driver may answer EAGAIN: Jetson's thermal zones do so while their part is switched off, and now
and then under load. `Path.read_text` then ends in a TypeError, because a file object takes "not
now" for the answer None; `os.read` raises BlockingIOError. So everything is read here.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from edgefold.runtime.errors import MeterError, Remedy


def read_text(path: Path, advice: str = "", remedy: Remedy | None = None) -> str:
    """Return the text of a whole file without the blanks and zero bytes at its ends.

    Args:
        path: The file to read.
        advice: Words that end the error's message: what to do when the file cannot be read.
        remedy: Command that opens the file to a user who may not read it; it replaces the advice.

    Raises:
        MeterError: The file cannot be read (caused by BlockingIOError where the driver answers
            EAGAIN); the message names the file and the mode that prevents it.
    """
    try:
        return read_bytes(path).decode(errors="replace").strip("\0\n ")
    except OSError as error:
        why = f"{error.strerror}; {access_of(path)}"
        if isinstance(error, FileNotFoundError):
            why = "no such file"
        if isinstance(error, BlockingIOError):
            why = "the driver answers EAGAIN: the part is switched off or busy"
        helps = remedy if isinstance(error, PermissionError) else None
        if helps:
            advice = f"{helps.what}: `{helps.command}`"
        raise MeterError(
            f"{path} cannot be read ({why}){advice and '; ' + advice}", helps
        ) from error


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a whole file; the read never waits, whatever kind of file it is."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        blocks = []
        while block := os.read(handle, 1 << 16):
            blocks.append(block)
        return b"".join(blocks)
    finally:
        os.close(handle)


def read_sensor(path: Path, closed: str = "") -> str:
    """Return the text of a power sensor's file.

    Args:
        path: The file to read.
        closed: Files, as a path or glob pattern, that the error advises to open by `chmod a+r`;
            `path` by default.

    Raises:
        MeterError: The file cannot be read; the error holds that command if rights are missing.
    """
    what = "energy figures until the next boot (docs/measuring.md has a udev rule that stays)"
    remedy = Remedy(what, f"sudo chmod a+r {closed or path}")
    return read_text(path, "the driver was unloaded, or the board does not have this rail", remedy)


def read_number(path: Path, what: str, closed: str = "") -> float:
    """Return the number in a power sensor's file.

    Args:
        path: The file to read.
        what: The unit in the plural, such as "millivolts", for the error's message.
        closed: Files, as a path or glob pattern, that the error advises to open by `chmod a+r`;
            `path` by default.

    Raises:
        MeterError: The file cannot be read or holds something else.
    """
    text = read_sensor(path, closed)
    try:
        return float(int(text))
    except (ValueError, OverflowError):
        raise MeterError(f"{path} holds {text[:40]!r} instead of a number of {what}") from None


def access_of(path: Path) -> str:
    """Return in words the mode of a file, or of the folder that denies access to it."""
    for place in (path, *path.parents):
        try:
            mode = f"mode {place.stat().st_mode & 0o777:o}"
        except PermissionError:
            continue  # a folder further up is closed: its own mode can be seen
        except OSError:
            return "no such file" if place == path else f"no such folder as {place}"
        return mode if place == path else f"{place} has {mode}"
    return "its mode cannot be read"


def optional_text(path: Path) -> str | None:
    """Return the text of a file, or None where it is empty or cannot be read."""
    try:
        return read_text(path) or None
    except MeterError:
        return None


def optional_number(path: Path) -> float | None:
    """Return the number in a file, or None where it cannot be read or holds no finite number."""
    return number(optional_text(path))


def number(text: str | None) -> float | None:
    """Return the finite number that a text holds, or None where it holds none."""
    try:
        value = float(text) if text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None
