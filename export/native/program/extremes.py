"""Find comparisons that choose the larger or smaller of two numbers, which C does in one step.

`edgefold.export.graphs.comparisons` writes Clip, Max and Min as comparisons. As C they would be two
statements, and the number that both read would go through memory. The operators here are the same
to the bit, NaN and the sign of 0 included:

    Above(x, bound)   Where(x < bound, bound, x)
    Below(x, bound)   Where(x > bound, bound, x)
    Max(a, b)         Above(a, b) + Where(b < inf, 0, b), but for the sign of 0; Min alike

No graph in a file has the first two; the rules of generated C know them. A TopK along an axis of
length 1, as `edgefold.export.graphs.loops` writes it, is an Identity.
"""

from __future__ import annotations

import math
from collections import Counter

import onnx
from onnx import NodeProto, helper

from edgefold.export.graphs.static_graph import Array, attribute, constants_of, shapes_of

FORMS = {"Less": ("Above", "Max", math.inf), "Greater": ("Below", "Min", -math.inf)}
"""Operators that a comparison is part of: that of one comparison, that of both operands, and the
end at which NaN is looked for."""


class _Finder:
    def __init__(self, model: onnx.ModelProto):
        self._made = {name: node for node in model.graph.node for name in node.output}
        self._arrays: dict[str, Array] = constants_of(model)
        self._shapes = shapes_of(model)
        uses = [name for node in model.graph.node for name in node.input]
        self._uses = Counter([*uses, *(value.name for value in model.graph.output)])

    def extreme(self, node: NodeProto) -> tuple[str, str, str] | None:
        """Return the operator and the operands of a Where that is Above or Below, or None."""
        if node.op_type != "Where" or self._uses[node.input[0]] > 1:
            return None
        test = self._made.get(node.input[0])
        if test is None or test.op_type not in FORMS:
            return None
        x, bound = test.input
        same = list(node.input[1:]) == [bound, x]
        return (FORMS[test.op_type][0], x, bound) if same else None

    def nothing(self, node: NodeProto) -> bool:
        """Return whether a node is a TopK along an axis of length 1, whose places nobody reads."""
        if node.op_type != "TopK" or self._uses[node.output[1]]:
            return False
        axis: int = attribute(node, "axis", -1)
        return self._shapes[node.input[0]][axis] == 1

    def whole(self, node: NodeProto) -> tuple[str, str, str] | None:
        """Return the operator and the operands of an Add that is Max or Min, or None."""
        if node.op_type != "Add":
            return None
        for first, second in (tuple(node.input), tuple(node.input)[::-1]):
            choice, rest = self._made.get(first), self._made.get(second)
            if choice is None or rest is None or rest.op_type != "Where":
                continue
            found, test = self.extreme(choice), self._made.get(rest.input[0])
            if found is None or test is None or test.op_type not in FORMS:
                continue
            one, both, end = FORMS[test.op_type]
            b = found[2]
            lone = self._uses[first] == self._uses[second] == self._uses[rest.input[0]] == 1
            zero, limit = self._scalar(rest.input[1]), self._scalar(test.input[1])
            same = found[0] == one and test.input[0] == rest.input[2] == b
            if lone and same and (zero, limit) == (0, end):
                return both, found[1], b
        return None

    def _scalar(self, name: str) -> float | None:
        array = self._arrays.get(name)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def with_extremes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a graph with these operators in place of comparisons, which nobody else reads."""
    finder, changed = _Finder(model), onnx.ModelProto()
    changed.CopyFrom(model)
    nodes = []
    for node in model.graph.node:
        if finder.nothing(node):
            nodes.append(helper.make_node("Identity", node.input[:1], node.output[:1], node.name))
            continue
        found = finder.whole(node) or finder.extreme(node)
        made = [node] if found is None else [helper.make_node(found[0], found[1:], node.output)]
        made[0].name = node.name
        nodes += made
    needed = {value.name for value in model.graph.output}
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            kept.append(node)
            needed.update(node.input)
    del changed.graph.node[:]
    changed.graph.node.extend(reversed(kept))
    return changed
