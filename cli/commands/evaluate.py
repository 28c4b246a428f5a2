"""`edgefold evaluate`: score a training run, or a bundle, by the protocol of its task.

A run goes through PyTorch. A bundle goes through the runtime and needs no torch, so that a model
can be compared with the baselines on the board that will run it.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from edgefold.cli.commands.train import seed
from edgefold.cli.files import require_writable, write_output
from edgefold.cli.options import positive
from edgefold.cli.series_options import add_series_arguments

EXAMPLES = (
    "edgefold evaluate runs/sensor",
    "edgefold evaluate bundles/sensor --csv sensor.csv --plot forecasts.png",
)

PAPER_ROWS = {"CMANP, as published": (1.24, 0.80), "CNP, as published": (0.26, 0.04)}
"""Log-likelihood under RBF and Matern 5/2, table 4 of Feng et al. 2024."""
PICTURES = (".png", ".svg", ".pdf")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "folder",
        type=Path,
        metavar="RUN_OR_BUNDLE",
        help="a training run (needs torch), or a bundle of a series (needs only the base install)",
    )
    parser.add_argument(
        "--threads", type=positive, metavar="N", help="CPU threads (default 1; for gp 2)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the scores here")
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
    series.add_argument("--backend", help="backend of a bundle: auto (default) or onnxruntime")
    gp = parser.add_argument_group("gp")
    gp.add_argument(
        "--batches",
        type=positive,
        default=3000,
        metavar="N",
        help="batches of 16 tasks per kernel (default 3000)",
    )
    gp.add_argument("--seed", type=seed, default=1, help="seed of the tasks (default 1)")


def run(args: argparse.Namespace) -> int:
    """Evaluate and print a table."""
    if args.plot and args.plot.suffix.lower() not in PICTURES:
        args.usage_error(f"argument --plot: {args.plot} must end in {', '.join(PICTURES)}")
    require_writable(args, "json", "plot")
    scores = _bundle(args) if (args.folder / "manifest.json").exists() else _run_folder(args)
    if args.json:
        write_output(args.json, json.dumps(scores, indent=2) + "\n")
    return 0


def _bundle(args: argparse.Namespace) -> dict[str, Any]:
    from edgefold.cli.series_scores import evaluate_series, stream_bundle
    from edgefold.runtime import DataError, Stream

    with Stream.open(args.folder, args.backend or "auto", args.threads or 1) as stream:
        manifest = stream.manifest
        if manifest.task.get("name") != "series":
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
    if args.backend:
        args.usage_error("--backend belongs to a bundle; a run goes through PyTorch")
    import torch

    from edgefold.train.checkpoints import load_model

    model, config = load_model(args.folder)
    task = config["task"]
    if task["name"] == "gp":
        if args.csv or args.plot or args.time or args.value or args.gaps:
            args.usage_error(f"{args.folder} is a gp run: it takes none of the series' options")
        torch.set_num_threads(args.threads or 2)
        return _gp(args, model, config)
    from edgefold.cli.series_scores import evaluate_series
    from edgefold.train.evaluate_series import stream_forecasts

    # One point a step: a second thread would wait longer than it works.
    torch.set_num_threads(args.threads or 1)
    scores = evaluate_series(args, task, lambda *points: stream_forecasts(model, task, *points))
    return {"run": config, **scores}


def _gp(args: argparse.Namespace, model: Any, config: dict[str, Any]) -> dict[str, Any]:
    from dataclasses import asdict

    from edgefold.train.evaluate import score_gp

    training = config["training"]
    scores = {
        kernel: asdict(score_gp(model, kernel, args.batches, seed=args.seed))
        for kernel in ("rbf", "matern52")
    }
    print("mean log-likelihood of a target, nats", file=sys.stderr)
    name = f"{args.folder.name}, {training['steps_done']} steps"
    width = max(len(name), *map(len, PAPER_ROWS)) + 2
    print(f"{'':{width}}{'RBF':>16}{'Matern 5/2':>16}")
    cells = "".join(
        f"{s['log_likelihood']:>8.3f} ± {s['standard_error']:.3f}" for s in scores.values()
    )
    print(f"{name:{width}}{cells}")
    for row, values in PAPER_ROWS.items():
        print(f"{row:{width}}{values[0]:>8.2f}{values[1]:>16.2f}")
    return {"run": config, "scores": scores}
