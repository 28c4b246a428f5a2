"""Remove nodes around broadcasting, indexing and joining; results stay the same bit by bit.

    broadcast    removes an Expand, or a Reshape that adds axes of length 1 in front, before
                 operators that broadcast to the same shape themselves
    keep_axes    lets a reduction keep or drop its axes, as the Reshape behind it does
    pick         makes a Gather of a Slice of one place and the Reshape that removes its axis
    choose       makes a Gather of a GatherElements that takes the same places along all other axes
    parts        reads the input of a Concat where a Slice or Split takes just that part out again
    truth        reads a truth value itself where it was cast to a number and compared with 0

PyTorch's `scale[..., None]`, `expand`, `unbind` and `mask.float() > 0` make these nodes: a tenth of
the nodes of a step that works on many small tensors. Each function returns whether it changed the
graph.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from edgefold.export.graphs.operators import having
from edgefold.export.graphs.rewriting import (
    EditableGraph,
    attribute,
    constant,
    made_by,
    only_reader,
    shape_of,
)

Shape = tuple[int, ...]
BROADCASTING, REDUCTIONS = having("broadcasts"), having("reduces")


def broadcast(g: EditableGraph) -> bool:
    """Let operators that broadcast read the value before an Expand; return whether one changed."""
    changed = False
    for node in g.nodes(*BROADCASTING):
        for index, value in enumerate(node.inputs):
            source = _narrower(value)
            if source is None:
                continue
            shapes = [
                shape_of(v) for at, v in enumerate(node.inputs) if v is not None and at != index
            ]
            if np.broadcast_shapes(shape_of(source), *shapes) == shape_of(node.outputs[0]):
                node.replace_input_with(index, source)
                changed = True
    return changed


def _narrower(value: ir.Value | None) -> ir.Value | None:
    """Return the input of the Expand or Reshape that makes a value, if broadcasting does the same.

    This holds for a Reshape that only changes axes of length 1 in front. Else return None.
    """
    if (expand := made_by(value, "Expand")) is not None:
        return expand.inputs[0]
    reshaped = made_by(value, "Reshape")
    source = reshaped.inputs[0] if reshaped is not None else None
    if value is None or source is None:
        return None
    return source if _without_front(shape_of(source)) == _without_front(shape_of(value)) else None


def _without_front(shape: Shape) -> Shape:
    """Return a shape without the axes of length 1 in front."""
    while shape[:1] == (1,):
        shape = shape[1:]
    return shape


def keep_axes(g: EditableGraph) -> bool:
    """Set a reduction's keepdims instead of a Reshape behind it that does the same; True if any."""
    changed = False
    for node in g.nodes(*REDUCTIONS):
        reshaped, source = only_reader(node, "Reshape"), node.inputs[0]
        if source is None or reshaped is None:
            continue
        axes, out = _axes(node, len(shape_of(source))), node.outputs[0]
        keeps, wanted = attribute(node, "keepdims", 1), shape_of(reshaped.outputs[0])
        with_axes = tuple(1 if axis in axes else n for axis, n in enumerate(shape_of(source)))
        without = tuple(n for axis, n in enumerate(shape_of(source)) if axis not in axes)
        if axes and wanted == (without if keeps else with_axes):
            node.attributes["keepdims"] = ir.AttrInt64("keepdims", 1 - keeps)
            out.shape = ir.Shape(wanted)
            g.replace(reshaped.outputs[0], out)
            changed = True
    return changed


def _axes(node: ir.Node, n_axes: int) -> set[int]:
    """Return the axes along which a node reduces; empty where the node does not name them."""
    if node.op_type.startswith("Arg"):
        axes = [attribute(node, "axis", 0)]
    elif len(node.inputs) > 1:
        array = constant(node.inputs[1])
        axes = [] if array is None else array.reshape(-1).tolist()
    else:
        axes = list(attribute(node, "axes", []))
    return {int(axis) % n_axes for axis in axes}


