"""How fast is a bundle as C, compared with onnxruntime?

The shipped bundles gp-paper and gp-small, and all examples, untrained. Every graph alone: buffers
are bound, inputs are the same, one thread. The C is built twice: for AVX2 (x86-64-v3), and for all
that this machine's processor has. In each round the contenders take turns:

    round   1                                              2
            │ onnxruntime │ AVX2 │ own │ own from Python │ AVX2 │ own │ own from Python │ onnx...
              └ a block of calls, 1 ms or one call

    C            a loop in C around the graph, called once a block: no share of Python's
    onnxruntime  run_with_iobinding in a loop of Python, less what an empty call of the same kind
                 takes in that loop (IOBinding.synchronize_inputs, which has nothing to do here)

Compared are the medians of the rounds' ratios. The floor of refresh, in the same turns: the
operations of its matrix products at the rate that the kernel reaches alone (a product of 128 x 64
by 64 x 64 in cache), plus its weights at the rate at which as many bytes are read again and again.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.native.native_subjects import (
    EXAMPLE_NAMES,
    SUCCESSORS,
    TRAINED,
    Pair,
    Rates,
    builds,
    native_stream,
    pairs,
    write_bundle,
)
from benchmarks.record import Requirement, arguments, at_most, conditions, finish, progress, spread
from benchmarks.speed.floors import session_of
from benchmarks.tables import as_text
from edgefold.export.counting.op_counts import product_flops
from edgefold.export.graphs.static_graph import shapes_of
from edgefold.export.native.toolchain.compilers import Compiler
from edgefold.runtime import Stream

QUESTION = "How fast is a bundle as C, beside onnxruntime?"
BLOCK_S = 1e-3
PRODUCT_FLOPS = 2 * 128 * 64 * 64
BOUNDS = {"update": 1 / 4, "query_one": 1 / 3, "condition": 1 / 2, "refresh": 3 / 4}
GOAL_UPDATE, GOAL_FLOOR, EXAMPLE = 1 / 5, 1.2, 1 / 2

Repeat = Callable[[int], None]


def from_python(call: Callable[[], Any]) -> Repeat:
    """A loop of Python around a call."""

    def run(n: int) -> None:
        for _ in repeat(None, n):
            call()

    return run


def empty_call() -> Repeat:
    """A call into onnxruntime, by the same way through Python, that has nothing to do."""
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1,))
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1,))
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "one", [value], [made])
    opset = helper.make_opsetid("", 18)
    session = session_of(helper.make_model(graph, opset_imports=[opset], ir_version=9))
    return from_python(session.io_binding().synchronize_inputs)


def call_ns(run: Repeat, n: int) -> float:
    """Nanoseconds of a call, in a block of n."""
    start = time.perf_counter_ns()
    run(n)
    return (time.perf_counter_ns() - start) / n


def take_turns(contenders: dict[str, Repeat], n_rounds: int) -> dict[str, Any]:
    """Blocks of all contenders in turns: by contender, nanoseconds of a call in each round."""
    names = list(contenders)
    sizes = {}
    for name, run in contenders.items():
        run(1)
        least = min(call_ns(run, 3) for _ in range(3))
        sizes[name] = max(1, round(BLOCK_S * 1e9 / least))
    taken = {name: np.zeros(n_rounds) for name in names}
    for turn in range(n_rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            taken[name][turn] = call_ns(contenders[name], sizes[name])
    return taken


def ratio(ours: Any, theirs: Any) -> dict[str, float]:
    """Median and spread of the rounds' ratios."""
    p10, p50, p90 = (float(q) for q in np.quantile(ours / theirs, (0.1, 0.5, 0.9)))
    return {"ratio": p50, "ratio_p10": p10, "ratio_p90": p90}


def measure_graph(pair: Pair, rates: dict[str, Rates], n_rounds: int) -> dict[str, Any]:
    """One graph's times by contender; ratios are to onnxruntime's."""
    in_c = {build: rates[build].step(bound) for build, bound in pair.ours.items()}
    last, bound = list(pair.ours.items())[-1]
    contenders = {"onnxruntime": from_python(pair.theirs), "empty": empty_call(), **in_c}
    taken = take_turns({**contenders, "python": from_python(bound)}, n_rounds)
    theirs = taken["onnxruntime"] - taken["empty"]
    return {
        "difference": pair.difference,
        "onnxruntime": spread(theirs),
        "native": {b: {**spread(taken[b]), **ratio(taken[b], theirs)} for b in in_c},
        "python_s": {
            "onnxruntime": float(np.median(taken["empty"])) / 1e9,
            "native": float(np.median(taken["python"] - taken[last])) / 1e9,
        },
    }


def product_work(path: Path) -> tuple[int, int]:
    """Operations of a graph's products, and bytes of its weights."""
    model = onnx.load(path)
    shapes = shapes_of(model)
    flops = sum(product_flops(node, shapes) or 0 for node in model.graph.node)
    return flops, sum(len(tensor.raw_data) for tensor in model.graph.initializer)


