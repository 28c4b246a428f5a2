"""Where the rows of a loop come from: what a source has to do, and the sources that there are.

A source is a class of its own file and a line in `SOURCES`. The loop, the progress and the snapshot
know only `RowSource`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Protocol

from edgefold.runtime.rows.csv_columns import Columns, Layout, Row
from edgefold.runtime.rows.csv_reader import BadRow

SOURCES = {"": "edgefold.runtime.loop.input_file:InputFile"}
"""The class of a source by the prefix of `--input`, such as `mqtt://`; "" is a file or a pipe."""


class RowSource(Protocol):
    """Gives the rows of an input, and the mark that a later run continues from.

    A class that inherits from it is made with what `open_row_source` gets, and may leave out the
    methods that have a body here.

    Attributes:
        name: The input's name, for messages.
    """

    name: str

    @property
    def layout(self) -> Layout | None:
        """Where the columns are in a line; None before the first line that can be read."""

    @property
    def is_live(self) -> bool:
        """Whether rows come as they are sent, so that the next one may be long in coming."""

    @property
    def holds_row(self) -> bool:
        """Whether a live source has taken a row that `rows` has not given yet."""

    def rows(
        self, columns: Columns, layout: Layout | None = None, n_lines: int = 0
    ) -> Iterator[Row | BadRow]:
        """Give the rows that come, good and bad ones, until the end.

        Args:
            columns: The wanted columns.
            layout: The layout of an earlier run, after `resume`.
            n_lines: The number of lines that earlier runs have read.

        Raises:
            DataError: No later row could be better.
        """

    def first_lines(self, is_enough: Callable[[Sequence[bytes]], bool]) -> Sequence[bytes]:
        """Return the first lines that are there, which `rows` gives too; nothing if it has none.

        A live source waits for them until they are enough, and then shortly for more.

        Args:
            is_enough: Whether the form of the rows can be found in these lines.
        """
        return ()

    def keep(self) -> object:
        """Let `mark` stand behind the rows so far, which are processed."""

    def mark(self) -> dict[str, Any]:
        """Return what a later run needs to continue behind `keep`'s place, as plain JSON."""

    def resume(self, mark: dict[str, Any], next_file: bool = False) -> None:
        """Continue behind a mark, before the first row is asked for; raises DataError if it cannot.

        Args:
            mark: The mark of an earlier run.
            next_file: Whether another file may follow the marked one.
        """

    def close(self) -> None:
        """Release the input; idempotent."""

    def require_unchanged(self) -> None:
        """Raise DataError where rows that were read have changed since, before each snapshot."""

    def require_in_place(self) -> None:
        """Raise DataError where another input has taken this one's name, at the end."""

    def progress(self) -> str:
        """Return how far the input is read, such as 45%; "" where its length is not known."""
        return ""

    def notes(self) -> list[tuple[str, str]]:
        """Return what the summary of a run has to say of the input: labels and sentences."""
        return []


def open_row_source(
    path: str, stop: Callable[[], bool] = lambda: False, whole_lines: bool = False
) -> RowSource:
    """Open an input by the prefix of its name.

    Args:
        path: A file, "-" for standard input, or a name with one of the prefixes of `SOURCES`.
        stop: Asked while the source waits; once true, no further row is waited for.
        whole_lines: Whether a last line that may still grow is left to a later run.

    Raises:
        DataError: It cannot be opened.
    """
    prefix = max((prefix for prefix in SOURCES if path.startswith(prefix)), key=len)
    module, _, name = SOURCES[prefix].partition(":")
    source: RowSource = getattr(import_module(module), name)(path, stop, whole_lines)
    return source
