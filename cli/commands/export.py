"""`edgefold export`: a run, or an untrained model of a preset's size, becomes a bundle."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.options import positive
from edgefold.cli.series_options import add_series_arguments

if TYPE_CHECKING:
    from edgefold.export.bundle import ExportReport
    from edgefold.export.precision.task_streams import RealSeries
    from edgefold.train.models.cmanp import Cmanp

EXAMPLES = (
    "edgefold export runs/sensor --out bundles/sensor",
    "edgefold export --untrained cmanp --preset paper --out bundles/paper",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run_folder", nargs="?", type=Path, metavar="RUN", help="a training run")
    parser.add_argument("--out", type=Path, required=True, help="folder of the bundle")
    parser.add_argument(
        "--untrained",
        choices=["cmanp"],
        help="export random weights instead of a run, to learn what a size costs",
    )
    parser.add_argument("--preset", choices=["small", "paper"], help="size of --untrained")
    parser.add_argument("--inputs", type=positive, help="inputs (X) of --untrained; default 1")
    parser.add_argument("--outputs", type=positive, help="outputs (Y) of --untrained; default 1")
    parser.add_argument(
        "--chunk", type=int, default=32, help="points folded at once by condition; default 32"
    )
    parser.add_argument(
        "--targets", type=int, default=16, help="most targets of one query; default 16"
    )
    parser.add_argument(
        "--streams", type=int, default=1, help="streams served side by side; default 1"
    )
    parser.add_argument(
        "--parity-steps",
        type=positive,
        default=0,
        metavar="N",
        help="points of the recorded stream that PyTorch and the graphs both see; default 1000, "
        "for a narrow precision 10000",
    )
    parser.add_argument(
        "--precision",
        choices=["float32", "float16", "int8"],
        default="float32",
        help="element type of refresh and query; the state and its updates stay float32; default "
        "float32",
    )
    parser.add_argument(
        "--max-loss",
        type=nats,
        metavar="NATS",
        help="log-likelihood that the precision may cost a target before the export is refused; "
        "default 0.02 for float16, 0.05 for int8",
    )
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="write the bundle whatever its precision costs",
    )
    add_series_arguments(
        parser, "the series that a run was trained on, to weigh a precision by, if it is elsewhere"
    )


def nats(text: str) -> float:
    """A loss in nats from the command line."""
    value = float(text)
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not zero or more")
    return value


def run(args: argparse.Namespace) -> int:
    """Export, and print sizes, memory plan and parity."""
    if (args.run_folder is None) == (args.untrained is None):
        args.usage_error("give either a run folder, or --untrained with --preset")
    if args.untrained is None and (args.preset or args.inputs or args.outputs):
        args.usage_error("--preset, --inputs and --outputs belong to --untrained")
    if args.max_loss is not None and args.precision == "float32":
        args.usage_error("--max-loss belongs to --precision float16 or int8")
    import torch

    from edgefold.export.bundle import ExportConfig, export_bundle

    torch.set_num_threads(1)
    model, task = _source(args)
    config = ExportConfig(
        args.chunk,
        args.targets,
        args.streams,
        args.parity_steps,
        args.precision,
        args.max_loss,
        args.accept_loss,
    )

    def progress(line: str) -> None:
        print(f"{line} …", file=sys.stderr)

    series = _series(args, task)
    _print(export_bundle(model, task, args.out, config, progress, series))
    return 0


def _series(args: argparse.Namespace, task: dict[str, Any]) -> RealSeries | None:
    """The rows of a series' run, if its precision is to be weighed and the file is there."""
    from edgefold.cli.series_options import find_series
    from edgefold.cli.series_scores import held_out
    from edgefold.export.precision.task_streams import RealSeries

    given = args.csv or args.time or args.value or args.gaps
    if task.get("name") != "series" or args.precision == "float32":
        if given:
            args.usage_error("--csv, --time, --value and --gaps weigh a narrow series' precision")
        return None
    if args.csv is None and find_series(task) is None:
        return None
    part = held_out(args, task)
    return RealSeries(args.csv.name, part.points.x, part.points.y, part.n_training)


def _source(args: argparse.Namespace) -> tuple[Cmanp, dict[str, Any]]:
    import dataclasses

    import torch

    from edgefold.train.checkpoints import load_model
    from edgefold.train.models.cmanp import PRESETS, Cmanp

    if args.run_folder is not None:
        model, config = load_model(args.run_folder)
        return model, config["task"]
    torch.manual_seed(0)
    preset = PRESETS[args.preset or "paper"]
    sized = dataclasses.replace(preset, n_inputs=args.inputs or 1, n_outputs=args.outputs or 1)
    return Cmanp(sized).eval(), {"name": "untrained"}


def _print(report: ExportReport) -> None:
    plan = report.memory_plan
    print(f"{report.path}: {report.n_bytes / 1e6:.1f} MB on disk\n")
    print("memory plan, process and runtime not counted            kB")
    for part, text in (
        ("weights", "weights, each stored once"),
        ("state", "state, two buffers each"),
        ("memory", "memory that queries read"),
        ("io", "points, targets, predictions"),
        ("activations", "activations of the largest graph"),
        ("total", "total"),
    ):
        print(f"  {text:<48}{plan[f'{part}_bytes'] / 1e3:>8.1f}")
    print("\n  graph             weights kB   activations kB")
    for name, graph in plan["graphs"].items():
        weights, activations = graph["weights_bytes"] / 1e3, graph["activations_bytes"] / 1e3
        print(f"  {name:<14}{weights:>14.1f}{activations:>17.1f}")
    print("\nparity along the stream: largest error of mean and std, in scaled units of y")
    print("  points   graphs to PyTorch float32   graphs to float64   PyTorch float32 to float64")
    for row in report.parity:
        print(
            f"{row.n_points:>8}{row.graphs_to_float32:>28.1e}"
            f"{row.graphs_to_float64:>20.1e}{row.torch_to_float64:>29.1e}"
        )
    print("passed")
    _print_precision(report.precision)


def _print_precision(precision: dict[str, Any]) -> None:
    if precision["name"] == "float32":
        return
    parity = precision["parity"]
    print(f"\n{precision['name']}: `edgefold check` allows {parity['tolerance']:.1e}")
    if "calibrated_on" in precision:
        print(f"ranges from {precision['calibrated_on']}")
    if "log_likelihood_change" not in precision:
        print("the model has no task to weigh the precision by: parity alone was looked at")
        return
    print(f"change in log-likelihood from float32, nats a target, on {precision['measured_on']}")
    for name, change in precision["log_likelihood_change"].items():
        error, n = precision["standard_error"][name], precision["n"][name]
        print(f"  {name:<12}{change:>+9.4f} ± {error:.4f}   (n = {n:,})")
