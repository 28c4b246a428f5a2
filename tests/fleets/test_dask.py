"""Workers of dask condition the same states, to the bit, also if one of them is killed."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgefold.fleets import ConditionOptions
from edgefold.fleets.conditioning.condition import plan_conditioning, run_conditioning
from edgefold.fleets.work import dask_crew
from edgefold.fleets.work.unit import WorkNews
from edgefold.runtime.errors import BackendError, DataError
from tests.fleets.conftest import conditioned, contents, write_table
from tests.fleets.dask_cluster import Cluster, dask_cluster

pytest.importorskip("pyarrow", reason="lakes need the parquet extra")
pytest.importorskip("distributed", reason="clusters need the dask extra")
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> object:
    with dask_cluster(tmp_path_factory.mktemp("dask")) as cluster:
        yield cluster


def test_states_of_a_cluster_are_those_of_one_process(
    cluster: Cluster, gp_bundle: Path, lake_folder: Path, one_process: Path, tmp_path: Path
) -> None:
    out, news = tmp_path / "out", list[WorkNews]()
    conditioned(gp_bundle, lake_folder, out, scheduler=cluster.address, hear=news.append)
    assert contents(out) == contents(one_process)
    assert news[-1].n_rows == news[-1].n_rows_all and news[-1].n_left == 0


def test_an_error_on_a_worker_is_that_of_the_call(
    cluster: Cluster,
    gp_bundle: Path,
    lake_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(DataError, match="no row is a point"):
        out, address = tmp_path / "none", cluster.address
        conditioned(gp_bundle, lake_folder, out, scheduler=address, filter="x > 5")
    with pytest.raises(BackendError, match="protocol or port is missing"):
        conditioned(gp_bundle, lake_folder, tmp_path / "out", scheduler="127.0.0.1")
    monkeypatch.setattr(dask_crew, "CONNECT_S", 1.0)
    with pytest.raises(BackendError, match="does not answer"):
        conditioned(gp_bundle, lake_folder, tmp_path / "out", scheduler="tcp://127.0.0.1:1")


def test_a_bad_value_that_a_worker_reads_ends_the_call_with_its_error(
    cluster: Cluster, gp_bundle: Path, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    write_table(lake / "site=0" / "day.parquet", {"x": [0.0, 1.0], "y": [0.5, float("nan")]})
    with pytest.raises(DataError, match=r"row 1 .* holds nan in column 'y'"):
        conditioned(gp_bundle, lake, tmp_path / "out", scheduler=cluster.address)


def test_a_worker_that_does_not_open_the_plans_backend_ends_the_call(
    cluster: Cluster, gp_bundle: Path, lake_folder: Path, tmp_path: Path
) -> None:
    options = ConditionOptions(backend="onnxruntime", scheduler=cluster.address)
    columns = ["x"], ["y"], ["site"]
    planned = plan_conditioning(gp_bundle, [str(lake_folder)], *columns, tmp_path / "out", options)
    others: list[dict[str, Any]]
    others = [{"backend": "native", "engine_cache": tmp_path}, {"backend_version": "0.0"}]
    for other in others:
        setup = replace(planned.setup, **other)
        with pytest.raises(BackendError, match=r"on the worker tcp://.* Build it there"):
            run_conditioning(replace(planned, setup=setup))


def test_the_units_of_a_killed_worker_run_again_and_count_once(
    gp_bundle: Path, lake_folder: Path, one_process: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "dask"
    folder.mkdir()
    with dask_cluster(folder) as cluster:

        def kill(news: WorkNews) -> None:
            if news.n_rows and cluster.workers[0].poll() is None:
                cluster.workers[0].send_signal(signal.SIGKILL)

        out = tmp_path / "out"
        conditioned(gp_bundle, lake_folder, out, scheduler=cluster.address, hear=kill)
        assert cluster.workers[0].wait() == -signal.SIGKILL
    assert contents(out) == contents(one_process)


def test_a_lost_scheduler_is_reported_and_the_work_goes_on_without_it(
    gp_bundle: Path, lake_folder: Path, one_process: Path, tmp_path: Path
) -> None:
    folder, out = tmp_path / "dask", tmp_path / "out"
    folder.mkdir()
    with dask_cluster(folder, 1) as cluster:

        def kill(news: WorkNews) -> None:
            if news.n_rows:
                cluster.scheduler.send_signal(signal.SIGKILL)

        with pytest.raises(BackendError, match="scheduler was lost"):
            conditioned(gp_bundle, lake_folder, out, scheduler=cluster.address, hear=kill)
    conditioned(gp_bundle, lake_folder, out)
    assert contents(out) == contents(one_process)


def test_nothing_of_a_cluster_is_left(tmp_path: Path) -> None:
    with dask_cluster(tmp_path, 1) as cluster:
        processes: list[subprocess.Popen[bytes]] = [*cluster.workers]
    assert all(process.poll() is not None for process in processes)
