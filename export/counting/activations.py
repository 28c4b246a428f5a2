"""Count how much memory the intermediate values of a graph take while ONNX Runtime runs it once.

A count of the values that are alive between first and last use is up to 40 % too small: ONNX
Runtime runs the nodes in its own order (`execution_order`), and puts a value into the buffer of a
dead one of the same shape, which it therefore keeps until then. This module follows its planner,
without the updates in place that it finds for some kernels, so that it counts a little too much
rather than too little. float16 counts as float32, because on a CPU nearly every kernel computes in
float32, between casts; a float16 input of the graph is converted whole, and early. `budget`
compares these counts with counted allocations. Some 30 kB of scratch memory of int8 products are
not counted: they show only in the query of an int8 bundle, which is never the graph that needs
most.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper

from edgefold.export.counting.op_counts import execution_order

IN_PLACE = {"Reshape", "Identity", "DequantizeLinear"}
"""Operators whose output uses the buffer of their input. A dequantised operand is one of them,
because the fused product behind it reads the integers."""
SELECTS = {"Where"}
"""Operators whose kernel copies one side into a scratch tensor of the output's size, then merges
both sides."""
SLACK = 1.08
"""Factor for alignment to 64 bytes, gaps in a packed block and small scratch memory of kernels: up
to 7 % were counted with the graphs that run as one block."""

Kind = tuple[tuple[int, ...], int]


@dataclass(slots=True, eq=False)
class _Allocation:
    """A buffer that ONNX Runtime allocates for values of one kind.

    Attributes:
        kind: Shape of the values, and bytes of an element.
        first, last: Numbers of the first and of the last node during which the buffer is needed.
        reads: Number of reads that are still to come.
    """

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
    """Gives buffers to values as the planner of ONNX Runtime does.

    Attributes:
        buffers: All buffers that were allocated so far.
        free: Buffers that are free for a value of the same kind, the last freed first.
        of: Buffer of each value, by the name of the value.
    """

    buffers: list[_Allocation] = field(default_factory=list)
    free: list[_Allocation] = field(default_factory=list)
    of: dict[str, _Allocation] = field(default_factory=dict)

    def place(self, name: str, kind: Kind, index: int, reads: int) -> None:
        """Give a value that node `index` makes a free buffer of its kind, or a new one.

        Of several free ones the last freed is taken. `reads` says how often the value will be read.
        """
        buffer = next((free for free in self.free if free.kind == kind), None)
        if buffer is None:
            buffer = _Allocation(kind, index, index)
            self.buffers.append(buffer)
        else:
            self.free.remove(buffer)
        self.join(name, buffer, index, reads)

    def join(self, name: str, buffer: _Allocation, index: int, reads: int) -> None:
        """Put a value that node `index` makes, and that is read `reads` times, into a buffer."""
        self.of[name] = buffer
        buffer.reads += reads
        buffer.last = index

    def read(self, name: str, index: int) -> None:
        """Count one read of a value by node `index`; its buffer is free after the last read."""
        buffer = self.of.get(name)
        if buffer is None:
            return
        buffer.reads -= 1
        buffer.last = index
        if not buffer.reads and buffer not in self.free:
            self.free.insert(0, buffer)


def held_bytes(model: onnx.ModelProto) -> int:
    """Return the most bytes that the buffers of a graph's intermediate values take at once."""
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
    """Return the bytes that the float16 inputs of a graph take after conversion to float32."""
    halves = [i for i in graph.input if i.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16]
    return sum(_Allocation(_kind(info), 0, 0).n_bytes for info in halves)


def activation_bytes(model: onnx.ModelProto) -> int:
    """Return the bytes of a graph's intermediate values for the memory plan: `held_bytes` + 8 %."""
    return int(held_bytes(model) * SLACK)


def _kind(info: onnx.ValueInfoProto) -> Kind:
    tensor = info.type.tensor_type
    shape = tuple(d.dim_value for d in tensor.shape.dim)
    element = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return shape, 4 if element == np.float16 else element.itemsize
