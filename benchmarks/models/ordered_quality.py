"""How good are the models of ordered streams, and what do they cost on a device?

Each run of the tasks `sequences`, `hawkes` or `events` is scored by `edgefold evaluate`, beside the
baselines, simulators and published figures of its task. It is then exported, and the bundle's steps
are timed on one thread along a stream of the model's own range, with what it keeps:

    python -m benchmarks ordered_quality runs/digits-a runs/digits-b runs/hawkes-a

All runs of the table are given at once; runs of one task and source become one table.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.trainings import edgefold
from benchmarks.record import (
    Requirement,
    arguments,
    at_most,
    conditions,
    finish,
    progress,
    spread,
)
from benchmarks.tables import as_text
from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime import Stream

QUESTION = "How good are the models of ordered streams, and what do they cost?"
N_STEPS = 3_000
N_BATCHES = 100
MOST_BEHIND_NATS = 0.05
"""An event: what a model of constant memory may lose against the exact likelihood."""
CEILING = "the simulator"


def measure(run: Path, n_batches: int, n_steps: int) -> dict[str, Any]:
    """Return the report of `edgefold evaluate` on a run, and its bundle's cost."""
    from edgefold.train.checkpoints import load_model

    model, config = load_model(run)
    task = config["task"]
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        told, bundle = Path(folder) / "scores.json", Path(folder) / "bundle"
        words = ["evaluate", str(run), "--batches", str(n_batches), "--json", str(told)]
        edgefold(words)
        export_bundle(model, task, bundle, ExportConfig(parity_steps=200))
        cost = cost_of(bundle, n_steps)
        scores = json.loads(told.read_text())["scores"]
    own, *_ = scores  # the run's own come first
    return {
        "task": task["name"],
        "source": task.get("source", Path(task.get("csv", "")).stem),
        "model": config["model"],
        "training": config["training"],
        "n_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "scores": scores[own],
        "beside": {**scores.get("baselines", {}), **others(scores, own)},
        "cost": cost,
    }


def others(scores: dict[str, Any], own: str) -> dict[str, Any]:
    """Return a task's other scores, besides the run's: simulators and fitted processes."""
    return {name: found for name, found in scores.items() if name not in (own, "baselines")}


def cost_of(bundle: Path, n_steps: int) -> dict[str, Any]:
    """Times of a bundle's steps, and what it keeps."""
    with Stream.open(bundle, "onnxruntime") as stream:
        manifest = stream.manifest
        random = np.random.default_rng(0)
        x = random.uniform(0.0, 1.0, (n_steps, manifest.n_inputs))
        taken = []
        for row in x:
            start = time.perf_counter_ns()
            stream.step(row)
            taken.append(time.perf_counter_ns() - start)
        state = {name: array.nbytes for name, array in stream.state().items()}
    return {
        "step": {**spread(taken[n_steps // 10 :]), "worst_s": max(taken[n_steps // 10 :]) / 1e9},
        "state_bytes": sum(state.values()),
        "n_steps": n_steps,
    }


def requirements(runs: dict[str, Any]) -> list[Requirement]:
    """Return bounds on the loss of models of events against the exact likelihood, where known."""
    found = []
    for name, own in runs.items():
        if CEILING in own["beside"]:
            behind = own["beside"][CEILING]["log_likelihood"] - own["scores"]["log_likelihood"]
            what = f"{name}: behind the exact likelihood"
            found.append(at_most(what, behind, MOST_BEHIND_NATS, "nats an event"))
    return found


def main() -> None:
    """Score, export, time and record."""
    parser = arguments(__doc__ or "", "ordered_quality")
    parser.add_argument("runs", type=Path, nargs="+", help="runs of filters")
    args = parser.parse_args()
    n_batches, n_steps = (2, 100) if args.quick else (N_BATCHES, N_STEPS)
    before, runs = conditions(), {}
    for index, run in enumerate(args.runs):
        progress(f"{run.name}, {index + 1} of {len(args.runs)}")
        runs[run.name] = measure(run, n_batches, n_steps)
    finish(args, "ordered_quality", QUESTION, before, {"runs": runs}, requirements(runs), as_text)


if __name__ == "__main__":
    main()
