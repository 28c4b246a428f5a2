"""Run units on several processes of this machine; one that dies is replaced.

    take a unit ──> a process that is free ──> done: the result file is there
        ^                   │ dies
        └── give it back <──┘

A pool of `concurrent.futures` breaks as a whole when one of its processes is killed, as the kernel
does when memory runs out. Here only the unit that the process had is run again; a unit of which
several processes died is given up, with its name.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from edgefold.fleets.work.unit import Agenda, Hear, JobSource, WorkNews, WorkUnit
from edgefold.fleets.work.worker import ADVANCED, DONE
from edgefold.runtime.child_process import Child, child_process
from edgefold.runtime.errors import WorkError

MOST_DEATHS = 5
NEWS_S = 0.2


class Crew:
    """Holds the processes that run units.

    Args:
        source: How each process makes its job.
        n_processes: The number of processes; each is started when there is a unit for it.
        most_deaths: A unit of which so many processes died is given up.
    """

    def __init__(self, source: JobSource, n_processes: int, most_deaths: int = MOST_DEATHS):
        self._source, self._n, self._most = pickle.dumps(source), n_processes, most_deaths
        self._members: dict[Connection, _Member] = {}
        self._deaths = Counter[str]()
        self.n_deaths = 0

    def run(self, agenda: Agenda, hear: Hear) -> None:
        """Run units until the agenda is done.

        Args:
            agenda: The units.
            hear: Receives news on the progress, some times in a second.

        Raises:
            WorkError: Several processes died of one unit.
            Exception: What a unit raised. In any case all processes have ended, and all results
                that are done lie in the folder.
        """
        with self.members():
            heard_s = 0.0
            while not agenda.is_done:
                self.start(agenda)
                self.attend(agenda, NEWS_S)
                if time.monotonic() - heard_s >= NEWS_S:
                    heard_s = time.monotonic()
                    hear(self.news(agenda))
            hear(self.news(agenda))

    @contextmanager
    def members(self) -> Iterator[None]:
        """End all processes at the end of a block."""
        try:
            yield
        finally:
            for member in self._members.values():
                member.end()
            self._members.clear()

    @property
    def is_busy(self) -> bool:
        """Return whether a process has a unit."""
        return any(member.unit for member in self._members.values())

    @property
    def process_ids(self) -> list[int]:
        """Return the numbers of the running processes."""
        return [member.child.process_id for member in self._members.values()]

    def start(self, agenda: Agenda, is_remote: bool | None = None) -> None:
        """Give units to free processes, and start processes, as long as there are units."""
        while True:
            free = next((m for m in self._members.values() if m.unit is None), None)
            if free is None and len(self._members) >= self._n:
                return
            unit = agenda.take(is_remote)
            if unit is None:
                return
            if free is None:
                free = _Member(self._source)
                self._members[free.pipe] = free
            free.give(unit, agenda)

    def attend(self, agenda: Agenda, timeout_s: float) -> None:
        """Wait until processes report something, at most some seconds, and note it."""
        for pipe in wait(list(self._members), timeout_s):
            assert isinstance(pipe, Connection)
            member = self._members[pipe]
            try:
                kind, content = pipe.recv()
            except (EOFError, OSError, pickle.UnpicklingError):
                self._bury(member, agenda)
                continue
            if kind == ADVANCED:
                member.n_rows += content
            elif kind == DONE:
                assert member.unit is not None
                agenda.done(member.unit)
                member.unit, member.n_rows = None, 0
            else:
                raise content

    def _bury(self, member: _Member, agenda: Agenda) -> None:
        """Replace a process that died: give its unit back, or give the unit up."""
        del self._members[member.pipe]
        ending = member.child.wait()
        unit = member.unit
        member.end()
        self.n_deaths += 1
        if unit is None:
            return  # another one is started when there is a unit
        self._deaths[unit.name] += 1
        if self._deaths[unit.name] >= self._most:
            memory = (
                " Memory may be short: use fewer processes or smaller units."
                if ending.signal == "SIGKILL"
                else ""
            )
            raise WorkError(
                f"{unit.words}: {self._most} processes died of this unit, and the last one "
                f"{ending.describe()}.{memory} What is done is kept: the same command goes on."
            )
        agenda.give_back(unit)

    def news(self, agenda: Agenda) -> WorkNews:
        """Return how far the work is."""
        now = sum(member.n_rows for member in self._members.values())
        return WorkNews(
            agenda.n_rows_done + now,
            agenda.n_rows_before,
            agenda.n_rows,
            agenda.n_left,
            self.n_deaths,
        )


class _Member:
    """Holds a process, the pipe to it, and the unit that it runs.

    Args:
        source: The pickled `JobSource`.

    Attributes:
        child: The process.
        pipe: Sends arguments and receives reports.
        unit: The unit that the process runs; None if it is free.
        n_rows: The number of rows that it has done of the unit.
    """

    def __init__(self, source: bytes):
        self.unit: WorkUnit | None = None
        self.n_rows = 0
        self._opened = ExitStack()
        self.pipe, theirs = Pipe()
        with theirs:
            self._opened.callback(self.pipe.close)
            self.child: Child = self._opened.enter_context(
                child_process(
                    "edgefold.fleets.work.worker",
                    {"pipe": theirs.fileno()},
                    source,
                    pass_fds=[theirs.fileno()],
                )
            )

    def give(self, unit: WorkUnit, agenda: Agenda) -> None:
        self.unit = unit
        message: Any = (unit.argument, agenda.place(unit))
        # If the process died just now, the next `attend` sees it.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(message)

    def end(self) -> None:
        self._opened.close()
