"""Runs of the task `wheel` that play: the problems, and what each run regrets."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import progress
from benchmarks.usage.wheel_loop import Problem, play
from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime import Stream

DELTAS = (0.5, 0.7, 0.9, 0.95, 0.99, 0.995)
N_STEPS = 2000
CURVE_POINTS = 50


def problem_of(delta: float, seed: int, n_steps: int) -> Problem:
    """The same problem for every run; no seed of training's."""
    import torch

    from edgefold.train.tasks.wheel import draw_points, draw_rewards

    generator = torch.Generator().manual_seed(10_000 * round(1000 * delta) + seed)
    x = draw_points(1, n_steps, generator)
    rewards = draw_rewards(x, torch.tensor([[delta]]), generator)
    return Problem(x[0].double().numpy(), rewards[0].double().numpy())


def play_all(stream: Stream, problems: dict[float, list[Problem]], name: str) -> dict[str, Any]:
    """Regrets by delta in percent of the uniform policy's: each seed's, and the mean curve."""
    found: dict[str, Any] = {}
    for delta, some in problems.items():
        uniform = float(np.mean([problem.uniform_regret() for problem in some]))
        curves, start = [], time.perf_counter()
        for seed, problem in enumerate(some):
            arms = play(stream, problem, np.random.default_rng(seed))
            curves.append(100 * problem.regret(arms).cumsum() / uniform)
        lasted = time.perf_counter() - start
        ends = [float(curve[-1]) for curve in curves]
        shown = np.linspace(0, len(curves[0]) - 1, CURVE_POINTS).astype(int)
        found[str(delta)] = {
            "percent": ends,
            "uniform": uniform,
            "step_s": lasted / sum(map(len, curves)),
            "curve": np.mean(curves, 0)[shown].round(4).tolist(),
            "curve_steps": (shown + 1).tolist(),
        }
        progress(f"{name}, delta {delta}: {np.mean(ends):.2f} ± {np.std(ends):.2f} %")
    return found


def measure(run: Path, problems: dict[float, list[Problem]]) -> dict[str, Any]:
    """Export a run and let it play."""
    import torch

    from edgefold.train.checkpoints import load_model
    from edgefold.train.contract import room_of

    torch.set_num_threads(1)
    n_steps = len(next(iter(problems.values()))[0].x)
    model, config = load_model(run)
    room = room_of(model)
    if room is not None and room < n_steps:
        model, config = load_model(run, settings={"capacity": n_steps})
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        bundle = Path(folder) / run.name
        export_bundle(model, config["task"], bundle, ExportConfig(targets=1))
        with Stream.open(bundle, "onnxruntime") as stream:
            regret = play_all(stream, problems, run.name)
    n_weights = sum(parameter.numel() for parameter in model.parameters())
    parts = {"model": config["model"], "training": config["training"]}
    return {**parts, "n_parameters": n_weights, "regret": regret}
