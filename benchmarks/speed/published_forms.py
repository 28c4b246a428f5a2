"""How much faster do models learn a point on the runtime than in their published form?

The published code of CMANP updates its running attention and refreshes all behind it; that of LBANP
and EQTNP conditions anew on all points; TNP-D encodes all points anew at each query. Plain PyTorch
eager does the same here, with the models of this repository at the papers' size and random weights.
Beside it runs the exported bundle:

    published    what the published form does when a point arrives; of TNP-D: a query of one target
    learn        Stream.update alone: the next query pays the refresh; of TNP-D: Stream.query
    and refresh  Stream.update and Stream.refresh; of TNP-D: and Stream.query

Times are of the thread's own clock, which counts no neighbour of the machine; one thread. Buffers
are full.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.models.family import child
from benchmarks.models.family_child import points
from benchmarks.record import Requirement, arguments, at_least, conditions, finish, progress, spread
from benchmarks.tables import as_text
from edgefold.runtime import Stream
from edgefold.train.contract import State, StreamingModel, advance
from edgefold.train.models.registry import create_model

QUESTION = "How much faster is a point learned than by the published form?"
SIZES = (100, 1_000, 10_000)
PUBLISHED_S = {
    "cmanp": {100: 13.7e-3, 1_000: 13.4e-3, 10_000: 16.5e-3},
    "lbanp": {100: 6.7e-3, 1_000: 23e-3, 10_000: 244e-3},
    "eqtnp": {100: 6.5e-3, 1_000: 70e-3, 10_000: 20.7},
    "tnp-d": {100: 3.0e-3, 1_000: 261e-3, 10_000: 32.9},
}
"""Seconds of the authors' code on an AMD EPYC, one thread; TNP-D's are of a query of one."""
BY_QUERY = ("tnp-d",)
"""These do their work when they are asked."""
AT_LEAST = 5.0
AT_LEAST_S, AT_LEAST_CALLS = 1.0, 3


def timed(call: Callable[[], object], at_least_s: float) -> dict[str, float]:
    """The times of a call on this thread's clock, after one call that warms up."""
    call()
    taken: list[int] = []
    began_s = time.monotonic()
    while len(taken) < AT_LEAST_CALLS or time.monotonic() < began_s + at_least_s:
        start = time.thread_time_ns()
        call()
        taken.append(time.thread_time_ns() - start)
    return spread(taken)


def state_after(model: StreamingModel, x: torch.Tensor, y: torch.Tensor) -> State:
    """The state after the points x (1, N, X), y (1, N, Y)."""
    state = model.initial_state(1)
    for k in range(x.shape[1]):
        state = advance(model, state, model.update(state, x[:, k], y[:, k]))
    return state


@torch.inference_mode()
def published_form(name: str, n_points: int, at_least_s: float) -> dict[str, float]:
    """Times of the published form in PyTorch eager, with one thread."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    settings = {} if name == "cmanp" else {"capacity": n_points}
    model: Any = create_model(name, settings, "paper").eval()
    x, y = torch.rand(1, n_points, 1) * 4 - 2, torch.rand(1, n_points, 1)
    if name == "lbanp":
        return timed(lambda: model.context_cache(x, y), at_least_s)
    if name == "tnp-d":
        return timed(lambda: model(x, y, x[:, :1]), at_least_s)
    state = state_after(model, x, y)
    if name == "eqtnp":
        return timed(lambda: model.refresh(state), at_least_s)
    return timed(lambda: model.refresh(model.update(state, x[:, 0], y[:, 0])), at_least_s)


def on_the_runtime(
    name: str, bundle: Path, n_points: int, at_least_s: float
) -> dict[str, dict[str, float]]:
    """Times of the bundle after so many points."""
    stream = Stream.open(bundle, backend="onnxruntime")
    x, y = points(stream, n_points)
    stream.condition(x, y)
    x, y = np.ascontiguousarray(x[:1]), np.ascontiguousarray(y[:1])

    def learn() -> None:
        stream.update(x, y)

    def ask() -> None:
        stream.query(x)

    def learn_and_refresh() -> None:
        stream.update(x, y)
        stream.refresh()

    def learn_and_ask() -> None:
        stream.update(x, y)
        stream.query(x)

    by_query = name in BY_QUERY
    if by_query:
        stream.refresh()
    return {
        "alone": timed(ask if by_query else learn, at_least_s),
        "with_refresh": timed(learn_and_ask if by_query else learn_and_refresh, at_least_s),
    }


def measure(name: str, n_points: int, at_least_s: float) -> dict[str, Any]:
    """One model after so many points, both sides."""
    with tempfile.TemporaryDirectory(prefix="edgefold-published-") as folder:
        bundle = Path(folder) / "bundle"
        child("export", name, "paper", str(n_points), str(bundle))
        ours = on_the_runtime(name, bundle, n_points, at_least_s)
    return {
        "model": name,
        "n_points": n_points,
        "what": "query" if name in BY_QUERY else "update",
        "published": published_form(name, n_points, at_least_s),
        **ours,
        "authors_s": PUBLISHED_S[name].get(n_points),
    }


def requirements(rows: list[dict[str, Any]]) -> list[Requirement]:
    """Every one is at least five times as fast as its published form."""
    return [
        at_least(
            f"{row['model']} after {row['n_points']:,} points, {row['what']}: published over ours",
            row["published"]["median_s"] / row["alone"]["median_s"],
            AT_LEAST,
            "times",
        )
        for row in rows
    ]


def main() -> None:
    """Measure every model at every number of points."""
    parser = arguments(__doc__ or "", "published_forms")
    parser.add_argument("--models", nargs="+", choices=sorted(PUBLISHED_S), help="default: all")
    parser.add_argument("--points", type=int, nargs="+", help="default 100 1000 10000")
    args = parser.parse_args()
    before = conditions()
    sizes = args.points or (SIZES[:1] if args.quick else SIZES)
    cells = [(name, n) for name in args.models or PUBLISHED_S for n in sizes]
    rows = []
    for done, (name, n_points) in enumerate(cells):
        progress(f"{name} after {n_points:,} points, {done + 1} of {len(cells)}")
        rows.append(measure(name, n_points, 0.05 if args.quick else AT_LEAST_S))
    data = {"rows": rows}
    finish(args, "published_forms", QUESTION, before, data, requirements(rows), as_text)


if __name__ == "__main__":
    main()
