"""A scheduler of dask and workers on loopback, as processes that end with a block."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

MOST_S = 60.0


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        address: The scheduler's address.
        scheduler: The process of the scheduler.
        workers: The processes of the workers.
    """

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: Sequence[subprocess.Popen[bytes]]


@contextmanager
def dask_cluster(folder: Path, n_workers: int = 2) -> Iterator[Cluster]:
    """Start a scheduler and workers of one thread; all have ended after the block.

    Args:
        folder: The files of the cluster lie here.
        n_workers: The number of workers.
    """
    place = folder / "scheduler.json"
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    with ExitStack() as ends, (folder / "dask.log").open("wb") as log:

        def start(*words: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "dask", *words, "--no-dashboard"]
            process = subprocess.Popen(command, cwd=folder, env=paths, stdout=log, stderr=log)
            ends.callback(process.wait)
            ends.callback(process.kill)
            return process

        words = ("--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(place))
        scheduler = start("scheduler", *words)
        deadline_s = time.monotonic() + MOST_S
        while not (address := address_in(place)):
            assert time.monotonic() < deadline_s, (folder / "dask.log").read_text()
            time.sleep(0.05)
        options = ("--nthreads", "1", "--no-nanny", "--local-directory", str(folder))
        workers = [
            start("worker", address, "--host", "127.0.0.1", *options) for _ in range(n_workers)
        ]
        client: Any = import_module("distributed").Client(address, set_as_default=False)
        with client:
            client.wait_for_workers(n_workers, timeout=MOST_S)
        yield Cluster(address, scheduler, workers)


def address_in(place: Path) -> str:
    """The address in the file that a scheduler writes; "" if it has not written it yet."""
    try:
        return str(json.loads(place.read_text())["address"])
    except (OSError, ValueError, KeyError):
        return ""
