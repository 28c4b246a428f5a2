"""Standard streams may be closed, full or of a narrow encoding, as services and cron have them.

What is said on stderr is for people; that nobody can read it never stops a command.
"""

from __future__ import annotations

import io
import os
import sys


def ensure_streams() -> None:
    """Give a closed standard stream the null device, and a narrow one a `?` for what it lacks.

    A closed descriptor 0, 1 or 2 would be taken by the next file opened, and what any library then
    prints would be written into that.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(handle, True)
    os.close(handle)
    sys.stdin = sys.stdin or _null("r")
    sys.stdout = sys.stdout or _null("w")
    sys.stderr = sys.stderr or _null("w")
    # In the locale C Python answers "surrogateescape", which lacks a µ just the same.
    lacking = ("strict", "surrogateescape")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors in lacking:
        sys.stdout.reconfigure(errors="replace")


def _null(mode: str) -> io.TextIOWrapper:
    # Open until the process ends, as standard streams are.
    stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
    assert isinstance(stream, io.TextIOWrapper)
    return stream


def say(text: str, end: str = "\n") -> None:
    """Print on stderr; where that is full or gone, go on in silence."""
    try:
        print(text, end=end, file=sys.stderr, flush=True)
    except OSError:
        # What is left in the buffer is flushed at the exit: give it somewhere to go.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stderr.fileno())
        os.close(null)
