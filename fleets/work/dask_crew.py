"""Run units on the workers of a cluster of dask, and what needs their results on this machine.

    units that are remote ──> dask's workers ──> bytes ──> result files here ──> the crew here

Workers see the files of the lake, and the bundle, by the same paths. Dask runs the unit of a lost
worker again; a unit's result is written here once.
"""

from __future__ import annotations

import os
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from edgefold.fleets.work.crew import NEWS_S, Crew
from edgefold.fleets.work.unit import Agenda, Hear, JobSource, WorkUnit
from edgefold.fleets.work.worker import portable
from edgefold.runtime.errors import BackendError, Remedy, WorkError, install_extra

AHEAD = 2
"""Units that wait for each thread of the workers, so that none is idle."""


class DaskCrew:
    """Runs units on a cluster.

    Args:
        source: How each unit makes its job.
        address: The scheduler's address.
        crew: Runs the units that need results.
    """

    def __init__(self, source: JobSource, address: str, crew: Crew):
        self._source, self._address, self._crew = source, address, crew

    def run(self, agenda: Agenda, hear: Hear) -> None:
        """Run units until the agenda is done; see `Crew.run`.

        Raises:
            BackendError: distributed is not installed, the scheduler does not answer, or it has no
                workers.
            WorkError: A unit ended several workers.
            Exception: What a unit raised.
        """
        try:
            distributed: Any = import_module("distributed")
        except ModuleNotFoundError as error:
            install = install_extra("dask")
            raise BackendError(
                f"distributed is not installed, which talks to dask's scheduler; {install} brings "
                "it.",
                Remedy("what talks to dask", install),
            ) from error
        try:
            client = distributed.Client(self._address, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise BackendError(
                f"dask's scheduler at {self._address} does not answer ({error}); start one with "
                "`dask scheduler`, and workers with `dask worker ADDRESS`."
            ) from error
        with client, self._crew.members():
            n_threads = sum(client.nthreads().values())
            if not n_threads:
                raise BackendError(
                    f"the scheduler at {self._address} has no workers; start some with `dask "
                    f"worker {self._address} --nthreads 1`."
                )
            self._run(agenda, hear, distributed, client, AHEAD * n_threads)

    def _run(self, agenda: Agenda, hear: Hear, distributed: Any, client: Any, n_ahead: int) -> None:
        running: dict[Any, WorkUnit] = {}
        try:
            while not agenda.is_done:
                while len(running) < n_ahead and (unit := agenda.take(is_remote=True)):
                    future = client.submit(
                        run_remotely, self._source, unit.argument, pure=False, key=_key(unit)
                    )
                    running[future] = unit
                self._crew.start(agenda, is_remote=False)
                if self._crew.is_busy:
                    self._crew.attend(agenda, 0 if running else NEWS_S)
                finished = _finished(distributed, list(running))
                for future in finished:
                    unit = running.pop(future)
                    _keep(unit, future, agenda.place(unit))
                    agenda.done(unit)
                hear(self._crew.news(agenda))
        finally:
            client.cancel(list(running), force=True)


def _key(unit: WorkUnit) -> str:
    return f"{unit.name}-{os.urandom(8).hex()}"


def _finished(distributed: Any, futures: list[Any]) -> list[Any]:
    """Return the futures that have ended, after a short wait for the first of them."""
    if not futures:
        return []
    try:
        return list(distributed.wait(futures, timeout=NEWS_S, return_when="FIRST_COMPLETED").done)
    except (TimeoutError, distributed.TimeoutError):
        return []


def _keep(unit: WorkUnit, future: Any, place: Path) -> None:
    """Write a unit's result to its file, or raise its error."""
    if future.status != "finished":
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            raise WorkError(
                f"{unit.words}: several workers of dask died of this unit. Memory may be short: "
                "use smaller units. What is done is kept: the same command goes on."
            ) from error
        raise error if error is not None else WorkError(f"{unit.words}: dask gave it up.")
    beside = place.with_name(f"{place.name}.tmp")
    beside.write_bytes(future.result())
    future.release()
    os.replace(beside, place)


def run_remotely(source: JobSource, argument: Any) -> bytes:
    """Run a unit on a worker of dask, and return its result file's content.

    A job is made for each unit: opening a stream takes a tenth of a second, a unit some seconds.
    """
    try:
        job = getattr(import_module(source.module), source.function)(source.setup)
        try:
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder, "result")
                job.run(argument, place, lambda n: None)
                return place.read_bytes()
        finally:
            job.close()
    except Exception as error:
        raise portable(error) from error
