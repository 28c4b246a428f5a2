"""How long does each step take, compared with the same model in plain PyTorch?

The paper's size, untrained, float32, one thread. All sides have the same weights and see the same
points in one process: the bundle on ONNX Runtime, the same bundle as C, where a compiler is there,
and PyTorch, which runs as the paper does, with a refresh at each update.

The steps take turns in rounds (`benchmarks.rounds`), so that the drift of the machine meets all
alike; a fixed piece of numpy work timed in between tells how large it is. Steps that need stale
memory make it stale outside the timing.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx
import torch

from benchmarks.machine_rates import measure_ceilings
from benchmarks.native.native_subjects import native_stream
from benchmarks.record import (
    Requirement,
    arguments,
    at_least,
    at_most,
    conditions,
    finish,
)
from benchmarks.rounds import Step, interleave
from benchmarks.subjects import Subject, points, untrained
from benchmarks.tables import as_text
from edgefold.export.counting.op_counts import work_of
from edgefold.export.native.toolchain.compilers import find_compiler
from edgefold.runtime import BackendError, Stream
from edgefold.train.checkpoints import load_model

QUESTION = "How long does each step take, beside the same model in plain PyTorch?"
BATCH = 128  # single updates in one timed call of the amortised ones: holds one consolidation
N_POINTS = 1024


class Points:
    """The stream's points, used in turn; all arrays are made before anything is timed."""

    def __init__(self) -> None:
        self.x, self.y = points(N_POINTS)
        self._rows = [(self.x[i : i + 1], self.y[i : i + 1]) for i in range(N_POINTS)]
        self._tensors = [
            (torch.from_numpy(x).float()[None], torch.from_numpy(y).float()[None])
            for x, y in self._rows
        ]
        self._index = 0

    def row(self) -> tuple[Any, Any]:
        """The next point, (1, X) and (1, Y) float64 arrays."""
        self._index = (self._index + 1) % N_POINTS
        return self._rows[self._index]

    def tensors(self) -> tuple[Any, Any]:
        """The next point as PyTorch takes it, (1, 1, X) and (1, 1, Y) float32 tensors."""
        self._index = (self._index + 1) % N_POINTS
        return self._tensors[self._index]


def edgefold_steps(stream: Stream, waiting: Stream) -> list[Step]:
    """Every step of the bundle, from the caller's side and bare."""
    given = Points()
    chunk = given.x[:32], given.y[:32]
    targets = given.x[:16]
    batch = [given.row() for _ in range(BATCH)]

    def many(update: Callable[..., None]) -> None:
        for x, y in batch:
            update(x, y)

    def both() -> None:
        stream.update(*given.row())
        stream.refresh()

    def graph(name: str) -> Callable[[], None]:
        return lambda: stream.run_step(name)

    return [
        Step("update", lambda: stream.update(*given.row())),
        Step("update graph alone", graph("update")),
        Step("128 updates", lambda: many(stream.update), 1, 0, n_points=BATCH),
        Step("128 waiting updates", lambda: many(waiting.update), 2, 0, n_points=BATCH),
        Step("condition, 32 points", lambda: stream.condition(*chunk), 10, n_points=32),
        Step("consolidate graph alone", graph("consolidate"), 10),
        Step("refresh", stream.refresh, 3, 1, before=lambda: stream.update(*given.row())),
        Step("refresh graph alone", graph("refresh"), 3, 1),
        Step("query, 1 target", lambda: stream.query(given.x[:1]), 20),
        Step("query, 16 targets", lambda: stream.query(targets), 10),
        Step("update and refresh", both, 3, 1),
    ]


def torch_steps(model: Any) -> list[Step]:
    """The same steps in PyTorch eager."""
    given = Points()
    chunk = [torch.from_numpy(array[:32]).float()[None] for array in (given.x, given.y)]
    one, targets = (torch.from_numpy(given.x[:n]).float()[None] for n in (1, 16))
    state = model.condition(model.initial_state(), *chunk)
    memory = model.refresh(state)

    def update() -> Any:
        nonlocal state
        state = model.condition(state, *given.tensors())
        return state

    return [
        Step("update", update, 20),
        Step("condition, 32 points", lambda: model.condition(state, *chunk), 5, 2, n_points=32),
        Step("refresh", lambda: model.refresh(state), 3, 1),
        Step("query, 1 target", lambda: model.query(memory, one), 10),
        Step("query, 16 targets", lambda: model.query(memory, targets), 10),
        Step("update and refresh", lambda: model.refresh(update()), 3, 1),
    ]


def requirements(times: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project, medians of this run."""
    ours = {name: t["median_s"] for name, t in times["edgefold"].items()}
    theirs = times["pytorch"]["update and refresh"]["median_s"]
    rate = BATCH / ours["128 waiting updates"]
    return [
        at_most("update of one point", ours["update"] * 1e6, 70, "µs"),
        at_least("PyTorch's update and refresh, beside update", theirs / ours["update"], 100, "x"),
        at_most(
            "update less the bare graph",
            (ours["update"] - ours["update graph alone"]) * 1e6,
            10,
            "µs",
        ),
        at_least("points a second with waiting points", rate, 50_000, "points/s"),
        at_most("query of one target, memory fresh", ours["query, 1 target"] * 1e6, 150, "µs"),
    ]


@contextlib.contextmanager
def contenders(subject: Subject) -> Iterator[dict[str, list[Step]]]:
    """All sides, opened on the same weights; without a C compiler there is no "native"."""
    model, _ = load_model(subject.run)
    try:
        compiler = find_compiler()
    except BackendError as error:
        compiler = None
        print(f"without the C: {error}", file=sys.stderr)
    with contextlib.ExitStack() as opened:
        opened.enter_context(torch.inference_mode())
        pairs = {
            "edgefold": [
                opened.enter_context(
                    Stream.open(subject.bundle, backend="onnxruntime", buffered=buffered)
                )
                for buffered in (False, True)
            ]
        }
        if compiler:
            folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="edgefold-")))
            pairs["native"] = [
                opened.enter_context(
                    native_stream(subject.bundle, compiler, folder / str(buffered), buffered)
                )
                for buffered in (False, True)
            ]
        groups = {name: edgefold_steps(*pair) for name, pair in pairs.items()}
        yield groups | {"pytorch": torch_steps(model)}


def measure(args: argparse.Namespace) -> tuple[dict[str, Any], list[Requirement]]:
    """All times, the work of each graph, and the machine's ceilings."""
    ceilings = asdict(measure_ceilings())
    with untrained("paper") as subject:
        with contenders(subject) as groups:
            interleave(groups, 2)  # warm-up
            times, noise = interleave(groups, 5 if args.quick else args.rounds)
        work = {
            path.stem: asdict(work_of(onnx.load(path, load_external_data=False)))
            for path in sorted(subject.bundle.glob("*.onnx"))
        }
    data = {"times": times, "noise": noise, "work": work, "ceilings": ceilings}
    return data, requirements(times)


def main() -> None:
    """Measure and record."""
    parser = arguments(__doc__ or "", "step_latency")
    parser.add_argument("--rounds", type=int, default=200, help="rounds of all steps; default 200")
    args = parser.parse_args()
    torch.set_num_threads(1)
    before = conditions()
    data, found = measure(args)
    finish(args, "step_latency", QUESTION, before, data, found, as_text)


if __name__ == "__main__":
    main()
