"""`edgefold forecast --with`: columns that explain the others."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.exit_codes import ExitCode
from tests.cli.conftest import Command

pytestmark = pytest.mark.usefixtures("compiled_sensors")

N, N_COMING, STEP = 700, 20, 8.0


def write(path: Path, header: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A room that a heater warms by 8 at once; the last rows have the heater's plan and no value.

    The plan is off and then on, and the heater is off at the last value.
    """
    draw = np.random.default_rng(3)
    is_on = (np.cumsum(draw.random(N) < 0.03) % 2).astype(int)
    is_on[-5:] = 0
    rows: list[list[object]] = [
        [600 * row, f"{draw.normal() + STEP * on:.3f}", on] for row, on in enumerate(is_on.tolist())
    ]
    rows += [[600 * (N + row), "", int(row >= 5)] for row in range(N_COMING)]
    return write(tmp_path / "house.csv", ["time", "room", "heater"], rows)


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_plan_at_the_end_of_a_table_is_forecast(
    edgefold: Command, house: Path, tmp_path: Path
) -> None:
    code, out, _ = edgefold("forecast", house, "--with", "heater", "--ahead")
    assert code == ExitCode.DONE
    assert "values        room\n" in out and "with          heater\n" in out
    heads, told = out.partition("with          heater\n")[2].splitlines()[:2]
    assert heads.startswith("rows use it") and heads.endswith("rows known ahead")
    assert told.split()[:1] == ["yes"] and told.split()[-1] == str(N_COMING)
    assert told.split()[1].startswith("-")  # the loss falls
    assert "go on         without heater: edgefold run sensors" in out and "--value room" in out
    rows = read(tmp_path / "house-forecast.csv")
    assert "series" not in rows[0] and len(rows) == N + N_COMING
    coming = rows[N:]
    assert [row["time"] for row in coming] == [str(600 * (N + k)) for k in range(N_COMING)]
    assert all(row["value"] == row["log_density"] == row["event"] == "" for row in coming)
    medians = np.array([float(row["q50"]) for row in coming])
    # The heater's step, of 8 noises, is learned to within a noise and a half from some 40 steps.
    assert medians[8:].mean() - medians[1:5].mean() == pytest.approx(STEP, abs=1.5)
    following = read(tmp_path / "house-forecast-next.csv")
    assert float(following[9]["q50"]) == pytest.approx(medians[9])
    assert "house-forecast.png" in out or "matplotlib" in out


def test_each_column_of_several_gets_the_same_covariates(
    edgefold: Command, house: Path, tmp_path: Path
) -> None:
    rows: list[list[object]] = [
        [row["time"], row["room"], row["heater"], {3: "broken", 9: ""}.get(at, row["heater"])]
        for at, row in enumerate(read(house)[: N // 2])
    ]
    table = write(tmp_path / "two.csv", ["time", "room", "heater", "copy"], rows)
    words = ("--columns", "room,heater", "--with", "copy", "--missing", "none")
    code, out, _ = edgefold("forecast", table, *words)
    assert code == ExitCode.DONE
    note = (
        "note          copy: 2 cells without a number, taken as unchanged; line 5: column copy is"
    )
    assert note in out
    found = read(tmp_path / "two-forecast.csv")
    assert {row["series"] for row in found} == {"room", "heater"}
    assert len(found) == 2 * len(rows)


def test_a_plan_with_holes_and_rows_too_far_ahead_is_told(
    edgefold: Command, house: Path, tmp_path: Path
) -> None:
    rows: list[list[object]] = [list(row.values()) for row in read(house)]
    del rows[N : N + 4]  # the plan begins at the fifth row
    rows[-1][2] = ""  # and says nothing of its last one
    rows.append([600 * (N + 5000), "", 1])
    table = write(tmp_path / "holes.csv", ["time", "room", "heater"], rows)
    code, out, _ = edgefold("forecast", table, "--with", "heater", "--with", "time2", "--force")
    assert code == ExitCode.REFUSED
    code, out, _ = edgefold("forecast", table, "--with", "heater", "--ahead")
    assert code == ExitCode.DONE
    assert f" {N_COMING - 5} of {N_COMING - 1}\n" in out
    assert "note          room: 1 planned rows are too far ahead" in out
    found = read(tmp_path / "holes-forecast.csv")
    assert len(found) == N + N_COMING - 4


def test_what_cannot_be_done_is_said(edgefold: Command, house: Path, tmp_path: Path) -> None:
    code, _, error = edgefold("forecast", house, "--with", "outdoors")
    assert code == ExitCode.REFUSED and "outdoors" in error
    for words, text in {
        ("--columns", "heater", "--with", "heater"): "in --columns and in --with",
        ("--with", "room, heater"): "no column of numbers but those named with --with",
        ("--with", "heater,time"): "tells the times",
    }.items():
        code, _, error = edgefold("forecast", house, *words)
        assert code == ExitCode.REFUSED and text in error, words
    words_of: list[list[object]] = [[60 * k, k % 7, "on" if k % 5 else "off"] for k in range(40)]
    table = write(tmp_path / "text.csv", ["time", "value", "switch"], words_of)
    code, _, error = edgefold("forecast", table, "--with", "switch")
    assert code == ExitCode.REFUSED and "write a switch as 0 and 1" in error
    long: list[list[object]] = [[60 * k, k % 7, "ab"[k % 2], 1] for k in range(40)]
    table = write(tmp_path / "long.csv", ["time", "value", "sensor", "switch"], long)
    code, _, error = edgefold("forecast", table, "--series", "sensor", "--with", "switch")
    assert code == ExitCode.REFUSED and "a column for each sensor" in error
    assert not list(tmp_path.glob("*-forecast*"))