def pick(g: EditableGraph) -> bool:
    """Replace a Slice of one place and the Reshape that drops its axis by a Gather; True if any."""
    changed = False
    for node in g.nodes("Reshape"):
        cut = made_by(node.inputs[0], "Slice")
        if cut is None or cut.inputs[0] is None:
            continue
        data, out = cut.inputs[0], node.outputs[0]
        before, after = shape_of(data), shape_of(cut.outputs[0])
        axes = [axis for axis, n in enumerate(before) if after[axis] != n]
        if len(axes) != 1 or after[axes[0]] != 1:
            continue
        axis, start = axes[0], _start(cut, axes[0], len(before))
        if start is None or shape_of(out) != before[:axis] + before[axis + 1 :]:
            continue
        place = g.constant(np.array(start % before[axis], np.int64))
        g.replace(out, g.add(node, "Gather", [data, place], [out], [shape_of(out)], axis=axis)[0])
        changed = True
    return changed


def _start(cut: ir.Node, axis: int, n_axes: int) -> int | None:
    """Return the first place that a Slice takes along an axis; None where it is not constant."""
    starts = constant(cut.inputs[1])
    axes = constant(cut.inputs[3]) if len(cut.inputs) > 3 else np.arange(n_axes)
    if starts is None or axes is None:
        return None
    places = {int(of) % n_axes: int(start) for of, start in zip(axes, starts, strict=False)}
    return places.get(axis)


def choose(g: EditableGraph) -> bool:
    """Make a Gather of a GatherElements whose indices vary along its axis only; True if any."""
    changed = False
    for node in g.nodes("GatherElements"):
        data, places = node.inputs
        expand = made_by(places, "Expand")
        source = expand.inputs[0] if expand is not None else None
        if data is None or places is None or source is None:
            continue
        axis = attribute(node, "axis", 0) % len(shape_of(data))
        n, out = shape_of(places)[axis], node.outputs[0]
        form = (1,) * axis + (n,) + (1,) * (len(shape_of(data)) - axis - 1)
        same = (*shape_of(data)[:axis], n, *shape_of(data)[axis + 1 :]) == shape_of(places)
        if not same or math.prod(form) != math.prod(shape_of(source)):
            continue
        if _without_front(shape_of(source)) != _without_front(form):
            continue
        flat = g.reshape(node, source, (n,))
        g.replace(out, g.add(node, "Gather", [data, flat], [out], [shape_of(out)], axis=axis)[0])
        changed = True
    return changed


def parts(g: EditableGraph) -> bool:
    """Read a Concat's input where a Slice or Split takes just that part out again; True if any."""
    changed = False
    for node in g.nodes("Slice", "Split"):
        whole = made_by(node.inputs[0], "Concat")
        if whole is None or whole.inputs[0] is None:
            continue
        n_axes = len(shape_of(whole.inputs[0]))
        axis = attribute(whole, "axis", 0) % n_axes
        inputs, end = dict[tuple[int, int], ir.Value](), 0
        for value in whole.inputs:
            assert value is not None
            start, end = end, end + shape_of(value)[axis]
            inputs[start, end] = value
        for out, span in _spans(node, axis, end):
            part = inputs.get(span)
            if part is not None and shape_of(part) == shape_of(out) and out.uses():
                g.replace(out, part)
                changed = True
    return changed


def _spans(node: ir.Node, axis: int, n: int) -> list[tuple[ir.Value, tuple[int, int]]]:
    """Return each output of a Slice or Split along an axis of length n, with its (start, end)."""
    if node.op_type == "Slice":
        out, data = node.outputs[0], node.inputs[0]
        steps = constant(node.inputs[4]) if len(node.inputs) > 4 else np.ones(1)
        start = _start(node, axis, len(shape_of(out)))
        if start is None or data is None or steps is None or np.any(steps != 1):
            return []
        start = max(start + n, 0) if start < 0 else start
        return [(out, (start, start + shape_of(out)[axis]))]
    if attribute(node, "axis", 0) % len(shape_of(node.outputs[0])) != axis:
        return []
    spans, end = [], 0
    for out in list(node.outputs):
        start, end = end, end + shape_of(out)[axis]
        spans.append((out, (start, end)))
    return spans


def truth(g: EditableGraph) -> bool:
    """Read a truth value itself where it was cast to a number and compared with 0; True if any."""
    changed = False
    for node in g.nodes("Greater"):
        number, bound = node.inputs
        cast, array = made_by(number, "Cast"), constant(bound)
        flag = cast.inputs[0] if cast is not None else None
        if flag is None or flag.dtype != ir.DataType.BOOL or array is None or np.any(array != 0):
            continue
        if shape_of(flag) == shape_of(node.outputs[0]):
            g.replace(node.outputs[0], flag)
            changed = True
    return changed


PASSES = (broadcast, keep_axes, pick, choose, parts, truth)
