"""Forecasts of a lake: those of each sensor alone, whatever the files and processes are."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.fleets.forecasting import census as census_module
from edgefold.fleets.forecasting import lake_forecast, split_rows
from edgefold.fleets.forecasting.census import Census, take_census
from edgefold.fleets.forecasting.job import open_job
from edgefold.fleets.forecasting.lake_forecast import (
    WORK,
    forecast_lake,
    remove_results,
    require_room,
)
from edgefold.fleets.forecasting.result_files import EVENTS
from edgefold.fleets.forecasting.settings import ForecastSettings, LakeChoice, ModelChoice
from edgefold.fleets.forecasting.shard_result import ShardResult
from edgefold.fleets.forecasting.shard_rows import LakeTimes
from edgefold.fleets.forecasting.split_rows import FOLDER, splits_of
from edgefold.fleets.tables.lake import open_lake
from edgefold.fleets.work.unit import Agenda, Hear, JobSource
from edgefold.runtime import DataError, Sensors
from edgefold.runtime.errors import OutputError
from edgefold.runtime.sensors.alarms.incidents import Incidents
from edgefold.runtime.sensors.forecasts import BAND, Forecast

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
pytestmark = pytest.mark.usefixtures("compiled_sensors")

START = datetime(2024, 1, 1)
CHOICE = LakeChoice(("sensor",), "time", ("value",))
Row = tuple[str, datetime, float | None]


def rows_of(name: str, n: int, seed: int, faults: bool = True) -> list[Row]:
    """Rows of a sensor with gaps, missing values, far values and a repeated time."""
    chance = random.Random(seed)
    rows, at = list[Row](), 0
    for _ in range(n):
        at += 1 + (chance.randrange(20) if faults and chance.random() < 0.02 else 0)
        value: float | None = 20 + 3 * math.sin(at / 12) + chance.gauss(0, 0.3)
        if faults and chance.random() < 0.02:
            value = None if chance.random() < 0.5 else 60.0
        rows.append((name, START + at * timedelta(minutes=5), value))
    if faults:
        rows.insert(n // 2, rows[n // 2])
    return rows


SENSORS = {f"s{number}": rows_of(f"s{number}", 120 + 40 * number, number) for number in range(5)}


def write(path: Path, rows: list[Row], unit: str = "us", zone: str | None = "Asia/Tokyo") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    names, times, values = zip(*rows, strict=True)
    table = {
        "sensor": pa.array(names, pa.string()),
        "time": pa.array(times, pa.timestamp(unit, zone)),
        "value": pa.array(values, pa.float64()),
    }
    pq.write_table(pa.table(table), path, row_group_size=50)


@pytest.fixture(scope="module")
def sensor_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows of all sensors over three files, in no order."""
    folder = tmp_path_factory.mktemp("lake")
    rows = [row for own in SENSORS.values() for row in own]
    random.Random(7).shuffle(rows)
    for number in range(3):
        write(folder / f"{number}.parquet", rows[number::3])
    return folder


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(census_module, "LEAST_ROWS", 400)
    monkeypatch.setattr(census_module, "LEAST_SHARDS", 3)


def in_process(agenda: Agenda, source: JobSource, hear: Hear) -> None:
    """Run all units here."""
    job = open_job(source.setup)
    try:
        while (unit := agenda.take()) is not None:
            job.run(unit.argument, agenda.place(unit), lambda n: None)
            agenda.done(unit)
    finally:
        job.close()


def until(n: int) -> Any:
    """A way to run units that is stopped after some."""

    def run(agenda: Agenda, source: JobSource, hear: Hear) -> None:
        job = open_job(source.setup)
        for _ in range(n):
            unit = agenda.take()
            assert unit is not None
            job.run(unit.argument, agenda.place(unit), lambda n: None)
            agenda.done(unit)
        job.close()
        raise KeyboardInterrupt

    return run


def forecast(
    out: Path,
    patterns: list[str],
    choice: LakeChoice = CHOICE,
    filter: str | None = None,
    run: Any = in_process,
    **more: Any,
) -> tuple[ShardResult, Census]:
    lake = open_lake(patterns, choice.columns, filter)
    settings = ForecastSettings(lake, choice, ModelChoice(), **more)
    census = take_census(lake, choice.by)
    found = forecast_lake(
        settings, census, out, "any", False, run, lambda news: None, lambda result: None
    )
    return found, census


def parts(out: Path, kind: str = "forecasts") -> Any:
    """All rows of the results, in the order of the files."""
    return pa.concat_tables(pq.read_table(path) for path in sorted((out / kind).iterdir()))


