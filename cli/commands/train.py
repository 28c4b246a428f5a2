"""`edgefold train`: train a model on one task, from the first step or from where a run stopped."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.options.bundle_options import positive, seed
from edgefold.cli.options.flags import add_flags, task_options
from edgefold.cli.options.model_options import MODEL_HELP, add_model_settings, describe_models
from edgefold.cli.terminal import say

if TYPE_CHECKING:
    from edgefold.train.contract import StreamingModel
    from edgefold.train.tasks.contract import Recipe, Task
    from edgefold.train.training_loop import FitConfig

EXAMPLES = (
    "edgefold train series --csv sensor.csv --out runs/sensor",
    "edgefold train gp --steps 20000 --out runs/gp",
    "edgefold train images --source photographs --out runs/photographs",
    "edgefold train my_task.py:MyTask --model my_model.py:MyModel --out runs/mine",
)
N_STEPS = 10_000
"""Number of training steps for a task that does not set its own."""
FIT_OPTIONS = (
    *("steps", "batch", "learning_rate", "warmup", "seed", "threads", "optimizer", "weight_decay"),
)
"""Names of the options that are settings of `FitConfig`."""

SHIPPED = (
    *("series", "sensors", "gp", "images", "sequences", "wheel", "copy", "human-activity"),
    *("hawkes", "events"),
)
"""Names of tasks for the help, which must not load PyTorch to find them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold train` that do not depend on the task."""
    parser.add_argument(
        "task",
        metavar="TASK",
        help=f"{', '.join(SHIPPED)}, or a class of your own as my_task.py:MyTask; `edgefold train "
        "TASK --help` lists the task's options and defaults",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="RUN", help="folder of the run")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on exactly where the run in --out stopped, with the settings it was started with",
    )
    parser.add_argument(
        "--start-from",
        type=Path,
        metavar="RUN",
        help="begin with the weights of another run where their names and shapes agree, the same "
        "model's or a related one's; all else begins at random",
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model",
        metavar="MODEL",
        help=f"{MODEL_HELP} (default: the task's or the project's)",
    )
    model.add_argument("--preset", help="a preset of the model (`--model MODEL --help` lists them)")
    add_model_settings(model)


