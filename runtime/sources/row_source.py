"""Define the contract of a row source, from which a loop gets its rows, and open a source by name.

A source is a class in a file of its own and a line in `SOURCES`. The loop, the progress and the
snapshot know only `RowSource`. A mark is the place up to which rows were processed, as a JSON
object that a snapshot keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Protocol

from edgefold.runtime.rows.csv_columns import Columns, Layout, Row
from edgefold.runtime.rows.csv_reader import BadRow

SOURCES = {"": "edgefold.runtime.sources.input_file:InputFile"}
"""Names the class of each source by a prefix of `--input`, such as `mqtt://`.

The prefix "" stands for a file or a pipe.
"""


class RowSource(Protocol):
    """Gives the rows of an input, and the mark from which a later run continues.

    A class that inherits from it takes the arguments of `open_row_source`, and need not define the
    methods that have a body here.

    Attributes:
        name: The input's name, for messages.
    """

    name: str

    @property
    def layout(self) -> Layout | None:
        """Return the places of the columns in a line; None before the first readable line."""

    @property
    def is_live(self) -> bool:
        """Return whether rows arrive while they are sent, so that the next one may come late."""

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

    def close(self) -> None:
        """Release the input; a second call does nothing."""

    def require_unchanged(self) -> None:
        """Raise DataError if rows that were read have changed since; called before a snapshot."""

    def require_in_place(self) -> None:
        """Raise DataError if another input has this one's name now; called at the end of a run."""

    def progress(self) -> str:
        """Return which part of the input is read, such as "45%"; "" if its length is not known."""
        return ""

    def notes(self) -> list[tuple[str, str]]:
        """Return remarks on the input for the summary of a run, as pairs of label and sentence."""
        return []


def open_row_source(
    path: str, stop: Callable[[], bool] = lambda: False, whole_lines: bool = False
) -> RowSource:
    """Open an input with the source that the beginning of its name selects.

    Args:
        path: A file, "-" for standard input, or a name with one of the prefixes of `SOURCES`.
        stop: Function that is called while the source waits; once it returns True, the source
            stops waiting for rows.
        whole_lines: Whether a last line without a line end, which may still grow, is left to a
            later run.

    Raises:
        DataError: The input cannot be opened.
    """
    prefix = max((prefix for prefix in SOURCES if path.startswith(prefix)), key=len)
    module, _, name = SOURCES[prefix].partition(":")
    source: RowSource = getattr(import_module(module), name)(path, stop, whole_lines)
    return source
