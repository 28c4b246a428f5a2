"""`edgefold forecast` with Parquet: a lake in, a folder of results out."""

from __future__ import annotations

import csv
import io
import math
import os
import random
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.lakes.forecast_lake import is_lake
from edgefold.cli.lakes.lake_columns import open_sensors
from edgefold.cli.lakes.lake_text import result_lines
from edgefold.cli.main import main
from edgefold.cli.work_progress import WorkProgress
from edgefold.fleets.forecasting.census import Census
from edgefold.fleets.forecasting.lake_forecast import WORK
from edgefold.fleets.forecasting.sensor_summary import SensorSummary
from edgefold.fleets.forecasting.settings import ForecastSettings, LakeChoice, ModelChoice
from edgefold.fleets.forecasting.shard_result import ShardResult
from edgefold.fleets.tables.lake import open_lake
from edgefold.fleets.work.unit import WorkNews
from edgefold.runtime.errors import DataError
from edgefold.runtime.sensors.forecasts import BAND
from tests.cli.conftest import Command

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")

pytestmark = pytest.mark.usefixtures("compiled_sensors")

START = datetime(2024, 1, 1)


def table_of(n: int, sensors: int = 3) -> dict[str, list[Any]]:
    """Rows of some sensors, the times of all after each other, as loggers write them."""
    draw = random.Random(3)
    table: dict[str, list[Any]] = {"time": [], "sensor": [], "value": []}
    for at in range(n):
        for number in range(sensors):
            value = round(20 + number + 3 * math.sin(at / 4) + draw.gauss(0, 0.3), 3)
            table["time"].append(START + at * timedelta(hours=1))
            table["sensor"].append(f"room {number}")
            table["value"].append(50.0 if at == n - 9 and number == 1 else value)
    return table


def write(path: Path, columns: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def forecasts(folder: Path) -> list[dict[str, Any]]:
    tables = [pq.read_table(path) for path in sorted((folder / "forecasts").iterdir())]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist()
    return rows


def test_a_parquet_file_gives_what_the_same_csv_gives(edgefold: Command, tmp_path: Path) -> None:
    """Columns, forecasts, alarms and incidents; those of CSV have 9 digits."""
    columns = table_of(90)
    write(tmp_path / "x.parquet", columns)
    lines = [f"{t},{s},{v}" for t, s, v in zip(*columns.values(), strict=True)]
    (tmp_path / "x.csv").write_text("\n".join(["time,sensor,value", *lines]) + "\n")
    assert edgefold("forecast", tmp_path / "x.csv", "--alarms")[0] == ExitCode.DONE
    out = tmp_path / "out"
    code, said, error = edgefold(
        "forecast", tmp_path / "x.parquet", "--out", out, "--processes", "1"
    )
    assert code == ExitCode.DONE and "time          some" in error
    for word in ("named by sensor", "time (timestamp[us])", "value (double)", "rows/s", "alarms"):
        assert word in said
    expected = sorted(rows_of(tmp_path / "x-forecast.csv"), key=lambda row: row["series"])
    found = forecasts(out)
    assert len(found) == len(expected) == 270
    for row, line in zip(found, expected, strict=True):
        assert (row["sensor"], str(row["time"])) == (line["series"], line["time"])
        for name in (*BAND, "log_density", "p_value"):
            assert ("" if row[name] is None else f"{row[name]:.9g}") == line[name]
        assert (f"{row['alarm']:d}", row["event"] or "") == (line["alarm"], line["event"])
    incidents = rows_of(tmp_path / "x-forecast-alarms.csv")
    alarms = rows_of(out / "alarms.csv")
    assert len(alarms) == len(incidents) >= 1
    for alarm, incident in zip(alarms, incidents, strict=True):
        for name in ("event", "rows", "value", "size"):
            assert alarm[name] == incident[name]
        for name in ("begin", "alarmed", "end"):
            assert alarm[name].replace("T", " ") == incident[name].replace("T", " ")
    names = {path.name for path in out.iterdir()}
    assert {*names} - {"worst.png"} == {"forecasts", "sensors.parquet", "sensors.csv", "alarms.csv"}


def test_the_worst_sensors_are_drawn(edgefold: Command, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="it draws the picture")
    from edgefold.cli.plots.worst_sensors import N_COLUMNS

    write(tmp_path / "x.parquet", table_of(60, sensors=N_COLUMNS + 1))
    code, said, _ = edgefold("forecast", tmp_path / "x.parquet", "--out", tmp_path / "out")
    assert code == ExitCode.DONE and "worst.png" in said
    assert (tmp_path / "out/worst.png").read_bytes().startswith(b"\x89PNG")


def test_results_that_exist_are_kept_without_force(edgefold: Command, tmp_path: Path) -> None:
    path, out = write(tmp_path / "x.parquet", table_of(40)), tmp_path / "out"
    assert edgefold("forecast", path, "--out", out)[0] == ExitCode.DONE
    code, _, error = edgefold("forecast", path, "--out", out)
    assert code == ExitCode.REFUSED and "--force" in error
    wrong = edgefold("forecast", path, "--out", out, "--force", "--columns", "nothing")
    assert wrong[0] != ExitCode.DONE and (out / "sensors.csv").exists()
    code, said, _ = edgefold("forecast", path, "--out", out, "--force", "--backtest", "--skip", "9")
    assert code == ExitCode.DONE and "median ratio" in said
    assert (out / "scores.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["x.csv", "--by", "sensor"], "--by"),
        (["x.csv", "--processes", "2"], "--processes"),
        (["x.csv", "--backtest"], "--backtest"),
        (["x.csv", "x.csv"], "several"),
        (["missing"], "nor as a folder"),
        (["x.csv", "x.parquet"], "not Parquet"),
        (["x.parquet", "--with", "value"], "--with"),
        (["x.parquet", "--delimiter", ";"], "--delimiter"),
        (["x.parquet", "--by", "sensor", "--series", "sensor"], "--series"),
        (["x.parquet", "--skip", "5"], "--backtest"),
        (["x.parquet", "--backtest", "--skip", "-1"], "0 or more"),
        (["x.parquet", "--out", "-"], "folder"),
        (["x.parquet", "--out", "out.csv"], "folder"),
        (["x.parquet", "--siblings", "fleet"], "--siblings"),
    ],
)
def test_options_that_do_not_fit_the_input_are_named(
    arguments: list[str],
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("x.parquet"), table_of(20))
    Path("x.csv").write_text("time,value\n1,2\n")
    with pytest.raises(SystemExit):
        main(["forecast", *arguments])
    assert word in capsys.readouterr().err


