"""Rows of events in `edgefold run`: names of marks, gaps of times, restarts, what is refused."""

from __future__ import annotations

import csv
import json
import math
import shutil
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

from edgefold.cli.main import main
from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime.bundle.manifest_file import load_manifest, with_checksum
from edgefold.runtime.errors import DataError
from edgefold.runtime.loop.adapters import adapter_for
from edgefold.train.contract import advance
from edgefold.train.models.events.hawkes import Hawkes, HawkesConfig

Text = pytest.CaptureFixture[str]
MARKS = ["door", "window, left", "alarm"]
UNIT_S = 60.0
TASK = {
    "name": "events",
    "rows": "events",
    "marks": MARKS,
    "clock": "date",
    "columns": ["time", "mark"],
    "x_shift": [0.0, 0.0],
    "x_scale": [UNIT_S, 1.0],
    "y_shift": [0.0],
    "y_scale": [UNIT_S],
}


def model() -> Hawkes:
    torch.manual_seed(0)
    return Hawkes(HawkesConfig(3)).eval()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("events") / "bundle"
    export_bundle(model(), TASK, folder, ExportConfig(chunk=4, parity_steps=24))
    return folder


def write_events(path: Path, n: int = 60) -> list[tuple[datetime, int]]:
    random = np.random.default_rng(0)
    moment, events, lines = datetime(2024, 2, 1), [], ["time,mark"]
    for _ in range(n):
        moment += timedelta(milliseconds=int(random.exponential(60_000)))
        mark = int(random.integers(3))
        events.append((moment, mark))
        name = f'"{MARKS[mark]}"' if random.random() < 0.5 else str(mark)
        lines.append(f"{moment.isoformat(timespec='milliseconds')},{name}")
    path.write_text("\n".join(lines) + "\n")
    return events


def run(bundle: Path, *words: object) -> int:
    return main(["run", str(bundle), *map(str, words)])


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_are_predicted_as_the_model_does_in_raw_units(bundle: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    events = write_events(source)
    assert run(bundle, "--input", source, "--output", output) == 0
    rows, exact = read(output), model()
    assert len(rows) == len(events) and rows[0]["next_mark"] == ""  # the first starts the clock
    state = exact.initial_state()
    for row, (before, _), (moment, mark) in zip(rows[1:], events, events[1:], strict=False):
        gap = (moment - before).total_seconds() / UNIT_S
        written, told = exact.step(state, torch.tensor([[gap, mark]]))
        state = advance(exact, state, written)
        density = told["log_likelihood"].item() - math.log(UNIT_S)  # of time in seconds
        assert float(row["log_likelihood"]) == pytest.approx(density, abs=1e-4)
        median = told["gap_quantiles"][0, 2, 0].item() * UNIT_S
        assert float(row["gap_q50"]) == pytest.approx(median, rel=1e-4)
        best = told["mark_probabilities"][0]
        assert row["next_mark"] == MARKS[int(best.argmax())]
        assert float(row["next_mark_probability"]) == pytest.approx(best.max().item(), abs=1e-5)


def test_a_restart_continues_to_the_same_bytes(bundle: Path, tmp_path: Path) -> None:
    source, whole, output = (tmp_path / name for name in ("in.csv", "whole.csv", "out.csv"))
    write_events(source)
    assert run(bundle, "--input", source, "--output", whole) == 0
    lines = source.read_text().splitlines(keepends=True)
    for end in (2, 25, 26, len(lines)):
        source.write_text("".join(lines[:end]))
        words = ("--input", source, "--output", output, "--snapshot", tmp_path / "s.npz")
        assert run(bundle, *words) == 0
    assert output.read_bytes() == whole.read_bytes()


def test_bad_rows_are_skipped_and_leave_the_clock_as_it_was(
    bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    source, clean, output = (tmp_path / name for name in ("in.csv", "clean.csv", "out.csv"))
    write_events(source)
    assert run(bundle, "--input", source, "--output", clean) == 0
    lines = source.read_text().splitlines()
    wrong = ["2023-01-01,door", "2025-01-01,cat", "soon,door", "2025-01-01,"]
    source.write_text("\n".join([*lines[:31], *wrong, *lines[31:]]) + "\n")
    capsys.readouterr()
    assert run(bundle, "--input", source, "--output", output) == 0
    said = capsys.readouterr().err
    assert "events must come in order" in said and "none of the marks" in said
    without_line = [{k: v for k, v in row.items() if k != "line"} for row in read(output)]
    assert without_line == [{k: v for k, v in row.items() if k != "line"} for row in read(clean)]


def test_streams_of_one_input_have_their_own_clocks(bundle: Path, tmp_path: Path) -> None:
    source, alone, long, output = (tmp_path / f"{name}.csv" for name in ("in", "a", "l", "out"))
    write_events(source, 20)
    assert run(bundle, "--input", source, "--output", alone) == 0
    header, *lines = source.read_text().splitlines()
    doubled = [f"{line},{house}" for line in lines for house in ("one", "two")]
    long.write_text("\n".join([f"{header},house", *doubled]) + "\n")
    words = ("--stream", "house", "--streams", 2)
    assert run(bundle, "--input", long, "--output", output, *words) == 0
    expected = [row["log_likelihood"] for row in read(alone)]
    for house in ("one", "two"):
        rows = [row for row in read(output) if row["stream"] == house]
        assert [row["log_likelihood"] for row in rows] == expected


def test_a_year_of_silence_counts_as_a_long_one_and_the_stream_goes_on(
    bundle: Path, tmp_path: Path
) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    rows = ["time,mark", "0001-01-01,door", "2024-01-01,door", "2024-01-02,alarm"]
    source.write_text("\n".join(rows) + "\n")
    assert run(bundle, "--input", source, "--output", output) == 0
    found = [row["log_likelihood"] for row in read(output)]
    assert found[0] == "" and all(math.isfinite(float(text)) for text in found[1:])


def retasked(bundle: Path, folder: Path, **task: object) -> Path:
    shutil.copytree(bundle, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["task"] |= task
    (folder / "manifest.json").write_text(json.dumps(with_checksum(manifest)))
    return folder


@pytest.mark.parametrize("task", [{"marks": ["a"]}, {"marks": 3}, {"clock": "moon"}])
def test_a_damaged_task_is_refused(bundle: Path, tmp_path: Path, task: dict[str, object]) -> None:
    damaged = retasked(bundle, tmp_path / "bundle", **task)
    with pytest.raises(DataError, match="marks"):
        adapter_for(load_manifest(damaged))


def test_options_of_other_rows_are_refused(bundle: Path) -> None:
    manifest = load_manifest(bundle)
    with pytest.raises(DataError, match="--mark"):
        adapter_for(manifest, value="v")
    with pytest.raises(DataError, match="--mark"):
        adapter_for(manifest, columns=["a", "b"])
    numbers = retasked(bundle, bundle.parent / "numbers", clock="number")
    with pytest.raises(DataError, match="numbers"):
        adapter_for(load_manifest(numbers), format={"time_format": "%Y"})
