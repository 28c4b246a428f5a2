"""The same commands for every model that comes with Edgefold, on a task that suits its kind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgefold.train.contract import is_filter
from edgefold.train.models.registry import MODELS, create_model, model_class

N_ROWS = 40
"""Rows of the stream; a buffer holds 256."""


def edgefold(*words: object) -> str:
    """What a command prints; it runs in a process of its own, as a user's does."""
    command = [sys.executable, "-m", "edgefold.cli.main", *map(str, words)]
    single = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=single)
    assert done.returncode == 0, done.stderr
    return done.stdout


FILTERS_LEARN = {"categorical": "sequences", "next-event": "hawkes"}
"""By what a filter predicts, a task that needs no file."""


def task_of(name: str) -> str:
    """A task that suits a model."""
    if not is_filter(model_class(name)):
        return "gp"
    return FILTERS_LEARN[create_model(name).prediction.name]


def rows_for(task: str) -> list[str]:
    """The lines of a file that `edgefold run` reads."""
    x = np.linspace(-2, 2, N_ROWS)
    if task == "gp":
        return ["x,y", *(f"{a:.4f},{b:.4f}" for a, b in zip(x, np.sin(3 * x), strict=True))]
    if task == "hawkes":
        return ["time,mark", *(f"{2 * a + 5:.4f},{i % 2}" for i, a in enumerate(x))]
    pixels = [",".join(f"{8 + 4 * np.sin(a + i):.2f}" for i in range(8)) for a in x]
    return [",".join(f"x{i + 1}" for i in range(8)), *pixels]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_trained_exported_checked_run_and_profiled(name: str, tmp_path: Path) -> None:
    run, bundle, rows = tmp_path / "run", tmp_path / "bundle", tmp_path / "rows.csv"
    task, answers = task_of(name), is_filter(model_class(name))
    edgefold("train", task, "--model", name, "--steps", 2, "--warmup", 1, "--out", run)
    edgefold("evaluate", run, "--batches", 2, "--threads", 1)
    edgefold("export", run, "--out", bundle)
    edgefold("check", bundle)
    edgefold("budget", bundle, "--device", "raspberry-pi-5")
    rows.write_text("\n".join(rows_for(task)) + "\n")
    output, profile = tmp_path / "predictions.csv", tmp_path / "profile.json"
    columns = ("--columns", "x,y") if task == "gp" else ()
    edgefold("run", bundle, "--input", rows, *columns, "--output", output)
    header, *predicted = output.read_text().splitlines()
    assert len(predicted) == N_ROWS, header
    cells = [cell for line in predicted[1:] for cell in line.split(",")]  # events begin with a row
    numbers = [float(cell) for cell in cells if not cell.isalpha()]  # names of classes, of marks
    assert np.isfinite(numbers).all()
    edgefold("profile", bundle, "--updates", 200, "--queries", 50, "--json", profile)
    steps = {step["name"]: step for step in json.loads(profile.read_text())["latency"]}
    assert steps["step" if answers else "update"]["n"] == 200
    assert answers or steps["query"]["p50_s"] > 0