def add_arguments_for(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """Declare the options and show the defaults of the task that the command line names.

    Options of a run default to None: a resumed run keeps its own.
    """
    from edgefold.train.tasks.registry import TASKS, task_class

    word = next((w for w in words if w in TASKS), None) or classes_of(words)[0]
    named = task_class(word) if word else None
    defaults = _defaults(named) if named else {}

    def default(name: str) -> str:
        shown = defaults.get(name, "")
        shown = shown if isinstance(shown, str) else f"{shown:,}"
        return f"default {shown}" if defaults else "default: the task's own"

    fit = parser.add_argument_group("training")
    presets = ", or the preset's own"
    fit.add_argument("--steps", type=positive, metavar="N", help=f"{default('steps')}{presets}")
    fit.add_argument(
        "--batch", type=positive, metavar="N", help=f"tasks a step ({default('batch')})"
    )
    fit.add_argument(
        "--learning-rate",
        type=float,
        metavar="RATE",
        help=f"peak of the schedule ({default('learning_rate')})",
    )
    fit.add_argument(
        "--warmup", type=positive, metavar="N", help=f"steps of linear rise ({default('warmup')})"
    )
    fit.add_argument("--seed", type=seed, metavar="N", help="of weights and batches (default 0)")
    fit.add_argument(
        "--threads",
        type=positive,
        metavar="N",
        help=f"CPU threads ({default('threads')}); more than the machine has idle cores is slower",
    )
    fit.add_argument(
        "--optimizer",
        choices=("adam", "muon"),
        help=f"{default('optimizer')}; muon makes the steps of attention and feed-forward matrices "
        "orthogonal: better scores in the same time",
    )
    fit.add_argument(
        "--weight-decay",
        type=float,
        metavar="DECAY",
        help="share of a matrix that a step of muon removes, times its learning rate (default 0); "
        "give some, such as 0.1, for more than 20,000 steps: else matrices grow without end",
    )
    fit.add_argument(
        "--compile", action="store_true", help="torch.compile: a minute more to start, then faster"
    )
    has_recipe = named is None or named.recipe is not None
    if has_recipe:
        fit.add_argument(
            "--recipe",
            choices=("own", "paper"),
            help="paper: batches, optimizer, schedule and steps of the papers on this task "
            "(default: paper with the preset paper, else own); options beside it still count",
        )
    describe_models(parser, words)
    if named:
        parser.description = named.about or parser.description
        if named.option_class is not None:
            add_flags(parser, named.option_class)
        named.add_options(parser)


def classes_of(words: Sequence[str]) -> tuple[str | None, str | None]:
    """Return the user's task and model in a command line, as FILE.py:CLASS or None each."""
    classes = [
        (before, word) for before, word in zip(("", *words), words, strict=False) if ".py:" in word
    ]
    task = next((word for before, word in classes if before != "--model"), None)
    return task, next((word for before, word in classes if before == "--model"), None)


def _defaults(task: type[Task]) -> dict[str, Any]:
    """Return a task's training settings by name, as they are without any option."""
    import dataclasses

    from edgefold.train.training_loop import FitConfig

    return dataclasses.asdict(FitConfig(**{"steps": N_STEPS, **task.training}))


def run(args: argparse.Namespace) -> int:
    """Train the model and print the next commands; return 0, also if stopped before the end."""
    if args.start_from and args.resume:
        args.usage_error("a resumed run goes on from its own weights: leave --start-from out")
    if args.learning_rate is not None and not 0 < args.learning_rate < 1:
        args.usage_error(f"argument --learning-rate: {args.learning_rate} is not between 0 and 1")
    if (args.out / "config.json").exists() and not args.resume:
        args.usage_error(
            f"{args.out} holds a run; continue it with --resume or choose another --out"
        )
    from dataclasses import replace

    import torch

    from edgefold.train.checkpoints import RESUME, take_weights
    from edgefold.train.distributed import is_first_process
    from edgefold.train.load import blamed
    from edgefold.train.muon import hidden_matrices
    from edgefold.train.training_loop import fit

    checkpoint = _kept(args) if args.resume else None
    task, config = task_and_config(args, checkpoint)
    torch.manual_seed(config.seed)
    model = build_model(args, task, checkpoint)
    if not (checkpoint or args.optimizer or any(True for _ in hidden_matrices(model))):
        config = replace(config, optimizer="adam")  # the task's own choice suits other models
    is_whole = checkpoint and checkpoint["training"]["steps_done"] >= config.steps
    if is_whole and not (args.out / RESUME).exists():
        print(f"{args.out} has all its {config.steps} steps already: there is nothing to resume")
        return 0
    command = shlex.join(["edgefold", *(a for a in sys.argv[1:] if a != "--resume")])
    if checkpoint:
        command = checkpoint["training"]["command"]
    if args.start_from:
        taken, n_tensors = take_weights(model, args.start_from)
        say(f"{taken} of {n_tensors} tensors begin as in {args.start_from}")
    tells = is_first_process()
    for note in task.notes if tells else ():
        say(note)
    if tells:
        say(f"training {model.summary} on {args.task}, {config.steps:,} steps, into {args.out} ...")
    with blamed("training", args.task, args.model):
        finished = fit(model, task, config, args.out, command, args.resume, say)
    return _report(args, finished) if tells else 0


def task_and_config(
    args: argparse.Namespace, checkpoint: dict[str, Any] | None
) -> tuple[Task, FitConfig]:
    """Return the task and the settings of the training that the options ask for.

    Args:
        args: Options of the command, which get those of a recipe and the task's model.
        checkpoint: Content of the checkpoint of the run to resume; None for a new run.
    """
    from edgefold.train.tasks.registry import create_task, task_class

    recipe = None if checkpoint else recipe_of(args, task_class(args.task))
    for name, value in recipe.options.items() if recipe else ():
        if getattr(args, name) is None:
            setattr(args, name, value)
    options = task_options(task_class(args.task), args)
    task = create_task(args.task, options, checkpoint and checkpoint["task"])
    if not checkpoint:
        args.model = args.model or task.default_model
    return task, fit_config(args, task.training, checkpoint, recipe.training if recipe else {})


def recipe_of(args: argparse.Namespace, task: type[Task]) -> Recipe | None:
    """Return the papers' training that a new run follows, by --recipe or by the preset `paper`."""
    asked = getattr(args, "recipe", None)
    follows = asked == "paper" if asked else args.preset == "paper"
    return task.recipe if follows else None


def _kept(args: argparse.Namespace) -> dict[str, Any]:
    """Return the config of the run to resume; refuse one that is incomplete or of another task."""
    from edgefold.runtime.errors import CheckpointError
    from edgefold.train.checkpoints import read_config

    config = read_config(args.out)
    task, training = config.get("task", {}), config.get("training", {})
    if "name" not in task or not {"steps", "steps_done", "seed", "command"} <= set(training):
        raise CheckpointError(
            f"{args.out}/config.json lacks the task or the training; restore it from a copy."
        )
    if task["name"] != args.task and ":" not in args.task:
        args.usage_error(f"{args.out} is a run of the task {task['name']}: resume it as such")
    return config


def fit_config(
    args: argparse.Namespace,
    defaults: Mapping[str, Any],
    checkpoint: dict[str, Any] | None,
    recipe: Mapping[str, Any],
) -> FitConfig:
    """Return the settings of the training; options that change a resumed run's are refused.

    Args:
        args: Options of the command; None for those that were not given.
        defaults: The task's own settings by name, for a new run.
        checkpoint: Content of the checkpoint of the run to resume; None for a new run.
        recipe: The papers' settings for a new run; empty where it does not follow them. Those of
            the preset `paper` refine them, and they replace those of any other preset.
    """
    import dataclasses

    from edgefold.train.models.registry import DEFAULT, model_class
    from edgefold.train.training_loop import FitConfig

    options = {name: getattr(args, name) for name in FIT_OPTIONS if getattr(args, name) is not None}
    if not 0 <= (args.weight_decay or 0) < 1:
        args.usage_error(f"argument --weight-decay: {args.weight_decay} is not from 0 to below 1")
    if checkpoint:
        kept = checkpoint["training"]
        settings = {f.name: kept.get(f.name, f.default) for f in dataclasses.fields(FitConfig)}
        for name, value in options.items():
            if name != "threads" and value != settings[name]:
                args.usage_error(
                    f"argument --{name.replace('_', '-')}: the run in {args.out} was started with "
                    f"{settings[name]} and keeps it; leave the option out, or start another run"
                )
        settings |= {name: options[name] for name in ("threads",) if name in options}
        return FitConfig(**{**settings, "compile": args.compile or settings["compile"]})
    named = model_class(args.model or DEFAULT)
    preset = named.training_defaults.get(args.preset or next(iter(named.presets), ""), {})
    parts = (recipe, preset) if args.preset == "paper" else (preset, recipe)
    settings = {"steps": N_STEPS, **defaults, **parts[0], **parts[1]}
    config = FitConfig(**{"compile": args.compile, **settings, **options})
    if config.weight_decay and config.optimizer != "muon":
        args.usage_error("argument --weight-decay: only muon has one; give --optimizer muon too")
    return config


def build_model(
    args: argparse.Namespace, task: Task, checkpoint: dict[str, Any] | None
) -> StreamingModel:
    """Return a model with fresh weights; options unlike those of `checkpoint` are refused."""
    from edgefold.train import checkpoints
    from edgefold.train.load import parse_settings
    from edgefold.train.models.registry import DEFAULT, accepted, create_model

    if checkpoint and args.preset is None and not args.settings:
        return checkpoints.build_model(checkpoint["model"], args.model)
    name = args.model or DEFAULT
    task_settings = {"n_inputs": task.n_inputs, "n_outputs": task.n_outputs, **task.model_settings}
    settings = {**accepted(name, task_settings), **parse_settings(args.settings)}
    model = create_model(name, settings, args.preset)
    if (
        checkpoint
        and model.settings() != checkpoints.build_model(checkpoint["model"], args.model).settings()
    ):
        args.usage_error(
            f"--preset and --set give another model than the run in {args.out} has; leave them "
            "out, or start another run"
        )
    return model


def _report(args: argparse.Namespace, finished: bool) -> int:
    """Print the results of the training and the next commands to type; return the exit code 0."""
    from edgefold.runtime.series.durations import duration
    from edgefold.runtime.series.options import find_series
    from edgefold.train.checkpoints import read_config
    from edgefold.train.loss_curve import draw_curve

    picture = draw_curve(args.out)
    if not finished:
        print(f"stopped; the checkpoint in {args.out} goes on with the same command and --resume")
        return 0
    config = read_config(args.out)
    classes = [
        w for n in ("model", "task") if ":" in (v := getattr(args, n) or "") for w in (f"--{n}", v)
    ]
    csv = getattr(args, "csv", None)
    place = ["--csv", str(csv)] if csv and find_series(config["task"]) is None else []
    training = config["training"]
    lasted = f" in {duration(training['duration_s'])}" if training["duration_s"] else ""
    print(f"trained {training['steps_done']:,} steps{lasted}: {args.out}, loss curve in {picture}")
    print(f"next: {shlex.join(['edgefold', 'evaluate', str(args.out), *classes, *place])}")
    print(f"      {shlex.join(['edgefold', 'export', str(args.out), *classes, '--out', 'BUNDLE'])}")
    return 0
