"""Read how much memory this process takes, and how much it has had written to the disk."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from edgefold.cli.loop.disk_writes import written_bytes


class ProcessFigures(NamedTuple):
    """Holds figures of a process; one is None where the system does not count it.

    Attributes:
        resident_bytes: Memory that the process takes now.
        written_bytes: Bytes that the kernel wrote to storage, or will, for the process.
    """

    resident_bytes: int | None
    written_bytes: int | None


def read_figures(root: Path = Path("/")) -> ProcessFigures:
    """Read the figures of this process; `root` is the folder that holds proc."""
    pages = _number(root / "proc/self/statm", r"\d+ (\d+)")
    resident = None if pages is None else pages * os.sysconf("SC_PAGE_SIZE")
    return ProcessFigures(resident, written_bytes(root))


def _number(path: Path, pattern: str) -> int | None:
    """Return the number that a pattern finds in a file; None without one."""
    try:
        found = re.match(pattern, path.read_text())
    except OSError:
        return None
    return int(found[1]) if found else None
