"""`edgefold export`: turn a training run, or a model of the user's own, into a bundle."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.options.bundle_options import positive
from edgefold.cli.options.flags import task_options
from edgefold.cli.options.model_options import MODEL_HELP, add_model_options, build_model
from edgefold.cli.options.series_options import add_series_flags, foreign_options
from edgefold.cli.terminal import say
from edgefold.cli.text.export import as_c, describe

if TYPE_CHECKING:
    from edgefold.train.contract import StreamingModel
    from edgefold.train.tasks.contract import TaskStreams

EXAMPLES = (
    "edgefold export runs/sensor --out bundles/sensor",
    "edgefold export my_model.py:MyModel --weights weights.safetensors --out bundles/mine",
    "edgefold export examples/gru.py:Gru --set width=32 --out bundles/gru",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `edgefold export`."""
    parser.add_argument(
        "source",
        metavar="RUN_OR_MODEL",
        help=f"a training run's folder; or {MODEL_HELP}, with --weights or untrained, to learn "
        "what a size costs",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder of the bundle")
    parser.add_argument("--force", action="store_true", help="replace the bundle that is there")
    parser.add_argument(
        "--resumes",
        type=Path,
        action="append",
        default=[],
        metavar="OLD_BUNDLE",
        help="an earlier bundle of the same model, whose snapshots the new one resumes once both "
        "are shown to have the same state and forecasts; repeatable",
    )
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model",
        metavar="FILE.py:CLASS",
        help="the class of a run's model, if it is your own: a run never chooses code to load",
    )
    model.add_argument("--task", metavar="FILE.py:CLASS", help="the class of a run's own task")
    add_model_options(model)
    sizes = parser.add_argument_group("sizes and precision")
    sizes.add_argument(
        "--chunk", type=int, default=32, help="points learned at once by condition; default 32"
    )
    sizes.add_argument(
        "--targets", type=int, default=16, help="most targets of one query; default 16"
    )
    sizes.add_argument(
        "--streams", type=int, default=1, help="streams served side by side; default 1"
    )
    sizes.add_argument(
        "--parity-steps",
        type=positive,
        default=0,
        metavar="N",
        help="points of the recorded stream that PyTorch and the graphs both see; default 1000, "
        "for a narrow precision 10000; at least 3 chunks and 32",
    )
    sizes.add_argument(
        "--precision",
        choices=["float32", "float16", "int8"],
        default="float32",
        help="element type of refresh and query, or of a filter's step; the state and its updates "
        "stay float32; default float32",
    )
    sizes.add_argument(
        "--max-loss",
        type=nats,
        metavar="NATS",
        help="log-likelihood that the precision may cost a target before the export is refused; "
        "default 0.02 for float16, 0.05 for int8",
    )
    sizes.add_argument(
        "--accept-loss",
        action="store_true",
        help="write the bundle whatever its precision costs",
    )
    add_series_flags(
        parser, "the series that a run was trained on, to judge a precision by, if it is elsewhere"
    )


def nats(text: str) -> float:
    """Read a loss in nats, zero or more, for argparse."""
    value = float(text)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not zero or more")
    return value


def run(args: argparse.Namespace) -> int:
    """Export the model, print the bundle's sizes, memory plan and parity, and return 0."""
    is_run = Path(args.source).is_dir()
    if is_run and (args.preset or args.weights):
        args.usage_error("--preset and --weights belong to a model; a run has its own")
    if not is_run and (args.model or args.task):
        args.usage_error("--model and --task name the classes of a run")
    if args.max_loss is not None and args.precision == "float32":
        args.usage_error("--max-loss belongs to --precision float16 or int8")
    model, task = _source(args, is_run)
    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.export.native.generator import refusal

    config = ExportConfig(
        args.chunk,
        args.targets,
        args.streams,
        args.parity_steps,
        args.precision,
        args.max_loss,
        args.accept_loss,
        args.force,
        tuple(args.resumes),
    )
    streams = _streams(args, task)
    report = export_bundle(model, task, args.out, config, lambda line: say(f"{line} ..."), streams)
    print(describe(report))
    print(as_c(refusal(report.path)))
    return 0


def _source(args: argparse.Namespace, is_run: bool) -> tuple[StreamingModel, dict[str, Any]]:
    if not is_run:
        return build_model(args, args.source), {"name": "untrained"}
    import torch

    from edgefold.train.checkpoints import load_model
    from edgefold.train.load import parse_settings

    torch.set_num_threads(1)
    model, config = load_model(Path(args.source), args.model, parse_settings(args.settings))
    return model, config["task"]


def _streams(args: argparse.Namespace, task: dict[str, Any]) -> TaskStreams | None:
    """Return the task's streams that calibrate a narrow precision and measure its cost.

    Returns None for float32, and for a task that is neither built in nor named by --task.
    """
    from edgefold.train.tasks.registry import TASKS, task_class

    if args.precision == "float32":
        return None
    if "features" not in task and (options := foreign_options(args, task)):
        args.usage_error(f"{args.source} is not a run of a series: it does not take {options[0]}")
    name = args.task or task["name"]
    if args.task is None and name not in TASKS:
        return None
    source = task_class(name)
    return source.streams(task, task_options(source, args))
