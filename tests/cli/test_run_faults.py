"""`edgefold run` on rows with wrong times, at a wrong pace, and of files that rotate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main

Text = pytest.CaptureFixture[str]
COMMAND = [sys.executable, "-m", "edgefold.cli.main", "run"]


def run(bundle: Path, *words: object) -> int:
    return main(["run", str(bundle), *(str(word) for word in words)])


def rows_of(path: Path) -> list[list[str]]:
    return [line.split(",") for line in path.read_text().splitlines()]


def words_in(folder: Path, name: str = "series.csv") -> tuple[object, ...]:
    output, snapshot = folder / "p.csv", folder / "s.npz"
    return ("--input", folder / name, "--output", output, "--snapshot", snapshot, "--every", 5)


@pytest.mark.parametrize("far", [900, 5_000])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_rows_from_the_future_change_no_later_prediction_but_by_what_was_learned_of_them(
    series_bundle: Path, series_csv: Path, tmp_path: Path, far: int, n: int
) -> None:
    lines = series_csv.read_text().splitlines()
    lines[30:30] = [f"{far + k},400" for k in range(n)]
    series_csv.write_text("\n".join(lines) + "\n")
    assert run(series_bundle, *words_in(tmp_path)) == 0
    taken = {row[1] for row in rows_of(tmp_path / "p.csv")[1:] if row[3]}
    assert {str(time) for time in range(6, 60)} <= taken


@pytest.mark.one_case
@pytest.mark.parametrize("factor", [0.01, 0.3, 1.7, 168.0])
@pytest.mark.parametrize("n_rows", [7, 40])
def test_a_wrong_pace_is_one_line_and_leaves_no_file(
    series_bundle: Path, series_csv: Path, tmp_path: Path, factor: float, n_rows: int, capsys: Text
) -> None:
    whole = series_csv.read_text()
    rows = [f"{factor * k},{400 + k % 3}" for k in range(n_rows)]
    series_csv.write_text("\n".join(["time,value", *rows]) + "\n")
    assert run(series_bundle, *words_in(tmp_path), "--rotate", "60B") == ExitCode.REFUSED
    error = capsys.readouterr().err
    assert error.startswith("edgefold: error: ") and error.count("\n") == 1
    assert not list(tmp_path.glob("p.*"))
    assert not (tmp_path / "p.csv").exists() and not (tmp_path / "s.npz").exists()
    series_csv.write_text(whole)  # nothing blocks the next start
    assert run(series_bundle, *words_in(tmp_path)) == 0
    assert len(rows_of(tmp_path / "p.csv")) == 61


def test_a_wrong_pace_is_found_over_a_restart(
    series_bundle: Path, series_csv: Path, tmp_path: Path
) -> None:
    lines = ["time,value", *(f"{168 * k},{400 + k % 3}" for k in range(9))]
    series_csv.write_text("\n".join(lines[:5]) + "\n")
    assert run(series_bundle, *words_in(tmp_path)) == 0
    series_csv.write_text("\n".join(lines) + "\n")
    assert run(series_bundle, *words_in(tmp_path)) == ExitCode.REFUSED
    assert not (tmp_path / "s.npz").exists()


def test_an_alarm_comes_while_a_pipe_lives_and_ends_with_a_good_row(
    series_bundle: Path, series_csv: Path
) -> None:
    process = subprocess.Popen(
        [*COMMAND, str(series_bundle), "--input", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stderr
    good, bad = series_csv.read_text(), "1,400\n"
    process.stdin.write(good + bad * 205)
    process.stdin.flush()
    seen: list[str] = []
    while sum("WARNING" in line for line in seen) < 2:  # ends only because the lines come live
        seen.append(process.stderr.readline())
    process.stdin.write("60,401\n")
    process.stdin.close()
    rest = process.stderr.read()
    assert process.wait(60) == 0
    process.stderr.close()
    assert sum("skipped" in line for line in seen) == 20
    assert "learned again" in rest and "WARNING" not in rest


def test_a_rotated_input_goes_on_with_the_next_file(
    series_bundle: Path, series_csv: Path, tmp_path: Path, capsys: Text
) -> None:
    header, *rows = series_csv.read_text().splitlines(keepends=True)
    series_csv.write_text(header + "".join(rows[:40]))
    assert run(series_bundle, *words_in(tmp_path)) == 0
    os.rename(series_csv, tmp_path / "series.csv.1")
    series_csv.write_text(header + "".join(rows[40:]))
    kept = (tmp_path / "p.csv").read_bytes()
    assert run(series_bundle, *words_in(tmp_path)) == ExitCode.REFUSED
    assert (tmp_path / "p.csv").read_bytes() == kept
    capsys.readouterr()
    assert run(series_bundle, *words_in(tmp_path), "--next-file") == 0
    assert "next file" in capsys.readouterr().err
    whole, parts = tmp_path / "whole.csv", rows_of(tmp_path / "p.csv")
    series_csv.write_text(header + "".join(rows))
    assert run(series_bundle, "--input", series_csv, "--output", whole) == 0
    assert parts == rows_of(whole)
