"""How much does an update of each example cost, and do its graphs stay with PyTorch?

Each model of `examples/` is exported as it is, with random weights, for one stream. Its export
replays 10,000 points through the graphs and through PyTorch. Then blocks of calls of all models
take turns, the order changing from round to round:

    round   1                                   2                                   ...
            │ gru: graph │ gru: Stream │ lstm ...│ gru: Stream │ lstm ... │ gru: graph │
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import ROOT, Requirement, arguments, at_most, conditions, finish, progress
from benchmarks.record import spread as spread_of
from benchmarks.rounds import block_medians
from benchmarks.subjects import EXAMPLES
from benchmarks.tables import as_text
from edgefold.export.bundle import ExportConfig, ExportReport, export_bundle
from edgefold.runtime import Stream
from edgefold.train.models.registry import create_model

QUESTION = "What does an update of each example cost?"
BOUNDS_US = {"gru": 12, "tcn": 40, "transformer": 65}
"""Bounds of only one update's graph."""
LINEAR = ("kalman", "rls")


def export(name: str, folder: Path, n_steps: int) -> dict[str, Any]:
    """Export one example; its size, and how far its graphs are from PyTorch."""
    torch.manual_seed(0)
    model = create_model(f"{ROOT}/examples/{name}.py:{EXAMPLES[name]}")
    config = ExportConfig(parity_steps=n_steps)
    report: ExportReport = export_bundle(model, {"name": "untrained"}, folder / name, config)
    return {
        "n_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "plan": {part: report.memory_plan[f"{part}_bytes"] for part in ("weights", "state")},
        "n_steps": report.parity[-1].n_points,
        "to_float32": max(row.graphs_to_float32 for row in report.parity),
        "to_float64": max(row.graphs_to_float64 for row in report.parity),
    }


def calls_of(stream: Stream) -> dict[str, Callable[[], Any]]:
    """The calls that a loop around a stream makes."""
    manifest = stream.manifest
    random = np.random.default_rng(0)
    x = random.normal(size=(1, manifest.n_inputs)) if manifest.n_inputs else None
    if manifest.is_filter:
        return {
            "graph alone": lambda: stream.run_step("step"),
            "Stream.update": lambda: stream.step(x),
        }
    y = random.normal(size=(1, manifest.n_outputs))
    return {
        "graph alone": lambda: stream.run_step("update"),
        "Stream.update": lambda: stream.update(x, y),
        "Stream.query": lambda: stream.query(x),
    }


def time_calls(streams: dict[str, Stream], n_rounds: int) -> dict[str, dict[str, Any]]:
    """Blocks of all calls in turns: by example and call, the spread of the blocks' medians."""
    calls = {(n, what): call for n, s in streams.items() for what, call in calls_of(s).items()}
    found: dict[str, dict[str, Any]] = {name: {} for name in streams}
    for (name, what), own in block_medians(calls, n_rounds).items():
        found[name][what] = spread_of(own)
    return found


def requirements(examples: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project."""
    found = [
        at_most(f"{name}: update graph alone", 1e6 * own["graph alone"]["median_s"], bound, "µs")
        for name, bound in BOUNDS_US.items()
        for own in [examples[name]["times"]]
    ]
    for name, own in examples.items():
        bound = 1e-5 if name in LINEAR else 1e-4
        found.append(at_most(f"{name}: graphs to PyTorch", own["to_float32"], bound, ""))
    return found


def main() -> None:
    """Measure and write the record."""
    args = arguments(__doc__, "examples").parse_args()
    torch.set_num_threads(1)
    before = conditions()
    examples: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder, ExitStack() as stack:
        streams = {}
        for number, name in enumerate(EXAMPLES, 1):
            examples[name] = export(name, Path(folder), 1000 if args.quick else 10_000)
            path = Path(folder) / name
            streams[name] = stack.enter_context(Stream.open(path, backend="onnxruntime"))
            progress(f"exported {number} of {len(EXAMPLES)}", number == len(EXAMPLES))
        for name, times in time_calls(streams, 30 if args.quick else 600).items():
            examples[name]["times"] = times
    finish(args, "examples", QUESTION, before, examples, requirements(examples), as_text)


if __name__ == "__main__":
    main()
