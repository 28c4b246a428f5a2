"""Keep the memory of a loop level over years.

CPython keeps the memory of deleted tuples, up to 2,000 of each length, and makes new ones from it.
What makes tuples of an unknown length (`tuple` of a generator, `dataclasses.fields`) takes one of
ten places and gives back a shorter one, so the kept ones grow by a few with each row or snapshot,
to about a megabyte after hundreds of thousands of rows. Only a full garbage collection frees them
(`gc_collect_main` of CPython's Modules/gcmodule.c), and in a loop that makes no garbage there is
none. Here one is made every `EVERY` lines. It takes some tenths of a millisecond, because what
exists before the first line is put aside (`gc.freeze`).
"""

from __future__ import annotations

import gc

from edgefold.runtime.loop.watcher import LoopWatcher

EVERY = 1000


class SteadyMemory(LoopWatcher):
    """Collects garbage from time to time, so that free memory goes back to where it came from."""

    wants_rows = False

    def __init__(self) -> None:
        self._n_lines = 0

    def line(self) -> None:
        if self._n_lines % EVERY == 0:
            gc.collect()
            if not self._n_lines:
                gc.freeze()
        self._n_lines += 1
