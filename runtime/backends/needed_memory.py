"""How much memory a process needs: what the kernel cannot take back while the process lives.

Needed are anonymous pages (heap, stacks, a private page of a file once it was written to), in
memory or swapped out, and shared memory. The other pages of a process are clean pages of files,
above all of shared libraries: the kernel drops them when memory is short and reads them again at
need. How many of those are in memory depends on the page cache, so no limit is refused by them. The
figure *needed* of a program is the most of these readings over its life.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

KIB = 1024
NEEDED = ("RssAnon:", "RssShmem:", "VmSwap:")


def needed_bytes(process: Path = Path("/proc/self")) -> int | None:
    """Bytes that a process needs now, by the kernel's counters; None where it shows none.

    The counters may lag by 64 pages a thread; `edgefold.devices.memory.process` reads exactly.
    """
    try:
        lines = (process / "status").read_text().splitlines()
        found = [int(line.split()[1]) for line in lines if line.startswith(NEEDED)]
    except (OSError, IndexError, ValueError):
        return None
    return sum(found) * KIB if found else None


def settled_bytes() -> int:
    """Bytes that this process needs once freed memory went back to the kernel; 0 where unknown.

    glibc keeps most of what was freed, and what comes next would use it again.
    """
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    return needed_bytes() or 0
