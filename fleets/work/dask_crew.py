"""Run units on the workers of a cluster of dask, and what needs their results on this machine.

    units that are remote ──> dask's workers ──> bytes ──> result files here ──> the crew here

Workers see the files of the lake, and the bundle, by the same paths. Dask runs the unit of a lost
worker again; a unit's result is written here once.
"""

from __future__ import annotations

import os
import pickle
import re
import tempfile
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from edgefold.fleets.work.crew import NEWS_S, Crew
from edgefold.fleets.work.unit import Agenda, Hear, Job, JobSource, WorkUnit
from edgefold.fleets.work.worker import portable
from edgefold.runtime.errors import BackendError, Remedy, WorkError, install_extra
from edgefold.runtime.files import write_atomic

CONNECT_S = 10.0
ADDRESS = re.compile(r"inproc://|\w+://.+:[0-9]+/?$")
AHEAD = 2
"""Units that wait for each thread of the workers, so that none is idle."""


class DaskCrew:
    """Runs units on a cluster.

    Args:
        source: How each unit makes its job.
        address: The scheduler's address.
        crew: Runs the units that need results.

    Raises:
        BackendError: The address has no protocol or no port.
    """

    def __init__(self, source: JobSource, address: str, crew: Crew):
        if not ADDRESS.match(address):
            raise BackendError(
                f"{address!r} is not the address of dask's scheduler: protocol or port is missing. "
                "Write it as `dask scheduler` prints it, such as tcp://127.0.0.1:8786."
            )
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
            client = distributed.Client(self._address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, ValueError, distributed.TimeoutError) as error:
            raise BackendError(
                f"dask's scheduler at {self._address} does not answer ({error}); start one with "
                "`dask scheduler`, and workers with `dask worker ADDRESS`."
            ) from error
        with client, self._crew.members():
            try:
                client.wait_for_workers(1, timeout=CONNECT_S)
            except (TimeoutError, distributed.TimeoutError):
                raise BackendError(
                    f"the scheduler at {self._address} has no workers; start some with `dask "
                    f"worker {self._address} --nthreads 1`."
                ) from None
            n_threads = sum(client.nthreads().values())
            self._run(agenda, hear, client, AHEAD * n_threads)

    def _run(self, agenda: Agenda, hear: Hear, client: Any, n_ahead: int) -> None:
        running: dict[Any, WorkUnit] = {}
        ended = SimpleQueue[Any]()
        try:
            while not agenda.is_done:
                while len(running) < n_ahead and (unit := agenda.take(is_remote=True)):
                    key = f"{unit.name}-{os.urandom(8).hex()}"
                    future = client.submit(
                        run_remotely, self._source, unit.argument, pure=False, key=key
                    )
                    running[future] = unit
                    future.add_done_callback(ended.put)
                self._crew.start(agenda, is_remote=False)
                if self._crew.is_busy:
                    self._crew.attend(agenda, 0 if running else NEWS_S)
                if running:
                    with suppress(Empty):
                        future = ended.get(timeout=NEWS_S)
                        unit = running.pop(future)
                        _keep(unit, future, agenda.place(unit))
                        agenda.done(unit)
                hear(self._crew.news(agenda))
        finally:
            client.cancel(list(running), force=True)


def _keep(unit: WorkUnit, future: Any, place: Path) -> None:
    """Write a unit's result to its file, or raise its error."""
    if future.status in ("cancelled", "lost"):
        raise BackendError(
            f"{unit.words}: dask's scheduler was lost. What is done is kept: the same command goes "
            "on when there is one again."
        )
    if future.status != "finished":
        error = future.exception()
        if type(error).__name__ == "KilledWorker":
            raise WorkError(
                f"{unit.words}: several workers of dask died of this unit. Memory may be short: "
                "use smaller units. What is done is kept: the same command goes on."
            ) from error
        if "deserialization" in str(error):
            raise BackendError(
                f"dask could not read the unit ({error}): install the same edgefold, with its "
                "extra dask, where the scheduler and the workers run."
            ) from error
        raise error
    write_atomic(place, future.result())
    future.release()


def run_remotely(source: JobSource, argument: Any) -> bytes:
    """Run a unit on a worker of dask, and return its result file's content."""
    try:
        job = _job_of_thread(source)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder, "result")
            job.run(argument, place, lambda n: None)
            return place.read_bytes()
    except Exception as error:
        other = portable(error)
        if other is error:  # `from error` would make it its own cause, which dask follows for ever
            raise
        raise other from error


def _job_of_thread(source: JobSource) -> Job:
    """Return the job of a worker's thread, which the worker keeps until another plan comes.

    A job opens a stream, which takes a tenth of a second and serves one thread.
    """
    distributed: Any = import_module("distributed")
    jobs: dict[int, tuple[bytes, Job]]
    jobs = vars(distributed.get_worker()).setdefault("edgefold_jobs", {})
    asked, thread = pickle.dumps(source), threading.get_ident()
    if thread in jobs:
        known, job = jobs[thread]
        if known == asked:
            return job
        del jobs[thread]
        job.close()
    try:
        new: Job = getattr(import_module(source.module), source.function)(source.setup)
    except BackendError as error:
        raise BackendError(
            f"on the worker {distributed.get_worker().address}: {error} Build it there: `edgefold "
            "build` with the same edgefold on every machine of the cluster, or --backend "
            "onnxruntime.",
            *error.remedies,
        ) from error
    jobs[thread] = asked, new
    return new
