"""Parts of a forecast of a lake: census, shards, memory, incidents, names, files of results."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from edgefold.fleets import open_lake
from edgefold.fleets.forecasting import census as census_module
from edgefold.fleets.forecasting import job as job_module
from edgefold.fleets.forecasting.census import LEAST_SHARDS, KeyNumbers, take_census
from edgefold.fleets.forecasting.job import JobSetup, open_job
from edgefold.fleets.forecasting.lake_forecast import require_memory
from edgefold.fleets.forecasting.part_file import SensorNames
from edgefold.fleets.forecasting.sensor_summary import IncidentWalk
from edgefold.fleets.forecasting.settings import ForecastSettings, ModelChoice
from edgefold.fleets.forecasting.shard_result import SummaryFile
from edgefold.fleets.forecasting.shard_rows import lake_parts, read_shard
from edgefold.runtime import Sensors
from edgefold.runtime.errors import BackendError, MemoryLimitError
from edgefold.runtime.sensors.alarms.incidents import Incidents
from tests.fleets.test_forecast_lake import CHOICE, rows_of, sensor_lake, write

pytestmark = pytest.mark.usefixtures("compiled_sensors")
__all__ = ["sensor_lake"]  # a fixture


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census_module, "LEAST_ROWS", 400)


def test_incidents_of_blocks_are_those_of_rows_one_by_one() -> None:
    """Also where an alarm comes long after the last one, so that rows between are skipped."""
    chance = np.random.default_rng(5)
    values = 3 * np.sin(np.arange(6000) / 30) + chance.normal(size=6000)
    values[[900, 901, 2200, 2600, 5999]] += 40
    values[3000:3050] = values[2999]
    values[chance.random(6000) < 0.02] = math.nan
    whole, walk, n = Incidents(), IncidentWalk("s"), 0
    expected = []
    with Sensors.open() as blocks, Sensors.open() as single:
        for start in range(0, 6000, 700):
            rows = blocks.step_rows(None, values[start : start + 700])
            walk.add(rows)
            for value in values[start : start + 700].tolist():
                text = "" if math.isnan(value) else repr(value)
                expected += whole.take("s", str(n), text, single.step(None, value))
                n += 1
    found = walk.end()
    expected += whole.rest()
    assert found == expected and len(found) >= 4


def test_a_shard_that_does_not_fit_is_refused(sensor_lake: Path) -> None:
    lake = open_lake([str(sensor_lake)], ["sensor", "time", "value"])
    census = take_census(lake, ["sensor"])
    require_memory(census, 1, 2, 10**9)
    with pytest.raises(MemoryLimitError, match="--processes"):
        require_memory(census, 1, 2, 10**6)


def test_a_census_finds_rows_and_files_of_each_sensor(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        write(tmp_path / f"{name}.parquet", rows_of(name, 300, 1, faults=False))
    heard: list[int] = []
    lake = open_lake([str(tmp_path)], ["sensor", "time", "value"])
    census = take_census(lake, ["sensor"], heard.append)
    assert census.keys == (("a",), ("b",), ("c",)) and census.n_rows.tolist() == [300] * 3
    assert sum(heard) == 900
    assert [shard.sources for shard in census.shards] == [((n, tuple(range(6))),) for n in range(3)]
    shard = census.shards[1]
    assert census.n_readings(lake) == 1
    parts = lake_parts(lake, CHOICE, shard.sources, KeyNumbers(["sensor"], {("b",): 1}))
    (columns,) = read_shard(parts, CHOICE, shard)
    assert columns.place == 1 and len(columns.values[0]) == 300 and not columns.n_moved
    assert KeyNumbers([], {(): 0}).numbers == {(): 0}


def test_small_lakes_have_shards_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    rows = [row for n in range(20) for row in rows_of(f"s{n:02}", 5 + 9 * n, n, faults=False)]
    write(tmp_path / "x.parquet", rows)
    lake = open_lake([str(tmp_path)], ["sensor"])
    census = take_census(lake, ["sensor"])
    assert LEAST_SHARDS <= len(census.shards) <= 20
    assert sum(shard.n_rows for shard in census.shards) == len(rows)
    small = take_census(lake, ["sensor"], most_rows=1)
    assert [shard.n_rows for shard in small.shards] == census.n_rows.tolist()


def test_a_machine_without_the_backend_is_refused(tmp_path: Path, sensor_lake: Path) -> None:
    lake = open_lake([str(sensor_lake)], ["sensor", "time", "value"])
    census = take_census(lake, ["sensor"])
    model = ModelChoice(backend="native", cache=tmp_path / "nothing")
    setup = JobSetup(ForecastSettings(lake, CHOICE, model), census.keys, tmp_path, (), tmp_path, ())
    job = open_job(setup)
    with pytest.raises(BackendError, match=r"edgefold build sensors.*every machine"):
        job.run(census.shards[0], tmp_path / "one", lambda n: None)


def test_a_picture_shows_the_last_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is far before the last rows, and in a block before that of the next rows."""
    monkeypatch.setattr(job_module, "STEP_ROWS", 64)
    rows = rows_of("s", 1200, 1, faults=False)
    rows[500] = (*rows[500][:2], 90.0)
    write(tmp_path / "x.parquet", rows)
    lake = open_lake([str(tmp_path)], ["sensor", "time", "value"])
    census = take_census(lake, ["sensor"])
    settings = ForecastSettings(lake, CHOICE, ModelChoice())
    job = open_job(JobSetup(settings, census.keys, tmp_path, (), tmp_path, ()))
    job.run(census.shards[0], tmp_path / "one", lambda n: None)
    job.close()
    (picture,) = SummaryFile.read(tmp_path / "one").pictures
    last = int(np.flatnonzero(picture.alarms)[-1])
    assert picture.times[last] == picture.marked[0, -1] and 500 <= last < 900
    assert len(picture.times) == last + 1 + job_module.N_AFTER
    assert np.isnan(picture.path).all() and np.isfinite(picture.forecasts[last]).all()


