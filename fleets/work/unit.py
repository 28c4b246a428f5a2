"""Describe units of work that depend on each other's results.

    read 1 ──┐
    read 2 ──┴─> fold 1 ──┐
    read 3 ──┬─> fold 2 ──┴─> fold 3 ──> write
    read 4 ──┘

A unit writes one result file as a whole, or nothing. What a unit computes depends only on its
argument and on the results before it, so that a unit may run twice, anywhere, and counts once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

Advance = Callable[[int], None]
"""A unit calls this with the number of rows that it has done since the last call."""


class Job(Protocol):
    """Runs units; a process makes one and uses it for all its units."""

    def run(self, argument: Any, place: Path, advance: Advance) -> None:
        """Compute a unit and write its result to a file, as a whole.

        Args:
            argument: The unit's argument.
            place: The path of the result. Results of other units lie in the same folder.
            advance: Receives the number of rows done.
        """

    def close(self) -> None:
        """Release what the job holds."""


@dataclass(frozen=True, slots=True)
class JobSource:
    """Says how a process makes its job: it calls a function of a module with what was prepared.

    Attributes:
        module: The module's name.
        function: The name of its function, which takes `setup` and returns a `Job`.
        setup: What the function is called with; it can be pickled.
    """

    module: str
    function: str
    setup: Any


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """Describes one unit.

    Attributes:
        name: The name of its result file.
        argument: What the job is called with; it can be pickled.
        words: What the unit is, for messages, such as "rows 0 to 99 of a.parquet".
        after: Names of the units whose results it reads, and which nobody reads after it.
        n_rows: The number of rows that it reads.
        is_remote: Whether another machine may run it; others need the results of units.
    """

    name: str
    argument: Any
    words: str
    after: tuple[str, ...] = ()
    n_rows: int = 0
    is_remote: bool = False


class Agenda:
    """Says which units can run now, and which have nothing left to do.

    Args:
        units: All units; the last one's result is what is wanted.
        folder: Where results lie, also those of an earlier run.
    """

    def __init__(self, units: Sequence[WorkUnit], folder: Path):
        self._units: Mapping[str, WorkUnit] = {unit.name: unit for unit in units}
        self._folder = folder
        self._after: dict[str, set[str]] = {}
        self._followers: dict[str, str] = {}
        self.n_rows = sum(unit.n_rows for unit in units)
        self.n_units = len(units)
        waiting = [units[-1]]
        while waiting:  # what a finished unit has read is needed no longer, and may be gone
            unit = waiting.pop()
            if not self.place(unit).exists():
                self._after[unit.name] = set()
                for name in unit.after:
                    self._followers[name] = unit.name
                    waiting.append(self._units[name])
        for name, follower in self._followers.items():
            if name in self._after:
                self._after[follower].add(name)
        order = [unit.name for unit in units]
        ready = [name for name in order if name in self._after and not self._after[name]]
        self._ready = ready[::-1]
        self.n_rows_before = self.n_rows - sum(self._units[name].n_rows for name in self._after)
        """The number of rows that an earlier run has done."""
        self.n_rows_done = self.n_rows_before

    def place(self, unit: WorkUnit) -> Path:
        """Return the path of a unit's result."""
        return self._folder / unit.name

    @property
    def is_done(self) -> bool:
        """Return whether the last unit's result is there."""
        return not self._after

    @property
    def has_results(self) -> bool:
        """Return whether any result lies in the folder, also one that was not reported yet."""
        return any((self._folder / name).exists() for name in self._units)

    @property
    def n_left(self) -> int:
        """Return the number of units that are not done."""
        return len(self._after)

    def take(self, is_remote: bool | None = None) -> WorkUnit | None:
        """Return a unit that can run now, and do not return it again; None if there is none.

        Args:
            is_remote: True or False: only a unit whose `is_remote` is so.
        """
        for i in range(len(self._ready) - 1, -1, -1):
            unit = self._units[self._ready[i]]
            if is_remote is None or unit.is_remote == is_remote:
                del self._ready[i]
                return unit
        return None

    def give_back(self, unit: WorkUnit) -> None:
        """Let a unit, which `take` returned and which was not done, be taken again."""
        self._ready.append(unit.name)

    def done(self, unit: WorkUnit) -> None:
        """Note that a unit's result is there, and remove the results that only it has read."""
        if unit.name not in self._after:
            return  # it was computed twice
        del self._after[unit.name]
        self.n_rows_done += unit.n_rows
        for name in unit.after:
            (self._folder / name).unlink(missing_ok=True)
        follower = self._followers.get(unit.name)
        if follower is not None:
            self._after[follower].discard(unit.name)
            if not self._after[follower]:
                self._ready.append(follower)  # goes first: it frees the disk


class WorkNews(NamedTuple):
    """Says how far the work is.

    Attributes:
        n_rows: The number of rows done, with those of an earlier run.
        n_rows_before: The number of rows that an earlier run has done.
        n_rows_all: The number of rows of all units.
        n_left: The number of units that are not done.
        n_deaths: The number of processes that died.
    """

    n_rows: int
    n_rows_before: int
    n_rows_all: int
    n_left: int
    n_deaths: int


Hear = Callable[[WorkNews], None]


def folds(names: Iterable[str], fan_in: int) -> list[list[tuple[str, tuple[str, ...]]]]:
    """Return the levels of a tree that folds results in their order, `fan_in` at a time.

    Args:
        names: The names of the results, in order.
        fan_in: The most results that one fold reads.

    Returns:
        For each level, each fold's name and the names of the results that it reads. A result that
        is left over at the end of a level is passed on as it is. There is no level for one result.
    """
    level, levels = list(names), list[list[tuple[str, tuple[str, ...]]]]()
    while len(level) > 1:
        groups = [tuple(level[i : i + fan_in]) for i in range(0, len(level), fan_in)]
        made = [
            (f"fold-{len(levels) + 1}-{i:06}", group)
            for i, group in enumerate(groups)
            if len(group) > 1
        ]
        level = [
            f"fold-{len(levels) + 1}-{i:06}" if len(group) > 1 else group[0]
            for i, group in enumerate(groups)
        ]
        levels.append(made)
    return levels
