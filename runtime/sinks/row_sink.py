"""Define the contract of a row sink, which takes what a loop writes, and open a sink by its name.

A sink is a class in a file of its own, a function that opens it, and a line in `SINKS`. A mark is a
place in the output as a JSON object that a snapshot keeps; a sink that cannot be cut back has {}.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from edgefold.runtime.sinks.rotation import Rotation

SINKS = {
    "": "edgefold.runtime.sinks.output_file:open_output",
    "mqtt://": "edgefold.runtime.sinks.mqtt_sink:open_mqtt",
    "mqtts://": "edgefold.runtime.sinks.mqtt_sink:open_mqtt",
    "nats://": "edgefold.runtime.sinks.nats_sink:open_nats",
    "nats+tls://": "edgefold.runtime.sinks.nats_sink:open_nats",
}
"""Names the function that opens each sink by a prefix, such as `mqtt://`.

The prefix "" stands for a file or a pipe.
"""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Holds what a sink may need to know of the loop.

    Attributes:
        stop: Function that returns whether to stop; it is called while nobody takes the rows.
        rotation: Decides when a file is finished and the next one begins; None never does.
        option: The command's option that names the output, for messages.
        snapshot: The file that keeps the loop for a later run, or None.
        tell: Function that gets a sentence for the user while the sink waits.
        idle: Function that is called several times a second while the sink waits.
    """

    stop: Callable[[], bool] = lambda: False
    rotation: Rotation | None = None
    option: str = "--output"
    snapshot: Path | None = None
    tell: Callable[[str], None] = lambda sentence: None
    idle: Callable[[], None] = lambda: None


class RowSink(Protocol):
    """Takes rows of text, each with its end.

    A class that inherits from it need not define the methods that have a body here.

    Attributes:
        name: The output's name, for messages.
        is_json: Whether rows of alarms are JSON objects instead of CSV.
        n_finished: Number of files that this run has finished.
        n_removed: Number of lines that `resume` removed, which an earlier run wrote after its last
            snapshot.
    """

    name: str
    is_json: bool
    n_finished: int = 0
    n_removed: int = 0

    @property
    def exists(self) -> bool:
        """Return whether a new run would overwrite something."""
        return False

    @property
    def first_mark(self) -> dict[str, Any]:
        """Return the mark (place as JSON) of an empty output; {} if it cannot be cut back."""
        return {}

    def require_free(self) -> None:
        """Raise OutputError if another run writes this output; nothing is changed."""
        return

    def begin(self, header: str, force: bool = False) -> None:
        """Make the output and write its first line.

        Args:
            header: The first line, with its end, which names the columns; "" for JSON.
            force: Whether an output that exists is overwritten.

        Raises:
            OutputError: The output exists already and `force` is False, or cannot be written.
        """

    def resume(self, mark: dict[str, Any], header: str, is_new: bool) -> None:
        """Cut the output back to the place of a mark if it can be, and continue after it.

        Args:
            mark: The place in the output that the snapshot of the earlier run holds.
            header: The first line, with its end.
            is_new: Whether no row was processed before the mark.

        Raises:
            OutputError: The output does not fit the mark.
        """

    def is_full(self, text: str, day: int | None = None) -> bool:
        """Return whether rows belong to the next file.

        Args:
            text: The rows.
            day: The day of the rows, in days since 1970; None for rows without a date.
        """
        return False

    def turn(self, text: str, day: int | None, keep: Callable[[dict[str, Any]], None]) -> None:
        """Finish the file, and begin the next one with these rows.

        Args:
            text: The rows.
            day: The day of the rows, in days since 1970; None for rows without a date.
            keep: Function that writes a snapshot, given the mark.
        """
        raise AssertionError("only a sink that becomes full is turned")

    def write(self, text: str, day: int | None = None) -> None:
        """Take rows; they need not be delivered yet.

        Args:
            text: The rows, with their ends.
            day: The day of the rows, in days since 1970; None for rows without a date.
        """

    def flush(self) -> None:
        """Send on all rows that were taken; they need not be safe then."""
        return

    def sync(self) -> dict[str, Any]:
        """Wait until all rows are safe: on the disk, or with the broker; return the mark."""

    def remove(self) -> None:
        """Drop the rows that are not sent yet, and remove a file."""
        return

    def close(self) -> None:
        """Send on all rows and release the output; a second call does nothing."""


def open_row_sink(path: str | None, options: SinkOptions) -> RowSink:
    """Open an output with the sink that the beginning of its name selects.

    Args:
        path: A file, "-" for standard output, None for nowhere, or a name with one of the prefixes
            of `SINKS`.
        options: What the sink may need to know of the loop.

    Raises:
        DataError: The address of a broker cannot be used.
    """
    prefix = sink_prefix_of(path)
    module, _, name = SINKS[prefix].partition(":")
    sink: RowSink = getattr(import_module(module), name)(path, options)
    return sink


def sink_prefix_of(path: str | None) -> str:
    """Return the prefix of `SINKS` with which an output's name begins; "" for files and pipes."""
    return max((prefix for prefix in SINKS if (path or "").startswith(prefix)), key=len)
