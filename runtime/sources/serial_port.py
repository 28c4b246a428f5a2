"""Open a serial line for reading: 8 data bits, no parity, one stop bit, every byte as it was sent.

The line does not become the controlling terminal of the process, and no other program that locks
serial lines (pyserial, picocom, tio, another loop) may read it at the same time: two readers would
take bytes from each other. `HUPCL` is switched off, so that many boards are not reset when a loop
ends and starts again.
"""

from __future__ import annotations

import fcntl
import os
import re
import termios
from contextlib import suppress
from pathlib import Path

from edgefold.runtime.errors import DataError


def speeds() -> dict[int, int]:
    """Return the constant of termios for each speed in baud that this system knows, in order."""
    names = (name for name in dir(termios) if re.fullmatch(r"B[1-9]\d*", name))
    return dict(sorted((int(name[1:]), getattr(termios, name)) for name in names))


def require_speed(baud: int | None) -> None:
    """Raise DataError if this system does not know a speed; None keeps the line's own."""
    if baud is not None and baud not in (known := speeds()):
        raise DataError(
            f"this system knows no serial line of {baud} baud; give --baud one of "
            f"{', '.join(map(str, known))}."
        )


def open_port(path: str, baud: int | None) -> int:
    """Open a serial line, and drop what was received before.

    Args:
        path: The device, such as /dev/ttyUSB0, or a link to it.
        baud: The speed, which `require_speed` has accepted; None keeps the present one.

    Returns:
        The number of the open file, which does not block.

    Raises:
        DataError: The path is not a serial line, or the line does not take the speed.
        BlockingIOError: Another program has locked the line.
        OSError: It cannot be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        _require_line(fd, path)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _set_raw(fd, baud)
        if baud is not None and termios.tcgetattr(fd)[4] != speeds()[baud]:
            raise DataError(f"{path} does not take {baud} baud; give --baud another speed.")
        termios.tcflush(fd, termios.TCIFLUSH)
    except termios.error as error:  # it has the arguments of an OSError, and is none
        os.close(fd)
        raise OSError(*error.args) from None
    except BaseException:
        os.close(fd)
        raise
    return fd


def _require_line(fd: int, path: str) -> None:
    if not os.isatty(fd):
        raise DataError(
            f"{path} is not a serial line, so it has no --baud; name the device with --input, such "
            "as /dev/ttyUSB0 or a name below /dev/serial/by-id, or leave --baud out."
        )
    with suppress(OSError):
        os.tcgetpgrp(fd)  # fails but for the controlling terminal
        raise DataError(
            f"{path} is the terminal on which this command runs; give --input - to type rows."
        )


def _set_raw(fd: int, baud: int | None) -> None:
    """Let every byte through as it comes, at once, and ignore breaks, as a reset board sends."""
    _, _, control, _, in_speed, out_speed, characters = termios.tcgetattr(fd)
    control &= ~(termios.CSIZE | termios.PARENB | termios.CSTOPB | termios.HUPCL | termios.CRTSCTS)
    control |= termios.CS8 | termios.CREAD | termios.CLOCAL
    characters[termios.VMIN], characters[termios.VTIME] = 1, 0
    if baud is not None:
        in_speed = out_speed = speeds()[baud]
    settings = [termios.IGNBRK, 0, control, 0, in_speed, out_speed, characters]
    termios.tcsetattr(fd, termios.TCSANOW, settings)


def advice_on_access(path: str) -> str:
    """Return what a user can do who may not open a device; it names the device's group."""
    try:
        group = Path(path).group()
    except (OSError, KeyError):
        group = "dialout"
    return f'it belongs to the group {group}: sudo usermod -aG {group} "$USER", and log in again'
