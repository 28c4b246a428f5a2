"""How good are the shipped models, next to the papers' rows and what needs no model?

    checkpoints/*, task gp       log-likelihood by the papers' protocol, beside the model as
                                 published, and the exact posterior, which nothing can beat
    checkpoints/*, task series   one step ahead over the held-out part, beside persistence, the
                                 seasonal naive forecast and recursive least squares

The scores come from `edgefold evaluate CHECKPOINT --json`. They depend on the weights and the seed
alone, so a checkpoint whose weights are those of the last record is not evaluated again (--fresh
does).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import (
    RECORDS,
    ROOT,
    Requirement,
    arguments,
    at_least,
    at_most,
    conditions,
    finish,
    progress,
)
from benchmarks.table import KERNELS
from benchmarks.tables import as_text
from edgefold.train.models.registry import model_class
from edgefold.train.tasks.gp import Kernel

QUESTION = "How good are the shipped models?"
GP_BOUNDS = {"rbf": 1.36, "matern52": 0.92}


def shipped(folder: Path) -> list[Path]:
    """Checkpoints of a folder that hold a whole run of a task that is scored here."""
    runs = sorted(path.parent for path in folder.glob("*/model.safetensors"))
    tasks = {run: json.loads((run / "config.json").read_text())["task"]["name"] for run in runs}
    return [run for run in runs if tasks[run] in ("gp", "series")]


def evaluate(run: Path, n_batches: int) -> dict[str, Any]:
    """The JSON of `edgefold evaluate`."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "scores.json"
        command = [sys.executable, "-m", "edgefold.cli.main", "evaluate", str(run)]
        command += ["--json", str(out)]
        config = json.loads((run / "config.json").read_text())
        if config["task"]["name"] == "gp":
            command += ["--batches", str(n_batches), "--threads", "1"]  # two wait for each other
        else:
            command += ["--csv", str(ROOT / "data" / config["task"]["file"])]
        progress("edgefold " + " ".join(command[3:]))
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        scores: dict[str, Any] = json.loads(out.read_text())
    return scores


def collect(args: argparse.Namespace, old: dict[str, Any]) -> dict[str, Any]:
    """Scores of every checkpoint; those that `old` has with the same weights are not run."""
    collected = {}
    for run in shipped(args.checkpoints):
        digest = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
        known = old.get(run.name, {})
        key = {"weights_sha256": digest, "n_batches": args.batches}
        if args.fresh or any(known.get(name) != value for name, value in key.items()):
            scores = evaluate(run, args.batches)
            task = scores["run"]["task"]
            known = {
                **key,
                "task": task["name"],
                "file": task.get("file"),
                "model": scores["run"]["model"],
                "training": scores["run"]["training"],
                "scores": scores["scores"],
            }
        published = model_class(known["model"]["kind"]).published.get(known["task"], {})
        collected[run.name] = {**known, "published": dict(published)}
    return collected


def requirements(runs: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project: the best gp checkpoint, and every series checkpoint."""
    found = []
    gp = {name: run["scores"] for name, run in runs.items() if run["task"] == "gp"}
    if gp:
        best = max(gp, key=lambda name: sum(s["log_likelihood"] for s in gp[name].values()))
        for kernel, bound in GP_BOUNDS.items():
            value = gp[best][kernel]["log_likelihood"]
            found.append(
                at_least(f"{best}: log-likelihood, {KERNELS[kernel]}", value, bound, "nats")
            )
    for name, run in runs.items():
        if run["task"] != "series":
            continue
        scores = run["scores"]
        ours = scores[name]
        for baseline in ("persistence", "seasonal naive"):
            if baseline in scores:
                share = ours["rmse"] / scores[baseline]["rmse"] * 100
                found.append(at_most(f"{name}: RMSE beside {baseline}'s", share, 100, "%"))
        inside = ours["coverage_90"] * 100
        met = 85 <= inside <= 95
        found.append(
            Requirement(
                f"{name}: values inside the 90 % band", f"{inside:.1f} %", "85 to 95 %", met
            )
        )
    return found


def main() -> None:
    """Evaluate and record."""
    parser = arguments(__doc__ or "", "accuracy")
    parser.add_argument("--checkpoints", type=Path, default=ROOT / "checkpoints")
    parser.add_argument("--batches", type=int, default=3000, help="gp: batches; default 3000")
    parser.add_argument("--exact-batches", type=int, default=3000, help="of the exact posterior")
    parser.add_argument("--fresh", action="store_true", help="evaluate known weights again")
    args = parser.parse_args()
    if args.quick:
        args.batches, args.exact_batches = 20, 50
    before = conditions(threads=2)
    import torch

    from benchmarks.accuracy import exact_gp

    torch.set_num_threads(1)
    path = args.record or RECORDS / "accuracy.json"
    old = json.loads(path.read_text())["data"]["runs"] if path.exists() else {}
    progress("the exact posterior")
    kernels: tuple[Kernel, ...] = ("rbf", "matern52")
    exact, exact_joint = (
        {kernel: exact_gp.score(kernel, args.exact_batches, joint=joint) for kernel in kernels}
        for joint in (False, True)
    )
    data: dict[str, Any] = {
        "runs": collect(args, old),
        "exact": exact,
        "exact_joint": exact_joint,
    }
    finish(args, "accuracy", QUESTION, before, data, requirements(data["runs"]), as_text)


if __name__ == "__main__":
    main()
