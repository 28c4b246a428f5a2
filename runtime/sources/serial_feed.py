"""Receive the lines that a board prints on a serial line.

    board ──> thread: lines, each with its time of receipt ──> queue ──take──> rows

A serial line sends nothing again: what came while the loop was away is lost. An adapter that is
unplugged is waited for, as a broker is.
"""

from __future__ import annotations

import errno
import os
import re
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, Full, Queue
from typing import Any

from edgefold.runtime.errors import DataError
from edgefold.runtime.sources.line_rows import LONGEST, LineRows
from edgefold.runtime.sources.message import Message, MessageFeed
from edgefold.runtime.sources.message_source import MessageSource
from edgefold.runtime.sources.row_source import SourceOptions
from edgefold.runtime.sources.serial_port import advice_on_access, open_port, require_speed

BLOCK = 4096
WAKE_S = 0.2
MOST_WAITING = 10_000
SPREAD_S = 0.2
"""Lines that come in one block are spread over the time since the block before, at most so long.
Many adapters hand over what they have only every 16 ms, and a busy processor is late."""
ENDS = re.compile(rb"[\r\n]")
AWAY = (errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.EIO)
"""Errors of a device that is not there."""


def open_serial(path: str, options: SourceOptions) -> MessageSource:
    """Prepare a serial line; it is opened when the first row is asked for.

    Raises:
        DataError: This system does not know the speed.
    """
    require_speed(options.baud)
    rows = LineRows(options.keys, options.of_sensors, options.columns, options.format, options.tell)
    feed = SerialFeed(path, options.baud, rows, options.tell)
    return MessageSource(feed, rows, None, stop=options.stop, idle=options.idle)


class SerialFeed(MessageFeed):
    """Gives each line of a serial line as a message without a topic.

    After the line was opened, the bytes up to the first end of a line may be half a line. They are
    dropped, except for a header.

    Args:
        path: The device or a link to it; a link is followed each time that the device is opened.
        baud: The speed; None keeps the present one.
        rows: Reads the lines, and remembers the header.
        tell: Function that gets a sentence for the user, such as that the device is away.

    Attributes:
        name: The device.
        away_since: The time since which the device is not there; None while it is open.
        n_dropped: Number of lines that were dropped because more than `MOST_WAITING` waited.
    """

    is_numbered, unit = False, "line"

    def __init__(self, path: str, baud: int | None, rows: LineRows, tell: Callable[[str], None]):
        self.name = path
        self._baud, self._rows, self._tell = baud, rows, tell
        self._fd = -1
        self._last_news = ""
        self._buffer = b""
        self._skips = False  # what comes until the end of a line belongs to a line that is dropped
        self._lines: Queue[Message] = Queue(MOST_WAITING)
        self._news: deque[str] = deque()
        self._failure: Exception | None = None
        self._ends = threading.Event()
        self._read_s = 0.0  # when the last block came, by a clock that never goes back
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.n_dropped = 0

    def open(self, place: dict[str, Any]) -> None:
        """Open the device, or begin to wait for it; a thread reads it.

        Raises:
            DataError: It is not a serial line, may not be opened, or another program reads it.
        """
        self._rows.resume(place)
        self.away_since = time.time()
        self._connect(is_first=True)
        self._thread.start()

    # In the thread that reads ---------------------------------------------------------------------

    def _read(self) -> None:
        """Read lines until `close`; however busy the loop is, each has its time of receipt."""
        try:
            while not self._ends.is_set():
                if self._fd >= 0 or self._connect():
                    self._receive()
                else:
                    self._ends.wait(WAKE_S)
        except Exception as error:  # `take` raises it, in the loop's thread
            self._failure = error

    def _connect(self, is_first: bool = False) -> bool:
        """Open the device if it is there; return whether it is open.

        Raises:
            DataError: The name is not that of a serial line; or `is_first` is set, and the device
                may not be opened.
        """
        try:
            self._fd = open_port(self.name, self._baud)
        except OSError as error:
            if error.errno in AWAY:
                if not self._last_news:
                    self._report("is not there; the loop waits for it")
                return False
            text = f"cannot be opened ({error.strerror}): {self._advice(error)}"
            if is_first:
                raise DataError(f"{self.name} {text}.") from None
            self._report(text)  # udev may give it to its group in a moment
            return False
        self._buffer, self._skips, self.away_since = b"", True, None
        self._read_s = time.monotonic()
        if self._last_news:
            self._news.append("is open")
        self._last_news = ""
        return True

    def _advice(self, error: OSError) -> str:
        if isinstance(error, PermissionError):
            return advice_on_access(self.name)
        if isinstance(error, BlockingIOError) or error.errno == errno.EBUSY:
            return "another program reads it; end that one"
        return "name the device of a serial line"

    def _report(self, text: str) -> None:
        """Remember what happened to the device for the user, once until it changes."""
        if text != self._last_news:
            self._news.append(text)
        self._last_news = text

    def _receive(self) -> None:
        """Wait for bytes, and keep the lines that they end."""
        try:
            if not select.select([self._fd], [], [], WAKE_S)[0]:
                return
            block = os.read(self._fd, BLOCK)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        if not block:  # a driver hangs up, or fails, when the adapter is pulled out
            os.close(self._fd)
            self._fd, self.away_since = -1, time.time()
            self._report("was unplugged; the loop waits until it is there again")
            return
        *lines, self._buffer = ENDS.split(self._buffer + block)
        if lines and self._skips:
            self._skips = False
            if not self._rows.is_header(lines[0]):
                del lines[0]
        if len(self._buffer) >= LONGEST:
            if not self._skips:
                lines.append(self._buffer[:LONGEST])
            self._buffer, self._skips = b"", True
        self._add([line for line in lines if line.strip()])

    def _add(self, lines: Sequence[bytes]) -> None:
        """Queue the lines of a block, the last of which came now."""
        received, read_s = time.time(), time.monotonic()
        between_s = min(SPREAD_S, read_s - self._read_s) / max(1, len(lines))
        self._read_s = read_s
        for n_later, line in zip(range(len(lines) - 1, -1, -1), lines, strict=True):
            try:
                self._lines.put_nowait(Message("", line, received - n_later * between_s))
            except Full:
                self.n_dropped += 1

    # In the loop's thread -------------------------------------------------------------------------

    @property
    def holds_message(self) -> bool:
        return not self._lines.empty()

    def take(self, wait_s: float) -> Message | None:
        while self._news:
            self._tell(f"{self.name} {self._news.popleft()}")
        try:
            return self._lines.get(wait_s > 0, wait_s if wait_s > 0 else None)
        except Empty:
            if self._failure is not None:
                raise self._failure from None
            return None

    def acknowledge(self, n: int) -> None:
        """Do nothing: a board waits for no answer."""

    def place(self) -> dict[str, Any]:
        return self._rows.place()

    def notes(self) -> list[tuple[str, str]]:
        if not self.n_dropped:
            return []
        text = f"{self.n_dropped:,} lines came faster than they were learned"
        return [("dropped", f"{text}; let the board print less often")]

    def close(self) -> None:
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
