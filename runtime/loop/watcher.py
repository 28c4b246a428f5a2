"""Define what may watch a loop: the progress on a terminal, metrics, a page, a service manager.

    loop ──taken──> watchers                            before each line
         ──row, refused, resumed, line──>               after each row or line
         ──idle──>                                      while it waits for rows, five times a
                                                        second, or lets a candidate learn kept ones
         ──saved──>                                     after each snapshot

All calls come from the loop's thread. They tell that the loop goes on, so that whoever gets none
for long knows that it is stuck.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from edgefold.runtime.loop.alarm import Alarm

Refusal = Literal["unreadable", "refused", "no slot", "pace"]
"""Says why a row was refused: it cannot be read, it does not follow the rows before it or has a
value that the model cannot take, its sensor is one too many, or it comes at another pace."""

ANOMALY = "anomaly"
"""The event of a row that is an anomaly, of a model that gives no alarms."""


class RowView(NamedTuple):
    """Holds a row with the forecast that was made before its value was seen.

    Attributes:
        value: The value of the first output; NaN if it is missing.
        mean: The forecast of it; NaN without one.
        low: The lower bound of the central 90 % band; NaN without one.
        high: Its upper bound.
        log_density: The log density of the value, in nats; NaN if it was not scored.
        lower_quartile: The lower bound of the central 50 % band; NaN without one.
        upper_quartile: Its upper bound.
    """

    value: float
    mean: float
    low: float
    high: float
    log_density: float
    lower_quartile: float = math.nan
    upper_quartile: float = math.nan


class WatchedRow(NamedTuple):
    """Describes a row that was predicted and learned.

    Attributes:
        series: The sensor's name; "" for a single sensor.
        line: The line's number in the input.
        time: The row's time as a number, in seconds since 1970 if it is a date; NaN for rows
            without times.
        text: The time as it is written in the input.
        view: The row with its forecast.
        alarm: The alarm of the row, or None.
        event: The name of what happens to the sensor at this row, also after its alarm; "" for
            nothing.
    """

    series: str
    line: int
    time: float
    text: str
    view: RowView
    alarm: Alarm | None
    event: str = ""


class LoopWatcher:
    """Watches a loop; a subclass overrides what it wants to know."""

    wants_rows = True
    """Whether `row` is called; rows take time to describe."""

    def taken(self) -> None:
        """Take notice that a line of the input was read, and is processed next."""

    def row(self, row: WatchedRow) -> None:
        """Take a row that was predicted and learned."""

    def refused(self, name: str, line: int, reason: str, kind: Refusal) -> None:
        """Take a row that was refused.

        Args:
            name: The sensor's name; "" for a single sensor, or if the row belongs to none.
            line: The line's number in the input.
            reason: The reason in words.
            kind: The kind of reason.
        """

    def resumed(self, name: str, line: int, n_refused: int) -> None:
        """Take notice of a good row after refused ones.

        Args:
            name: The sensor's name, or "".
            line: The line's number in the input.
            n_refused: The number of rows that were refused directly before.
        """

    def line(self) -> None:
        """Take notice that a line of the input was processed."""

    def idle(self) -> None:
        """Take notice that the loop is well, while it has no line to process."""

    def saved(self) -> None:
        """Take notice that a snapshot is on the disk."""


class Watchers(LoopWatcher):
    """Passes everything on to several watchers."""

    def __init__(self) -> None:
        self._all: list[LoopWatcher] = []
        self._of_rows: list[LoopWatcher] = []
        self._of_taken: list[LoopWatcher] = []  # a call that does nothing costs time per line
        self.wants_rows = False

    def add(self, watcher: LoopWatcher) -> None:
        """Pass on to this watcher, too."""
        self._all.append(watcher)
        if type(watcher).taken is not LoopWatcher.taken:
            self._of_taken.append(watcher)
        if watcher.wants_rows:
            self._of_rows.append(watcher)
            self.wants_rows = True

    def taken(self) -> None:
        for watcher in self._of_taken:
            watcher.taken()

    def row(self, row: WatchedRow) -> None:
        for watcher in self._of_rows:
            watcher.row(row)

    def refused(self, name: str, line: int, reason: str, kind: Refusal) -> None:
        for watcher in self._all:
            watcher.refused(name, line, reason, kind)

    def resumed(self, name: str, line: int, n_refused: int) -> None:
        for watcher in self._all:
            watcher.resumed(name, line, n_refused)

    def line(self) -> None:
        for watcher in self._all:
            watcher.line()

    def idle(self) -> None:
        for watcher in self._all:
            watcher.idle()

    def saved(self) -> None:
        for watcher in self._all:
            watcher.saved()
