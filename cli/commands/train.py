"""`edgefold train`: a run of one task, from the first step or from where it stopped."""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.options import positive
from edgefold.cli.series_options import add_series_arguments

if TYPE_CHECKING:
    from edgefold.train.fit import FitConfig, Task
    from edgefold.train.models.cmanp import CmanpConfig

EXAMPLES = (
    "edgefold train series --csv sensor.csv --out runs/sensor",
    "edgefold train gp --steps 20000 --out runs/gp",
)

DEFAULTS = {
    "gp": {"steps": 10_000, "batch": 16, "warmup": 500, "learning_rate": 2e-3},
    "series": {"steps": 5_000, "batch": 8, "warmup": 200, "learning_rate": 2e-3},
}
MOST_SEEDS = 2**62
PAPER_STEPS = 100_000
PLAIN_RATE = 5e-4
"""The papers' learning rate: the plain variant does not bear ours."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options. Those of a run default to None: a resumed run keeps its own."""
    parser.add_argument(
        "task",
        choices=["gp", "series"],
        help="gp: the papers' 1-D regression; series: one step ahead of a sensor series",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on exactly where the run in --out stopped, with the settings it was started with",
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--preset",
        choices=["small", "paper"],
        help="small (default): 3 blocks, 32 latents, minutes on two cores; paper: 6 blocks, 128 "
        "latents",
    )
    model.add_argument(
        "--plain",
        action="store_true",
        help="the paper's plain embedder and initialisation, for comparison: learns far slower",
    )
    fit = parser.add_argument_group("training")
    fit.add_argument(
        "--steps",
        type=positive,
        help="default 10,000 for gp, 5,000 for series, 100,000 for the paper preset",
    )
    fit.add_argument("--batch", type=positive, help="tasks a step (default 16; for series 8)")
    fit.add_argument("--learning-rate", type=float, help="peak of the schedule (default 0.002)")
    fit.add_argument(
        "--warmup", type=positive, help="steps of linear rise (default 500; for series 200)"
    )
    fit.add_argument("--seed", type=seed, help="default 0")
    fit.add_argument("--threads", type=positive, help="CPU threads (default 2)")
    fit.add_argument(
        "--compile", action="store_true", help="torch.compile: a minute more to start, then faster"
    )
    series = add_series_arguments(parser, "the series; its last fifth is held out, never seen")
    series.add_argument(
        "--season",
        type=_season,
        help="season in days, or in units of times that are numbers; 0 for none (default: a year "
        "for dated rows 1 to 120 days apart, a day for dated rows up to 6 hours apart, else none)",
    )


def seed(text: str) -> int:
    """A seed that every generator takes, for argparse."""
    number = int(text)
    if not 0 <= number < MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"{number} is not between 0 and {MOST_SEEDS - 1}")
    return number


def _season(text: str) -> float:
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no length of time; 0 is for none")
    return number


def run(args: argparse.Namespace) -> int:
    """Train; 0 also when asked to stop, since the checkpoint resumes."""
    _refuse_misuse(args)
    import torch

    from edgefold.train.fit import fit
    from edgefold.train.models.cmanp import Cmanp

    kept = _kept(args) if args.resume else None
    task = _task(args, kept)
    config = fit_config(args, kept)
    shape = model_config(args, task, kept)
    if kept and kept["training"]["steps_done"] >= config.steps:
        print(f"{args.out} has all its {config.steps} steps already: there is nothing to resume")
        return 0
    torch.manual_seed(config.seed)
    command = shlex.join(["edgefold", *(a for a in sys.argv[1:] if a != "--resume")])
    if kept:
        command = kept["training"]["command"]
    return _report(args, config, fit(Cmanp(shape), task, config, args.out, command, args.resume))


def _refuse_misuse(args: argparse.Namespace) -> None:
    if args.task == "series" and args.csv is None and not args.resume:
        args.usage_error("train series needs --csv FILE")
    given = [n for n in ("csv", "time", "value", "gaps", "season") if getattr(args, n) is not None]
    if args.task == "gp" and given:
        args.usage_error(f"--{given[0]} belongs to the series task")
    if args.learning_rate is not None and not 0 < args.learning_rate < 1:
        args.usage_error(f"argument --learning-rate: {args.learning_rate} is not between 0 and 1")
    if (args.out / "config.json").exists() and not args.resume:
        args.usage_error(
            f"{args.out} holds a run; continue it with --resume or choose another --out"
        )


