"""Read how much memory a process needs: pages that the kernel cannot take back while it lives.

Needed are anonymous pages (heap, stacks, a private page of a file once it was written to), in
memory or swapped out, and shared memory. The other pages of a process are clean pages of files,
above all of shared libraries: the kernel drops them when memory is short and reads them again at
need. How many of those are in memory depends on the page cache, so no limit is refused by them. The
figure *needed* of a program is the most of these readings over its life.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

KIB = 1024
NEEDED = ("RssAnon:", "RssShmem:", "VmSwap:")
SESSIONS = "edgefold.runtime.backends.onnxruntime_session"
MOST_OF_SESSION = 2
"""How many times the table's figure a first session counts at most: it holds a graph too."""


def needed_bytes(process: Path = Path("/proc/self")) -> int | None:
    """Return the bytes that a process needs now, by the kernel's counters; None without counters.

    The counters may lag by 64 pages a thread; `edgefold.devices.memory.process` reads exactly.
    """
    try:
        lines = (process / "status").read_text().splitlines()
        counters = [int(line.split()[1]) for line in lines if line.startswith(NEEDED)]
    except (OSError, IndexError, ValueError):
        return None
    return sum(counters) * KIB if counters else None


def settled_bytes() -> int:
    """Return freed memory to the kernel, then the bytes that this process needs; 0 if unknown.

    Otherwise the figure would hold freed memory, most of which glibc keeps for later use.
    """
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    return needed_bytes() or 0


def present_bytes(import_bytes: int, session_bytes: int) -> int:
    """Return the bytes that this process needs now, without onnxruntime's share.

    The share was measured when onnxruntime was loaded: bytecode that is compiled first, or another
    version, makes it differ from a table's figure.

    Args:
        import_bytes: The table's figure for importing onnxruntime, for a program that had imported
            it before Edgefold did.
        session_bytes: The table's figure for a first session.
    """
    share = 0
    if "onnxruntime" in sys.modules:
        sessions = sys.modules.get(SESSIONS)
        measured = getattr(sessions, "import_bytes", None)
        first = (sessions.first_session_bytes() if sessions else None) or 0
        share = import_bytes if measured is None else measured
        share += min(first, MOST_OF_SESSION * session_bytes)
    return settled_bytes() - share
