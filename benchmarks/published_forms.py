"""How much faster do models learn a point on the runtime than in their published form?

The published code of LBANP conditions anew on all points that came, in PyTorch; that of CMANP
updates its running attention and refreshes all behind it. Both are run here as plain PyTorch eager,
side by side with the exported graphs, with the same random weights at the papers' size, one thread:

    learn              update alone: the next query pays the refresh
    learn and refresh  what the published forms do at each point

Times are of the thread's own clock, which counts no neighbour of the machine; the ratio is of the
medians. The graphs' buffers hold as many points as the capacity is.

    python -m benchmarks.published_forms --points 100 1000 10000
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.lowering import Array, Session
from edgefold.export.lowering.graphs import Sizes, StepGraph
from edgefold.export.lowering.steps import lower
from edgefold.runtime.arrays import aligned_full
from edgefold.train.models.contract import State, StreamingModel, advance
from edgefold.train.models.registry import create_model

PUBLISHED_MS = {  # update of one point, the authors' code on an AMD EPYC, by points before it
    "lbanp": {100: 6.7, 1_000: 23.0, 10_000: 244.0},
    "cmanp": {100: 13.7, 1_000: 13.4, 10_000: 16.5},
}
AT_LEAST_S, AT_LEAST_CALLS = 1.0, 12


def median_ms(call: Callable[[], object]) -> float:
    """Median time of a call on this thread's clock, after two calls that warm up."""
    for _ in range(2):
        call()
    found: list[float] = []
    began = time.monotonic()
    while len(found) < AT_LEAST_CALLS or time.monotonic() < began + AT_LEAST_S:
        start = time.thread_time()
        call()
        found.append(time.thread_time() - start)
    return statistics.median(found) * 1e3


def state_after(model: StreamingModel, n_points: int) -> State:
    """The state of the device's form after so many random points."""
    state = model.initial_state(1)
    for point in torch.rand(n_points, 1, 2) * 4 - 2:
        state = advance(model, state, model.update(state, point[:, :1], point[:, 1:]))
    return state


def graph_ms(graph: StepGraph, state: State) -> float:
    """Time of one exported step on a state."""
    values = {tensor.name: state[tensor.of] for tensor in graph.inputs if tensor.role == "state"}

    def value(name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        array = aligned_full(shape, dtype, 0)
        if name in values:
            array[...] = values[name].numpy()
        return array

    return median_ms(Session(graph.model.SerializeToString(), value).run)


def graphs_ms(model: StreamingModel, n_points: int) -> dict[str, float]:
    """Times of the exported update and refresh after so many points."""
    held = state_after(model.for_device(1), n_points)
    graphs = lower(model, Sizes(chunk=32, targets=16, streams=1)).steps
    return {g.step: graph_ms(g, held) for g in graphs if g.step in ("update", "refresh")}


def eager_ms(name: str, model: Any, n_points: int) -> float:
    """Time of the published form in PyTorch: what it does when one point arrives."""
    x, y = torch.rand(1, n_points, 1) * 4 - 2, torch.rand(1, n_points, 1)
    if name == "lbanp":
        return median_ms(lambda: model.context_cache(x, y))
    state = model.condition(model.initial_state(1), x, y)
    return median_ms(lambda: model.refresh(model.update(state, x[:, 0], y[:, 0])))


def main() -> None:
    """Print a line for each model and number of points."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, nargs="+", default=[100, 1_000, 10_000])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print("model   points  learn ms  and refresh  eager ms  ratio (learn; and refresh)  published")
    for name, published in PUBLISHED_MS.items():
        for n_points in asked.points:
            settings = {"capacity": n_points + 1} if name == "lbanp" else {}
            torch.manual_seed(0)
            model = create_model(name, settings, "paper")
            with torch.inference_mode():
                eager = eager_ms(name, model, n_points)
                held = graphs_ms(model, n_points)
            learn, both = held["update"], held["update"] + held["refresh"]
            told = published.get(n_points, float("nan"))
            print(
                f"{name:7} {n_points:6,} {learn:9.3f} {both:12.2f} {eager:9.2f} "
                f"{eager / learn:9.0f}; {eager / both:6.2f} {told:16.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
