"""Shards of streams that the workers of a dask cluster make: real ones, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import TrainingError
from edgefold.train.tasks.sensors import sensor_shards, shard_cluster
from edgefold.train.tasks.sensors.sensor_shards import Shards, StreamSet
from edgefold.train.tasks.sensors.sensors import SensorsTask
from edgefold.train.tasks.sensors.shard_cluster import made_by_workers

TINY = StreamSet(n_streams=6, n_slots=64, seed=3)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A scheduler and two workers with shards of two streams."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(sensor_shards, "SHARD", 2)
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address=None,
    ) as cluster:
        yield cluster


def quiet(_: str) -> None:
    """Say nothing."""


def files_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.npy")}


@pytest.mark.long
def test_workers_make_the_shards_that_this_process_makes(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_cluster, "AHEAD", 1)  # the third shard follows one that is made
    said = list[str]()
    Shards(tmp_path / "here", TINY).complete(said.append)
    Shards(tmp_path / "there", TINY).complete(
        said.append, partial(made_by_workers, cluster.scheduler_address)
    )
    assert files_in(tmp_path / "here") == files_in(tmp_path / "there")
    assert len(files_in(tmp_path / "there")) == 6
    assert any("2 threads of workers" in line for line in said)


@pytest.mark.long
def test_a_worker_with_other_experts_is_refused(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = sensor_shards.features_of_probe()

    def other() -> Array:
        return np.where(np.arange(ours.size).reshape(ours.shape) % 10 == 0, ours + 1, ours)

    monkeypatch.setattr(shard_cluster, "_own_probe", other)
    with pytest.raises(TrainingError, match="another version of the experts"):
        Shards(tmp_path, TINY).complete(quiet, partial(made_by_workers, cluster.scheduler_address))
    assert not files_in(tmp_path)


def test_a_scheduler_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(shard_cluster, "CONNECT_S", 0.5)
    with pytest.raises(TrainingError, match="dask scheduler"):
        SensorsTask(tmp_path, TINY, scheduler="tcp://127.0.0.1:1").prepare(quiet)
