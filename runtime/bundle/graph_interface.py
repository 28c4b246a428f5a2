"""Compare the inputs and outputs of a graph with those that the manifest lists.

Whatever runs a graph takes its buffers from the manifest. A graph whose tensors are larger would
read and write outside of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from edgefold.runtime.bundle.manifest import Graph
from edgefold.runtime.errors import BundleError

FoundTensor = tuple[str, Sequence[Any], str]
"""Name, lengths of all axes, and type of an input or output, as it was found in a graph."""


def require_same_tensors(
    graph: Graph, inputs: Iterable[FoundTensor], outputs: Iterable[FoundTensor]
) -> None:
    """Raise BundleError if a graph's inputs and outputs are not those of the manifest.

    Names, shapes and types are compared; the order is not, because all tensors are bound by name.

    Args:
        graph: The graph as the manifest describes it.
        inputs: Inputs of the graph's file, each type as numpy names it.
        outputs: Its outputs.
    """
    for kind, expected, found in (
        ("input", graph.inputs, inputs),
        ("output", graph.outputs, outputs),
    ):
        listed = sorted((t.name, tuple(t.shape), t.dtype) for t in expected)
        real = sorted(((name, tuple(shape), dtype) for name, shape, dtype in found), key=str)
        if sorted(listed, key=str) != real:
            raise BundleError(
                f"graph {graph.name} has other {kind}s than its manifest: found "
                f"{_text(real, listed)}, listed {_text(listed, real)}; export the bundle again."
            )


def _text(tensors: Sequence[FoundTensor], others: Sequence[FoundTensor]) -> str:
    """Return those tensors that are not among the others, as text."""
    different = [
        f"{name} {dtype} {list(shape)}"
        for name, shape, dtype in tensors
        if (name, shape, dtype) not in others
    ]
    return ", ".join(different) or f"{len(tensors)} tensors"
