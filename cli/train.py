"""`edgefold train`: a run of one task, from the first step or from where it stopped."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgefold.train.fit import FitConfig, Task
    from edgefold.train.models.cmanp import Cmanp

DEFAULT_STEPS = {"small": 10_000, "paper": 100_000}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "task",
        choices=["gp", "series"],
        help="gp: the papers' 1-D regression; series: one step ahead of a sensor series",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the run")
    parser.add_argument(
        "--resume", action="store_true", help="go on exactly where the run in --out stopped"
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--preset",
        choices=["small", "paper"],
        default="small",
        help="small: 3 blocks, 32 latents, minutes on two cores; paper: 6 blocks, 128 latents",
    )
    model.add_argument(
        "--plain",
        action="store_true",
        help="the paper's plain embedder and initialisation, for comparison: learns far slower",
    )
    fit = parser.add_argument_group("training")
    fit.add_argument("--steps", type=int, help="default: 10,000 for small, 100,000 for paper")
    fit.add_argument("--batch", type=int, default=16, help="tasks a step; default 16")
    fit.add_argument("--learning-rate", type=float, help="peak of the schedule")
    fit.add_argument("--warmup", type=int, default=500, help="steps of linear rise; default 500")
    fit.add_argument("--seed", type=int, default=0, help="default 0")
    fit.add_argument("--threads", type=int, default=2, help="CPU threads; default 2")
    fit.add_argument(
        "--compile", action="store_true", help="torch.compile: a minute more to start, then faster"
    )
    series = parser.add_argument_group("series")
    series.add_argument("--csv", type=Path, help="the series; rows after the held-out mark unseen")
    series.add_argument("--time", help="name of the time column, if there are more than two")
    series.add_argument("--value", help="name of the value column, if there are more than two")
    series.add_argument(
        "--season", type=float, help="season in days (365.2425 for a year); 0 for none"
    )


def run(args: argparse.Namespace) -> int:
    """Train; 0 also when asked to stop, since the checkpoint resumes."""
    if args.task == "series" and args.csv is None:
        args.usage_error("train series needs --csv FILE")
    if args.task == "gp" and args.csv is not None:
        args.usage_error("--csv belongs to the series task")
    if (args.out / "config.json").exists() and not args.resume:
        args.usage_error(
            f"{args.out} holds a run; continue it with --resume or choose another --out"
        )
    import torch

    from edgefold.train.fit import FitConfig, fit

    if args.task == "series":
        from edgefold.cli.train_series import series_task

        task, model_settings, rate = series_task(args)
    else:
        from edgefold.train.tasks.gp import GpTask

        task, model_settings, rate = GpTask(), {}, 2e-3
    config = FitConfig(
        steps=args.steps or DEFAULT_STEPS[args.preset],
        batch=args.batch,
        learning_rate=args.learning_rate or (5e-4 if args.plain else rate),
        warmup=args.warmup,
        seed=args.seed,
        threads=args.threads,
        compile=args.compile,
    )
    torch.manual_seed(args.seed)
    model = _model(args, task, model_settings)
    command = shlex.join(["edgefold", *(a for a in sys.argv[1:] if a != "--resume")])
    return _report(args, config, fit(model, task, config, args.out, command, args.resume))


def _model(args: argparse.Namespace, task: Task, settings: dict[str, float]) -> Cmanp:
    import dataclasses

    from edgefold.train.models.cmanp import PRESETS, Cmanp

    sized = dataclasses.replace(
        PRESETS[args.preset], n_inputs=task.n_inputs, n_outputs=task.n_outputs, **settings
    )
    if args.plain:
        sized = dataclasses.replace(sized, embedding="mlp", latents="normal", query_gain=1.0)
    return Cmanp(sized)


def _report(args: argparse.Namespace, config: FitConfig, finished: bool) -> int:
    from edgefold.train.curve import draw_curve

    picture = draw_curve(args.out)
    if finished:
        print(f"trained {config.steps} steps: {args.out}, loss curve in {picture}")
        print(f"next: edgefold evaluate {args.out}; edgefold export {args.out} --out BUNDLE")
    else:
        print(f"stopped; the checkpoint in {args.out} goes on with the same command and --resume")
    return 0
