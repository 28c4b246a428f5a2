"""Write Clip, Min, Max and Sign of floats by comparisons, so that NaN passes on every target.

A step whose arithmetic is not finite must leave the stream as it was, so NaN has to reach the
tensors that the host looks at. ONNX says that Clip, Min and Max pass it on, and onnxruntime and
generated C do. TensorRT does not: its max(x, y) is `x < y ? y : x`, which gives x where y is NaN,
and its Clip is min(hi, max(lo, x)), which gives lo (NVIDIA/TensorRT#4758, #4773). A comparison with
NaN is false on every target, and the choice between two numbers changes neither of them:

    Clip(x, lo, hi)   y = Where(x < lo, lo, x); Where(y > hi, hi, y)
    Max(a, b)         Where(a < b, b, a) + Where(b < inf, 0, b); Min alike with > and -inf
    ReduceMax(x)      ReduceMax(x) + ReduceSum(Where(x < inf, 0, x)); ReduceMin alike
    Sign(x)           Where(x > 0, 1, Where(x < 0, -1, x))

The second terms are 0, or the NaN that the first term has lost, or the infinity that it already is.
They are left out where b cannot be NaN, and of a ReduceMax whose distances x - ReduceMax(x) are
computed, too, as Softmax does it: NaN survives in these. Integers stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from edgefold.export.graphs.operators import having
from edgefold.export.graphs.rewriting import constant_name
from edgefold.export.graphs.static_graph import (
    Array,
    attribute,
    checked,
    constants_of,
    dtypes_of,
)

ARITHMETIC = {"ReduceMean", "ReduceProd", "ReduceSum"}
"""Operators that only move numbers along axes of length 1, and make NaN of infinities elsewhere."""
KEEPS_NUMBERS = having("moves", "views") - ARITHMETIC | {
    *("Abs", "Concat", "Erf", "Exp", "Neg", "Relu", "Round", "Sigmoid", "Sign", "Split", "Tanh"),
    *("Clip", "Max", "Min", "Where"),
}
"""Operators that give no NaN where no operand is NaN. Sums of both infinities are NaN, and so are
products of 0 and infinity, so that those are not here."""


class NodeWriter:
    """Writes the nodes that replace those of a graph; names and constants are its own.

    Attributes:
        nodes: The nodes so far, in order.
    """

    def __init__(self, model: onnx.ModelProto):
        self._model, self._graph = model, model.graph
        self.nodes: list[NodeProto] = []
        self._names = {name for node in model.graph.node for name in node.output}
        self._names |= {value.name for value in (*model.graph.input, *model.graph.initializer)}

    def constant(self, array: Array) -> str:
        """Return the name of a constant with the content of an array; it is added if it is new."""
        name = constant_name(array)
        if name not in self._names:
            self._names.add(name)
            self._graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def integers(self, *numbers: int) -> str:
        """Return the name of a constant of these numbers, (len(numbers),) int64."""
        return self.constant(np.array(numbers, np.int64))

    def add(
        self,
        kind: str,
        inputs: Iterable[str],
        output: str,
        *,
        last: bool = False,
        attributes: Mapping[str, int] = MappingProxyType({}),
    ) -> str:
        """Add a node, and return its output: `output` if it is the last, else a name made of it."""
        name = output if last else self._free(output)
        node = helper.make_node(kind, list(inputs), [name], name=name)
        node.attribute.extend(helper.make_attribute(key, n) for key, n in attributes.items())
        self.nodes.append(node)
        return name

    def keep(self, node: NodeProto, output: str = "") -> str:
        """Add a node as it is, or with another name of its first output; return that name."""
        kept = NodeProto()
        kept.CopyFrom(node)
        if output:
            kept.output[0] = kept.name = self._free(output)
        self.nodes.append(kept)
        return str(kept.output[0])

    def _free(self, output: str) -> str:
        number = 1
        while f"{output}_{number}" in self._names:
            number += 1
        self._names.add(f"{output}_{number}")
        return f"{output}_{number}"

    def finish(self) -> onnx.ModelProto:
        """Put the nodes into the graph in place of its own; return the model, checked again.

        Constants that nothing reads any more are dropped.
        """
        graph = self._graph
        del graph.node[:], graph.value_info[:]
        graph.node.extend(self.nodes)
        used = {name for node in self.nodes for name in node.input}
        used |= {output.name for output in graph.output}
        kept = [tensor for tensor in graph.initializer if tensor.name in used]
        del graph.initializer[:]
        graph.initializer.extend(kept)
        return checked(self._model)


class _Extremes:
    """Holds what the rules need to know of a graph: types, and values that cannot be NaN."""

    def __init__(self, model: onnx.ModelProto):
        self.writer = NodeWriter(model)
        self.dtypes = dtypes_of(model)
        self.numbers = {n for n, a in constants_of(model).items() if not _has_nan(a)}
        self.nodes = list(model.graph.node)

    def scalar(self, value: float, like: str) -> str:
        return self.writer.constant(np.array(value, self.dtypes[like]))

    def bounded(self, x: str, bound: str, sign: str, output: str, last: bool) -> str:
        """Write max(x, bound) for the sign "Less", min for "Greater"; NaN of x passes."""
        beyond = self.writer.add(sign, [x, bound], output)
        return self.writer.add("Where", [beyond, bound, x], output, last=last)

    def lost(self, x: str, sign: str, output: str) -> str:
        """Write a term that is 0, or x where x is NaN or the infinity at the end of `sign`."""
        end = self.scalar(np.inf if sign == "Less" else -np.inf, x)
        found = self.writer.add(sign, [x, end], output)
        return self.writer.add("Where", [found, self.scalar(0, x), x], output)

    def clip(self, node: NodeProto) -> None:
        bounds = [*node.input[1:], "", ""][:2]
        given = [(b, s) for b, s in zip(bounds, ("Less", "Greater"), strict=True) if b]
        x, output = node.input[0], node.output[0]
        for bound, sign in given:
            x = self.bounded(x, bound, sign, output, last=bound is given[-1][0])
        if not given:
            self.writer.add("Identity", [x], output, last=True)

    def extreme(self, node: NodeProto) -> None:
        sign = "Less" if node.op_type == "Max" else "Greater"
        output = node.output[0]
        # NaN of the first operand passes, so the last ones are those that cannot be NaN.
        first, *others = sorted(node.input, key=lambda name: name in self.numbers)
        for number, other in enumerate(others, 1):
            last, sure = number == len(others), other in self.numbers
            first = self.bounded(first, other, sign, output, last=last and sure)
            if not sure:
                terms = [first, self.lost(other, sign, output)]
                first = self.writer.add("Add", terms, output, last=last)
        if not others:
            self.writer.add("Identity", [first], output, last=True)

    def sign(self, node: NodeProto) -> None:
        x, output, writer = node.input[0], node.output[0], self.writer
        zero, one, minus = (self.scalar(value, x) for value in (0, 1, -1))
        low = writer.add("Where", [writer.add("Less", [x, zero], output), minus, x], output)
        high = writer.add("Greater", [x, zero], output)
        writer.add("Where", [high, one, low], output, last=True)

    def reduction(self, node: NodeProto) -> None:
        x, output = node.input[0], node.output[0]
        if self._distances_follow(node):
            self.writer.keep(node)
            return
        largest = self.writer.keep(node, output)
        term = self.lost(x, "Less" if node.op_type == "ReduceMax" else "Greater", output)
        axes = list(attribute(node, "axes", ()))
        inputs = [*node.input[1:]] or [self.writer.constant(np.array(axes, np.int64))] * bool(axes)
        total = self.writer.add("ReduceSum", [term, *inputs], output)
        self.writer.nodes[-1].attribute.append(
            helper.make_attribute("keepdims", attribute(node, "keepdims", 1))
        )
        self.writer.add("Add", [largest, total], output, last=True)

    def _distances_follow(self, node: NodeProto) -> bool:
        """Return whether the graph subtracts a ReduceMax, or what is made of it, from its input."""
        x, made = node.input[0], {node.output[0]}
        for other in self.nodes:
            if other.op_type == "Sub" and other.input[0] == x and other.input[1] in made:
                return True
            if other.op_type in KEEPS_NUMBERS and made.intersection(other.input):
                made.update(other.output)
        return False

    def note(self, node: NodeProto) -> None:
        """Add a node's outputs to those that cannot be NaN, if it follows from its operands."""
        dtypes = {self.dtypes[name].kind for name in node.input if name in self.dtypes}
        of_integers = node.op_type == "Cast" and "f" not in dtypes
        floats = [n for n in node.input if n in self.dtypes and self.dtypes[n].kind == "f"]
        kept = node.op_type in KEEPS_NUMBERS and self.numbers.issuperset(floats)
        if of_integers or kept:
            self.numbers.update(node.output)


RULES: dict[str, Callable[[_Extremes, NodeProto], None]] = {
    "Clip": _Extremes.clip,
    "Max": _Extremes.extreme,
    "Min": _Extremes.extreme,
    "ReduceMax": _Extremes.reduction,
    "ReduceMin": _Extremes.reduction,
    "Sign": _Extremes.sign,
}
"""The method that writes each operator by comparisons."""


def compared(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph in which NaN passes through each extreme, as the top of this module says.

    Nodes that cannot meet NaN stay as they are; without others the graph itself is returned.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    extremes, n_nodes = _Extremes(changed), len(model.graph.node)
    for node in extremes.nodes:
        rule, x = RULES.get(node.op_type), node.input[0] if node.input else ""
        extremes.note(node)
        if rule and extremes.dtypes[x].kind == "f" and node.output[0] not in extremes.numbers:
            rule(extremes, node)
        else:
            extremes.writer.keep(node)
    if len(extremes.writer.nodes) == n_nodes:
        return model
    return extremes.writer.finish()


def _has_nan(array: Array) -> bool:
    return array.dtype.kind == "f" and bool(np.isnan(array).any())
