"""`edgefold forecast`: a table in, forecasts and a picture out."""

from __future__ import annotations

import csv
import io
import math
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="it draws the picture")

from edgefold.cli import forecasting
from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.cli.overview import N_PIECES, Overview
from edgefold.cli.plots.sensor_forecasts import with_gaps
from edgefold.cli.text.sensor_forecasts import SHOWN_ALARMS, told_lines
from edgefold.runtime import Sensors
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.backends.tensorrt import backend as tensorrt_backend
from edgefold.runtime.backends.tensorrt import cuda_driver
from edgefold.runtime.sensors.forecasts import ROW_NAMES
from tests.cli.conftest import Command
from tests.rough_files import ROUGH_FILES
from tests.runtime.backends.host_driver import HostDriver

pytestmark = pytest.mark.usefixtures("compiled_sensors")

PNG = b"\x89PNG"


def values(n: int) -> list[float]:
    draw = random.Random(7)
    return [
        round(20 + 3 * math.sin(2 * math.pi * i / 24) + draw.gauss(0, 0.3), 3) for i in range(n)
    ]


@pytest.fixture
def sensor_csv(tmp_path: Path) -> Path:
    """100 hours with a season of a day; a spike in line 92."""
    rows = values(100)
    rows[90] = 60.0
    lines = [f"2024-01-{1 + i // 24:02} {i % 24:02}:00,{v}" for i, v in enumerate(rows)]
    path = tmp_path / "sensor.csv"
    path.write_text("\n".join(["time,value", *lines]) + "\n")
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_a_file_alone_is_enough(edgefold: Command, sensor_csv: Path) -> None:
    code, out, _ = edgefold("forecast", sensor_csv)
    assert code == ExitCode.DONE
    rows = rows_of(sensor_csv.with_name("sensor-forecast.csv"))
    assert len(rows) == 100 and tuple(rows[0]) == ROW_NAMES
    assert [row["mean"] for row in rows[:11]] == [""] * 11 and rows[20]["mean"]
    assert sensor_csv.with_name("sensor-forecast.png").read_bytes().startswith(PNG)
    assert len(list(sensor_csv.parent.iterdir())) == 3
    for word in ("MAE", "persistence", "90 % band", "alarms", "season", "sensor-forecast.csv"):
        assert word in out
    with Sensors.open() as sensors:
        found = [sensors.step(f"{row['time']}:00", float(row["value"])) for row in rows]
    assert [row["alarm"] for row in rows] == [f"{f.alarm:d}" for f in found]
    assert float(rows[-1]["q95"]) == pytest.approx(found[-1].q95, rel=1e-8)  # 9 digits


@pytest.mark.long
def test_files_that_exist_are_kept_without_force(edgefold: Command, sensor_csv: Path) -> None:
    there = sensor_csv.with_name("sensor-forecast.png")
    there.write_text("mine")
    code, _, error = edgefold("forecast", sensor_csv)
    assert code == ExitCode.REFUSED and "--force" in error and there.read_text() == "mine"
    assert not sensor_csv.with_name("sensor-forecast.csv").exists()
    assert edgefold("forecast", sensor_csv, "--force")[0] == ExitCode.DONE
    assert there.read_bytes().startswith(PNG)


