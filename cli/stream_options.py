"""The options of every command that opens a bundle, and what they become."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.cli.byte_size import byte_size
from edgefold.cli.counts import positive
from edgefold.cli.terminal import say

if TYPE_CHECKING:
    from edgefold.runtime import EngineOptions


def add_stream_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the bundle and how it is opened."""
    parser.add_argument("bundle", metavar="BUNDLE", help="folder written by `edgefold export`")
    parser.add_argument(
        "--backend",
        default="auto",
        help="auto (default: tensorrt where it opens, else onnxruntime, and says why), tensorrt, "
        "onnxruntime, onnxruntime-cuda or onnxruntime-tensorrt",
    )
    parser.add_argument(
        "--threads", type=positive, default=1, metavar="N", help="CPU threads of a step (default 1)"
    )
    parser.add_argument(
        "--memory-limit",
        type=byte_size,
        metavar="SIZE",
        help="refuse a bundle that would take this process beyond SIZE, as 96MiB; told by the "
        "plan, before anything is opened",
    )
    engine = parser.add_argument_group("tensorrt")
    engine.add_argument(
        "--engine-cache",
        type=Path,
        metavar="DIR",
        help="where engines are kept (default $EDGEFOLD_CACHE, else ~/.cache/edgefold)",
    )
    engine.add_argument(
        "--no-cuda-graphs",
        action="store_true",
        help="launch a step kernel by kernel, to see what CUDA graphs save",
    )


def engine_options(args: argparse.Namespace) -> EngineOptions:
    """How TensorRT runs."""
    from edgefold.runtime import EngineOptions

    def progress(line: str) -> None:
        say(f"{line} ...")

    return EngineOptions(args.engine_cache, cuda_graphs=not args.no_cuda_graphs, progress=progress)


def backend_lines(report: dict[str, Any]) -> list[str]:
    """What runs, and in a clause why nothing better does; `edgefold doctor` tells the whole."""
    lines = [f"backend   {report['name']} {report['version']} on {report['device']}"]
    for name, reason in report.get("refused", {}).items():
        clause = re.split(r"[.;:] ", reason, maxsplit=1)[0].rstrip(".")
        lines.append(f"refused   {name}: {clause} (more by `edgefold doctor`)")
    return lines
