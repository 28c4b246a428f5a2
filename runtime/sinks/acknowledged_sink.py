"""Send the rows of a loop to a broker that acknowledges each, so that each arrives at least once.

    row ──> send (any order of threads) ──> broker's acknowledgement
                                                 └──all──> snapshot

A snapshot is written only when the broker has acknowledged all rows before it. After a kill the
rows since then are sent again. Each row carries a key, and its series and time, so that whoever
takes it can recognize a row that comes twice.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import deque
from typing import Any

from edgefold.runtime.errors import OutputError
from edgefold.runtime.sinks.row_sink import RowSink, SinkOptions
from edgefold.runtime.sinks.topic_rows import TopicRow, TopicRows

MOST_OPEN = 1000
"""The loop waits while so many rows are not acknowledged."""
WAKE_S = 0.2
GRACE_S = 2.0
"""After a stop, rows that are not acknowledged are given up after so many seconds."""


class AcknowledgedSink(RowSink):
    """Sends rows, and waits for their acknowledgements.

    A subclass connects, sends and disconnects in a thread of its own, and calls `report` and
    `acknowledged` from there.

    Args:
        name: The broker and the topic, for messages.
        options: What the sink must know of the loop.
    """

    is_json = True

    def __init__(self, name: str, options: SinkOptions):
        self.name = name
        self._options = options
        self._rows = TopicRows("")
        self._changed = threading.Condition()
        self._n_sent = self._n_done = 0
        self._news: deque[str] = deque()
        self._last_news = self._fault = ""
        self._is_open = False

    @abstractmethod
    def connect(self) -> None:
        """Begin to connect; the connection is made and kept by a thread."""

    @abstractmethod
    def send(self, row: TopicRow) -> None:
        """Hand a row to the thread, which sends it until the broker acknowledges it."""

    @abstractmethod
    def disconnect(self) -> None:
        """Close the connection and end the thread."""

    def begin(self, header: str, force: bool = False) -> None:
        self._rows = TopicRows(header)
        self.connect()
        self._is_open = True

    def resume(self, mark: dict[str, Any], header: str, is_new: bool) -> None:
        self.begin(header)

    # In the subclass's thread ---------------------------------------------------------------------

    def report(self, text: str, is_final: bool = False) -> None:
        """Take notice of what happened to the connection.

        Args:
            text: The rest of a sentence that begins with "the broker".
            is_final: Whether waiting cannot help, so that the loop must end.
        """
        sentence = f"the broker of {self.name} {text}"
        with self._changed:
            if is_final:
                self._fault = self._fault or sentence
            elif text != (self._last_news or "is connected"):
                self._news.append(sentence)
            self._last_news = "" if text == "is connected" else text
            self._changed.notify()

    def acknowledged(self, n: int = 1) -> None:
        """Take notice that the broker has so many rows more."""
        with self._changed:
            self._n_done += n
            self._changed.notify()

    # In the loop's thread -------------------------------------------------------------------------

    def write(self, text: str, day: int | None = None) -> None:
        for row in self._rows.rows(text):
            self._wait_until_open(MOST_OPEN - 1)
            self._n_sent += 1
            self.send(row)

    def sync(self) -> dict[str, Any]:
        """Wait until the broker has acknowledged all rows; return {}, as they cannot be cut back.

        Raises:
            OutputError: The broker refuses, or is away after a stop.
        """
        self._wait_until_open(0)
        return {}

    def _wait_until_open(self, most: int) -> None:
        """Wait until at most so many rows are not acknowledged."""
        end_s = None
        while True:
            with self._changed:
                if self._n_sent - self._n_done > most and not (self._fault or self._news):
                    self._changed.wait(WAKE_S)
                n_open, news = self._n_sent - self._n_done, [*self._news]
                self._news.clear()
            for sentence in news:
                self._options.tell(sentence)
            if self._fault:
                raise OutputError(
                    f"{self._fault}. With a snapshot the same command sends again what is missing."
                )
            if n_open <= most:
                return
            self._options.idle()
            if self._options.stop():
                end_s = end_s or time.monotonic() + GRACE_S
                if time.monotonic() > end_s:
                    self._fault = f"{self.name} has not acknowledged {n_open:,} rows"

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            if not self._fault:
                self._wait_until_open(0)
        finally:
            self.disconnect()
