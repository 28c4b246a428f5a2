"""`edgefold evaluate`: score a training run, or a bundle, by the protocol of its task.

A run goes through PyTorch. A bundle goes through the runtime and needs no torch, so that a model
can be compared with the baselines on the board that will run it.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.files import require_writable, write_output, write_record
from edgefold.cli.options.bundle_options import (
    add_json_argument,
    add_trust_arguments,
    bundle_folder,
    positive,
    require_trusted,
    seed,
)
from edgefold.cli.options.flags import task_options
from edgefold.cli.options.series_options import add_series_flags, foreign_options

if TYPE_CHECKING:
    from edgefold.train.contract import StreamingModel

EXAMPLES = (
    "edgefold evaluate runs/sensor",
    "edgefold evaluate bundles/sensor --csv sensor.csv --plot forecasts.png",
)

SCHEMA = 1
PICTURES = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold evaluate`."""
    from edgefold.runtime.backends.registry import BACKENDS

    parser.add_argument(
        "folder",
        type=bundle_folder,
        metavar="RUN_OR_BUNDLE",
        help="a training run (needs torch), or a bundle of a series (needs only the base install)",
    )
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="CPU threads (default 1; for gp 2)"
    )
    parser.add_argument(
        "--model", metavar="FILE.py:CLASS", help="the class of a run's model, if it is your own"
    )
    parser.add_argument(
        "--task", metavar="FILE.py:CLASS", help="the class of a run's task, if it is your own"
    )
    add_json_argument(parser, "also write the scores here")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw what is predicted: a series with the 90 %% band, completed images; .png, .svg "
        "or .pdf (needs the report extra)",
    )
    series = add_series_flags(
        parser, "the series, if it is another file than the model was trained on"
    )
    series.add_argument(
        "--backend",
        choices=("auto", *BACKENDS),
        metavar="BACKEND",
        help=f"backend of a bundle: auto (default) or one of {', '.join(BACKENDS)}",
    )
    add_trust_arguments(parser)
    gp = parser.add_argument_group("other tasks")
    gp.add_argument(
        "--batches",
        type=positive,
        default=3000,
        metavar="N",
        help="batches of 16 tasks (default 3000)",
    )
    gp.add_argument("--seed", type=seed, default=1, help="seed of the tasks (default 1)")


def run(args: argparse.Namespace) -> int:
    """Score the run or the bundle, print a table, write the record, and return 0."""
    if args.plot and args.plot.suffix.lower() not in PICTURES:
        args.usage_error(f"argument --plot: {args.plot} must end in {', '.join(PICTURES)}")
    require_writable(args, "json", "plot")
    scores = _bundle(args) if (args.folder / "manifest.json").exists() else _run_folder(args)
    write_record(args.json, {"schema": SCHEMA, **scores}, indent=2)
    return 0


def _bundle(args: argparse.Namespace) -> dict[str, Any]:
    from edgefold.cli.series_scores import (
        evaluate_series,
        is_series,
        require_scorable,
        stream_bundle,
    )
    from edgefold.runtime import DataError, Stream

    expected = require_trusted(args, args.folder)
    with Stream.open(
        args.folder, args.backend or "auto", args.threads or 1, expect_hash=expected
    ) as stream:
        manifest = stream.manifest
        if not is_series(manifest.task):
            raise DataError(_no_series(args.folder, manifest.task.get("name")))
        if manifest.n_streams != 1:
            raise DataError(
                f"{args.folder} serves {manifest.n_streams} streams at once and a series is one; "
                "export it again with --streams 1."
            )
        scaling = {"x": manifest.scaling_x, "y": manifest.scaling_y}
        task = dict(manifest.task)
        for axis, pair in scaling.items():
            task |= {f"{axis}_shift": [*pair.shift], f"{axis}_scale": [*pair.scale]}
        require_scorable(args.folder, task, manifest.is_filter, manifest.prediction)
        scores = evaluate_series(
            args, task, lambda *points: stream_bundle(stream, *points), manifest.room
        )
        return {"bundle_hash": manifest.bundle_hash, "backend": stream.backend_report, **scores}


def _no_series(bundle: Path, task: object) -> str:
    """Return an error text for a bundle whose `task` is not a series, with the command to use."""
    if task == "untrained":
        return (
            f"{bundle} is a model without a training of edgefold's, so that there is no series to "
            f"score it on; test what it computes: edgefold check {bundle}"
        )
    return (
        f"{bundle} was made for the task {task!r}, and a bundle is scored on a series only; score "
        "the run that it was exported from: edgefold evaluate RUN"
    )


