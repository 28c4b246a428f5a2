"""`edgefold export`: a run, or an untrained model of a preset's size, becomes a bundle."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.run import positive

if TYPE_CHECKING:
    from edgefold.export.bundle import ExportReport
    from edgefold.train.models.cmanp import Cmanp


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
        type=int,
        default=1000,
        help="points of the recorded stream that PyTorch and the graphs both see; default 1000",
    )


def run(args: argparse.Namespace) -> int:
    """Export, and print sizes, memory plan and parity."""
    if (args.run_folder is None) == (args.untrained is None):
        args.usage_error("give either a run folder, or --untrained with --preset")
    if args.untrained is None and (args.preset or args.inputs or args.outputs):
        args.usage_error("--preset, --inputs and --outputs belong to --untrained")
    import torch

    from edgefold.export.bundle import ExportConfig, export_bundle

    torch.set_num_threads(1)
    model, task = _source(args)
    config = ExportConfig(args.chunk, args.targets, args.streams, args.parity_steps)

    def progress(line: str) -> None:
        print(f"{line} …", file=sys.stderr)

    _print(export_bundle(model, task, args.out, config, progress))
    return 0


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
