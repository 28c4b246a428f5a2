"""`edgefold evaluate`: score a trained run by the protocol of its task."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

PAPER_ROWS = {"CMANP, as published": (1.24, 0.80), "CNP, as published": (0.26, 0.04)}
"""Log-likelihood under RBF and Matern 5/2, table 4 of Feng et al. 2024."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="a training run")
    parser.add_argument(
        "--batches", type=int, default=3000, help="gp: batches of 16 tasks per kernel; default 3000"
    )
    parser.add_argument("--seed", type=int, default=1, help="gp: seed of the evaluation tasks")
    parser.add_argument("--csv", type=Path, help="series: the file, if not the one trained on")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads; default 2")
    parser.add_argument("--json", type=Path, help="also write the scores here")


def run(args: argparse.Namespace) -> int:
    """Evaluate and print a table."""
    import torch

    from edgefold.train.checkpoints import load_model

    torch.set_num_threads(args.threads)
    model, config = load_model(args.run_folder)
    if config["task"]["name"] == "gp":
        scores = _gp(args, model, config)
    else:
        from edgefold.cli.evaluate_series import evaluate_series_run

        scores = evaluate_series_run(args, model, config)
    if args.json:
        args.json.write_text(json.dumps(scores, indent=2) + "\n")
    return 0


def _gp(args: argparse.Namespace, model: Any, config: dict[str, Any]) -> dict[str, Any]:
    from dataclasses import asdict

    from edgefold.train.evaluate import score_gp

    training = config["training"]
    scores = {
        kernel: asdict(score_gp(model, kernel, args.batches, seed=args.seed))
        for kernel in ("rbf", "matern52")
    }
    print("mean log-likelihood of a target, nats", file=sys.stderr)
    name = f"{args.run_folder.name}, {training['steps_done']} steps"
    width = max(len(name), *map(len, PAPER_ROWS)) + 2
    print(f"{'':{width}}{'RBF':>16}{'Matern 5/2':>16}")
    cells = "".join(
        f"{s['log_likelihood']:>8.3f} ± {s['standard_error']:.3f}" for s in scores.values()
    )
    print(f"{name:{width}}{cells}")
    for row, values in PAPER_ROWS.items():
        print(f"{row:{width}}{values[0]:>8.2f}{values[1]:>16.2f}")
    return {"run": config, "scores": scores}
