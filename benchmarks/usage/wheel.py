"""How much does a bundle regret that plays the wheel bandit?

Each run of the task `wheel` is exported and plays 2,000 steps of every problem through `Stream`:
query, act, learn the reward of the arm that was chosen (`wheel_loop`). Problems differ
in delta and seed; all runs play the same ones.

    python -m benchmarks wheel runs/wheel-a runs/wheel-b

Regret is that of the 2,000 steps in percent of what the uniform policy loses on the same problems.
A run whose weights are those of the last record is not played again (--fresh does). A model that
keeps points and refuses more is exported with room for all steps.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import (
    IMAGES,
    RECORDS,
    Requirement,
    arguments,
    at_most,
    conditions,
    finish,
)
from benchmarks.tables import as_text
from benchmarks.usage.wheel_runs import DELTAS, N_STEPS, measure, problem_of

QUESTION = "How much does a bundle regret that plays the wheel bandit?"
BOUND_DELTA, BOUND_PERCENT = 0.7, 5.0
"""Difficulty of the wheel, and the regret in percent of the uniform policy's, to be kept."""


def requirements(models: dict[str, Any]) -> list[Requirement]:
    """The bound of the project."""
    return [
        at_most(
            f"{name}: regret at delta {BOUND_DELTA}, of the uniform policy's",
            float(np.mean(own["regret"][str(BOUND_DELTA)]["percent"])),
            BOUND_PERCENT,
            "%",
        )
        for name, own in models.items()
    ]


def draw(models: dict[str, Any], out: Path) -> None:
    """Draw the cumulative regret over the steps, a panel for each delta."""
    from matplotlib.figure import Figure

    deltas = list(next(iter(models.values()))["regret"])
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    for axes, delta in zip(figure.subplots(2, 3).flat, deltas, strict=True):
        for i, (name, own) in enumerate(models.items()):
            one = own["regret"][delta]
            # Curves that lie on each other stay visible: the later one is thinner and dashed.
            style = {
                "linewidth": max(5.5 - 1.7 * i, 1.5),
                "linestyle": ("-", "-", (0, (3, 2)))[i % 3],
            }
            axes.plot(one["curve_steps"], one["curve"], label=name, **style)
        axes.set_title(f"delta {delta}", loc="left", fontsize=10)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("steps")
    figure.supylabel("cumulative regret, % of the uniform policy's")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=6, frameon=False)
    figure.savefig(out, dpi=130)


def main() -> None:
    """Play and record."""
    parser = arguments(__doc__ or "", "wheel")
    parser.add_argument("runs", type=Path, nargs="+", help="runs of the task wheel")
    parser.add_argument("--seeds", type=int, default=50, help="problems a delta; default 50")
    parser.add_argument("--fresh", action="store_true", help="play known weights again")
    args = parser.parse_args()
    n_seeds, n_steps = (2, 200) if args.quick else (args.seeds, N_STEPS)
    before = conditions()
    problems = {
        delta: [problem_of(delta, seed, n_steps) for seed in range(n_seeds)] for delta in DELTAS
    }
    path = args.record or RECORDS / "wheel.json"
    old = json.loads(path.read_text())["data"] if path.exists() else {}
    is_alike = (old.get("n_seeds"), old.get("n_steps")) == (n_seeds, n_steps)
    models = old["models"] if is_alike else {}
    for run in args.runs:
        digest = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
        if args.fresh or models.get(run.name, {}).get("weights_sha256") != digest:
            models[run.name] = {"weights_sha256": digest, **measure(run, problems)}
    if not args.quick:
        draw(models, IMAGES / "wheel.png")
    data = {"n_seeds": n_seeds, "n_steps": n_steps, "models": models}
    finish(args, "wheel", QUESTION, before, data, requirements(models), as_text)


if __name__ == "__main__":
    main()
