"""Count what one call of a graph has to do, and in which order ONNX Runtime does it.

    flop     operations: two for each weight and row of a product, a convolution or a recurrent
             layer, and one for each element of every other node's output
    bytes    bytes that must pass through the processor once: weights, inputs and outputs
    moved    bytes that pass if no intermediate value stays in a register: all operands and results
    nodes    number of kernels that are called, without views (nodes that only rename a buffer)

All of it is counted from static shapes, before anything runs. The manifest carries the numbers,
because a board has no library to read a graph with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from edgefold.export.graphs.static_graph import attribute, dtypes_of, shapes_of

VIEWS = {"Reshape", "Identity", "Split"}


@dataclass(frozen=True, slots=True)
class Work:
    """Holds the work of one call of a graph.

    Attributes:
        flops: Number of operations.
        n_bytes: Bytes of weights, inputs and outputs.
        moved_bytes: Bytes of all nodes' operands and results.
        n_nodes: Number of kernels that are called.
    """

    flops: int
    n_bytes: int
    moved_bytes: int
    n_nodes: int

    def to_json(self) -> dict[str, int]:
        return {
            "flop": self.flops,
            "bytes": self.n_bytes,
            "moved_bytes": self.moved_bytes,
            "n_nodes": self.n_nodes,
        }


def work_of(model: onnx.ModelProto) -> Work:
    """Count the work of one graph with static shapes; weights may lie in an external file."""
    graph, shapes, sizes = model.graph, shapes_of(model), sizes_of(model)
    flops = moved = n_nodes = 0
    for node in graph.node:
        if node.op_type in VIEWS:
            continue
        n_nodes += 1
        moved += sum(sizes[name] for name in (*node.input, *node.output) if name)
        product = product_flops(node, shapes)
        if product is not None:
            flops += product
        elif node.op_type != "Transpose":
            flops += sum(_count(shapes[name]) for name in node.output if name)
    passed = sum(sizes[t.name] for t in (*graph.initializer, *graph.input, *graph.output))
    return Work(flops, passed, moved, n_nodes)


def execution_order(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes of a graph in the order in which ONNX Runtime runs them by default.

    ONNX Runtime walks back from the nodes whose results no node reads, the last one first and the
    last operand first. So an output that comes early in the file may be computed at the very end,
    and its operands stay alive until then.
    """
    maker = {name: index for index, node in enumerate(graph.node) for name in node.output}
    read = {name for node in graph.node for name in node.input}
    leaves = [i for i, node in enumerate(graph.node) if not read.intersection(node.output)]
    order: list[int] = []
    seen: set[int] = set()
    stack = [(index, False) for index in leaves]
    while stack:
        index, leave = stack.pop()
        if leave:
            order.append(index)
        elif index not in seen:
            seen.add(index)
            stack.append((index, True))
            makers = sorted({maker[name] for name in graph.node[index].input if name in maker})
            stack += [(before, False) for before in makers if before not in seen]
    return [graph.node[index] for index in order]


def product_flops(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """Return the operations of a product, two for each weight and row; None for other nodes.

    Convolutions and recurrent layers count as products.

    Args:
        node: The node.
        shapes: Shapes of all values of the graph by name.
    """
    out = shapes[next(name for name in node.output if name)]
    if node.op_type in ("MatMul", "Gemm"):
        left = shapes[node.input[0]]
        return 2 * _count(out) * left[-2 if attribute(node, "transA", 0) else -1]
    if node.op_type in ("Conv", "ConvTranspose"):
        return 2 * _count(out) * _count(shapes[node.input[1]][1:])
    if node.op_type in ("LSTM", "GRU", "RNN"):
        n_steps, n_streams = shapes[node.input[0]][:2]
        weights = _count(shapes[node.input[1]]) + _count(shapes[node.input[2]])
        return 2 * n_steps * n_streams * weights
    return None


def _count(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def sizes_of(model: onnx.ModelProto) -> dict[str, int]:
    """Return how many bytes each value of a graph takes, by the name of the value."""
    dtypes = dtypes_of(model)
    return {name: _count(shape) * dtypes[name].itemsize for name, shape in shapes_of(model).items()}
