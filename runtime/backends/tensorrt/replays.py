"""Compare the launches of captured CUDA graphs with plain runs of the same context.

NVIDIA's text asks for one execution context for each captured graph. Several graphs of one context
need less memory, and are right if each keeps the addresses of its capture. Whether they do is tried
at open: every combination of buffers is run once by a launch and once without a CUDA graph, on the
same numbers, and the results are compared bit for bit. Each buffer holds other numbers, so that a
run on the buffers of another combination gives other results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.tensorrt.context import GraphContext
from edgefold.runtime.backends.tensorrt.memory import CudaBuffer
from edgefold.runtime.bundle.manifest import Graph

UNTOUCHED = 77
"""A number that fills the results before a run."""


@dataclass(slots=True)
class Combination:
    """Holds a combination of device buffers on which a graph runs.

    Attributes:
        placed: The device buffers by the names of the graph's tensors.
        run: Runs the graph on them, by a launch where it was captured.
    """

    placed: Mapping[str, CudaBuffer]
    run: Callable[[], None]

    def step(self) -> None:
        """Run the graph; `run` may be another function after later combinations were bound."""
        self.run()

    def addresses(self) -> dict[str, int]:
        """Return the addresses of the device buffers by the names of the graph's tensors."""
        return {name: buffer.address for name, buffer in self.placed.items()}


def launches_agree(
    graph: Graph,
    context: GraphContext,
    combinations: Sequence[Combination],
    staged: Sequence[Array],
) -> bool:
    """Return whether each combination gives the same bits by a launch and by a plain run.

    Args:
        graph: The graph.
        context: The context in which all combinations were bound.
        combinations: The combinations; their buffers hold other numbers afterwards.
        staged: The results that lie on the host.
    """
    results = {tensor.name for tensor in graph.outputs}
    for combination in combinations:
        found = []
        for run in (combination.run, lambda c=combination: context.run_plain(c.addresses())):
            _fill(combinations, results)
            for array in staged:
                array.fill(UNTOUCHED)
            _mark(combination, results)
            run()
            held = [b.read() for name, b in combination.placed.items() if name in results]
            found.append([array.tobytes() for array in (*held, *staged)])
        if found[0] != found[1]:
            return False
    return True


def _fill(combinations: Sequence[Combination], results: set[str]) -> None:
    """Write small numbers into all buffers that a graph reads, other ones into each.

    Integers, which may be places or counts, are 0.
    """
    buffers = {
        buffer.address: buffer
        for combination in combinations
        for name, buffer in combination.placed.items()
        if name not in results
    }
    for number, address in enumerate(sorted(buffers)):
        buffers[address].fill(0.25 + number / 64)


def _mark(combination: Combination, results: set[str]) -> None:
    for name, buffer in combination.placed.items():
        if name in results:
            buffer.fill(UNTOUCHED)
