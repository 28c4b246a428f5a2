"""End a loop for good: take what waits in the broker, then let the broker forget the loop.

topics are left ──> what waits is learned ──> nothing for `QUIET_S` ──> snapshot ──> session ends
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from edgefold.runtime.loop.watcher import LoopWatcher

if TYPE_CHECKING:
    from edgefold.runtime.sources.row_source import RowSource

QUIET_S = 5.0
"""A broker that sends nothing for so long, while it is connected, has nothing left."""
LONGEST_WAIT_S = 0.5
"""The loop waits for messages for at most 0.2 s at a time."""


class Retirement(LoopWatcher):
    """Ends a loop once nothing waits for it; calling the object returns whether to stop.

    Args:
        stop: Function that returns whether a signal asked to stop.
        sync_s: Seconds after which messages are acknowledged, upon which a broker sends others.
        clock: Function that returns a time in seconds that never goes back.

    Attributes:
        is_done: Whether nothing waits for the loop any more.
    """

    wants_rows = False

    def __init__(
        self,
        stop: Callable[[], bool],
        sync_s: float,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._stop, self._most_s, self._clock = stop, QUIET_S + sync_s, clock
        self._source: RowSource | None = None
        self._last_s, self._quiet_s = clock(), 0.0
        self._n_received = 0
        self.is_done = False

    def attach(self, source: RowSource) -> None:
        """Watch this input."""
        self._source = source

    def line(self) -> None:
        self._last_s, self._quiet_s = self._clock(), 0.0

    def idle(self) -> None:
        now_s = self._clock()
        step_s, self._last_s = now_s - self._last_s, now_s
        source, before = self._source, self._n_received
        self._n_received = source.n_received if source else 0
        if source is None or source.away_since is not None or self._n_received != before:
            self._quiet_s = 0.0  # messages that give no row are no silence
            return
        # A process that was stopped for an hour has not listened for an hour.
        self._quiet_s += min(step_s, LONGEST_WAIT_S)
        self.is_done |= self._quiet_s > self._most_s

    def __call__(self) -> bool:
        return self._stop() or self.is_done
