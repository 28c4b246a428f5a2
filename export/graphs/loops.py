"""Write CumSum and LSTM without loops, which TensorRT up to 10.7 makes of them.

A step with a loop cannot be captured as a CUDA graph, and TensorRT 10.3 (JetPack 6) sums no int64
in its loop.

    CumSum of one term       TopK with k = 1. It changes nothing, and neither did the CumSum: see
                             `edgefold.train.states.random_numbers`.
    CumSum of truth values   a product with a triangular matrix; float32 is exact below 2^24
    other CumSums            y = y + (y moved by s), for s = 1, 2, 4, ..: log2(n) sums of all terms
    LSTM of one time         its formulas, one product for all gates of the input and of the state

A CumSum of more than 64 terms stays, and so does an LSTM over several times, in two directions or
with other activations.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper

from edgefold.export.graphs.comparisons import NodeWriter
from edgefold.export.graphs.static_graph import (
    attribute,
    checked,
    constants_of,
    dtypes_of,
    shapes_of,
)

MOST_TERMS = 64
"""Largest number of terms of a CumSum that is written by sums."""
PLAIN = {"direction": b"forward", "layout": 0, "input_forget": 0}
"""Attributes with which an LSTM is written by its formulas."""


class _Unroller:
    def __init__(self, model: onnx.ModelProto):
        self.nodes = list(model.graph.node)
        self.writer = NodeWriter(model)
        self.arrays, self.shapes = constants_of(model), shapes_of(model)
        self.dtypes = dtypes_of(model)
        self._made = {name: node for node in self.nodes for name in node.output}

    def _integers(self, *numbers: int) -> str:
        return self.writer.constant(np.array(numbers, np.int64))

    def _add(self, kind: str, inputs: list[str], output: str, last: bool, **settings: int) -> str:
        made = self.writer.add(kind, inputs, output, last=last)
        attributes = [helper.make_attribute(name, value) for name, value in settings.items()]
        self.writer.nodes[-1].attribute.extend(attributes)
        return made

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
                    "TopK", [x, self._integers(1)], [output, f"{output}_at"], output, axis=axis
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
        ones = self._add("Cast", [truth], output, False, to=TensorProto.FLOAT)
        triangle = self.writer.constant(np.triu(np.ones((n, n), np.float32)))
        plain = self.dtypes[output] == np.float32
        sums = self._add("MatMul", [ones, triangle], output, plain)
        if not plain:
            kind = helper.np_dtype_to_tensor_dtype(self.dtypes[output])
            self._add("Cast", [sums], output, True, to=kind)

    def _sums(self, x: str, axis: int, output: str) -> None:
        shape, at, moved = list(self.shapes[output]), self._integers(axis), 1
        while moved < shape[axis]:
            zeros = np.zeros([*shape[:axis], moved, *shape[axis + 1 :]], self.dtypes[output])
            ends = [self._integers(0), self._integers(shape[axis] - moved), at]
            part = self._add("Slice", [x, *ends], output, False)
            later = self._add(
                "Concat", [self.writer.constant(zeros), part], output, False, axis=axis
            )
            x = self._add("Add", [x, later], output, 2 * moved >= shape[axis])
            moved *= 2

    def lstm(self, node: NodeProto) -> bool:
        """Write an LSTM of one time by its formulas; return whether its form allows this."""
        x, w, r, b, lengths, h, c, peep = [*node.input, *[""] * 8][:8]
        odd = {name for name in ("activations", "clip") if attribute(node, name, None)}
        odd |= {name for name, value in PLAIN.items() if attribute(node, name, value) != value}
        shape = self.shapes[x]
        known = w in self.arrays and r in self.arrays and (not b or b in self.arrays)
        if odd or lengths or peep or shape[0] != 1 or not known or not (h and c):
            return False
        weights = np.concatenate([self.arrays[w][0], self.arrays[r][0]], 1).T  # (D + H, 4H), iofc
        size, out = self.arrays[r].shape[2], node.output[0] or node.output[1]
        bias = np.zeros(4 * size, weights.dtype)
        if b:
            bias = self.arrays[b][0].reshape(2, -1).sum(0)
        rows = [self._reshaped(v, (shape[1], -1), out) for v in (x, h)]
        both = self._add("Concat", rows, out, False, axis=1)
        constants = [self.writer.constant(np.ascontiguousarray(a)) for a in (weights, bias)]
        gates = self._add("Gemm", [both, *constants], out, False)
        i, o, f, g = (
            self._add(kind, [self._part(gates, k, size, out)], out, False)
            for k, kind in enumerate(("Sigmoid", "Sigmoid", "Sigmoid", "Tanh"))
        )
        old = self._add("Mul", [f, self._reshaped(c, (shape[1], size), out)], out, False)
        cell = self._add("Add", [old, self._add("Mul", [i, g], out, False)], out, False)
        hidden = self._add("Mul", [o, self._add("Tanh", [cell], out, False)], out, False)
        results = {1: (hidden, 1), 2: (cell, 1), 0: (hidden, 2)}
        for index, (value, n_ones) in results.items():
            if index < len(node.output) and node.output[index]:
                name = node.output[index]
                target = self._integers(*[1] * n_ones, shape[1], size)
                self._add("Reshape", [value, target], name, True)
        return True

    def _reshaped(self, value: str, shape: tuple[int, ...], output: str) -> str:
        return self._add("Reshape", [value, self._integers(*shape)], output, False)

    def _part(self, gates: str, k: int, size: int, output: str) -> str:
        ends = [self._integers(at) for at in (k * size, (k + 1) * size, 1)]
        return self._add("Slice", [gates, *ends], output, False)


RULES = {"CumSum": _Unroller.cum_sum, "LSTM": _Unroller.lstm}
"""The method that writes each operator without a loop."""


def without_loops(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph without CumSum and LSTM where that is possible, else the graph itself."""
    if not any(node.op_type in RULES for node in model.graph.node):
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    unroller = _Unroller(changed)
    for node in unroller.nodes:
        rule = RULES.get(node.op_type)
        if rule is None or not rule(unroller, node):
            unroller.writer.keep(node)
    unroller.writer.finish()
    del changed.graph.value_info[:]
    used = {name for node in changed.graph.node for name in node.input}
    kept = [tensor for tensor in changed.graph.initializer if tensor.name in used]
    del changed.graph.initializer[:]
    changed.graph.initializer.extend(kept)
    return checked(changed)