def test_names_are_columns_of_their_type(sensor_lake: Path) -> None:
    lake = open_lake([str(sensor_lake)], ["sensor", "value"])
    names = SensorNames([lake.columns["sensor"], lake.columns["value"]], with_column=True)
    arrays = names.arrays([(("x", 1.0), "a"), (("y", 2.0), "a")], [2, 1])
    assert [array.to_pylist() for array in arrays] == [["x", "x", "y"], [1.0, 1.0, 2.0], ["a"] * 3]
    assert names.texts(("x", 1.0), "a") == ["x", "1.0", "a"]


def test_a_result_goes_through_a_file_unchanged(sensor_lake: Path, tmp_path: Path) -> None:
    lake = open_lake([str(sensor_lake)], ["sensor", "time", "value"])
    census = take_census(lake, ["sensor"])
    settings = ForecastSettings(lake, CHOICE, ModelChoice())
    job = open_job(JobSetup(settings, census.keys, tmp_path, (), tmp_path, ()))
    job.run(census.shards[0], tmp_path / "one", lambda n: None)
    job.close()
    result = SummaryFile.read(tmp_path / "one")
    SummaryFile.write(tmp_path / "two", result)
    again = SummaryFile.read(tmp_path / "two")
    assert again.summaries == result.summaries and again.incidents == result.incidents
    assert len(again.pictures) == len(result.pictures) > 0
    ranks = [picture.summary.rank for picture in again.pictures]
    assert ranks == sorted(ranks)
    for one, two in zip(result.pictures, again.pictures, strict=True):
        for (name, array), (_, other) in zip(one.arrays(), two.arrays(), strict=True):
            assert np.array_equal(array, other, equal_nan=name != "alarms"), name
        assert len(one.times) == one.summary.n_rows - one.summary.n_refused