def measure_floor(
    path: Path, pair: Pair, rates: dict[str, Rates], n_rounds: int
) -> dict[str, dict[str, float]]:
    """By build, a graph's floor and its time over that, medians of the rounds."""
    flops, n_bytes = product_work(path)
    found = {}
    for build, own in rates.items():
        steps = {"graph": own.step(pair.ours[build]), "product": own.product()}
        taken = take_turns({**steps, "weights": own.reading(n_bytes)}, n_rounds)
        floor = flops * taken["product"] / PRODUCT_FLOPS + taken["weights"]
        found[build] = {
            "flops": flops,
            "weight_bytes": n_bytes,
            "flops_per_s": PRODUCT_FLOPS / float(np.median(taken["product"])) * 1e9,
            "bytes_per_s": n_bytes / float(np.median(taken["weights"])) * 1e9,
            "floor_s": float(np.median(floor)) / 1e9,
            "over_floor": float(np.median(taken["graph"] / floor)),
        }
    return found


def measure_bundle(
    name: str, folder: Path, compilers: dict[str, Compiler], rates: dict[str, Rates], n_rounds: int
) -> dict[str, Any]:
    """All graphs of one bundle."""
    bundle, compiled_s = write_bundle(name, folder), {}
    with ExitStack() as stack:
        theirs = stack.enter_context(Stream.open(bundle, backend="onnxruntime"))
        ours = {}
        for build, compiler in compilers.items():
            start_s = time.perf_counter()
            place = folder / f"{name}-{build}"
            ours[build] = stack.enter_context(native_stream(bundle, compiler, place))
            compiled_s[build] = time.perf_counter() - start_s
        found = pairs(theirs, ours)
        graphs = {graph: measure_graph(p, rates, n_rounds) for graph, p in found.items()}
        if "refresh" in found:
            path = bundle / theirs.manifest.graphs["refresh"].file
            floors = measure_floor(path, found["refresh"], rates, n_rounds)
            for build, floor in floors.items():
                graphs["refresh"]["native"][build]["floor"] = floor
    return {"compiled_s": compiled_s, "graphs": graphs}


def measure(names: Iterable[str], asked: str | None, n_rounds: int) -> dict[str, Any]:
    """All bundles, one after the other."""
    compilers, bundles = builds(asked), {}
    with tempfile.TemporaryDirectory(prefix="edgefold-") as temporary:
        folder = Path(temporary)
        rates = {build: Rates(own, folder / f"rates-{build}") for build, own in compilers.items()}
        for name in names:
            progress(f"{name}: compiled, then timed")
            bundles[name] = measure_bundle(name, folder, compilers, rates, n_rounds)
    told = {build: [own.title, " ".join(own.flags)] for build, own in compilers.items()}
    return {"compilers": told, "bundles": bundles}


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project, for each build; an example by the first one, all its graphs."""
    found = []
    bounded = partial(at_most, unit="of onnxruntime's time")
    for name, own in data["bundles"].items():
        for build in data["compilers"]:
            ratios = {step: times["native"][build] for step, times in own["graphs"].items()}
            if name in (*TRAINED, *SUCCESSORS):
                for step, bound in BOUNDS.items():
                    found.append(bounded(f"{name}, {step}, {build}", ratios[step]["ratio"], bound))
                goal = f"goal: {name}, update, {build}"
                found.append(bounded(goal, ratios["update"]["ratio"], GOAL_UPDATE))
                over = ratios["refresh"]["floor"]["over_floor"]
                what = f"goal: {name}, refresh over its floor, {build}"
                found.append(at_most(what, over, GOAL_FLOOR, ""))
            elif build == next(iter(data["compilers"])):
                worst = max(ratios, key=lambda step: ratios[step]["ratio"])
                what = f"{name}, all graphs, {build}: the worst is {worst}"
                found.append(bounded(what, ratios[worst]["ratio"], EXAMPLE))
    return found


def options() -> argparse.ArgumentParser:
    """The command's options."""
    parser = arguments(__doc__ or "", "native_speed")
    known = [*TRAINED, *EXAMPLE_NAMES]
    parser.add_argument(
        "--bundles",
        nargs="+",
        choices=[*known, *SUCCESSORS],
        default=known,
        help=f"default: all but {', '.join(SUCCESSORS)}",
    )
    parser.add_argument("--rounds", type=int, default=101, help="rounds of turns; default 101")
    parser.add_argument("--compiler", metavar="CC", help="default: $CC, else cc, gcc or clang")
    return parser


def main() -> None:
    """Measure and record."""
    args = options().parse_args()
    before = conditions()
    names = ["gru"] if args.quick else args.bundles
    data = measure(names, args.compiler, 7 if args.quick else args.rounds)
    finish(args, "native_speed", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
