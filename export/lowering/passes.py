"""Clean up step graphs: remove or improve nodes of torch's exporter that cost a device time.

    flatten    makes a Reshape of nodes that keep the bytes in order (Squeeze, a Transpose of axes
               of length 1), and one Reshape of several in a row
    neutral    removes products with 1 and sums with 0
    gemm       makes a Gemm over rows of a product with a constant and the sum with its bias
    sink       moves a Reshape from rows behind nodes that only work on the last axis, so that rows
               stay rows from one product to the next
    gelu       puts the nodes of a GELU in the order that onnxruntime recognises
    absorb     removes a Reshape after a graph's points, or before its prediction, and changes the
               shape of that input or output instead; the bytes in its buffer stay the same

Attentive models that were rewritten for devices need `flatten` and `gelu` (up to 18 % of a query);
`gemm` and `sink` are for models that nobody rewrote (4 % of a GRU's query, 15 % of an attentive
one's); `broadcasting` has more such functions. They suit any model. Each returns whether it
changed the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from edgefold.export.graphs.operators import having
from edgefold.export.graphs.rewriting import (
    Array,
    EditableGraph,
    attribute,
    constant,
    made_by,
    only_reader,
    readers,
    shape_of,
)
from edgefold.export.lowering import broadcasting

MOVES = having("moves")
"""Operators that may keep the bytes in order: a reduction over axes of length 1 does, too."""
ELEMENTWISE, LAST_AXIS = having("elementwise"), having("last_axis")

INTERFACE = ("points.x", "points.y", "targets.x", "prediction")
"""Roles of tensors that may have any shape of the same bytes in a graph."""


def flatten(g: EditableGraph) -> bool:
    """Replace a node or chain of nodes that keeps the bytes in order by a Reshape; True if any."""
    changed = False
    for node in g.nodes(*MOVES):
        x, out = node.inputs[0], node.outputs[0]
        if x is None or not _keeps_bytes(node):
            continue
        if constant(x) is not None and node.op_type != "Identity":
            continue
        source, shape = x, shape_of(out)
        while (earlier := made_by(source, "Reshape")) is not None and earlier.inputs[0] is not None:
            source = earlier.inputs[0]
        if node.op_type != "Reshape" or source is not x or shape_of(x) == shape:
            g.replace(out, g.reshape(node, source, shape))
            changed = True
    return changed


def _keeps_bytes(node: ir.Node) -> bool:
    assert node.inputs[0] is not None
    before, after = shape_of(node.inputs[0]), shape_of(node.outputs[0])
    if math.prod(before) != math.prod(after):
        return False
    if node.op_type == "Transpose":
        moved = [axis for axis in attribute(node, "perm", ()) if before[axis] != 1]
        return moved == sorted(moved)
    if node.op_type == "Slice":  # of everything, but perhaps backwards
        steps = constant(node.inputs[4]) if len(node.inputs) > 4 else np.ones(1)
        return steps is not None and bool(np.all(steps == 1))
    return node.op_type != "Gather" or before[attribute(node, "axis", 0)] == 1


def neutral(g: EditableGraph) -> bool:
    """Remove products with 1 and sums with 0."""
    changed = False
    for node in g.nodes("Mul", "Div", "Add", "Sub"):
        nothing = 1 if node.op_type in ("Mul", "Div") else 0
        for index in (0, 1) if node.op_type in ("Mul", "Add") else (0,):
            value, array = node.inputs[index], constant(node.inputs[1 - index])
            if value is None or constant(value) is not None or array is None:
                continue
            if np.all(array == nothing) and shape_of(value) == shape_of(node.outputs[0]):
                g.replace(node.outputs[0], value)
                changed = True
                break
    return changed


def gemm(g: EditableGraph) -> bool:
    """Replace a product with a constant, and the sum with its bias, by a Gemm over rows.

    Constants that a Gemm transposes are transposed now. Return whether the graph changed.
    """
    changed = False
    for node in g.nodes("Gemm"):
        weight = constant(node.inputs[1])
        if weight is not None and attribute(node, "transB", 0):
            node.replace_input_with(1, g.constant(weight.T))
            del node.attributes["transB"]
            changed = True
    for node in g.nodes("MatMul"):
        x, weight, add = node.inputs[0], constant(node.inputs[1]), only_reader(node, "Add")
        if x is None or constant(x) is not None or weight is None or weight.ndim != 2:
            continue
        bias = _bias(add, node.outputs[0], weight.shape[1]) if add is not None else None
        if add is None or bias is None:
            continue
        out, n_rows = add.outputs[0], math.prod(shape_of(x)[:-1])
        rows = g.reshape(add, x, (n_rows, weight.shape[0]))
        inputs = [rows, g.constant(weight), g.constant(bias)]
        product = g.add(add, "Gemm", inputs, [out], [(n_rows, weight.shape[1])])[0]
        g.replace(out, g.reshape(add, product, shape_of(out)))
        changed = True
    return changed


def _bias(add: ir.Node, product: ir.Value, width: int) -> Array | None:
    """Return the constant (D,) that an Add adds to each row of a product, or None."""
    array = constant(add.inputs[1] if add.inputs[0] is product else add.inputs[0])
    same = shape_of(add.outputs[0]) == shape_of(product)
    if array is None or not same or array.size != width or array.shape[-1:] != (width,):
        return None
    return array.reshape(width)


def sink(g: EditableGraph) -> bool:
    """Let nodes over (*lead, D) work on rows (n, D) if an operand was reshaped from rows.

    So the Reshape moves behind the node. It does this for elementwise nodes and nodes that act on
    the last axis, and returns whether it changed one.
    """
    changed = False
    for node in g.nodes(*ELEMENTWISE, *LAST_AXIS):
        values = list(node.inputs)  # None for a bound that a Clip lacks
        shapes = [shape_of(value) for value in node.outputs]
        if node.op_type in LAST_AXIS:
            if attribute(node, "axis", -1) not in (-1, len(shapes[0]) - 1):
                continue
            values = values[:1]
        lead = shapes[0][:-1]
        rows_of = {v: _in_rows(g, node, v, lead) for v in values if v is not None}
        from_rows = any(_from_rows(value, lead) for value in rows_of)
        if len(lead) < 2 or None in rows_of.values() or not from_rows:
            continue
        settings = {name: setting.value for name, setting in node.attributes.items()}
        settings |= {"axis": -1} if node.op_type in LAST_AXIS else {}
        operands = [None if value is None else rows_of[value] for value in values]
        inputs = [*operands, *node.inputs[len(values) :]]
        rows = [(math.prod(lead), shape[-1]) for shape in shapes]
        outputs = g.add(node, node.op_type, inputs, node.outputs, rows, **settings)
        for old, new, shape in zip(list(node.outputs), outputs, shapes, strict=True):
            g.replace(old, g.reshape(node, new, shape))
        changed = True
    return changed


def _from_rows(value: ir.Value, lead: tuple[int, ...]) -> ir.Value | None:
    """Return the rows (n, D) from which a value (*lead, D) was reshaped, or None."""
    reshaped, shape = made_by(value, "Reshape"), shape_of(value)
    source = reshaped.inputs[0] if reshaped is not None else None
    rows = (math.prod(lead), *shape[-1:])
    return (
        source if source is not None and shape[:-1] == lead and shape_of(source) == rows else None
    )


def _in_rows(
    g: EditableGraph, node: ir.Node, value: ir.Value, lead: tuple[int, ...]
) -> ir.Value | None:
    """Return an operand of a node over (*lead, D) as rows (n, D); None if it cannot be that."""
    shape, array = shape_of(value), constant(value)
    if array is not None:
        flat = math.prod(shape[:-1]) == 1
        return g.constant(array.reshape(shape[-1:])) if flat else None
    if shape[:-1] != lead or shape_of(node.outputs[0])[:-1] != lead:
        return None
    return _from_rows(value, lead) or g.reshape(node, value, (math.prod(lead), shape[-1]))


def gelu(g: EditableGraph) -> bool:
    """Rewrite `x * (0.5 * (1 + erf))` as `(x * (1 + erf)) * 0.5`; True if there was one."""
    changed = False
    for erf in g.nodes("Erf"):
        one = only_reader(erf, "Add")
        half = only_reader(one, "Mul")
        last = only_reader(half, "Mul")
        if one is None or half is None or last is None:
            continue
        number = next((v for v in half.inputs if constant(v) is not None), None)
        x = last.inputs[1] if last.inputs[0] is half.outputs[0] else last.inputs[0]
        if number is None or x is None or constant(x) is not None:
            continue
        out = last.outputs[0]
        inner = g.add(last, "Mul", [x, one.outputs[0]], [out], [shape_of(out)])[0]
        g.replace(out, g.add(last, "Mul", [inner, number], [out], [shape_of(out)])[0])
        changed = True
    return changed


def absorb(g: EditableGraph, roles: dict[str, str]) -> bool:
    """Remove Reshapes next to inputs and outputs, whose shape changes instead.

    This is done for the roles in `INTERFACE`; `roles` holds the role of each input and output by
    name. Return whether the graph changed.
    """
    changed = False
    for value in g.ir.inputs:
        nodes = readers(value)
        shapes = {shape_of(node.outputs[0]) for node in nodes}
        if roles[str(value.name)] not in INTERFACE or {n.op_type for n in nodes} != {"Reshape"}:
            continue
        if len(shapes) == 1:
            value.shape = ir.Shape(shapes.pop())
            for node in nodes:
                g.replace(node.outputs[0], value)
            changed = True
    for result in g.ir.outputs:
        end = result.producer()
        reshaped = made_by(end.inputs[0], "Reshape") if end is not None else None
        source = reshaped.inputs[0] if reshaped is not None else None
        if end is None or source is None or source.producer() is None:
            continue
        if roles[str(result.name)] in INTERFACE:
            end.replace_input_with(0, source)
            result.shape = ir.Shape(shape_of(source))
            changed = True
    return changed


PASSES: tuple[Callable[[EditableGraph], bool], ...] = (
    *(flatten, neutral, *broadcasting.PASSES),
    *(gemm, sink, gelu),
)
"""The functions that clean a graph up, in order: broadcasting is undone before rows are made."""
