"""List the programs that use the processor, from /proc alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BUSY_PERCENT = 20.0  # of one core

Watch = Callable[[], list[dict[str, Any]]]


def watch_processes(
    proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic
) -> Watch:
    """Start to watch the processor; return a function that lists programs that used it since.

    The function returns at most three programs, the busiest first: "name", and "cpu_percent" of one
    core. The list is empty where /proc shows no process, as under an emulator.
    """
    before, start_s = _used_s(proc), clock()

    def busiest() -> list[dict[str, Any]]:
        elapsed_s = clock() - start_s
        used: list[dict[str, Any]] = [
            {"name": name, "cpu_percent": 100.0 * (now_s - before[key][1]) / elapsed_s}
            for key, (name, now_s) in _used_s(proc).items()
            if key in before
        ]
        busy = [entry for entry in used if entry["cpu_percent"] >= BUSY_PERCENT]
        return sorted(busy, key=lambda entry: -entry["cpu_percent"])[:3]

    return busiest


def _used_s(proc: Path) -> dict[tuple[str, str], tuple[str, float]]:
    """Return name and used CPU seconds of every other process, by its number and its start."""
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    try:
        numbers = [name for name in os.listdir(proc) if name.isdigit()]
    except OSError:
        return {}
    used = {}
    for number in numbers:
        if number == str(os.getpid()):
            continue
        try:
            text = (proc / number / "stat").read_text(errors="replace")
            # proc(5): the name stands in parentheses and may hold blanks and parentheses; the
            # fields after it are counted from the third, so utime is 11, stime 12, starttime 19.
            name, _, rest = text.partition("(")[2].rpartition(")")
            fields = rest.split()
            seconds = (int(fields[11]) + int(fields[12])) / ticks_per_s
            used[number, fields[19]] = name, seconds
        except (OSError, ValueError, IndexError):  # it ended, or is another user's
            continue
    return used
