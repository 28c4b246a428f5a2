"""Narrow graphs to float16 (half), for models that do not do it: refresh, query, cache and step.

    state ─ Clip, Cast ─> [half: up to each cache tensor] ──> cache, half
    cache ──────────────> [half] ─ Cast ─> [float32: last product, what follows] ──> prediction
    x ──> [float32: what depends on x alone] ─ Clip, Cast ──┘

A filter's step is narrowed as a query is. In addition, the last product before each state tensor
that it writes stays float32, because an error in the state would stay there.

Products run in half, and so do the nodes around them that are safe in half (`HALF`). A sum over
many numbers, an exponential or a quotient may leave the range of half and stays float32. So do
nodes with constants that half cannot hold, such as the tiny number that keeps a divisor from 0.
Values are clipped to the range of half where they are cast to it. The types are written into the
graph, so that no backend chooses them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from edgefold.export.graphs.operators import having
from edgefold.export.graphs.rewriting import Array, EditableGraph, constant
from edgefold.export.graphs.step_graphs import StepGraph, StepGraphs
from edgefold.runtime.bundle.manifest import WRITTEN, Tensor
from edgefold.runtime.errors import ExportError

PRODUCTS, BOUNDED = having("product"), having("bounded")
HALF = having("product", "bounded", "half")
ANSWERED = ("prediction", *WRITTEN)
LARGEST = float(np.finfo(np.float16).max)
SMALLEST = float(np.finfo(np.float16).tiny)
FLOAT, FLOAT16 = ir.DataType.FLOAT, ir.DataType.FLOAT16


def narrowed(graphs: StepGraphs, samples: Mapping[str, Any]) -> StepGraphs:
    """Return the graphs with refresh, query and step in half, unless the model narrowed them.

    Args:
        graphs: The step graphs, in float32 or as the model's `for_device` narrowed them.
        samples: Not used; the parameter is there because `int8.narrowed` has it.

    Raises:
        ExportError: No product of refresh, query or step can be narrowed.
    """
    if any(step.precision == "float16" for step in graphs.steps):
        return graphs
    queries, refreshes = graphs.of_step("query"), graphs.of_step("refresh")
    answering = (*queries, *graphs.of_step("step"))
    narrow = {step.name: _HalfGraph(step) for step in (*answering, *refreshes)}
    for step in answering:
        narrow[step.name].choose(_outputs(step, *ANSWERED))
    cache = {
        name
        for name, (_, dtype) in graphs.cache.items()
        if dtype == np.float32 and all(narrow[step.name].reads_half(name) for step in queries)
    }
    for step in refreshes:
        narrow[step.name].choose([n for n in _outputs(step, "cache") if n not in cache])
    if not any(graph.half for graph in narrow.values()):
        raise ExportError(
            "float16 narrows the products of refresh, query and step before the last one, and "
            "this model has none; export it in float32."
        )
    steps = tuple(
        narrow[step.name].narrowed(cache) if step.name in narrow else step for step in graphs.steps
    )
    types = {
        name: (shape, np.dtype(np.float16) if name in cache else dtype)
        for name, (shape, dtype) in graphs.cache.items()
    }
    return replace(graphs, steps=steps, cache=types)


def _outputs(step: StepGraph, *roles: str) -> list[str]:
    return [tensor.name for tensor in step.outputs if tensor.role in roles]


def _fits(array: Array) -> bool:
    """Return whether half can hold the largest number of a constant."""
    largest = np.abs(array).max(initial=0) if array.dtype == np.float32 else 0
    return bool(largest == 0 or SMALLEST <= largest <= LARGEST)


def _is_float32(value: ir.Value | None) -> bool:
    return value is not None and value.dtype == FLOAT


def _ends(node: ir.Node) -> set[ir.Value]:
    """Return the inputs and outputs of a node, without constants."""
    values = (*node.inputs, *node.outputs)
    return {v for v in values if v is not None and v.const_value is None}


class _HalfGraph:
    """A float32 graph in which some nodes are made to run in half, with casts where types change.

    Attributes:
        half: Nodes that run in half.
    """

    def __init__(self, step: StepGraph):
        self._step, self._graph = step, EditableGraph.of(step.model)
        self.half: set[ir.Node] = set()
        self._twins: dict[tuple[ir.Value, bool], ir.Value] = {}  # of a value, in each type

    def choose(self, exact: Sequence[str]) -> None:
        """Choose the nodes that run in half, and keep them in `half`.

        Args:
            exact: Names of outputs; the last product before each, and all nodes after it, stay
                float32.
        """
        graph, step = self._graph, self._step
        roles = {tensor.name: tensor.role for tensor in step.inputs}
        values = {v for v in graph.ir.inputs if roles[str(v.name)] in ("state", "cache")}
        last = graph.nodes_before(exact, PRODUCTS)
        used = graph.nodes_before([t.name for t in step.outputs if t.role != "finite"])
        able = []
        for node in graph.ir:
            if not values.intersection(node.inputs):
                continue
            values.update(node.outputs)
            arrays = [constant(value) for value in node.inputs]
            divided = node.op_type == "Div" and arrays[1] is not None
            allowed = (node.op_type in HALF or divided) and node in used - last
            fits = all(_fits(array) for array in arrays if array is not None)
            if allowed and fits and all(map(_is_float32, node.outputs)):
                able.append(node)
        half = {node for node in able if node.op_type in PRODUCTS}
        grown = True
        while grown:  # to what lies between products and around them
            near = {value for node in half for value in _ends(node)}
            reached = {node for node in able if near.intersection(_ends(node))}
            grown = not reached <= half
            half |= reached
        self.half = half

    def reads_half(self, name: str) -> bool:
        """Return whether all nodes that read a cache tensor run in half."""
        names = {t.name for t in self._step.inputs if (t.role, t.of) == ("cache", name)}
        values = [value for value in self._graph.ir.inputs if value.name in names]
        return all(use.node in self.half for value in values for use in value.uses())

    def narrowed(self, cache: Collection[str]) -> StepGraph:
        """Return the graph with the new types of its nodes, its inputs and its outputs.

        Args:
            cache: Names of the cache tensors that are stored in half.
        """
        step, graph = self._step, self._graph.ir
        tensors = (*step.inputs, *step.outputs)
        narrow = {t.name for t in tensors if t.role == "cache" and t.of in cache}
        halves = [value for value in (*graph.inputs, *graph.outputs) if value.name in narrow]
        for value in graph.inputs:
            self._twins[value, value in halves] = value
        nodes = list(graph)
        for node, following in zip(nodes, (*nodes[1:], None), strict=True):
            self._narrow(node, following, halves)
        for value in (*graph.inputs, *graph.outputs):
            if value.name in narrow:
                value.dtype = FLOAT16

        def typed(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
            return tuple(replace(t, dtype="float16") if t.name in narrow else t for t in tensors)

        return replace(
            step,
            model=self._graph.checked(),
            inputs=typed(step.inputs),
            outputs=typed(step.outputs),
            precision="float16" if self.half else step.precision,
        )

    def _narrow(
        self, node: ir.Node, following: ir.Node | None, halves: Collection[ir.Value]
    ) -> None:
        """Let a node read and write half if it is in `half`, else float32; insert casts.

        Args:
            node: The node.
            following: The next node of the graph, before which casts of outputs are inserted.
            halves: Inputs and outputs of the graph that are stored in half.
        """
        in_half = node in self.half
        for index, value in enumerate(node.inputs):
            if value is not None and _is_float32(value):
                node.replace_input_with(index, self._typed(value, in_half, node))
        for value in node.outputs:
            self._twins[value, in_half] = value
            if value in halves and not in_half:  # a cache tensor in half of a float32 node
                name, value.name = str(value.name), f"{value.name}.float32"
                stored = self._cast(value, True, name, name, following)
                stored.shape = value.shape
                self._graph.ir.outputs[self._graph.ir.outputs.index(value)] = stored
                self._twins[value, True] = stored

    def _typed(self, value: ir.Value, in_half: bool, reader: ir.Node) -> ir.Value:
        """Return `value` in half if `in_half`, else in float32, for the node `reader`.

        If there is no such value yet, a cast is inserted before the node.
        """
        array, name = constant(value), str(value.name)
        if array is not None:
            half = f"{name}.half"
            return self._graph.constant(array.astype(np.float16), half) if in_half else value
        if (value, in_half) not in self._twins:
            source, kind = self._twins[value, not in_half], "half" if in_half else "float32"
            self._twins[value, in_half] = self._cast(
                source, in_half, name, f"{name}.{kind}", reader
            )
        return self._twins[value, in_half]

    def _cast(
        self, source: ir.Value, to_half: bool, name: str, out: str, before: ir.Node | None
    ) -> ir.Value:
        """Insert a cast before a node; to half, values that are not bounded are clipped first.

        Args:
            source: The value to cast.
            to_half: Whether to cast to half, else to float32.
            name: Name of the value, from which the name of the clipped one is made.
            out: Name of the result.
            before: Node before which the cast is inserted; None for the end of the graph.
        """
        graph, maker = self._graph, source.producer()
        if to_half and (maker is None or maker.op_type not in BOUNDED):
            bounds = [
                graph.constant(np.array(bound, np.float32), f"half/{bound:.0f}")
                for bound in (-LARGEST, LARGEST)
            ]
            (source,) = graph.insert(before, "Clip", [source, *bounds], [f"{name}.clipped"])
        kind = FLOAT16 if to_half else FLOAT
        return graph.insert(before, "Cast", [source], [out], to=kind)[0]
