"""Do the same work on several boards at once, a bounded number at a time; none stops the others.

    boards ──> connect ──> work(connection) ──> a BoardResult each, in the order of the command line

Where ssh may ask a person, boards are connected one after another, so that its questions do not
mix.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from edgefold.cli.exit_codes import ExitCode, code_of
from edgefold.cli.remote.address import Address, short_names
from edgefold.cli.remote.connection import Connection, SshOptions, socket_folder
from edgefold.cli.remote.table import terminal_width
from edgefold.cli.terminal import StatusLine, say
from edgefold.runtime.errors import EdgefoldError

T = TypeVar("T")
AT_ONCE = 8
"""Boards that are worked on at the same time, without --at-once."""


@dataclass(frozen=True, slots=True)
class BoardResult(Generic[T]):
    """Holds what came of one board.

    Attributes:
        address, name: Board, and its short name.
        value: What the work returned; None where it failed.
        error: Why it failed; None where it did not.
    """

    address: Address
    name: str
    value: T | None
    error: EdgefoldError | OSError | None

    @property
    def code(self) -> ExitCode:
        """Return the exit code of a failure; DONE without one."""
        return ExitCode.DONE if self.error is None else code_of(self.error)


class BoardProgress:
    """Shows in one line what is done on each board now; any thread may call it."""

    def __init__(self, line: StatusLine | None = None):
        self._line = line or StatusLine()
        self._now: dict[str, str] = {}
        self._lock = threading.Lock()

    def show(self, board: str, text: str) -> None:
        """Show what is done on a board; an empty text removes the board."""
        with self._lock:
            self._now = {**self._now, board: text}
            texts = [f"{name}: {now}" for name, now in self._now.items() if now]
            share = max(12, terminal_width() // max(len(texts), 1) - 3)
            line = "   ".join(text[:share] for text in texts)
            self._line.show(line[: terminal_width() - 1])  # a wrapped line is not replaced

    def say(self, text: str) -> None:
        """Print a line above the line of progress."""
        with self._lock:
            self._line.clear()
            say(text)

    def clear(self) -> None:
        with self._lock:
            self._line.clear()


def on_boards(
    addresses: Sequence[Address],
    options: SshOptions,
    work: Callable[[Connection, BoardProgress], T],
    n_at_once: int = AT_ONCE,
) -> list[BoardResult[T]]:
    """Connect to each board, do the work there, and return a result for each.

    An error of one board is printed as one line at the end and is in its result.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed; the connections are closed, and what they ran ends.
    """
    progress, taking_turns = BoardProgress(), threading.Lock()
    with socket_folder() as folder:
        connections = [
            Connection(address, name, options, Path(folder, str(number)))
            for number, (address, name) in enumerate(
                zip(addresses, short_names(addresses), strict=True)
            )
        ]

        def one(connection: Connection) -> BoardResult[T]:
            address, name = connection.address, connection.name
            try:
                if not options.may_ask:  # ssh's question has the line for itself
                    progress.show(name, "connects")
                with taking_turns if options.may_ask else nullcontext():
                    connection.open()
                return BoardResult(address, name, work(connection, progress), None)
            except (EdgefoldError, OSError) as error:
                return BoardResult(address, name, None, error)
            finally:
                progress.show(name, "")
                connection.close()

        with ThreadPoolExecutor(n_at_once) as pool:
            futures = [pool.submit(one, connection) for connection in connections]
            try:
                results = [future.result() for future in futures]
            except BaseException:
                for connection in connections:
                    connection.abort()
                for future in futures:
                    future.cancel()
                raise
            finally:
                progress.clear()
    return results


def say_failures(results: Sequence[BoardResult[T]]) -> None:
    """Print the error of each board that failed, as one line."""
    for result in results:
        if result.error is not None:
            say(f"edgefold: error: {' '.join(str(result.error).split())}")


def code_of_all(codes: Sequence[ExitCode]) -> ExitCode:
    """Return the exit code of several boards: the first failure, then 5 before 4, else DONE."""
    gates = (ExitCode.WRONG_RESULT, ExitCode.UNSURE, ExitCode.DONE)
    failures = [code for code in codes if code not in gates]
    if failures:
        return failures[0]
    return next(code for code in gates if code in codes)
