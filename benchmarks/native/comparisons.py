"""How much does it cost that graphs which write state compare in place of Clip, Min and Max?

TensorRT's Clip, Min and Max lose NaN, so graphs that write state are shipped with comparisons
(`edgefold.export.graphs.comparisons`). Untrained models at their default sizes are exported twice,
with comparisons and with the operators as they were, and each graph is timed four ways in turns:

    round   1                                                  2
            │ onnxruntime: before │ after │ C: before │ after │ onnxruntime: after │ C: before ...

What a call from Python adds is taken off onnxruntime's times, as in `native_speed`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.native.native_speed import empty_call, from_python, ratio, take_turns
from benchmarks.native.native_subjects import Pair, Rates, native_stream, pairs
from benchmarks.record import Requirement, arguments, conditions, finish, progress, spread
from benchmarks.tables import as_text
from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.export.graphs import portable
from edgefold.export.native.toolchain.compilers import Compiler, find_compiler
from edgefold.runtime import Stream
from edgefold.train.models.registry import create_model

QUESTION = "What does it cost that graphs compare in place of Clip, Min and Max?"
NAMES = ("cmanp", "convcnp", "continual-transformer", "hopping-nystrom", "thp", "cmhp", "sensors")
"""Models whose graphs that write state held such operators."""


def write_bundle(name: str, folder: Path, compares: bool) -> Path:
    """Export an untrained model with comparisons, or with Clip, Min and Max as its graphs have."""
    torch.manual_seed(0)
    model = create_model(name).eval()
    bundle = folder / f"{name}-{'after' if compares else 'before'}"
    as_it_was = patch.object(portable, "compared", lambda graph: graph)
    with nullcontext() if compares else as_it_was:
        export_bundle(model, {"name": "untrained"}, bundle, ExportConfig())
    return bundle


def measure_model(
    name: str, folder: Path, compiler: Compiler, rates: Rates, n_rounds: int
) -> dict[str, Any]:
    """Return, for each graph that writes state, the times of both forms on both backends."""
    found: dict[str, dict[str, Pair]] = {}
    with ExitStack() as stack:
        for form in ("before", "after"):
            bundle = write_bundle(name, folder, form == "after")
            theirs = stack.enter_context(Stream.open(bundle, backend="onnxruntime"))
            ours = native_stream(bundle, compiler, folder / f"{name}-{form}-c")
            found[form] = pairs(theirs, {"own": stack.enter_context(ours)})
        graphs = theirs.manifest.graphs.values()
        writing = [
            graph.name
            for graph in graphs
            if any(tensor.role in portable.WRITTEN for tensor in graph.outputs)
        ]
        return {graph: _measured(graph, found, rates, n_rounds) for graph in writing}


def _measured(
    graph: str, found: dict[str, dict[str, Pair]], rates: Rates, n_rounds: int
) -> dict[str, Any]:
    contenders = {"empty": empty_call()}
    for form, of in found.items():
        contenders[f"onnxruntime {form}"] = from_python(of[graph].theirs)
        contenders[f"native {form}"] = rates.step(of[graph].ours["own"])
    taken = take_turns(contenders, n_rounds)
    for form in found:
        taken[f"onnxruntime {form}"] -= taken["empty"]
    return {
        backend: {
            "before": spread(taken[f"{backend} before"]),
            "after": spread(taken[f"{backend} after"]),
            **ratio(taken[f"{backend} after"], taken[f"{backend} before"]),
        }
        for backend in ("onnxruntime", "native")
    }


def measure(names: Iterable[str], n_rounds: int) -> dict[str, Any]:
    """Measure all models, one after the other."""
    compiler, models = find_compiler(None), {}
    with tempfile.TemporaryDirectory(prefix="edgefold-") as temporary:
        folder = Path(temporary)
        rates = Rates(compiler, folder / "rates")
        for name in names:
            progress(f"{name}: exported and compiled twice, then timed")
            models[name] = measure_model(name, folder, compiler, rates, n_rounds)
    return {"compiler": [compiler.title, " ".join(compiler.flags)], "models": models}


def main() -> None:
    """Measure and record."""
    parser = arguments(__doc__ or "", "comparisons")
    parser.add_argument("--models", nargs="+", choices=NAMES, default=NAMES, help="default: all")
    parser.add_argument("--rounds", type=int, default=101, help="rounds of turns; default 101")
    args = parser.parse_args()
    before = conditions()
    data = measure(["convcnp"] if args.quick else args.models, 7 if args.quick else args.rounds)
    requirements: list[Requirement] = []  # a price that correctness has; no bound was set
    finish(args, "comparisons", QUESTION, before, data, requirements, as_text)


if __name__ == "__main__":
    main()
