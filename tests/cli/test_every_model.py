"""The same five commands for every model that comes with Edgefold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgefold.train.models.event_model import EventModel
from edgefold.train.models.registry import MODELS, model_class

N_ROWS = 40
"""Rows of the stream; a buffer holds 256."""


def edgefold(*words: object) -> str:
    """What a command prints; it runs in a process of its own, as a user's does."""
    command = [sys.executable, "-m", "edgefold.cli.main", *map(str, words)]
    single = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=single)
    assert done.returncode == 0, done.stderr
    return done.stdout


EVENTS = [name for name in MODELS if issubclass(model_class(name), EventModel)]


@pytest.mark.slow
@pytest.mark.parametrize("name", EVENTS)
def test_a_model_of_events_is_trained_evaluated_exported_run_and_profiled(
    name: str, tmp_path: Path
) -> None:
    run, bundle, rows = tmp_path / "run", tmp_path / "bundle", tmp_path / "rows.csv"
    edgefold("train", "hawkes", "--model", name, "--steps", 2, "--warmup", 1, "--out", run)
    assert "the simulator" in edgefold("evaluate", run, "--batches", 1)
    edgefold("export", run, "--out", bundle)
    edgefold("check", bundle)
    edgefold("budget", bundle, "--device", "raspberry-pi-5")
    lines = [f"{0.3 * n * n:.3f},{n % 3}" for n in range(N_ROWS)]
    rows.write_text("\n".join(["time,mark", *lines]) + "\n")
    output, profile = tmp_path / "predictions.csv", tmp_path / "profile.json"
    edgefold("run", bundle, "--input", rows, "--output", output)
    header, first, *predicted = output.read_text().splitlines()
    assert len(predicted) == N_ROWS - 1 and first.endswith(",,"), header
    numbers = np.array([[float(cell) for cell in line.split(",")] for line in predicted])
    assert np.isfinite(numbers).all()
    edgefold("profile", bundle, "--updates", 200, "--json", profile)
    steps = {step["name"]: step for step in json.loads(profile.read_text())["latency"]}
    assert steps["step"]["n"] == 200


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if name not in EVENTS])
def test_a_model_is_trained_exported_checked_run_and_profiled(name: str, tmp_path: Path) -> None:
    run, bundle, rows = tmp_path / "run", tmp_path / "bundle", tmp_path / "rows.csv"
    edgefold("train", "gp", "--model", name, "--steps", 2, "--warmup", 1, "--out", run)
    edgefold("export", run, "--out", bundle)
    edgefold("check", bundle)
    x = np.linspace(-2, 2, N_ROWS)
    lines = [f"{a:.4f},{b:.4f}" for a, b in zip(x, np.sin(3 * x), strict=True)]
    rows.write_text("\n".join(["x,y", *lines]) + "\n")
    output, profile = tmp_path / "predictions.csv", tmp_path / "profile.json"
    edgefold("run", bundle, "--input", rows, "--columns", "x,y", "--output", output)
    header, *predicted = output.read_text().splitlines()
    assert len(predicted) == N_ROWS, header
    numbers = np.array([[float(cell) for cell in line.split(",")] for line in predicted])
    assert np.isfinite(numbers).all()
    edgefold("profile", bundle, "--updates", 200, "--queries", 50, "--json", profile)
    steps = {step["name"]: step for step in json.loads(profile.read_text())["latency"]}
    assert steps["update"]["n"] == 200 and steps["query"]["p50_s"] > 0
