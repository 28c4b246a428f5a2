"""float16 for models that do not narrow themselves: refresh, query, the cache between them, step.

    state ─ Clip, Cast ─> [half: up to each cache tensor] ──> cache, half
    cache ──────────────> [half] ─ Cast ─> [float32: last product, what follows] ──> prediction
    x ──> [float32: what depends on x alone] ─ Clip, Cast ──┘

A filter's step is narrowed as a query is; besides, the last product before what it writes of the
state stays float32, because an error there would stay too.

Products run in half, with what lies around them as far as it bears it (`HALF`): a sum over many
numbers, an exponential or a quotient may leave the range of half, so that these stay float32. So do
nodes with constants that half cannot hold, such as the tiny number that keeps a divisor from 0.
Values are clipped where they enter half. Types are written into the graph; no backend decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, helper

from edgefold.export.graphs.operators import having
from edgefold.export.graphs.static_graph import (
    Array,
    constants_of,
    copied,
    dtypes_of,
    nodes_before,
    rebuilt,
)
from edgefold.export.graphs.step_graphs import StepGraph, StepGraphs
from edgefold.runtime.bundle.manifest import WRITTEN
from edgefold.runtime.errors import ExportError

PRODUCTS, BOUNDED = having("product"), having("bounded")
HALF = having("product", "bounded", "half")
ANSWERED = ("prediction", *WRITTEN)
LARGEST = float(np.finfo(np.float16).max)
SMALLEST = float(np.finfo(np.float16).tiny)
FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


def narrowed(graphs: StepGraphs, samples: Mapping[str, Any]) -> StepGraphs:
    """The graphs with refresh, query and step in half, unless the model narrowed them itself.

    Args:
        graphs: In float32, or as the model's `for_device` narrowed them.
        samples: Not needed.

    Raises:
        ExportError: No product of refresh, query or step can be narrowed.
    """
    if any(step.precision == "float16" for step in graphs.steps):
        return graphs
    queries, refreshes = graphs.of_step("query"), graphs.of_step("refresh")
    answering = (*queries, *graphs.of_step("step"))
    half = {step.name: _half_nodes(step, _outputs(step, *ANSWERED)) for step in answering}
    cache = {
        name
        for name, (_, dtype) in graphs.cache.items()
        if dtype == np.float32 and all(_reads_half(step, half[step.name], name) for step in queries)
    }
    for step in refreshes:
        exact = [name for name in _outputs(step, "cache") if name not in cache]
        half[step.name] = _half_nodes(step, exact)
    if not any(half.values()):
        raise ExportError(
            "float16 narrows the products of refresh, query and step before the last one, and "
            "this model has none; export it in float32."
        )
    steps = tuple(
        _Narrower(step, half[step.name], cache).made() if step.name in half else step
        for step in graphs.steps
    )
    narrow = {
        name: (shape, np.dtype(np.float16) if name in cache else dtype)
        for name, (shape, dtype) in graphs.cache.items()
    }
    return replace(graphs, steps=steps, cache=narrow)


def _outputs(step: StepGraph, *roles: str) -> list[str]:
    return [tensor.name for tensor in step.outputs if tensor.role in roles]


def _reads_half(step: StepGraph, half: Collection[str], name: str) -> bool:
    """Whether all nodes that read a cache tensor run in half."""
    names = {tensor.name for tensor in step.inputs if (tensor.role, tensor.of) == ("cache", name)}
    return all(node.output[0] in half for node in step.model.graph.node if names & set(node.input))


def _half_nodes(step: StepGraph, exact: Sequence[str]) -> set[str]:
    """Nodes that run in half, by their first output.

    Args:
        step: A float32 graph.
        exact: Outputs whose last product, and what follows it, stay float32.
    """
    nodes = step.model.graph.node
    dtypes, constants = dtypes_of(step.model), constants_of(step.model)
    known = {tensor.name for tensor in step.inputs if tensor.role in ("state", "cache")}
    last = nodes_before(step.model, exact, PRODUCTS)
    used = nodes_before(step.model, [t.name for t in step.outputs if t.role != "finite"])
    able = []
    for node in nodes:
        if not known.intersection(node.input):
            continue
        known.update(node.output)
        fits = all(_fits(constants[name]) for name in node.input if name in constants)
        float32 = all(dtypes[name] == np.float32 for name in filter(None, node.output))
        divided = node.op_type == "Div" and node.input[1] in constants
        allowed = (node.op_type in HALF or divided) and node.output[0] in used - last
        if allowed and fits and float32:
            able.append(node)
    half = {node.output[0] for node in able if node.op_type in PRODUCTS}
    grown = True
    while grown:  # to what lies between products and around them
        near = {name for node in able if node.output[0] in half for name in _ends(node, constants)}
        reached = {node.output[0] for node in able if near.intersection(_ends(node, constants))}
        grown = not reached <= half
        half |= reached
    return half


def _ends(node: NodeProto, constants: Collection[str]) -> set[str]:
    return {name for name in (*node.input, *node.output) if name and name not in constants}


def _fits(constant: Array) -> bool:
    largest = np.abs(constant).max(initial=0) if constant.dtype == np.float32 else 0
    return bool(largest == 0 or SMALLEST <= largest <= LARGEST)


class _Narrower:
    """Copies the nodes of a graph, some in half, with casts where the type changes."""

    def __init__(self, step: StepGraph, half: Collection[str], cache: Collection[str]):
        self._step, self._half = step, half
        self._dtypes, self.constants = dtypes_of(step.model), constants_of(step.model)
        self._bounded = {
            node.output[0] for node in step.model.graph.node if node.op_type in BOUNDED
        }
        self.nodes: list[NodeProto] = []
        self._names: dict[tuple[str, bool], str] = {}  # of each value, in float32 and in half
        self._narrow = {t.name for t in (*step.inputs, *step.outputs) if t.role == "cache"}
        self._narrow &= {t.name for t in (*step.inputs, *step.outputs) if t.of in cache}

    def made(self) -> StepGraph:
        """The graph with its new types, of the interface too."""
        step, narrow = self._step, self._narrow
        model = onnx.ModelProto()
        model.CopyFrom(step.model)
        for info in (*model.graph.input, *model.graph.output):
            if info.name in narrow:
                info.type.tensor_type.elem_type = FLOAT16
        for info in model.graph.input:
            self._names[info.name, info.name in narrow] = info.name
        for node in model.graph.node:
            self._copy(node)
        inputs, outputs = (
            tuple(replace(t, dtype="float16") if t.name in narrow else t for t in tensors)
            for tensors in (step.inputs, step.outputs)
        )
        return replace(
            step,
            model=rebuilt(model, self.nodes, self.constants),
            inputs=inputs,
            outputs=outputs,
            precision="float16" if self._half else step.precision,
        )

    def _copy(self, node: NodeProto) -> None:
        in_half = node.output[0] in self._half
        self.nodes.append(copied(node, [self._typed(name, in_half) for name in node.input]))
        for index, name in enumerate(node.output):
            own = name if in_half or name not in self._narrow else f"{name}.float32"
            self.nodes[-1].output[index] = own
            self._names[name, in_half] = own
            if own != name:  # a cache tensor in half that a float32 node makes
                self._names[name, True] = self._cast(name, own, True, name)

    def _typed(self, name: str, in_half: bool) -> str:
        """The name of a value in one of the types, cast on first use."""
        if not name or self._dtypes[name] != np.float32:
            return name
        if name in self.constants:
            if in_half:
                self.constants[f"{name}.half"] = self.constants[name].astype(np.float16)
            return f"{name}.half" if in_half else name
        if (name, in_half) not in self._names:
            source = self._names[name, not in_half]
            out = f"{name}.half" if in_half else f"{name}.float32"
            self._names[name, in_half] = self._cast(name, source, in_half, out)
        return self._names[name, in_half]

    def _cast(self, name: str, source: str, to_half: bool, out: str) -> str:
        if to_half and name not in self._bounded:
            for bound in (-LARGEST, LARGEST):
                self.constants[f"half/{bound:.0f}"] = np.array(bound, np.float32)
            bounds = [f"half/{bound:.0f}" for bound in (-LARGEST, LARGEST)]
            self.nodes.append(helper.make_node("Clip", [source, *bounds], [f"{name}.clipped"]))
            source = f"{name}.clipped"
        kind = FLOAT16 if to_half else FLOAT
        self.nodes.append(helper.make_node("Cast", [source], [out], to=kind))
        return out
