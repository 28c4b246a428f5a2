"""Make shards of streams on the workers of a dask cluster, which need this package and no files.

    this process ──(streams, shard)──> a worker: draw, let the experts go over ──> arrays
        writes the files <───────────────────────────────────────────────────────────┘

A shard is drawn from its own seed, so it has the same numbers whichever worker makes it; a worker
that is lost makes its shard on another one. Each worker also sends the probe's features: those of
another version of the experts differ, and are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice

import torch

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import TrainingError, install_extra
from edgefold.train.denormals import denormals_flushed
from edgefold.train.models.sensors.model import Sensors
from edgefold.train.tasks.sensors.sensor_shards import (
    Say,
    StreamSet,
    features_of_probe,
    is_close,
    make_shard,
)

CONNECT_S = 20
AHEAD = 2
"""Shards that each worker has at hand: one that it makes, and one to go on with. One takes some
50 MB, so that the others wait at the scheduler as a few numbers."""


def made_by_workers(
    address: str, streams: StreamSet, missing: list[int], say: Say
) -> Iterator[tuple[int, tuple[Array, Array]]]:
    """Yield each missing shard's number and arrays as workers end them; with `address`, a `Maker`.

    Args:
        address: Address of the scheduler, such as tcp://127.0.0.1:8786.
        streams: The set of streams.
        missing: Numbers of the shards to make.
        say: Takes a line of text on the progress.

    Raises:
        TrainingError: dask is not installed, the scheduler does not answer or has no worker, a
            worker's experts are of another version, or it failed.
    """
    try:
        from distributed import Client, as_completed
    except ModuleNotFoundError as error:
        raise TrainingError(
            f"--scheduler needs dask, which is not installed: {install_extra('dask')} brings it."
        ) from error
    try:
        client = Client(address, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        raise TrainingError(
            f"no dask scheduler answers at {address} ({error}); start one with `dask scheduler` "
            "and workers with `dask worker ADDRESS --nthreads 1`."
        ) from error
    with client:
        n_threads = sum(client.nthreads().values())
        if not n_threads:
            raise TrainingError(
                f"the scheduler at {address} has no worker; start one or more with `dask worker "
                f"{address} --nthreads 1`."
            )
        say(f"{n_threads} threads of workers at {address} make {len(missing):,} shards")
        probe, left = features_of_probe(), iter(missing)

        def submit(shard: int) -> object:
            return client.submit(_make, streams, shard, key=f"edgefold-{streams}-{shard}")

        running = as_completed([submit(shard) for shard in islice(left, AHEAD * n_threads)])
        for future in running:
            try:
                shard, arrays, theirs = future.result()
            except Exception as error:  # what a worker raised, of any kind
                raise TrainingError(f"a worker at {address} failed: {error}") from error
            if not is_close(theirs, probe):
                raise TrainingError(
                    f"a worker at {address} has another version of the experts; install the same "
                    "version of edgefold on all machines."
                )
            future.release()
            yield shard, arrays
            if (following := next(left, None)) is not None:
                running.add(submit(following))


def _make(streams: StreamSet, shard: int) -> tuple[int, tuple[Array, Array], Array]:
    """Make a shard on a worker; return its number, its arrays and the features of the probe."""
    torch.set_num_threads(1)
    with denormals_flushed():
        return shard, make_shard(Sensors(), streams, shard), _own_probe()


@cache
def _own_probe() -> Array:
    return features_of_probe()
