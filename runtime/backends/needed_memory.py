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
"""The bytes measured for a first session count up to this multiple of the estimate for it."""


def needed_bytes(process: Path = Path("/proc/self")) -> int | None:
    """Return how many bytes a process needs now, by the kernel's counters; None without counters.

    The counters may lag by 64 pages a thread; `edgefold.devices.memory.process` reads exactly.

    Args:
        process: The process's folder in /proc.
    """
    try:
        lines = (process / "status").read_text().splitlines()
        counters = [int(line.split()[1]) for line in lines if line.startswith(NEEDED)]
    except (OSError, IndexError, ValueError):
        return None
    return sum(counters) * KIB if counters else None


def settled_bytes() -> int:
    """Give freed memory back to the kernel, then return how many bytes this process needs.

    Otherwise the number would count freed memory too, most of which glibc keeps for later use. The
    result is 0 where the kernel has no counters.
    """
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    return needed_bytes() or 0


def present_bytes(import_bytes: int, session_bytes: int) -> int:
    """Return how many bytes this process needs now, without what onnxruntime takes.

    The bytes that Edgefold measured when it imported onnxruntime and opened the first session are
    subtracted. They depend on onnxruntime's version and on whether bytecode had to be compiled.

    Args:
        import_bytes: Estimated bytes of the import, subtracted if the program had imported
            onnxruntime before Edgefold, so that nothing was measured.
        session_bytes: Estimated bytes of a first session; at most twice as many are subtracted for
            the session.
    """
    share = 0
    if "onnxruntime" in sys.modules:
        sessions = sys.modules.get(SESSIONS)
        measured = getattr(sessions, "import_bytes", None)
        first = (sessions.first_session_bytes() if sessions else None) or 0
        share = import_bytes if measured is None else measured
        share += min(first, MOST_OF_SESSION * session_bytes)
    return settled_bytes() - share