def test_parquet_is_known_by_its_name_its_folder_or_a_glob(tmp_path: Path) -> None:
    write(tmp_path / "day/x.parquet", table_of(3))
    (tmp_path / "x.csv").write_text("a\n1\n")
    for pattern, expected in (
        ("day/x.parquet", True),
        ("missing.PARQUET", True),
        ("day", True),
        ("**/*.parquet", True),
        ("d*", True),
        ("x.csv", False),
        ("*.csv", False),
        ("missing.csv", False),
    ):
        assert is_lake([str(tmp_path / pattern)]) == expected, pattern
    assert not is_lake(["-"])


def choice_of(path: Path, *columns: Any) -> LakeChoice:
    by, time, values = (*columns, None, None, None)[:3]
    return open_sensors([str(path)], by, time, values, None)[1]


def test_columns_are_found_as_those_of_csv(tmp_path: Path) -> None:
    long = table_of(50)
    assert choice_of(write(tmp_path / "a.parquet", long)) == LakeChoice(
        ("sensor",), "time", ("value",)
    )
    coded = {**long, "sensor": pa.array(long["sensor"]).dictionary_encode()}
    assert choice_of(write(tmp_path / "b.parquet", coded)).by == ("sensor",)
    wide = {"ts": long["time"][::3], "roof": long["value"][::3], "cellar": long["value"][1::3]}
    path = write(tmp_path / "c.parquet", wide)
    assert choice_of(path) == LakeChoice((), "ts", ("roof", "cellar"))
    assert choice_of(path, None, None, ["cellar"]) == LakeChoice((), "ts", ("cellar",))
    for site in ("north", "south"):
        write(tmp_path / f"d/site={site}/x.parquet", {"ts": wide["ts"], site: wide["roof"]})
        write(
            tmp_path / f"e/site={site}/x.parquet",
            {"ts": wide["ts"], "v": wide["roof" if site == "north" else "cellar"]},
        )
    assert choice_of(tmp_path / "e") == LakeChoice(("site",), "ts", ("v",))
    rooms = {**long, "floor": [int(name[-1]) // 2 for name in long["sensor"]]}
    several = choice_of(write(tmp_path / "f.parquet", rooms), ["floor", "sensor"])
    assert several == LakeChoice(("floor", "sensor"), "time", ("value",))


def test_columns_of_folders_are_values_only_by_name(tmp_path: Path) -> None:
    for month in (1, 2):
        path = tmp_path / f"year=2025/month={month}/day=2025-01-0{month}/x.parquet"
        write(path, table_of(20 + month))
    found = LakeChoice(("sensor",), "time", ("value",))
    assert choice_of(tmp_path) == choice_of(tmp_path, ["sensor"]) == found
    assert choice_of(tmp_path, ["month", "sensor"]).by == ("month", "sensor")
    assert choice_of(tmp_path, ["sensor"], None, ["value", "month"]).values == ("value", "month")


def test_all_rows_may_be_of_one_sensor(edgefold: Command, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", table_of(20, sensors=1))
    code, said, _ = edgefold("forecast", path, "--out", tmp_path / "out", "--by", "")
    assert code == ExitCode.DONE and "sensors       1\n" in said


def test_many_refused_rows_give_a_hint(edgefold: Command, tmp_path: Path) -> None:
    for site in (3, 7):
        columns = {**table_of(30), "day": [f"d{at // 9}" for at in range(90)]}
        columns["value"] = [value + site for value in columns["value"]]
        write(tmp_path / f"lake/year=2025/site={site}/x.parquet", columns)
    arguments = ["forecast", tmp_path / "lake", "--processes", "1", "--out"]
    code, said, _ = edgefold(*arguments, tmp_path / "a", "--by", "sensor")
    assert code == ExitCode.DONE and "50% of the rows" in said
    assert "is --by sensor,site meant?" in said
    code, said, _ = edgefold(*arguments, tmp_path / "b", "--by", "sensor,site")
    assert code == ExitCode.DONE and "meant?" not in said


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", table_of(500))
    content = bytearray(path.read_bytes())
    content[40:3000] = bytes(2960)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"x\.parquet"):
        choice_of(path)


def test_columns_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", table_of(50))
    for columns, word in (
        ((["nothing"], "time", ["value"]), "nothing"),
        ((["sensor", "nothing"], None, None), "nothing"),
        ((["sensor"], "time", ["sensor"]), "two parts"),
        (([], "sensor", ["value"]), "text"),
        ((["value"], "time", ["sensor"]), "of their own"),
    ):
        with pytest.raises(DataError, match=word):
            choice_of(path, *columns)


def test_a_table_lists_the_worst_sensors_first(tmp_path: Path) -> None:
    lake = open_lake([str(write(tmp_path / "x.parquet", table_of(9)))], ["sensor", "time"])
    choice = LakeChoice(("sensor",), "time", ("value",))
    settings = ForecastSettings(lake, choice, ModelChoice())
    sensors = [
        SensorSummary(
            place,
            "value",
            n_rows=100,
            n_scored=90,
            n_within_90=80,
            error=9.0,
            change=18.0,
            log_density=-90.0,
            pace=3600.0,
            season=24,
            season_name="day",
        )
        for place in range(20)
    ]
    sensors[7].alarms, sensors[3].alarms = {"value": 2, "gap": 1}, {"value": 1}
    sensors[3].n_refused, sensors[3].refusal = 4, "its time is that of the newest row"
    keys = tuple((f"room {place}",) for place in range(20))
    census = Census(keys, pa.array([100] * 20).to_numpy(), 0, ())
    scores = [("1", 1800, 20, 0.5, 0.9), ("season", 0, 0, math.nan, math.nan)]
    lines = result_lines(ShardResult(sensors, scores=scores), settings, census, 2.0)
    assert lines[2].split() == [
        *("room", "7", "100", "3", "88.9%", "0.1", "0.50", "-1", "1", "hour", "24", "rows,"),
        *("a", "day"),
    ]
    assert lines[3].startswith("room 3") and "8 more sensors" in lines[14]
    text = "\n".join(lines)
    assert "4 of 2 sensors: 3 value, 1 gap" in text and "1,000 rows/s of all 2,000" in text
    assert "4 refused" in text and "that of the newest row" in text


def test_progress_is_a_line_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(said, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", said)
    progress = WorkProgress()
    progress.hear(WorkNews(500, 0, 1000, 3, 1))
    progress.clear()
    assert "500 of 1,000 rows   50%" in said.getvalue() and "1 processes died" in said.getvalue()


def start(path: Path, out: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "edgefold.cli.main", "forecast", str(path), "--out", str(out)]
    return subprocess.Popen(
        [*command, "--processes", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_the_same_command_goes_on_after_a_kill(how: int, tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", table_of(1500, sensors=40))
    with start(path, tmp_path / "whole") as process:
        assert process.wait(300) == ExitCode.DONE
    with start(path, tmp_path / "stopped") as process:
        work = tmp_path / "stopped" / WORK
        while process.poll() is None and not list(work.glob("shard-?????")):
            time.sleep(0.01)
        os.kill(process.pid, how)
        process.wait(60)
    done = {each.name: each.stat().st_mtime_ns for each in work.glob("shard-?????")}
    assert done
    with start(path, tmp_path / "stopped") as process:
        assert process.wait(300) == ExitCode.DONE
    names = [path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*.*")]
    assert len(names) >= 5
    for name in names:
        if name.suffix != ".png":
            content = (tmp_path / "stopped" / name).read_bytes()
            assert content == (tmp_path / "whole" / name).read_bytes(), name
