"""Give a loop the rows of a broker's messages, each exactly once wherever the broker allows it.

    broker ──> journal ──> fdatasync ──> acknowledge        (MQTT; a group of messages at a time)
                  └──> lines ──> rows ──> loop ──> snapshot ──> the journal's place is free again

A message is acknowledged once it is on the disk, in the journal. After a kill the loop goes on from
its snapshot, reads the journal's messages after it, and then those that the broker sends. Of a
numbered log (JetStream) the snapshot keeps the number of the last message, and there is no journal.

A broker may send a message again that was received. It is known by its own numbers
(`MessageKeys.sequence`), or by its time (`edgefold.runtime.loop.known_rows`). A payload with
neither is a new row each time.

The rows of one message have one number, which counts the messages that gave rows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import Columns, Layout, Row
from edgefold.runtime.rows.csv_fields import plain
from edgefold.runtime.rows.csv_reader import BadRow, CsvRows
from edgefold.runtime.sources.journal import Journal
from edgefold.runtime.sources.message import Message, MessageFeed
from edgefold.runtime.sources.message_rows import COLUMNS, MessageRows
from edgefold.runtime.sources.row_source import RowSource

WAKE_S = 0.2


class MessageSource(RowSource):
    """Gives the rows of messages, and remembers which were processed.

    Args:
        feed: The connection to the broker.
        rows: Turns messages into lines.
        journal: Keeps messages until a snapshot knows them; None for a numbered feed, and where
            nothing is kept.
        group: The number of messages that are forced to the disk together.
        sync_s: Seconds after which a smaller group is forced to the disk.
        stop: Function that returns whether to stop.
        idle: Function that is called while no message comes, and for each one that gives no row.
        clock: Function that returns a time in seconds that never goes back.

    Attributes:
        n_connections: Number of connections whose messages have begun to come; after each, messages
            may come again.
        n_repeated: Number of messages that were dropped because their numbers were known.
    """

    is_live = True

    def __init__(
        self,
        feed: MessageFeed,
        rows: MessageRows,
        journal: Journal | None,
        group: int = 10,
        sync_s: float = 1.0,
        stop: Callable[[], bool] = lambda: False,
        idle: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.name, self.unit = feed.name, feed.unit
        self._feed, self._messages, self._journal = feed, rows, journal
        self._group, self._sync_s, self._stop = group, sync_s, stop
        self._idle, self._clock = idle, clock
        self._rows: CsvRows | None = None
        self._place: dict[str, Any] = {}  # of the snapshot from which this run resumes
        self._again: Iterator[tuple[int, bytes]] = iter(())  # the journal's messages
        self._lines: deque[bytes] = deque()  # of the message in work, which are not taken
        self._newest: dict[str, tuple[float, ...]] = {}  # the last numbers of each topic
        self._message: Message | None = None  # the one in work
        self._n_lines = 0  # of it, which were taken
        self._kept = (0, 0)  # the last message of which lines are processed, and their number
        self._begins = False  # whether a message that gave no row began a connection
        self._n_open, self._since_s = 0, 0.0  # messages that are not acknowledged; since when
        self._n_received = 0
        self.n_connections = self.n_repeated = 0

    @property
    def layout(self) -> Layout | None:
        return self._rows.layout if self._rows else None

    @property
    def reads_again(self) -> bool:
        return self._journal is not None or self._feed.is_numbered

    @property
    def holds_row(self) -> bool:
        return bool(self._lines) or (not self._stop() and self._feed.holds_message)

    def rows(
        self, columns: Columns, layout: Layout | None = None, n_lines: int = 0
    ) -> Iterator[Row | BadRow]:
        self._open()
        self._rows = CsvRows(self, columns, self.name, layout, n_lines, is_new=False)
        yield from self._rows

    def _open(self) -> None:
        if self._journal is not None:
            # A part of the message that the snapshot knows in part must come again.
            self._journal.open(self._place.get("journal", ""), max(self._processed, 0))
            self._again = self._journal.records()
        self._feed.open({**self._place, "position": self._processed})

    # Lines ----------------------------------------------------------------------------------------

    def readline(self, size: int) -> bytes:
        """Return the next line, at most `size` bytes of it; b"" after a stop."""
        if not self._lines and not self._begin_next():
            return b""
        line = self._lines.popleft()
        if len(line) > size:
            self._lines.appendleft(line[size:])
            return line[:size]
        if self._n_lines and self._rows is not None:  # rows have the number of their message
            self._rows.stay_on_line()
        self._n_lines += 1
        return line

    def _begin_next(self) -> bool:
        """Take the next message into work that has lines; return False after a stop."""
        while not self._lines:
            found = next(self._again, None)
            message = Message.from_bytes(found[1], found[0]) if found else None
            self._finish()
            if message is None and (message := self._received()) is None:
                return False
            lines = self._messages.lines(message)
            if not lines:
                self._begins |= message.begins
                self._idle()  # no row follows, which would show that the loop goes on
                continue
            message = self._numbered(message) if found is None else message
            self.n_connections += message.begins
            position, n_known = self._kept
            self._message, self._n_lines = message, 0
            if message.number == position and n_known:  # the snapshot knows its first lines
                self._n_lines = min(n_known, len(lines))
            self._lines.extend(lines[self._n_lines :])
        return True

    def _finish(self) -> None:
        """Remember the numbers of the message in work, whose lines were all taken."""
        if self._message and (numbers := self._messages.sequence(self._message)):
            self._newest[self._message.topic] = numbers
        self._message = None

    def _received(self) -> Message | None:
        """Return the next message of the broker that is new; None after a stop."""
        while not self._stop():
            if self._n_open and self._wait_s <= 0:
                self._commit()
            message = self._feed.take(min(WAKE_S, self._wait_s))
            if message is None:
                self._idle()
                continue
            self._n_received += 1
            self._n_open += 1
            if self._n_open == 1:
                self._since_s = self._clock()
            numbers = self._messages.sequence(message)
            if not (numbers and numbers <= self._newest.get(message.topic, ())):
                return message
            self._begins |= message.begins
            self.n_repeated += 1
            self._idle()
        return None

    def _numbered(self, message: Message) -> Message:
        """Return a new message with its number, after writing it into the journal."""
        begins, self._begins = message.begins or self._begins, False
        message = replace(message, begins=begins)
        if self._journal is not None:
            message = replace(message, number=self._journal.append(message.to_bytes()))
            if self._n_open >= self._group:
                self._commit()
        elif not self._feed.is_numbered:
            self._commit()
        return message

    @property
    def _wait_s(self) -> float:
        """Return the seconds until the open messages are forced to the disk."""
        return self._since_s + self._sync_s - self._clock() if self._n_open else WAKE_S

    def _commit(self) -> None:
        """Force the open messages to the disk, then acknowledge them."""
        if self._journal is not None:
            self._journal.sync()
        self._feed.acknowledge(self._n_open)
        self._n_open = 0

    # For a later run ------------------------------------------------------------------------------

    def keep(self) -> None:
        """Record that all lines taken so far are processed."""
        if self._message is not None:
            self._kept = self._message.number, self._n_lines * bool(self._lines)

    def mark(self) -> dict[str, Any]:
        """Return the place after the lines that `keep` recorded, and make it safe."""
        self._commit()
        if not self._lines:
            self._finish_kept()
        position, n_lines = self._kept
        n_lines *= self.reads_again  # else the message in work does not come again
        mark = {"position": position, "lines": n_lines, **self._feed.place()}
        if self._journal is not None:
            mark["journal"] = self._journal.identity
        if self._newest:
            mark["newest"] = {topic: list(numbers) for topic, numbers in self._newest.items()}
        return mark

    def _finish_kept(self) -> None:
        if self._message is not None and self._kept[0] == self._message.number:
            self._finish()

    @property
    def wants_snapshot(self) -> bool:
        return self._journal is not None and self._journal.wants_release(self._processed)

    @property
    def _processed(self) -> int:
        """Return the number of the last message of which all lines are processed."""
        position, n_lines = self._kept
        return position - (n_lines > 0)

    @property
    def n_bytes_written(self) -> int:
        return self._journal.n_bytes_written if self._journal is not None else 0

    def kept(self) -> None:
        if self._journal is not None:
            self._journal.release(self._processed)

    def resume(self, mark: dict[str, Any], next_file: bool = False) -> None:
        """Continue after the place of a mark; of a file's or a pipe's mark, with what comes now.

        Raises:
            DataError: The mark is damaged.
        """
        if "lines" not in mark:
            return
        try:
            self._newest = {
                topic: tuple(map(float, numbers))
                for topic, numbers in mark.get("newest", {}).items()
            }
            self._kept = int(mark["position"]), int(mark["lines"])
            bytes.fromhex(mark.get("journal", ""))
        except (AttributeError, TypeError, ValueError) as error:
            raise DataError(f"the place in {self.name} is damaged ({error}).") from None
        self._place = mark

    def start_over(self) -> None:
        if self._journal is not None:
            self._journal.remove()

    def notes(self) -> list[tuple[str, str]]:
        notes = self._feed.notes()
        if n := self._messages.n_without_value:
            notes.append(("no number", f"{n:,} messages held none and gave no row"))
        if self.n_repeated:
            notes.append(("repeated", f"{self.n_repeated:,} messages came again and were dropped"))
        return notes

    def place(self, line: int) -> str:
        return f"{self.unit} {line}"  # its sensor's name holds the topic

    def reason(self, name: str, reason: str) -> str:
        for column in COLUMNS:  # which no payload holds under these names
            reason = reason.replace(f"column {column} ", f"its {column} ")
        return f"{plain(name)}: {reason}" if name else reason

    @property
    def away_since(self) -> float | None:
        return self._feed.away_since

    @property
    def n_received(self) -> int:
        return self._n_received

    def retire(self) -> None:
        self._feed.retire()

    def close(self) -> None:
        self._feed.close()
        if self._journal is not None:
            self._journal.close()