@pytest.mark.long
def test_out_names_a_file_or_a_folder(edgefold: Command, sensor_csv: Path, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    assert edgefold("forecast", sensor_csv, "--out", folder)[0] == ExitCode.DONE
    assert edgefold("forecast", sensor_csv, "--out", folder / "mine.csv")[0] == ExitCode.DONE
    names = {path.name for path in folder.iterdir()}
    assert names == {"sensor-forecast.csv", "sensor-forecast.png", "mine.csv", "mine.png"}
    with pytest.raises(SystemExit):  # the input itself
        main(["forecast", str(sensor_csv), "--out", str(sensor_csv), "--force"])


def test_what_comes_is_written_if_asked(edgefold: Command, sensor_csv: Path) -> None:
    assert edgefold("forecast", sensor_csv, "--ahead")[0] == ExitCode.DONE
    rows = rows_of(sensor_csv.with_name("sensor-forecast.csv"))
    ahead = rows_of(sensor_csv.with_name("sensor-forecast-ahead.csv"))
    one = {row["time"]: row["mean"] for row in ahead if row["slots_ahead"] == "1"}
    for row in rows[30:]:
        assert one[f"{row['time']}:00".replace(" ", "T")] == row["mean"]
    slots = [int(row["slots_ahead"]) for row in ahead[-8:]]
    assert slots == [1, 2, 4, 8, 16, 24, 32, 48]
    following = rows_of(sensor_csv.with_name("sensor-forecast-next.csv"))
    assert [int(row["slots_ahead"]) for row in following] == list(range(1, 25))
    assert following[0]["time"] == "2024-01-05T04:00:00"
    assert float(following[3]["q05"]) == pytest.approx(float(ahead[-6]["q05"]), rel=1e-5)


@pytest.mark.long
def test_each_column_of_numbers_is_a_series(edgefold: Command, tmp_path: Path) -> None:
    lines = [f"{i},{v},{-v},{'on' if i % 2 else 'off'}" for i, v in enumerate(values(40))]
    path = tmp_path / "house.csv"
    path.write_text("\n".join(["t,roof,wall,state", *lines]) + "\n")
    code, out, _ = edgefold("forecast", path)
    assert code == ExitCode.DONE and "state left out" in out
    rows = rows_of(tmp_path / "house-forecast.csv")
    assert [row["series"] for row in rows] == ["roof", "wall"] * 40
    assert rows[-1]["mean"] and rows[-2]["mean"]
    assert edgefold("forecast", path, "--columns", "wall", "--force")[0] == ExitCode.DONE
    alone = rows_of(tmp_path / "house-forecast.csv")
    assert "series" not in alone[0]
    assert [row["mean"] for row in alone] == [row["mean"] for row in rows[1::2]]


@pytest.mark.long
def test_what_happens_to_all_series_is_told_once(edgefold: Command, tmp_path: Path) -> None:
    lines = [f"{i},{v},{-v}" for i, v in enumerate(values(60)) if not 30 <= i < 35]
    path = tmp_path / "house.csv"
    path.write_text("\n".join(["t,roof,wall", *lines, "5,1,1", "6,1,1"]) + "\n")
    _, out, _ = edgefold("forecast", path)
    assert "gaps          all: 1, 5 rows are missing" in out
    (refused,) = [line for line in out.splitlines() if line.startswith("refused")]
    assert "all: 2 rows, the first in line 57" in refused


@pytest.mark.one_case
@pytest.mark.parametrize("name", ROUGH_FILES)
def test_a_rough_file_needs_no_option(name: str, edgefold: Command, tmp_path: Path) -> None:
    rough = ROUGH_FILES[name]()
    path = tmp_path / rough.name
    path.write_text(rough.text(0.4))
    code, out, _ = edgefold("forecast", path)
    assert code == ExitCode.DONE and "90 % band" in out
    (output,) = tmp_path.glob("*-forecast.csv")
    assert sum(bool(row["mean"]) for row in rows_of(output)) > 100


@pytest.mark.long
def test_what_is_refused_or_empty_is_told(edgefold: Command, sensor_csv: Path) -> None:
    lines = sensor_csv.read_text().splitlines()
    lines[40] = lines[40].rpartition(",")[0] + ","
    lines[50] = lines[50].rpartition(",")[0] + ",broken"
    lines[60] = "torn"
    lines[70] = lines[69]
    sensor_csv.write_text("\n".join(lines) + "\n")
    code, out, _ = edgefold("forecast", sensor_csv)
    assert code == ExitCode.DONE
    rows = rows_of(sensor_csv.with_name("sensor-forecast.csv"))
    assert len(rows) == 97
    empty = rows[39]
    assert empty["value"] == empty["p_value"] == "" and empty["mean"]
    assert out.count("\nrefused ") == 2 and "line 61" in out and "1 row has no value" in out


def test_a_table_without_a_usable_row_leaves_nothing(edgefold: Command, tmp_path: Path) -> None:
    path = tmp_path / "sensor.csv"
    path.write_text("time,value\n2024-01-01,3e31\n2024-01-02,3e31\n")
    code, _, error = edgefold("forecast", path)
    assert code == ExitCode.REFUSED and "line 2" in error.lower()
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_leaves_nothing(
    edgefold: Command, sensor_csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(forecasting.Track, "take", interrupted)
    assert edgefold("forecast", sensor_csv)[0] == ExitCode.INTERRUPTED
    assert list(sensor_csv.parent.iterdir()) == [sensor_csv]


def test_without_matplotlib_there_is_no_picture_and_it_is_told(
    edgefold: Command, sensor_csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    # The module alone: a package that is imported anew would lack the modules of the old one.
    monkeypatch.delitem(sys.modules, "edgefold.cli.plots.sensor_forecasts", raising=False)
    code, out, _ = edgefold("forecast", sensor_csv)
    assert code == ExitCode.DONE and "matplotlib is not installed" in out
    assert sensor_csv.with_name("sensor-forecast.csv").exists()
    assert not sensor_csv.with_name("sensor-forecast.png").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "time,value\n2024-01-01,1\n",
        "value\n" + "5\n" * 60,
        "t,$\\no $ formula\n" + "".join(f"{i},{i % 5}\n" for i in range(30)),
        "time,value\n" + "".join(f"9999-12-{i:02},{i % 5}\n" for i in range(1, 32)),
        "time,value\n" + "".join(f"2024-01-{i:02},{'' if i > 14 else i}\n" for i in range(1, 32)),
    ],
)
def test_a_picture_is_drawn_of_little(text: str, edgefold: Command, tmp_path: Path) -> None:
    (tmp_path / "little.csv").write_text(text)
    code, _, error = edgefold("forecast", tmp_path / "little.csv")
    assert code == ExitCode.DONE and "warning" not in error
    assert (tmp_path / "little-forecast.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("-",),
        ("SENSOR", "--out", "-"),
        ("SENSOR", "--out", "x.png"),
        ("SENSOR", "--false-alarms", "0.5"),
        ("SENSOR", "--false-alarms", "few"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], sensor_csv: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["forecast", *(str(sensor_csv) if word == "SENSOR" else word for word in words)])


@pytest.mark.parametrize("place", ["/dev/null", "nowhere/", "nowhere/x.csv", "x.csv/y.csv"])
def test_a_place_that_takes_no_file_is_refused_at_once(
    place: str, edgefold: Command, sensor_csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sensor_csv.parent)
    Path("x.csv").write_text("a file, not a folder")
    monkeypatch.setattr(forecasting.ForecastRun, "run", None)
    code, _, error = edgefold("forecast", sensor_csv, "--force", "--out", place)
    assert code == ExitCode.REFUSED and error
    assert {path.name for path in sensor_csv.parent.iterdir()} == {"sensor.csv", "x.csv"}


def test_a_folder_is_no_table(
    edgefold: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert edgefold("forecast", ".")[0] == ExitCode.REFUSED


def test_a_picture_that_fails_costs_no_forecast(
    edgefold: Command, sensor_csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", "sensor-forecast.png")

    monkeypatch.setattr("edgefold.cli.files.write_output", full)
    code, _, error = edgefold("forecast", sensor_csv)
    assert code == ExitCode.MACHINE and "No space" in error
    assert len(rows_of(sensor_csv.with_name("sensor-forecast.csv"))) == 100


def test_an_overview_holds_the_range_of_any_number_of_rows() -> None:
    def pieces(n: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        overview = Overview()
        for i in range(n):
            overview.add(i, math.nan if i == 5 else (i * 7919) % n)
        return overview.pieces()

    for n in (3, N_PIECES, N_PIECES + 1, 10 * N_PIECES + 3):
        time, low, high = pieces(n)
        assert len(time) <= N_PIECES and time[0] == 0 and (np.diff(time) > 0).all()
        known = [(i * 7919) % n for i in range(n) if i != 5]
        assert [np.nanmin(low), np.nanmax(high)] == [min(known), max(known)]


def test_a_table_that_begins_with_its_newest_row_gives_the_same_forecasts(
    edgefold: Command, sensor_csv: Path
) -> None:
    assert edgefold("forecast", sensor_csv)[0] == ExitCode.DONE
    header, *rows = sensor_csv.read_text().splitlines()
    turned = sensor_csv.with_name("turned.csv")
    turned.write_text("\n".join([header, *reversed(rows)]) + "\n")
    code, out, _ = edgefold("forecast", turned)
    assert code == ExitCode.DONE and "the newest row comes first" in out
    assert "oldest row first" in out.splitlines()[-1]
    files = (sensor_csv.with_name(f"{name}-forecast.csv") for name in ("sensor", "turned"))
    assert len({path.read_bytes() for path in files}) == 1


def test_sigterm_leaves_no_file_behind(
    edgefold: Command, sensor_csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(run: object, on_line: Callable[[], None]) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(forecasting.ForecastRun, "run", end)
    former = signal.getsignal(signal.SIGTERM)
    assert edgefold("forecast", sensor_csv)[0] == ExitCode.INTERRUPTED
    assert signal.getsignal(signal.SIGTERM) is former
    assert list(sensor_csv.parent.iterdir()) == [sensor_csv]


def test_series_that_take_too_much_memory_are_refused_before_they_are_made(
    edgefold: Command, tmp_path: Path
) -> None:
    wide = tmp_path / "wide.csv"
    names = [f"c{i}" for i in range(10)]
    wide.write_text("\n".join(["t," + ",".join(names), *[f"{i}" + ",1" * 10 for i in range(20)]]))
    code, _, error = edgefold("forecast", wide, "--memory-limit", "2MB")
    assert code == ExitCode.MISFIT and "--columns" in error
    ids = tmp_path / "ids.csv"  # more names than the first lines show
    rows = [f"{i},s{i // 50},{i % 7}.5" for i in range(550)]
    ids.write_text("\n".join(["t,sensor,v", *rows]))
    code, _, error = edgefold("forecast", ids, "--memory-limit", "2MB")
    assert code == ExitCode.MISFIT and "10 series" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ids.csv", "wide.csv"]


def test_progress_is_written_where_stderr_is_no_terminal(
    edgefold: Command, sensor_csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgefold.cli.commands import forecast

    monkeypatch.setattr(forecast, "LOGGED_S", 0.0)
    _, _, error = edgefold("forecast", sensor_csv)
    assert "100 lines" in error and "lines/s" in error


def test_more_alarms_than_are_listed_are_in_a_file_that_is_named() -> None:
    track = forecasting.Track("a")
    for i in range(12):
        track.tally.row(1.0, 0, True)
        track.alarms.append((f"t{i}", 1.0, "value"))
    table = SimpleNamespace(columns=SimpleNamespace(unread={}))
    run: Any = SimpleNamespace(
        tracks={"a": track}, bad=forecasting.Track(""), is_named=False, table=table
    )
    lines = told_lines(run, 1e-4, "x-forecast.csv")
    assert any(f"t{12 - SHOWN_ALARMS}" in line and "t11" in line for line in lines)
    assert any("x-forecast.csv" in line for line in lines)


def test_a_gap_is_left_empty_in_the_picture() -> None:
    seconds = np.array([0.0, 10.0, 20.0, 110.0, 120.0])
    times, low, high = with_gaps(seconds, seconds, seconds)
    assert times.tolist() == [0, 10, 20, 30, 110, 120]
    assert np.isnan(low).tolist() == np.isnan(high).tolist() == [False] * 3 + [True] + [False] * 2


# Backends -----------------------------------------------------------------------------------------


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> HostDriver:
    """A machine with TensorRT and a GPU, of which the driver is a stand-in, and an empty cache."""
    driver = HostDriver(None, "tensorrt", is_integrated=True)
    monkeypatch.setattr(tensorrt_backend, "installed", lambda: "tensorrt")
    monkeypatch.setattr(cuda_driver.CudaDriver, "open", lambda wait="auto": driver)
    monkeypatch.setenv("EDGEFOLD_CACHE", str(tmp_path / "cache"))
    return driver


def test_a_forecast_takes_no_gpu_unless_it_is_named(
    gpu: HostDriver, edgefold: Command, sensor_csv: Path
) -> None:
    code, _, error = edgefold("forecast", sensor_csv)
    assert code == ExitCode.DONE and not gpu.calls and gpu.n_builds == 0
    assert "building" not in error and "backend   onnxruntime" in error
    with Sensors.open() as sensors:
        assert sensors.backend_report["name"] == "onnxruntime"
        assert "CPU" in sensors.backend_report["refused"]["tensorrt"]
    assert not gpu.calls


def test_a_gpu_that_is_named_builds_with_a_line_and_keeps_its_conditions(
    gpu: HostDriver, edgefold: Command, sensor_csv: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    options = ("--backend", "tensorrt", "--engine-cache", own, "--gpu-wait", "block")
    code, out, error = edgefold("forecast", sensor_csv, *options)
    assert code == ExitCode.DONE and gpu.n_builds == 1
    assert "building TensorRT's engine of step, once ..." in error
    assert [path.suffix for path in own.glob("*.engine")] == [".engine"]
    assert gpu.built_with[0].conditions is not None and gpu.built_with[0].wait == "block"
    assert f"--engine-cache {own} --gpu-wait block" in out
