"""How much memory a bundle needs, counted from its graphs before anything runs.

    weights      each stored once, however many graphs read it
    state        two buffers each: a step reads one and writes the other
    memory       what refresh writes and query reads
    io           points, targets, predictions and checks of every graph
    activations  per graph: the most that is alive at once between its inputs and outputs; graphs
                 run one after the other, so the total takes the largest

Process, interpreter and runtime come on top; a profile measures those.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from edgefold.export.graph import GraphBuilder
from edgefold.runtime.manifest import StateTensor

ELEMENT_BYTES = {"float32": 4, "float16": 2, "int64": 8, "bool": 1}


def peak_activation_bytes(model: onnx.ModelProto) -> int:
    """The most bytes of intermediates alive at once, nodes in their stored order.

    A node's output is alive from the node to its last reader. Views (Reshape) count nothing: the
    runtimes give them their input's memory, which then lives as long as the view.
    """
    graph = model.graph
    n_bytes = {
        info.name: _bytes_of(info) for info in graph.value_info if info.type.HasField("tensor_type")
    }
    owner: dict[str, str] = {}
    last: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        if node.op_type == "Reshape":
            owner[node.output[0]] = owner.get(node.input[0], node.input[0])
        for name in node.input:
            last[owner.get(name, name)] = index
    alive = peak = 0
    for index, node in enumerate(graph.node):
        made = [n for n in node.output if n in n_bytes and n not in owner]
        alive += sum(n_bytes[name] for name in made)
        peak = max(peak, alive)
        read = {owner.get(n, n) for n in node.input} | set(made)
        alive -= sum(n_bytes.get(n, 0) for n in read if last.get(n, index) == index)
    return peak


def _bytes_of(info: onnx.ValueInfoProto) -> int:
    tensor = info.type.tensor_type
    shape = [d.dim_value for d in tensor.shape.dim]
    element = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).itemsize
    return int(np.prod(shape, dtype=np.int64)) * element


def weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of the constants that a graph reads."""
    return sum(
        int(np.prod(t.dims, dtype=np.int64))
        * np.dtype(helper.tensor_dtype_to_np_dtype(t.data_type)).itemsize
        for t in model.graph.initializer
    )


def tensor_bytes(tensors: Sequence[StateTensor]) -> int:
    """Bytes of one buffer for each tensor."""
    return sum(int(np.prod(t.shape, dtype=np.int64)) * ELEMENT_BYTES[t.dtype] for t in tensors)


def memory_plan(
    graphs: Sequence[tuple[GraphBuilder, onnx.ModelProto]],
    state: Sequence[StateTensor],
    memory: Sequence[StateTensor],
    stored_weight_bytes: int,
) -> dict[str, Any]:
    """The plan as the manifest keeps it; all figures are bytes."""
    per_graph = {}
    for builder, model in graphs:
        io = [t for t in (*builder.inputs, *builder.outputs) if t.role not in ("state", "memory")]
        per_graph[builder.name] = {
            "weights_bytes": weight_bytes(model),
            "activations_bytes": peak_activation_bytes(model),
            "io_bytes": sum(
                int(np.prod(t.shape, dtype=np.int64)) * ELEMENT_BYTES[t.dtype] for t in io
            ),
        }
    parts = {
        "weights_bytes": stored_weight_bytes,
        "state_bytes": 2 * tensor_bytes(state),
        "memory_bytes": tensor_bytes(memory),
        "io_bytes": sum(g["io_bytes"] for g in per_graph.values()),
        "activations_bytes": max(g["activations_bytes"] for g in per_graph.values()),
    }
    return {**parts, "total_bytes": sum(parts.values()), "graphs": per_graph}