def steps(rows: list[Row]) -> Iterator[Forecast | DataError]:
    """The rows of one sensor in the order of their times, one by one."""
    with Sensors.open() as sensors:
        for _, time, value in sorted(rows, key=lambda row: row[1]):
            try:
                yield sensors.step(time, value)
            except DataError as error:
                yield error


def test_forecasts_are_those_of_each_sensor_alone(sensor_lake: Path, tmp_path: Path) -> None:
    """To the bit, with all that came of a row."""
    result, census = forecast(tmp_path, [str(sensor_lake)])
    assert len(census.shards) > 1 and not (tmp_path / WORK).exists()
    table = parts(tmp_path)
    assert table.schema.field("time").type == pa.timestamp("us", "Asia/Tokyo")
    names = table["sensor"].to_pylist()
    assert names == sorted(names) and {*names} == {*SENSORS}
    for (name, rows), summary in zip(SENSORS.items(), result.summaries, strict=True):
        own = table.filter(pa.compute.equal(table["sensor"].cast(pa.string()), name)).to_pylist()
        alone = list(steps(rows))
        assert len(own) == len(alone) == summary.n_rows
        counts = {"alarms": 0, "refused": 0, "scored": 0, "within": 0}
        for found, expected in zip(own, alone, strict=True):
            if isinstance(expected, DataError):
                assert found["event"] == "refused" and found["mean"] is None
                counts["refused"] += 1
                continue
            value = None if math.isnan(expected.value) else expected.value
            is_scored = expected.is_known and value is not None
            assert (found["value"], found["alarm"]) == (value, expected.alarm)
            assert (found["event"] or "") == expected.event
            for band in BAND:
                assert found[band] == (getattr(expected, band) if expected.is_known else None)
            assert found["log_density"] == (expected.log_density if is_scored else None)
            assert found["p_value"] == (expected.p_value if is_scored else None)
            counts["alarms"] += expected.alarm
            counts["scored"] += is_scored
            seen = float(np.float32(value or 0.0))
            counts["within"] += is_scored and expected.q05 <= seen <= expected.q95
        assert counts["alarms"] == summary.n_alarms
        assert counts["refused"] == summary.n_refused == 1 and "newest" in summary.refusal
        assert (counts["scored"], counts["within"]) == (summary.n_scored, summary.n_within_90)
        assert summary.pace == 300.0
        assert summary.n_empty == len({row[1] for row in rows if row[2] is None})
        assert summary.n_moved > 0  # the rows came in no order
    assert sum(each.n_alarms for each in result.summaries) >= 2


def test_files_of_results_agree_with_the_forecasts(sensor_lake: Path, tmp_path: Path) -> None:
    result, _ = forecast(tmp_path, [str(sensor_lake)])
    sensors = pq.read_table(tmp_path / "sensors.parquet").to_pylist()
    lines = (tmp_path / "sensors.csv").read_text().splitlines()
    assert len(sensors) == len(lines) - 1 == 5
    assert lines[0].startswith("sensor,rows,refused,without_time,moved,empty,missing,pace,season")
    rows = sorted(SENSORS["s4"], key=lambda row: row[1])
    assert sensors[4]["first"].replace(tzinfo=None) == rows[0][1] + timedelta(hours=9)
    assert sensors[4]["rows"] == len(rows) and lines[5].startswith(f"s4,{len(rows)},1,0,")
    for sensor, summary in zip(sensors, result.summaries, strict=True):
        by_event = {e: sensor[f"alarms_{e.replace(' ', '_')}"] for e in EVENTS}
        assert {e: n for e, n in by_event.items() if n} == summary.alarms
    with Sensors.open() as alone:
        incidents = Incidents()
        found = []
        for number, (_, time, value) in enumerate(rows):
            try:
                row = alone.step(time, value)
            except DataError:
                continue
            found += incidents.take("s4", str(number), repr(value), row)
        found += incidents.rest()
    alarms = (tmp_path / "alarms.csv").read_text().splitlines()
    own = [line.split(",") for line in alarms if line.startswith("s4,")]
    assert alarms[0] == "sensor,event,begin,alarmed,end,rows,value,size"
    assert len(own) == len(found) > 0
    table = parts(tmp_path)
    own_times = table.filter(pa.compute.equal(table["sensor"].cast(pa.string()), "s4"))["time"]
    texts = LakeTimes(open_lake([str(sensor_lake)], ["time"]).columns["time"]).written(own_times)
    for fields, incident in zip(own, found, strict=True):
        assert fields[1] == incident.event and fields[5] == str(incident.n_rows)
        assert fields[3] == texts[int(incident.alarmed)]
        assert fields[4] == (texts[int(incident.end)] if incident.end else "")
        assert fields[6] == incident.value


