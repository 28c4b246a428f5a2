"""Watch a loop for the page: all that the page costs in the loop's thread is in this module.

each row                     one append to a ring of a fixed size
each line, each wait         one look at the clock
about once a second          a copy of the facts of the sensors that someone looks at, which
                             takes at most a two-hundredth of the time

It never takes a lock and never waits for the page's threads.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from edgefold.cli.loop.disk_writes import DiskWrites
from edgefold.cli.page.event_ring import EventRing
from edgefold.cli.page.loop_facts import PageFacts, facts_of
from edgefold.runtime.loop.watcher import LoopWatcher, Refusal, WatchedRow

if TYPE_CHECKING:
    from edgefold.runtime.loop.loop import PredictionLoop
    from edgefold.runtime.loop.streams import LoopStreams
    from edgefold.runtime.sources.row_source import RowSource

COPY_S = 1.0
COPY_SHARE = 1 / 200
"""A copy of the facts takes at most this share of the time."""
MOST_TOLD = 20
LATENCIES = 512


class RefusedRow(NamedTuple):
    """Holds a row that was refused: sensor, line, reason and kind of reason."""

    series: str
    line: int
    reason: str
    kind: Refusal


class LoopNote(NamedTuple):
    """Holds a remark on a sensor, such as a new season, and the line at which it came."""

    series: str
    line: int
    text: str


class KnownSensor(NamedTuple):
    """Holds the name of a sensor that a snapshot has brought, of which no row came in this run."""

    series: str


class PageWatcher(LoopWatcher):
    """Passes rows and facts of a loop on to the page.

    It must stand before the progress among the watchers of a loop: it reads the notes of the
    sensors, which the progress then removes.

    Args:
        ring: The ring for rows, refused rows and notes.
        clock: Function that returns a time in seconds that never goes back.
        wall_clock: Function that returns the time in seconds since 1970.

    Attributes:
        wanted: Names of the sensors whose facts are copied; None copies none at all. Any thread
            may replace it.
        facts: The last copy; None before the first.
        alive_s: The time of `clock` at which the loop was last seen to go on.
        waits_since_s: The time of `clock` since which the loop waits for rows; None while it works.
        saved_at: The time of `wall_clock` of the last snapshot; None before the first.
        writes: Counts the bytes that the process writes from snapshot to snapshot.
    """

    def __init__(
        self,
        ring: EventRing,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ):
        self._ring, self._clock, self._wall_clock = ring, clock, wall_clock
        self._loop: PredictionLoop | None = None
        self._source: RowSource | None = None
        self._told: deque[str] = deque(maxlen=MOST_TOLD)
        self._next_s, self._has_named = 0.0, False
        self._copied: frozenset[str] | None = None  # the names of the last copy
        self.wanted: frozenset[str] | None = None
        self.facts: PageFacts | None = None
        self.alive_s = self._taken_s = clock()
        self._latencies, self._n_lines = array("d", bytes(8 * LATENCIES)), 0
        self.saved_at: float | None = None
        self.writes = DiskWrites()
        self.waits_since_s: float | None = None

    def attach(self, loop: PredictionLoop, source: RowSource) -> None:
        """Copy the facts of this loop from now on."""
        self._loop, self._source = loop, source

    def tell(self, sentence: str) -> None:
        """Pass on a sentence of the source; any thread may call this."""
        self._told.append(sentence)

    def latencies(self) -> list[float]:
        """Return the times in which the last lines were processed, in s; any thread may call this.

        The loop may replace the oldest ones meanwhile.
        """
        return self._latencies[: min(self._n_lines, LATENCIES)].tolist()

    def take_told(self) -> list[str]:
        """Remove and return the sentences of the source; only the page's thread calls this."""
        return [self._told.popleft() for _ in range(len(self._told))]

    def taken(self) -> None:
        self._taken_s = self._clock()

    def row(self, row: WatchedRow) -> None:
        self._ring.append(row)

    def refused(self, name: str, line: int, reason: str, kind: Refusal) -> None:
        self._ring.append(RefusedRow(name, line, reason, kind))

    def line(self) -> None:
        self.alive_s = now_s = self._clock()
        self.waits_since_s = None
        self._latencies[self._n_lines % LATENCIES] = now_s - self._taken_s
        self._n_lines += 1
        # A candidate that takes over brings other sensors, so they are asked for each time.
        if self._loop is not None and (notes := self._loop.sensors.notes):
            for line, name, text in notes:
                self._ring.append(LoopNote(name, line, text))
        if now_s >= self._next_s or self.wanted is not self._copied:
            self._copy(now_s)

    def idle(self) -> None:
        self.alive_s = now_s = self._clock()
        if self.waits_since_s is None:
            self.waits_since_s = now_s
        if now_s >= self._next_s or self.wanted is not self._copied:
            self._copy(now_s)

    def saved(self) -> None:
        self.saved_at = self._wall_clock()
        self.writes.saved()

    def _copy(self, now_s: float) -> None:
        """Copy the facts if someone looks, and choose the time of the next copy."""
        self._next_s = now_s + COPY_S
        if self._loop is None or self._source is None:
            return
        if not self._has_named:
            self._has_named = True
            self._name_known(self._loop.sensors)
        self._copied = wanted = self.wanted
        if wanted is None:
            return
        self.facts = facts_of(self._loop, self._source, wanted)
        self._next_s = now_s + max(COPY_S, (self._clock() - now_s) / COPY_SHARE)

    def _name_known(self, sensors: LoopStreams) -> None:
        """Pass on the names of the sensors that have rows, as a snapshot brings them."""
        for sensor in sensors.named or [sensors.first]:
            if sensor.counters.rows:
                self._ring.append(KnownSensor(sensor.name))
