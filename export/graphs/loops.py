"""Write CumSum, LSTM, GRU and RNN without loops, which TensorRT up to 10.7 makes of them.

A step with a loop cannot be captured as a CUDA graph, and TensorRT 10.3 (JetPack 6) sums no int64
in its loop.

    CumSum of one term       TopK with k = 1. It changes nothing, and neither did the CumSum: see
                             `edgefold.train.states.random_numbers`.
    CumSum of truth values   a product with a triangular matrix; float32 is exact below 2^24
    other CumSums            y = y + (y moved by s), for s = 1, 2, 4, ..: log2(n) sums of all terms
    LSTM, GRU, RNN           of one time by their formulas: `edgefold.export.graphs.recurrences`

A CumSum of more than 64 terms stays, and so does a recurrence over several times, in two directions
or with other activations.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from edgefold.export.graphs.comparisons import NodeWriter
from edgefold.export.graphs.recurrences import RECURRENT, write_one_time
from edgefold.export.graphs.static_graph import (
    attribute,
    constants_of,
    dtypes_of,
    shapes_of,
)

MOST_TERMS = 64
"""Largest number of terms of a CumSum that is written by sums."""


class _Unroller:
    def __init__(self, model: onnx.ModelProto):
        self.nodes = list(model.graph.node)
        self.writer = NodeWriter(model)
        self.arrays, self.shapes = constants_of(model), shapes_of(model)
        self.dtypes = dtypes_of(model)
        self._made = {name: node for node in self.nodes for name in node.output}

    def written(self, node: NodeProto) -> bool:
        """Write a node without a loop; return False if it stays as it is."""
        if node.op_type in RECURRENT:
            return write_one_time(node, self.writer, self.arrays, self.shapes)
        return node.op_type == "CumSum" and self.cum_sum(node)

    def cum_sum(self, node: NodeProto) -> bool:
        """Write a CumSum without a loop; return whether its form is one of those above."""
        (x, axis_name), output = node.input, node.output[0]
        axes, shape = self.arrays.get(axis_name), self.shapes[x]
        if axes is None or attribute(node, "exclusive", 0) or attribute(node, "reverse", 0):
            return False
        axis = int(axes.reshape(-1)[0]) % len(shape)
        n = shape[axis]
        if n == 1:
            self.writer.nodes.append(
                helper.make_node(
                    "TopK",
                    [x, self.writer.integers(1)],
                    [output, f"{output}_at"],
                    output,
                    axis=axis,
                )
            )
        elif n > MOST_TERMS:
            return False
        elif axis == len(shape) - 1 and (truth := self._truth(x)):
            self._product(truth, n, output)
        else:
            self._sums(x, axis, output)
        return True

    def _truth(self, name: str) -> str:
        """Return the truth values of which a value was cast, or "" if it was not."""
        made = self._made.get(name)
        while made is not None and made.op_type == "Cast":
            name = made.input[0]
            made = self._made.get(name)
        return name if name in self.dtypes and self.dtypes[name] == np.bool_ else ""

    def _product(self, truth: str, n: int, output: str) -> None:
        ones = self.writer.add("Cast", [truth], output, attributes={"to": TensorProto.FLOAT})
        triangle = self.writer.constant(np.triu(np.ones((n, n), np.float32)))
        plain = self.dtypes[output] == np.float32
        sums = self.writer.add("MatMul", [ones, triangle], output, last=plain)
        if not plain:
            kind = helper.np_dtype_to_tensor_dtype(self.dtypes[output])
            self.writer.add("Cast", [sums], output, last=True, attributes={"to": kind})

    def _sums(self, x: str, axis: int, output: str) -> None:
        shape, at, moved = list(self.shapes[output]), self.writer.integers(axis), 1
        while moved < shape[axis]:
            zeros = np.zeros([*shape[:axis], moved, *shape[axis + 1 :]], self.dtypes[output])
            ends = [self.writer.integers(0), self.writer.integers(shape[axis] - moved), at]
            part = self.writer.add("Slice", [x, *ends], output)
            both = [self.writer.constant(zeros), part]
            later = self.writer.add("Concat", both, output, attributes={"axis": axis})
            x = self.writer.add("Add", [x, later], output, last=2 * moved >= shape[axis])
            moved *= 2


LOOPS = {"CumSum", *RECURRENT}
"""Operators of which TensorRT makes loops."""


def without_loops(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph without these operators where that is possible, else the graph itself."""
    if not any(node.op_type in LOOPS for node in model.graph.node):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    unroller = _Unroller(changed)
    for node in unroller.nodes:
        if not unroller.written(node):
            unroller.writer.keep(node)
    return unroller.writer.finish()
