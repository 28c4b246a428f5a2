"""How much memory the intermediates of a graph hold while ONNX Runtime runs it once.

Counting what is alive between its first and its last use is not enough, by up to 40 %: ONNX Runtime
runs the nodes in an order of its own (`execution_order`), and plans a value into the buffer of a
dead one of the same shape, which it therefore keeps until then. This follows its planner, without
the updates in place that it finds for some kernels, so that it counts a little too much rather than
too little. float16 counts as float32, because on a CPU nearly every kernel computes it so, between
casts; a float16 input of the graph is converted whole, and early. `budget` compares
all of it with counted allocations. Not counted: some 30 kB of scratch of int8 products, which shows
in the query of an int8 bundle alone, a graph that never needs most.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from edgefold.export.counting.op_counts import execution_order

IN_PLACE = {"Reshape", "Identity", "DequantizeLinear"}
"""Their output is their input's buffer; a dequantised operand is read as integers by the fused
product behind it."""
SELECTS = {"Where"}
"""Its kernel selects one side into a scratch tensor of the output's size, then merges."""
SLACK = 1.08
"""Alignment to 64 bytes, gaps of a packed block, a kernel's small scratch: up to 7 % were counted
with the graphs that run as one block."""

Kind = tuple[tuple[int, ...], int]


@dataclass(slots=True, eq=False)
class _Allocation:
    """One allocation: which nodes it lives from and to, and how many reads are still to come."""

    kind: Kind
    first: int
    last: int
    reads: int = 0

    @property
    def n_bytes(self) -> int:
        shape, element = self.kind
        return int(np.prod(shape, dtype=np.int64)) * element


@dataclass(slots=True)
class _Planner:
    """Buffers given out so far, those free for a value of the same kind, and where values lie."""

    buffers: list[_Allocation] = field(default_factory=list)
    free: list[_Allocation] = field(default_factory=list)
    of: dict[str, _Allocation] = field(default_factory=dict)

    def place(self, name: str, kind: Kind, index: int, reads: int) -> None:
        """Give a value a buffer: a free one of its kind, the last freed first, or a new one."""
        buffer = next((free for free in self.free if free.kind == kind), None)
        if buffer is None:
            buffer = _Allocation(kind, index, index)
            self.buffers.append(buffer)
        else:
            self.free.remove(buffer)
        self.join(name, buffer, index, reads)

    def join(self, name: str, buffer: _Allocation, index: int, reads: int) -> None:
        """Let a value lie in a buffer."""
        self.of[name] = buffer
        buffer.reads += reads
        buffer.last = index

    def read(self, name: str, index: int) -> None:
        """Count one read; a buffer that nobody will read is free."""
        buffer = self.of.get(name)
        if buffer is None:
            return
        buffer.reads -= 1
        buffer.last = index
        if not buffer.reads and buffer not in self.free:
            self.free.insert(0, buffer)


def held_bytes(model: onnx.ModelProto) -> int:
    """The most bytes that the intermediates' buffers hold at once."""
    graph = model.graph
    nodes = execution_order(graph)
    kinds = {info.name: _kind(info) for info in graph.value_info}
    left = {info.name for info in graph.output}  # these lie in the caller's buffers
    reads: dict[str, int] = {}
    for node in nodes:
        for name in node.input:
            reads[name] = reads.get(name, 0) + 1
    planner = _Planner()
    scratch = [0] * len(nodes)
    for index, node in enumerate(nodes):
        for name in node.output:
            if node.op_type in IN_PLACE:
                if node.input[0] in planner.of:
                    buffer = planner.of[node.input[0]]
                    planner.join(name, buffer, index, reads.get(name, 0))
            elif name in kinds and name not in left:
                planner.place(name, kinds[name], index, reads.get(name, 0))
                if node.op_type in SELECTS:
                    scratch[index] = planner.of[name].n_bytes
        for name in node.input:
            planner.read(name, index)
    alive = (
        scratch[index] + sum(b.n_bytes for b in planner.buffers if b.first <= index <= b.last)
        for index in range(len(nodes))
    )
    return _converted_bytes(graph) + max(alive, default=0)


def _converted_bytes(graph: onnx.GraphProto) -> int:
    """Count the bytes of the graph's float16 inputs as float32."""
    halves = [i for i in graph.input if i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16]
    return sum(_Allocation(_kind(info), 0, 0).n_bytes for info in halves)


def activation_bytes(model: onnx.ModelProto) -> int:
    """Count a graph's bytes for the plan: `held_bytes` and some slack."""
    return int(held_bytes(model) * SLACK)


def _kind(info: onnx.ValueInfoProto) -> Kind:
    tensor = info.type.tensor_type
    shape = tuple(d.dim_value for d in tensor.shape.dim)
    element = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return shape, 4 if element == np.float16 else element.itemsize
