"""Forecasts of a lake on several processes, of which some are killed, and on a cluster of dask."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from edgefold.fleets.forecasting import census as census_module
from edgefold.fleets.work.crew import Crew
from edgefold.fleets.work.dask_crew import DaskCrew
from edgefold.fleets.work.unit import Agenda, Hear, JobSource, WorkNews
from tests.fleets.dask_cluster import dask_cluster
from tests.fleets.test_forecast_lake import forecast, rows_of, write

pytestmark = [pytest.mark.usefixtures("compiled_sensors"), pytest.mark.long]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The rows of 12 sensors, each in all of three files, so that they are split on the disk."""
    monkeypatch.setattr(census_module, "LEAST_ROWS", 900)
    rows = [row for number in range(12) for row in rows_of(f"s{number:02}", 800, number)]
    for number in range(3):
        write(tmp_path / f"lake/{number}.parquet", rows[number::3])
    return tmp_path / "lake"


def files_of(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def test_results_are_the_same_although_processes_are_killed(lake: Path, tmp_path: Path) -> None:
    killed: list[int] = []

    def run(agenda: Agenda, source: JobSource, hear: Hear) -> None:
        crew = Crew(source, 2)

        def disturb(news: WorkNews) -> None:
            if len(killed) < 4 and news.n_rows > news.n_rows_before and crew.process_ids:
                killed.append(crew.process_ids[0])
                os.kill(killed[-1], signal.SIGKILL)

        crew.run(agenda, disturb)

    forecast(tmp_path / "calm", [str(lake)])
    forecast(tmp_path / "killed", [str(lake)], run=run)
    assert killed and files_of(tmp_path / "killed") == files_of(tmp_path / "calm")


def test_results_of_a_cluster_are_the_same(lake: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="clusters need the dask extra")
    (tmp_path / "dask").mkdir()
    forecast(tmp_path / "here", [str(lake)])
    with dask_cluster(tmp_path / "dask") as cluster:

        def run(agenda: Agenda, source: JobSource, hear: Hear) -> None:
            DaskCrew(source, cluster.address, Crew(source, 1)).run(agenda, hear)

        forecast(tmp_path / "cluster", [str(lake)], run=run)
    assert files_of(tmp_path / "cluster") == files_of(tmp_path / "here")