def test_results_do_not_depend_on_files_or_on_the_order_of_units(
    sensor_lake: Path, tmp_path: Path
) -> None:
    rows = [row for own in SENSORS.values() for row in own]
    for name in SENSORS:
        write(tmp_path / "by" / f"{name}.parquet", [row for row in rows if row[0] == name])

    def backward(agenda: Agenda, source: JobSource, hear: Hear) -> None:
        units = []
        while (unit := agenda.take()) is not None:
            units.append(unit)
        for unit in units[::-1]:
            agenda.give_back(unit)
        in_process(agenda, source, hear)

    forecast(tmp_path / "one", [str(sensor_lake)])
    forecast(tmp_path / "two", [str(sensor_lake)], run=backward)
    forecast(tmp_path / "three", [str(tmp_path / "by")])
    for name in ("sensors.csv", "alarms.csv"):
        content = (tmp_path / "one" / name).read_bytes()
        assert (tmp_path / "two" / name).read_bytes() == content
    for path in (tmp_path / "one" / "forecasts").iterdir():
        assert (tmp_path / "two" / "forecasts" / path.name).read_bytes() == path.read_bytes()
    assert parts(tmp_path / "three").equals(parts(tmp_path / "one"))


def test_what_is_done_counts_once_after_any_stop(sensor_lake: Path, tmp_path: Path) -> None:
    forecast(tmp_path / "whole", [str(sensor_lake)])
    for n in (1, 1):
        with pytest.raises(KeyboardInterrupt):
            forecast(tmp_path / "stopped", [str(sensor_lake)], run=until(n))
    assert len(list((tmp_path / "stopped" / WORK).glob("shard-?????"))) == 2
    with pytest.raises(OutputError, match=r"filter.*--force"):
        forecast(tmp_path / "stopped", [str(sensor_lake)], filter="value > 3")
    forecast(tmp_path / "stopped", [str(sensor_lake)])
    assert parts(tmp_path / "stopped").equals(parts(tmp_path / "whole"))
    for name in ("sensors.csv", "alarms.csv"):
        content = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "stopped" / name).read_bytes() == content


