"""`edgefold evaluate`: score a training run, or a bundle, by the protocol of its task.

A run goes through PyTorch. A bundle goes through the runtime and needs no torch, so that a model
can be compared with the baselines on the board that will run it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from edgefold.cli.commands.train import seed
from edgefold.cli.files import require_writable, write_output
from edgefold.cli.options import add_trust_arguments, positive, require_trusted
from edgefold.runtime.series.options import NAMES, add_series_arguments

EXAMPLES = (
    "edgefold evaluate runs/sensor",
    "edgefold evaluate bundles/sensor --csv sensor.csv --plot forecasts.png",
)

SCHEMA = 1
PICTURES = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    from edgefold.runtime.backends.registry import BACKENDS

    parser.add_argument(
        "folder",
        type=Path,
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
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the scores here; - is stdout"
    )
    series = add_series_arguments(
        parser, "the series, if it is another file than the model was trained on"
    )
    series.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw the predictions and their 90 %% band: .png, .svg or .pdf (needs the report "
        "extra)",
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
    """Evaluate and print a table."""
    if args.plot and args.plot.suffix.lower() not in PICTURES:
        args.usage_error(f"argument --plot: {args.plot} must end in {', '.join(PICTURES)}")
    require_writable(args, "json", "plot")
    scores = _bundle(args) if (args.folder / "manifest.json").exists() else _run_folder(args)
    if args.json:
        record = {"schema": SCHEMA, **scores}
        write_output(args.json, json.dumps(record, indent=2) + "\n")
    return 0


def _bundle(args: argparse.Namespace) -> dict[str, Any]:
    from edgefold.cli.series_scores import evaluate_series, stream_bundle
    from edgefold.runtime import DataError, Stream

    expected = require_trusted(args, args.folder)
    with Stream.open(
        args.folder, args.backend or "auto", args.threads or 1, expect_hash=expected
    ) as stream:
        manifest = stream.manifest
        if "features" not in manifest.task:
            raise DataError(
                f"{args.folder} was made for the task {manifest.task.get('name')!r}, and a bundle "
                "is scored on a series only; evaluate the run that it was exported from."
            )
        if manifest.n_streams != 1:
            raise DataError(
                f"{args.folder} serves {manifest.n_streams} streams at once and a series is one; "
                "export it again with --streams 1."
            )
        scaling = manifest.scaling_x
        task = {**manifest.task, "x_shift": scaling.shift, "x_scale": scaling.scale}
        scores = evaluate_series(args, task, lambda *points: stream_bundle(stream, *points))
        return {"bundle_hash": manifest.bundle_hash, "backend": stream.backend_report, **scores}


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

    from edgefold.train.checkpoints import load_model

    model, config = load_model(args.folder, args.model)
    task = config["task"]
    if "features" in task:
        from edgefold.cli.series_scores import evaluate_series
        from edgefold.train.evaluate_series import stream_forecasts

        # One point a step: a second thread would wait longer than it works.
        torch.set_num_threads(args.threads or 1)
        scores = evaluate_series(args, task, lambda *points: stream_forecasts(model, task, *points))
        return {"run": config, **scores}
    if args.plot or any(getattr(args, name) for name in NAMES):
        args.usage_error(f"{args.folder} is not a run of a series: it takes none of its options")
    from edgefold.train.tasks.registry import TASKS, task_class

    if args.task is None and task["name"] not in TASKS:
        args.usage_error(
            f"{args.folder} was trained on {task['name']!r}, which does not come with edgefold; "
            "name its class with --task my_task.py:MyTask"
        )
    torch.set_num_threads(args.threads or 2)
    source = task_class(args.task or task["name"]).from_options(args, task)
    names = args.folder.name, f"{config['training']['steps_done']} steps"
    scores, text = source.evaluate(model, args.batches, args.seed, names)
    print(text)
    return {"run": config, "scores": scores}
