"""Define the contract of a row source, from which a loop gets its rows, and open a source by name.

A source is a class in a file of its own, a function that opens it, and a line in `SOURCES`. The
loop, the progress and the snapshot know only `RowSource`. A mark is the place up to which rows were
processed, as a JSON object that a snapshot keeps.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import Columns, Layout, Row
from edgefold.runtime.rows.csv_fields import plain
from edgefold.runtime.rows.csv_reader import BadRow
from edgefold.runtime.rows.row_format import RowFormat
from edgefold.runtime.sources.journal import FILE_BYTES
from edgefold.runtime.sources.message_rows import MessageKeys

SOURCES = {
    "": "edgefold.runtime.sources.input_file:open_input",
    "mqtt://": "edgefold.runtime.sources.broker_source:open_mqtt",
    "mqtts://": "edgefold.runtime.sources.broker_source:open_mqtt",
    "nats://": "edgefold.runtime.sources.broker_source:open_jetstream",
    "nats+tls://": "edgefold.runtime.sources.broker_source:open_jetstream",
}
"""Names the function that opens each source by a prefix of `--input`, such as `mqtt://`.

The prefix "" stands for a file or a pipe.
"""
SERIAL = "edgefold.runtime.sources.serial_feed:open_serial"
"""Names the function that opens a serial line, which no prefix shows (`is_serial`)."""

SCHEME = re.compile(r"[a-z+]{2,10}:/")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Holds what a source may need to know of the loop.

    Attributes:
        stop: Function that is called while the source waits; once it returns True, the source stops
            waiting for rows.
        snapshot: The file that keeps the loop for a later run; None keeps nothing. With it, a last
            line without an end is left to a later run, and messages are kept in a journal beside.
        keys: The names of keys in the payloads of messages.
        of_sensors: Whether rows are for the general model of sensors.
        window: Number of messages that a broker may send before they are acknowledged.
        sync_s: Seconds after which messages are forced to the disk and acknowledged.
        journal_bytes: Size of each of the journal's two files.
        tell: Function that gets a sentence for the user while the source waits.
        idle: Function that is called several times a second while the source waits for rows, and
            for what comes and gives no row.
        retires: Whether a broker sends only what waits already, and no new messages.
        baud: The speed of a serial line; None keeps its present one, and lets a device show by
            itself that it is a serial line.
        columns: Names of the fields in lines of a serial line that brings no header.
        format: How the fields in lines of a serial line are written.
    """

    stop: Callable[[], bool] = lambda: False
    snapshot: Path | None = None
    keys: MessageKeys = field(default_factory=MessageKeys)
    of_sensors: bool = False
    window: int = 20
    sync_s: float = 1.0
    journal_bytes: int = FILE_BYTES
    tell: Callable[[str], None] = lambda sentence: None
    idle: Callable[[], None] = lambda: None
    retires: bool = False
    baud: int | None = None
    columns: tuple[str, ...] = ()
    format: RowFormat = field(default_factory=RowFormat)


