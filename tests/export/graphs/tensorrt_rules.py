"""Graphs as TensorRT computes them where NaN meets an extreme, run by onnxruntime.

The rules were read from the kernels that TensorRT-RTX 1.7 writes: max(x, y) is `x < y ? y : x`,
min(x, y) is `y < x ? y : x`, and Clip is min(hi, max(lo, x)), whose missing bounds are the largest
floats. TensorRT does not say what its reductions, TopK and Sign make of NaN; here they never see
it. So a NaN that passes here needs no operator that may lose it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import NodeProto

from edgefold.export.graphs.comparisons import NodeWriter
from edgefold.export.graphs.static_graph import dtypes_of
from edgefold.runtime.bundle.manifest import Graph, Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.stream.state_buffers import initial_value

Arrays = dict[str, NDArray[Any]]
POISONS = (np.nan, np.inf, -np.inf)


class _Emulation:
    def __init__(self, model: onnx.ModelProto):
        self.writer, self.dtypes = NodeWriter(model), dtypes_of(model)

    def _scalar(self, value: float, like: str) -> str:
        return self.writer.constant(np.array(value, self.dtypes[like]))

    def maximum(self, x: str, y: str, output: str, last: bool = True) -> str:
        less = self.writer.add("Less", [x, y], output)
        return self.writer.add("Where", [less, y, x], output, last=last)

    def minimum(self, x: str, y: str, output: str, last: bool = True) -> str:
        less = self.writer.add("Less", [y, x], output)
        return self.writer.add("Where", [less, y, x], output, last=last)

    def clip(self, node: NodeProto) -> None:
        x, low, high = [*node.input, "", ""][:3]
        largest = float(np.finfo(self.dtypes[x]).max)
        low, high = low or self._scalar(-largest, x), high or self._scalar(largest, x)
        raised = self.maximum(low, x, node.output[0], last=False)
        self.minimum(high, raised, node.output[0])

    def extreme(self, node: NodeProto) -> None:
        rule = self.maximum if node.op_type == "Max" else self.minimum
        value, *others = node.input
        for number, other in enumerate(others, 1):
            value = rule(value, other, node.output[0], last=number == len(others))
        if not others:
            self.writer.add("Identity", [value], node.output[0], last=True)

    def blind(self, node: NodeProto) -> None:
        """Keep the node, whose input gets a number that cannot win in place of NaN."""
        low = node.op_type in ("ReduceMax", "ArgMax", "TopK")
        instead = 0.0 if node.op_type == "Sign" else -np.inf if low else np.inf
        x, kept = node.input[0], NodeProto()
        kept.CopyFrom(node)
        same = self.writer.add("Equal", [x, x], node.output[0])
        inputs = [same, x, self._scalar(instead, x)]
        kept.input[0] = self.writer.add("Where", inputs, node.output[0])
        self.writer.nodes.append(kept)


RULES: dict[str, Callable[[_Emulation, NodeProto], None]] = {
    "Clip": _Emulation.clip,
    "Max": _Emulation.extreme,
    "Min": _Emulation.extreme,
    **dict.fromkeys(("ReduceMax", "ReduceMin", "Sign", "TopK"), _Emulation.blind),
}


def as_tensorrt(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph in which extremes of floats follow TensorRT's rules for NaN."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    emulation = _Emulation(changed)
    for node in model.graph.node:
        rule = RULES.get(node.op_type)
        if rule is not None and emulation.dtypes[node.input[0]].kind == "f":
            rule(emulation, node)
        else:
            emulation.writer.keep(node)
    emulation.writer.finish()
    return changed


@dataclass(frozen=True, slots=True)
class PoisonedGraph:
    """Runs a graph that writes state by ONNX's rules and by TensorRT's on the same inputs."""

    manifest: Manifest
    graph: Graph
    here: onnxruntime.InferenceSession
    there: onnxruntime.InferenceSession

    @classmethod
    def all_of(cls, bundle: Path) -> Iterator[PoisonedGraph]:
        """Yield the graphs of a bundle that can refuse what they computed."""
        manifest = load_manifest(bundle)
        for graph in manifest.graphs.values():
            if any(tensor.role == "finite" for tensor in graph.outputs):
                model = onnx.load(bundle / graph.file)
                yield cls(manifest, graph, _session(model), _session(as_tensorrt(model)))

    def clean(self, random: np.random.Generator) -> Arrays:
        """Return the first state and drawn points, by name of the input."""
        first = {
            t.name: np.broadcast_to(initial_value(self.manifest, t), t.shape).astype(t.dtype)
            for t in self.manifest.state
        }
        drawn: Arrays = {}
        for tensor in self.graph.inputs:
            if tensor.role == "state":
                drawn[tensor.name] = first[tensor.of].copy()
            elif tensor.dtype == "bool":
                drawn[tensor.name] = np.ones(tensor.shape, bool)
            elif "int" in tensor.dtype:
                drawn[tensor.name] = np.zeros(tensor.shape, tensor.dtype)
            else:
                drawn[tensor.name] = random.normal(size=tensor.shape).astype(tensor.dtype)
        return drawn

    def poison(self, arrays: Arrays, random: np.random.Generator, n: int) -> None:
        """Write NaN or an infinity at n drawn places of the float state and points."""
        floats = [a for a in arrays.values() if a.dtype.kind == "f" and a.size]
        for _ in range(n):
            array = floats[random.integers(len(floats))]
            array.flat[random.integers(array.size)] = POISONS[random.integers(len(POISONS))]

    def advance(self, arrays: Arrays, outputs: Mapping[str, NDArray[Any]]) -> None:
        """Let the state's inputs be what the graph wrote, but for rings."""
        written = {t.of: t.name for t in self.graph.outputs if t.role == "state"}
        for tensor in self.graph.inputs:
            if tensor.role == "state" and tensor.of in written:
                arrays[tensor.name] = outputs[written[tensor.of]].copy()

    def run(self, arrays: Arrays) -> tuple[Arrays, Arrays]:
        """Return the outputs by ONNX's rules and by TensorRT's."""
        names = [tensor.name for tensor in self.graph.outputs]
        with np.errstate(all="ignore"):
            both = [session.run(names, arrays) for session in (self.here, self.there)]
        return dict(zip(names, both[0], strict=True)), dict(zip(names, both[1], strict=True))

    def accepts(self, outputs: Arrays) -> NDArray[np.bool_]:
        """Return for each stream whether the host takes the step, (B,)."""
        (name,) = (tensor.name for tensor in self.graph.outputs if tensor.role == "finite")
        return np.isfinite(outputs[name])


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # As they stand: optimisation may join nodes to one that passes NaN.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