def _run_folder(args: argparse.Namespace) -> dict[str, Any]:
    if not (args.folder / "config.json").exists():
        raise FileNotFoundError(
            2, "neither a bundle (manifest.json) nor a run (config.json) is there", str(args.folder)
        )
    if args.expect_hash or args.trusted_key:
        args.usage_error("--expect-hash and --trusted-key belong to a bundle, not to a run")
    if args.backend:
        args.usage_error("--backend belongs to a bundle; a run goes through PyTorch")
    import torch

    from edgefold.cli.series_scores import is_series
    from edgefold.train.checkpoints import load_model, read_config
    from edgefold.train.denormals import denormals_flushed
    from edgefold.train.models.registry import MODELS
    from edgefold.train.tasks.registry import TASKS, task_class
    from edgefold.train.tasks.series import SeriesTask

    config = read_config(args.folder)
    task, kind = config["task"], config["model"].get("kind")
    users_task = task_class(args.task) if args.task else None
    unnamed = [kind] if args.model is None and kind not in MODELS else []
    if users_task is None and task["name"] not in TASKS and not is_series(task):
        unnamed.append(task["name"])
    if unnamed:
        args.usage_error(
            f"{args.folder} was made with {' and '.join(map(repr, unnamed))}, which edgefold does "
            f"not have; a run never chooses code to load. Name it: {_command(args, config)}"
        )
    model, config = load_model(args.folder, args.model)
    if is_series(task) and (users_task is None or issubclass(users_task, SeriesTask)):
        # One point a step: a second thread would wait longer than it works.
        torch.set_num_threads(args.threads or 1)
        with denormals_flushed():
            return {"run": config, **_series(args, model, task)}
    if options := foreign_options(args, task):
        args.usage_error(f"{args.folder} is not a run of a series: it does not take {options[0]}")
    torch.set_num_threads(args.threads or 2)
    with denormals_flushed():
        return {"run": config, "scores": _batches(args, model, config)}


def _command(args: argparse.Namespace, config: dict[str, Any]) -> str:
    """Return the command that scores a run, with FILE.py:CLASS of a user's own task and model."""
    from edgefold.cli.commands.train import classes_of
    from edgefold.train.models.registry import MODELS
    from edgefold.train.tasks.registry import TASKS

    typed = str(config["training"].get("command", "")).replace("=", " ").split()
    task, model = classes_of(typed)
    words = ["edgefold", "evaluate", str(args.folder)]
    if config["task"]["name"] not in TASKS:
        words += ["--task", args.task or task or "my_task.py:MyTask"]
    if config["model"].get("kind") not in MODELS:
        words += ["--model", args.model or model or "my_model.py:MyModel"]
    return shlex.join(words)


def _series(
    args: argparse.Namespace, model: StreamingModel, task: dict[str, Any]
) -> dict[str, Any]:
    from edgefold.cli.series_scores import evaluate_series, require_scorable
    from edgefold.train.contract import is_filter, room_of
    from edgefold.train.evaluate_series import stream_forecasts
    from edgefold.train.load import blamed

    require_scorable(args.folder, task, is_filter(model), model.prediction)

    def forecast(*points: Any) -> Any:
        with blamed("the model's forecast", args.model):
            return stream_forecasts(model, task, *points)

    return evaluate_series(args, task, forecast, room_of(model))


def _batches(
    args: argparse.Namespace, model: StreamingModel, config: dict[str, Any]
) -> dict[str, Any]:
    """Score a model by its task's own measure, such as the mean log-likelihood of batches.

    Prints the scores as a table, draws the picture of --plot, and returns the scores by name.
    """
    from edgefold.runtime import DataError
    from edgefold.train.load import blamed
    from edgefold.train.tasks.contract import Task
    from edgefold.train.tasks.registry import create_task, task_class

    task = config["task"]
    name = args.task or task["name"]
    source = create_task(name, task_options(task_class(name), args), task)
    if type(source).evaluate is Task.evaluate and not model.prediction.has_score:
        raise DataError(
            f"the predictions of {args.folder} are {model.prediction.name}, which have no "
            "log-likelihood; give the task an evaluate() of its own."
        )
    names = args.folder.resolve().name, f"{config['training'].get('steps_done', '?')} steps"
    if args.plot:  # before the scores, which take longer
        with blamed("the task's picture", args.task, args.model):
            picture = source.draw(model, args.plot.suffix.lower()[1:], args.seed, ", ".join(names))
        write_output(args.plot, picture)
    with blamed("the task's evaluation", args.task, args.model):
        scores, text = source.evaluate(model, args.batches, args.seed, names)
    print(text)
    if args.plot:
        print(f"written  {args.plot}")
    return scores
