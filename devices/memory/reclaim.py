"""Measure how much memory a loop takes to run well: drop its pages of files, see which come back.

    drop_file_pages()      some hundred steps      files()
    ─────┬────────────────────────┬───────────────────┬──> time
         │ clean pages of mapped  │ what the steps    │ touched: the pages that came back
         │ files leave the process│ use is mapped     │ resident: and those that never left
         │                        │ again             │

MADV_PAGEOUT (Linux 5.4) drops clean pages at once, except those that another process maps too
(libc, the libraries of a second loop) and those of files that this user may not write (libraries
that root installed; the kernel's `madvise_pageout` passes over them). Of these only the touched
ones are known to be used, so the figure is a range: at least the touched pages, at most all that
are resident afterwards. Both ends are close where the libraries are this user's own and nothing
else runs Python. Nothing is lost, and the next use of a page reads it again: do this after
everything is timed.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from edgefold.devices.memory.process import NO_FILES, ProcessMemory
from edgefold.runtime.errors import MeterError

MADV_PAGEOUT = 21  # asm-generic/mman-common.h; the same on x86-64 and arm64
FILE_MAP = re.compile(
    rf"^([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ [1-9]\d* +(?!{'|'.join(NO_FILES)})/", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class WorkingFiles:
    """Holds how many bytes of clean pages of files a loop uses, as a range.

    Attributes:
        least_bytes: Bytes of the pages that were touched after the drop.
        most_bytes: Bytes of all pages that are in memory after the run.
        kept_bytes: Bytes that could not be dropped, since another process maps them or this user
            may not write the file.
    """

    least_bytes: int
    most_bytes: int
    kept_bytes: int


def drop_file_pages(maps: Path = Path("/proc/self/maps")) -> None:
    """Drop the clean pages of all files that this process maps.

    Raises:
        MeterError: The kernel knows no MADV_PAGEOUT, or the maps cannot be read.
    """
    try:
        text = maps.read_text()
    except OSError as error:
        raise MeterError(f"{maps} cannot be read: {error.strerror}.") from error
    madvise = ctypes.CDLL(None, use_errno=True).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start, end in ((int(low, 16), int(high, 16)) for low, high in FILE_MAP.findall(text)):
        if madvise(start, end - start, MADV_PAGEOUT):
            reason = os.strerror(ctypes.get_errno())
            raise MeterError(f"madvise(MADV_PAGEOUT) failed ({reason}); it needs Linux 5.4.")


def working_files(run: Callable[[], object]) -> WorkingFiles:
    """Drop the pages of files, run the loop, and return how many bytes of them came back.

    Args:
        run: Does some hundred steps of the loop.

    Raises:
        MeterError: The kernel cannot drop pages or forget which ones were touched.
    """
    memory = ProcessMemory()
    reason = memory.start_window()
    if reason:
        raise MeterError(reason)
    drop_file_pages()
    kept_bytes = sum(file.resident_bytes for file in memory.files())
    run()
    files = memory.files()
    return WorkingFiles(
        sum(file.touched_bytes for file in files),
        sum(file.resident_bytes for file in files),
        kept_bytes,
    )