def _kept(args: argparse.Namespace) -> dict[str, Any]:
    """The config of the run that is resumed, with everything that the start wrote."""
    from edgefold.runtime.errors import CheckpointError
    from edgefold.train.checkpoints import read_config

    config = read_config(args.out)
    task, training = config.get("task", {}), config.get("training", {})
    if "name" not in task or not {"steps", "steps_done", "seed", "command"} <= set(training):
        raise CheckpointError(
            f"{args.out}/config.json lacks the task or the training; restore it from a copy."
        )
    if task["name"] != args.task:
        args.usage_error(f"{args.out} is a run of the task {task['name']}: resume it as such")
    return config


def _task(args: argparse.Namespace, kept: dict[str, Any] | None) -> Task:
    if args.task == "series":
        from edgefold.cli.series_task import series_task

        return series_task(args, kept and kept["task"])
    from edgefold.train.tasks.gp import GpTask

    if kept:
        return GpTask(kept["task"]["n_context"], kept["task"]["n_targets"])
    return GpTask()


def fit_config(args: argparse.Namespace, kept: dict[str, Any] | None) -> FitConfig:
    """The training's settings. A resumed run keeps its schedule: another is a usage error."""
    import dataclasses

    from edgefold.train.fit import FitConfig

    given = {
        name: getattr(args, name)
        for name in ("steps", "batch", "learning_rate", "warmup", "seed", "threads")
        if getattr(args, name) is not None
    }
    if kept:
        known = {field.name for field in dataclasses.fields(FitConfig)}
        settings = {name: v for name, v in kept["training"].items() if name in known}
        for name, value in given.items():
            if name != "threads" and value != settings[name]:
                args.usage_error(
                    f"argument --{name.replace('_', '-')}: the run in {args.out} was started with "
                    f"{settings[name]} and keeps it; leave the option out, or start another run"
                )
        settings |= {name: given[name] for name in ("threads",) if name in given}
        return FitConfig(**{**settings, "compile": args.compile or settings["compile"]})
    settings = dict(DEFAULTS[args.task])
    if args.preset == "paper":
        settings["steps"] = PAPER_STEPS
    if args.plain:
        settings["learning_rate"] = PLAIN_RATE
    return FitConfig(**{"compile": args.compile, **settings, **given})


def model_config(args: argparse.Namespace, task: Task, kept: dict[str, Any] | None) -> CmanpConfig:
    """The model's shape and start; of a resumed run its own, and another is a usage error."""
    import dataclasses

    from edgefold.train.checkpoints import build_model
    from edgefold.train.models.cmanp import PRESETS

    if kept and args.preset is None and not args.plain:
        return build_model(kept["model"]).config
    settings: dict[str, Any] = {"n_inputs": task.n_inputs, "n_outputs": task.n_outputs}
    if args.task == "series":
        from edgefold.train.tasks.series import MODEL

        settings |= MODEL
    if args.plain:
        settings |= {"embedding": "mlp", "latents": "normal", "query_gain": 1.0}
    config = dataclasses.replace(PRESETS[args.preset or "small"], **settings)
    if kept and config != build_model(kept["model"]).config:
        args.usage_error(
            f"--preset and --plain give another model than the run in {args.out} has; leave them "
            "out, or start another run"
        )
    return config


def _report(args: argparse.Namespace, config: FitConfig, finished: bool) -> int:
    from edgefold.train.loss_curve import draw_curve

    picture = draw_curve(args.out)
    if finished:
        print(f"trained {config.steps} steps: {args.out}, loss curve in {picture}")
        print(f"next: edgefold evaluate {args.out}; edgefold export {args.out} --out BUNDLE")
    else:
        print(f"stopped; the checkpoint in {args.out} goes on with the same command and --resume")
    return 0
