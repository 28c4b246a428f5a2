"""Turn ONNX operators into C that pick elements by place or size, or sum along an axis."""

from __future__ import annotations

import numpy as np

from edgefold.export.native.program.limits import limited
from edgefold.export.native.program.lowering import Lowering, Rule, c_name
from edgefold.export.native.program.values import Expression, Pick, Value, View


def _gather(lowering: Lowering) -> None:
    axis = lowering.attribute("axis", 0) % len(lowering.shapes[lowering.node.input[0]])
    if lowering.is_constant(1) and _gathered_slice(lowering, axis):
        return
    value, indices = lowering.in_memory(0), lowering.value(1)
    n_before, rank = axis, len(indices.shape)
    n_after = len(value.shape) - axis - 1

    def spread(view: View) -> View:
        strides = view.strides
        return View(view.buffer, view.offset, (*strides[:axis], *(0,) * rank, *strides[axis + 1 :]))

    shape = lowering.shape
    view = value.view
    assert view is not None
    index = indices.reshaped((*(1,) * n_before, *indices.shape, *(1,) * n_after))
    assert index is not None  # axes of length 1 never need a copy
    at = index.broadcast(shape).expression
    picked = Pick(spread(view), ((at, view.strides[axis], value.shape[axis]),))
    lowering.define(Value(shape, value.dtype, picked))


def _gathered_slice(lowering: Lowering, axis: int) -> bool:
    """Set a Gather's result to a slice if indices have equal steps; return whether it was set."""
    value, indices = lowering.value(0), lowering.constant(1)
    n = value.shape[axis]
    flat = indices.reshape(-1) % n
    steps = np.unique(np.diff(flat)) if flat.size > 1 else np.ones(1, np.int64)
    if not flat.size or len(steps) != 1:
        return False
    cut = value.sliced(axis, int(flat[0]), int(steps[0]), flat.size).reshaped(lowering.shape)
    if cut is not None:
        lowering.define(cut)
    return cut is not None


def _gather_elements(lowering: Lowering) -> None:
    value, indices = lowering.in_memory(0), lowering.value(1)
    axis = lowering.attribute("axis", 0) % len(value.shape)
    view = value.view
    assert view is not None
    strides = (*view.strides[:axis], 0, *view.strides[axis + 1 :])
    base = View(view.buffer, view.offset, strides)
    pick = Pick(base, ((indices.expression, view.strides[axis], value.shape[axis]),))
    lowering.define(Value(indices.shape, value.dtype, pick))


def _gather_nd(lowering: Lowering) -> None:
    value, indices = lowering.in_memory(0), lowering.value(1)
    batch, shape = lowering.attribute("batch_dims", 0), lowering.shape
    depth = indices.shape[-1]
    view = value.view
    assert view is not None
    lead = len(indices.shape) - 1
    picks: list[tuple[Expression, int, int]] = []
    for k in range(depth):
        one = indices.sliced(lead, k, 1, 1)
        wide = one.reshaped((*indices.shape[:-1], *(1,) * (len(shape) - lead)))
        assert wide is not None
        axis = batch + k
        picks.append((wide.broadcast(shape).expression, view.strides[axis], value.shape[axis]))
    strides = (
        *view.strides[:batch],
        *(0,) * (lead - batch),
        *view.strides[batch + depth :],
    )
    pick = Pick(View(view.buffer, view.offset, strides), tuple(picks))
    lowering.define(Value(shape, value.dtype, pick))


def _cum_sum(lowering: Lowering) -> None:
    value = lowering.value(0)
    axis = int(lowering.constant(1).reshape(-1)[0]) % len(value.shape)
    if value.dtype not in ("float32", "int64"):
        raise lowering.refuse(f"it sums {value.dtype}")
    order = [a for a in range(len(value.shape)) if a != axis] + [axis]
    turned = value.transposed(order)
    name = c_name(lowering.node.output[0])
    result = lowering.program.keep(turned, name)
    suffix = {"float32": "", "int64": "_int"}[value.dtype]
    call = f"edgefold_row_cum_sum{suffix}({{0}}, {turned.shape[-1]});"
    lowering.program.rows(name, turned.shape[:-1], [result], call, [result])
    lowering.define(result.transposed([order.index(a) for a in range(len(order))]))


def _top_k(lowering: Lowering) -> None:
    value, node = lowering.value(0), lowering.node
    axis = lowering.attribute("axis", -1) % len(value.shape)
    k = int(lowering.constant(1).reshape(-1)[0])
    sign = 1 if lowering.attribute("largest", 1) else -1
    order = [a for a in range(len(value.shape)) if a != axis] + [axis]
    back = [order.index(a) for a in range(len(order))]
    name = c_name(node.output[0] or node.output[1])
    flat = lowering.program.contiguous(value.transposed(order), f"{name}_of")
    shape = (*flat.shape[:-1], k)
    values = lowering.program.fresh(name, shape, "float32")
    places = lowering.program.fresh(f"{name}_places", shape, "int64")
    call = f"edgefold_row_top_k({{0}}, {flat.shape[-1]}, {sign}, {{1}}, {{2}}, {k});"
    lowering.program.rows(name, shape[:-1], [flat, values, places], call, [values, places])
    for output, result in enumerate((values, places)[: len(node.output)]):
        if node.output[output]:
            lowering.define(result.transposed(back), output)


SELECTING: dict[str, Rule] = {
    "CumSum": limited(
        _cum_sum,
        constants=(1,),
        reverse=(0,),
        exclusive=(0,),
        others=("float32 and int64",),
    ),
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
}

SORTING: dict[str, Rule] = {"TopK": limited(_top_k, constants=(1,))}
"""Rules of operators that are computed in single precision only."""