@pytest.mark.parametrize("n_before", [0, 2])
def test_rows_that_are_split_on_the_disk_give_the_same(
    n_before: int, sensor_lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a stop between two splits."""
    forecast(tmp_path / "read", [str(sensor_lake)])
    monkeypatch.setattr(lake_forecast, "MOST_READINGS", 0)
    monkeypatch.setattr(split_rows, "SPLIT_ROWS", 200)
    lake = open_lake([str(sensor_lake)], CHOICE.columns)
    splits = splits_of(lake)
    assert len(splits) > 3 and sum(split.n_rows for split in splits) == lake.n_rows
    out = tmp_path / "split"
    if n_before:
        with pytest.raises(KeyboardInterrupt):
            forecast(out, [str(sensor_lake)], run=until(n_before))
        assert len(list((out / WORK).glob("split-*"))) == n_before

    def run(agenda: Agenda, source: JobSource, hear: Hear) -> None:
        in_process(agenda, source, hear)
        assert list((out / WORK / FOLDER).iterdir())

    forecast(out, [str(sensor_lake)], run=run)
    assert parts(out).equals(parts(tmp_path / "read"))
    for name in ("sensors.csv", "alarms.csv"):
        assert (out / name).read_bytes() == (tmp_path / "read" / name).read_bytes()
    assert not (out / WORK).exists()


def test_a_folder_with_results_is_replaced_only_by_force(tmp_path: Path) -> None:
    (tmp_path / "forecasts").mkdir()
    (tmp_path / "sensors.csv").write_text("x")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"sensors.csv.*--force"):
        require_room(tmp_path)
    remove_results(tmp_path)
    require_room(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(OutputError, match="is a file"):
        require_room(tmp_path / "notes.txt")


def test_several_columns_of_values_are_sensors_of_their_own(tmp_path: Path) -> None:
    n = 80
    times = pa.array([START + at * timedelta(hours=1) for at in range(n)], pa.timestamp("ns"))
    values = {name: [math.sin(at / k) for at in range(n)] for name, k in (("b", 3), ("a", 5))}
    for site in (10, 9):
        (tmp_path / f"lake/site={site}").mkdir(parents=True)
        table = pa.table({"when": times, **values, "room": [f"r{site}"] * n})
        pq.write_table(table, tmp_path / f"lake/site={site}/x.parquet")
    choice = LakeChoice(("site", "room"), "when", ("b", "a"))
    result, census = forecast(tmp_path / "out", [str(tmp_path / "lake")], choice)
    assert census.keys == ((9, "r9"), (10, "r10"))
    table = parts(tmp_path / "out")
    assert table.column_names[:4] == ["site", "room", "column", "time"]
    assert table.schema.field("site").type == pa.int64()
    assert table.schema.field("time").type == pa.timestamp("ns")
    assert [(each.place, each.column) for each in result.summaries] == [
        *((0, "b"), (0, "a"), (1, "b"), (1, "a"))
    ]
    with Sensors.open() as alone:
        for time, value in zip(
            times.cast(pa.timestamp("us")).to_pylist(), values["a"], strict=True
        ):
            expected = alone.step(time, value)
    assert table["q90"][2 * n - 1].as_py() == expected.q90
    assert table["column"][2 * n - 1].as_py() == "a"


def test_rows_without_a_name_a_time_or_in_a_filter_are_left_out(tmp_path: Path) -> None:
    rows = rows_of("s", 60, 3, faults=False)
    table = pa.table(
        {
            "sensor": [None if at == 5 else "s" for at in range(60)],
            "time": pa.array([None if at == 6 else row[1] for at, row in enumerate(rows)]),
            "value": [row[2] for row in rows],
            "good": [at != 7 for at in range(60)],
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    result, census = forecast(tmp_path / "out", [str(tmp_path / "x.parquet")], filter="good")
    assert census.n_unnamed == 1 and census.n_rows.tolist() == [58]
    (summary,) = result.summaries
    assert (summary.n_rows, summary.n_timeless, summary.n_refused) == (58, 1, 0)
    assert parts(tmp_path / "out").num_rows == 57


def test_times_may_be_numbers_or_days_or_lack(tmp_path: Path) -> None:
    n = 70
    for name, column in (
        ("unix", pa.array([1_700_000_000 + 60 * at for at in range(n)])),
        ("floats", pa.array([0.5 * at for at in range(n)])),
        ("days", pa.array([(START + at * timedelta(days=1)).date() for at in range(n)])),
        ("none", None),
    ):
        columns = {"value": pa.array([math.sin(at / 4) for at in range(n)])}
        if column is not None:
            columns["time"] = column
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
        choice = LakeChoice((), "" if column is None else "time", ("value",))
        result, _ = forecast(tmp_path / name, [str(tmp_path / f"{name}.parquet")], choice)
        pace = {"unix": 60.0, "floats": 0.5, "days": 86_400.0, "none": 1.0}[name]
        assert result.summaries[0].pace == pace
        written = parts(tmp_path / name)["time"]
        if column is None:
            assert written.to_pylist() == list(range(n))
        else:
            assert written.combine_chunks().equals(column)


def test_scores_are_those_of_a_backtest(sensor_lake: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    result, _ = forecast(tmp_path, [str(sensor_lake)], with_scores=True, n_skipped=30)
    table = pq.read_table(tmp_path / "scores.parquet").to_pylist()
    rows = sorted(SENSORS["s3"], key=lambda row: row[1])
    series = pandas.Series([row[2] for row in rows], [row[1] for row in rows], dtype=float)
    with Sensors.open() as alone, pytest.warns(UserWarning, match="refused"):
        expected = alone.backtest(series, skip=30).to_dict("records")
    own = [line for line in table if line["sensor"] == "s3"]
    for found, line in zip(own, expected, strict=True):
        assert found["horizon"] == str(line["horizon"]) and found["n"] == line["n"]
        for name in ("mae", "persistence", "ratio", "coverage_90", "crps"):
            assert found[name] == (None if math.isnan(line[name]) else line[name])
    assert [line[0] for line in result.scores][-1] == "season"
    assert result.scores[0][1] == sum(line["n"] for line in table if line["horizon"] == "1")


def test_forecasts_of_later_rows_are_those_of_ahead(sensor_lake: Path, tmp_path: Path) -> None:
    forecast(tmp_path, [str(sensor_lake)], with_ahead=True)
    table = parts(tmp_path, "ahead").to_pylist()
    own = [line for line in table if line["sensor"] == "s4"]
    expected = []
    with Sensors.open() as alone:
        for _, time, value in sorted(SENSORS["s4"], key=lambda row: row[1]):
            try:
                row = alone.step(time, value)
            except DataError:
                continue
            steps: list[Any] = [(n, n) for n in alone.horizons]
            if row.season and row.season not in alone.horizons:
                steps.append((row.season, "season"))
            for n, horizon in sorted(steps, key=lambda step: step[0]):
                later = row.ahead(horizon)
                if later.is_known:
                    at = row.time + n * alone.feed().pace
                    expected.append((row.time, n, at, later.mean, later.q95))
    found = [
        (
            seconds(line["made_at"]),
            line["slots_ahead"],
            seconds(line["time"]),
            line["mean"],
            line["q95"],
        )
        for line in own
    ]
    assert found == expected and len(found) > 1000


def seconds(time: datetime) -> float:
    return time.timestamp()
