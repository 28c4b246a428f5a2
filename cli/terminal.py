"""Print on standard streams, which services and cron leave closed, full or in a narrow encoding.

Messages on stderr are for people; a command never fails because they cannot be written. What they
quote may come from a foreign file, so characters that command a terminal are shown as `?`.
"""

from __future__ import annotations

import io
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


def ensure_streams() -> None:
    """Open the null device for a closed standard stream; print `?` for unknown characters.

    A closed descriptor 0, 1 or 2 would be taken by the next file opened, and what any library then
    prints would be written into that. In place of a closed stdout the null device is only readable,
    so that predictions and records that should go there are not lost silently.
    """
    has_stdout = is_open(1)
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    if not has_stdout:
        handle = os.open(os.devnull, os.O_RDONLY)
        os.dup2(handle, 1)
        os.close(handle)
    sys.stdin = sys.stdin or _null("r")
    sys.stdout = sys.stdout or _null("w")
    sys.stderr = sys.stderr or _null("w")
    # In the locale C Python answers "surrogateescape", which lacks a µ just the same.
    lacking = ("strict", "surrogateescape")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in lacking:
        sys.stdout.reconfigure(errors="replace")


def is_open(descriptor: int) -> bool:
    """Return whether the number of a descriptor stands for an open file."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _null(mode: str) -> io.TextIOWrapper:
    # Open until the process ends, as standard streams are.
    stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
    assert isinstance(stream, io.TextIOWrapper)
    return stream


def printable(text: str) -> str:
    """Replace every control character by `?`, but for line breaks and tabs."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def say(text: str, end: str = "\n") -> None:
    """Print a text on stderr, control characters as `?`; do nothing if stderr is full or gone."""
    _write(printable(text) + end)


def _write(text: str) -> None:
    try:
        print(text, end="", file=sys.stderr, flush=True)
    except OSError:
        # What is left in the buffer is flushed at the exit: give it somewhere to go.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stderr.fileno())
        os.close(null)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings in this block as one line for users, without the place in the code."""

    def line(message: Warning | str, *_: object) -> str:
        return printable(f"edgefold: warning: {message}\n")

    original = warnings.formatwarning
    warnings.formatwarning = line  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.formatwarning = original


STATUS = "EDGEFOLD_STATUS"
"""Environment variable: with the value `lines` a StatusLine prints a line for each `show`.

A line begins with a carriage return. The reader is another edgefold, at the other end of ssh.
"""


class StatusLine:
    """Shows one line on stderr, which each `show` replaces; shows nothing if stderr is a file.

    Args:
        interval_s: Seconds that pass after a `show` until `is_due` is true again.
    """

    def __init__(self, interval_s: float = 0.0):
        self._lines = os.environ.get(STATUS) == "lines"
        self._live = self._lines or sys.stderr.isatty()
        self._interval_s, self._shown_s = interval_s, time.monotonic()

    @property
    def is_live(self) -> bool:
        """Return whether stderr is a terminal, so that lines are shown."""
        return self._live

    @property
    def is_due(self) -> bool:
        """Return whether a new text should be made and shown now."""
        return self._live and time.monotonic() - self._shown_s >= self._interval_s

    def show(self, text: str) -> None:
        if self._live:
            self._shown_s = time.monotonic()
            _write(f"\r{printable(text)}\n" if self._lines else f"\r\x1b[K{printable(text)}")

    def clear(self) -> None:
        self.show("")