class RowSource(Protocol):
    """Gives the rows of an input, and the mark from which a later run continues.

    A class that inherits from it need not define the methods that have a body here.

    Attributes:
        name: The input's name, for messages.
        n_connections: Number of connections whose rows have begun to come; after each, rows may
            come again.
        n_repeated: Number of messages that came again and were dropped.
        unit: The word for a numbered part of the input, "line" or "message".
    """

    name: str
    n_connections: int = 0
    n_repeated: int = 0
    unit: str = "line"

    @property
    def layout(self) -> Layout | None:
        """Return the places of the columns in a line; None before the first readable line."""

    @property
    def is_live(self) -> bool:
        """Return whether rows arrive while they are sent, so that the next one may come late."""

    @property
    def reads_again(self) -> bool:
        """Return whether the rows after a mark come again, as those of a pipe do not."""
        return not self.is_live

    @property
    def holds_row(self) -> bool:
        """Return whether a live source has received a row that `rows` has not yielded yet."""

    def rows(
        self, columns: Columns, layout: Layout | None = None, n_lines: int = 0
    ) -> Iterator[Row | BadRow]:
        """Yield the rows of the input, good and bad ones, until its end.

        Args:
            columns: The columns to read.
            layout: The places of the columns in an earlier run, after `resume`; None without one.
            n_lines: Number of lines that earlier runs have read.

        Raises:
            DataError: The input is not usable at all, as without a wanted column.
        """

    def first_lines(self, is_enough: Callable[[Sequence[bytes]], bool]) -> Sequence[bytes]:
        """Return the first lines of the input, which `rows` yields later too.

        A live source waits until the lines are enough, and then shortly for more. A source that
        cannot show lines in advance returns none.

        Args:
            is_enough: Function that gets the lines so far, and returns whether they show what
                columns the rows have and how their fields are written.
        """
        return ()

    def keep(self) -> object:
        """Record that all rows so far are processed; `mark` then returns the place after them."""

    def mark(self) -> dict[str, Any]:
        """Return the place that `keep` recorded last as a JSON object, for a later run."""

    def resume(self, mark: dict[str, Any], next_file: bool = False) -> None:
        """Continue after the place of a mark; call it before the first row is taken.

        Args:
            mark: The place that `mark` returned in an earlier run.
            next_file: Whether the input may be another file that follows the marked one.

        Raises:
            DataError: The input is neither the marked one nor one that may follow it.
        """

    @property
    def wants_snapshot(self) -> bool:
        """Return whether a snapshot should be written soon, so that the source gets room."""
        return False

    @property
    def n_bytes_written(self) -> int:
        """Return how many bytes the source itself has written to the disk in this run."""
        return 0

    @property
    def away_since(self) -> float | None:
        """Return the time in seconds since 1970 since which the broker or the device is away.

        It is None while it is connected; a file and a pipe are never away.
        """
        return None

    @property
    def n_received(self) -> int:
        """Return how many messages have come in this run, with those that gave no row."""
        return 0

    def retire(self) -> None:
        """Let the input keep nothing for a later run, from its end on; all rows must be saved."""
        return

    def place(self, line: int) -> str:
        """Return the place of a line in words, for messages."""
        return f"{self.name}, {self.unit} {line}"

    def reason(self, name: str, reason: str) -> str:
        """Return why a row is refused in words that name its sensor, if it has a name."""
        return f"stream {plain(name)}: {reason}" if name else reason

    def kept(self) -> None:
        """Release what the last `mark` makes unneeded; it is called after its snapshot."""
        return

    def start_over(self) -> None:
        """Forget what earlier runs kept of the input; called before the first row is taken."""
        return

    def close(self) -> None:
        """Release the input; a second call does nothing."""

    def require_unchanged(self) -> None:
        """Raise DataError if rows that were read have changed since; called before a snapshot."""
        return

    def require_in_place(self) -> None:
        """Raise DataError if another input has this one's name now; called at the end of a run."""
        return

    def progress(self) -> str:
        """Return which part of the input is read, such as "45%"; "" if its length is not known."""
        return ""

    def notes(self) -> list[tuple[str, str]]:
        """Return remarks on the input for the summary of a run, as pairs of label and sentence."""
        return []


def prefix_of(path: str) -> str:
    """Return the prefix of `SOURCES` with which an input's name begins; "" for files and pipes."""
    return max((prefix for prefix in SOURCES if path.startswith(prefix)), key=len)


def source_name(path: str) -> str:
    """Return the name of the rows' source for an input: a file's name, or the topics of a broker.

    It is the same wherever the file lies and however a broker is addressed, so that the same rows
    have the same name on every machine.
    """
    if path == "-":
        return "standard input"
    prefix = prefix_of(path)
    if not prefix:
        return os.fsencode(os.path.basename(path)).decode(errors="replace")
    return path[len(prefix) :].partition("?")[0].partition("/")[2]


def is_serial(path: str, baud: int | None) -> bool:
    """Return whether an input is a serial line: a speed is given, or the device is a terminal's.

    A device that cannot be opened counts as one; opening it as such reports why it cannot.
    """
    if prefix_of(path) or path == "-":
        return False
    if baud is not None:
        return True
    try:
        if not stat.S_ISCHR(os.stat(path).st_mode):
            return False
    except OSError:
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return True
    try:
        return os.isatty(fd)
    finally:
        os.close(fd)


def gives_messages(path: str, baud: int | None) -> bool:
    """Return whether the rows of an input are made of messages, or of a serial line's lines."""
    return bool(prefix_of(path)) or is_serial(path, baud)


def open_row_source(path: str, options: SourceOptions | None = None) -> RowSource:
    """Open an input with the source that the beginning of its name selects.

    Args:
        path: A file or a device, "-" for standard input, or a name with one of the prefixes of
            `SOURCES`.
        options: What the source may need to know of the loop; None for the defaults.

    Raises:
        DataError: The input cannot be opened.
    """
    options = options or SourceOptions()
    prefix = prefix_of(path)
    if options.baud is not None and (prefix or path == "-"):
        raise DataError(
            f"--baud is of a serial line, and {path} is none; name its device with --input, such "
            "as /dev/ttyUSB0."
        )
    if not prefix and SCHEME.match(path) and not Path(path).exists():
        raise DataError(
            f"{path} is no file, and an address begins with {', '.join(filter(None, SOURCES))}."
        )
    opens = SERIAL if is_serial(path, options.baud) else SOURCES[prefix]
    module, _, name = opens.partition(":")
    source: RowSource = getattr(import_module(module), name)(path, options)
    return source
