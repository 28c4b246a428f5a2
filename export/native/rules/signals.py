"""Turn convolutions, as products over patches, into C."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product as combinations

import numpy as np

from edgefold.export.native.program.constants import Array
from edgefold.export.native.program.limits import limited
from edgefold.export.native.program.lowering import Lowering, Rule, c_name
from edgefold.export.native.program.values import Literal, Shape, Value, View, apply
from edgefold.export.native.rules.products import Factor, packed_value, product


@dataclass(frozen=True, slots=True)
class Named:
    """Holds constant numbers and their name in the graph."""

    array: Array
    name: str


def input_named(lowering: Lowering, index: int) -> Named:
    """Return input number `index` of the node, which is constant, in single precision."""
    return Named(lowering.constant(index).astype(np.float32), lowering.node.input[index])


def dense(lowering: Lowering, rows: Value, weights: Named, bias: Named | None, name: str) -> Value:
    """Return rows (M, K) times constant weights (K, N), plus a bias (N,), in new memory."""
    shape = (rows.shape[0], weights.array.shape[1])
    result = lowering.program.fresh(name, shape, "float32")
    stored = lowering.stored(bias.array, bias.name) if bias else None
    bias_rows = stored.broadcast(shape) if stored else None
    factor = Factor(packed_value(lowering, weights.array, (), weights.name))
    product(lowering, rows, result, factor, bias_rows)
    return result


def _spatial(lowering: Lowering) -> tuple[Shape, Shape, Shape, Shape]:
    """Return a convolution's kernel shape, strides, dilations (one number an axis) and pads.

    Pads are in ONNX's order: those before each axis, then those after each axis.
    """
    rank = len(lowering.shapes[lowering.node.input[1]]) - 2
    kernel = lowering.shapes[lowering.node.input[1]][2:]
    strides = tuple(lowering.attribute("strides", [1] * rank))
    dilations = tuple(lowering.attribute("dilations", [1] * rank))
    pads = tuple(lowering.attribute("pads", [0] * (2 * rank)))
    return kernel, strides, dilations, pads


def padded(lowering: Lowering, value: Value, pads: Shape, name: str, fill: str = "0.0f") -> Value:
    """Return a value (B, C, ...) with `fill` around each axis behind C; a copy if there is any.

    `pads` are the numbers of added elements before each axis, then those after each; `fill` is a
    number as C text.
    """
    rank = len(pads) // 2
    if not any(pads):
        return value
    spatial = tuple(n + pads[axis] + pads[rank + axis] for axis, n in enumerate(value.shape[2:]))
    result = lowering.program.fresh(f"{name}_padded", (*value.shape[:2], *spatial), "float32")
    lowering.program.keep(Value((), "float32", Literal(fill)).broadcast(result.shape), name, result)
    inner = result
    for axis, n in enumerate(value.shape[2:]):
        inner = inner.sliced(2 + axis, pads[axis], 1, n)
    lowering.program.keep(value, name, inner)
    return result


def _conv(lowering: Lowering) -> None:
    """Lower a convolution of (B, C, ...) with weights (O, C/groups, ...) to one product a group.

    The left factor has a row for each output position: the patch of inputs under the kernel there.
    """
    value, named = lowering.value(0), input_named(lowering, 1)
    kernel, strides, dilations, pads = _spatial(lowering)
    groups, output = lowering.attribute("group", 1), lowering.node.output[0]
    weights, bias = named.array, input_named(lowering, 2) if lowering.has(2) else None
    name, shape = c_name(output), lowering.shape
    source = lowering.program.in_memory(padded(lowering, value, pads, name), f"{name}_input")
    view, rank = source.view, len(kernel)
    assert view is not None
    n_streams, out = shape[0], shape[2:]
    each, made_each = weights.shape[1], weights.shape[0] // groups
    target = lowering.place(output, shape, "float32")
    for group in range(groups):
        patches = View(
            view.buffer,
            view.offset + group * each * view.strides[1],
            (
                view.strides[0],
                *(view.strides[2 + a] * strides[a] for a in range(rank)),
                view.strides[1],
                *(view.strides[2 + a] * dilations[a] for a in range(rank)),
            ),
        )
        whole = Value((n_streams, *out, each, *kernel), "float32", patches)
        m, k = n_streams * math.prod(out), each * math.prod(kernel)
        rows = whole.reshaped((m, k))
        if rows is None:
            rows = lowering.program.keep(whole, f"{name}_patches").reshaped((m, k))
        assert rows is not None
        part = slice(group * made_each, (group + 1) * made_each)
        factor = Named(weights[part].reshape(made_each, k).T, named.name)
        own_bias = bias and Named(bias.array[part], bias.name)
        flat = dense(lowering, rows, factor, own_bias, f"{name}_rows")
        result = flat.reshaped((n_streams, *out, made_each))
        assert result is not None
        turned = result.transposed([0, rank + 1, *range(1, rank + 1)])
        if groups == 1 and output not in lowering.places:
            lowering.define(turned)
            return
        lowering.program.keep(turned, name, target.sliced(1, group * made_each, 1, made_each))
    lowering.computed(target)


def _conv_transpose(lowering: Lowering) -> None:
    """Lower a transposed convolution of (B, C, ...) with weights (C, O, ...).

    A product makes a patch of outputs for each input position, and overlapping patches are added.
    """
    value, named = lowering.value(0), input_named(lowering, 1)
    weights = named.array
    kernel, strides, dilations, pads = _spatial(lowering)
    output, shape, rank = lowering.node.output[0], lowering.shape, len(kernel)
    name, program = c_name(output), lowering.program
    n_streams, places, channels = value.shape[0], value.shape[2:], weights.shape[1]
    turned = value.transposed([0, *range(2, rank + 2), 1])
    flat = (n_streams * math.prod(places), value.shape[1])
    rows = turned.reshaped(flat) or program.keep(turned, f"{name}_rows").reshaped(flat)
    assert rows is not None
    factor = Named(weights.reshape(weights.shape[0], -1), named.name)
    result = dense(lowering, rows, factor, None, f"{name}_patches")
    patches = result.reshaped((n_streams, *places, channels, *kernel))
    assert patches is not None
    reach = tuple(
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(places, strides, kernel, dilations, strict=True)
    )
    whole_shape = (
        n_streams,
        channels,
        *(max(r, p + n) for r, p, n in zip(reach, pads, shape[2:], strict=False)),
    )
    whole = program.fresh(f"{name}_whole", whole_shape, "float32")
    bias = (
        lowering.constant(2).astype(np.float32)
        if lowering.has(2)
        else np.zeros(channels, np.float32)
    )
    bias_name = lowering.node.input[2] if lowering.has(2) else ""
    start = lowering.of_array(bias.reshape((-1,) + (1,) * rank), bias_name).broadcast(whole_shape)
    program.keep(start, name, whole)
    for offsets in combinations(*(range(k) for k in kernel)):
        part, spread = patches, whole
        for axis, at in enumerate(offsets):
            part = part.sliced(rank + 2 + axis, at, 1, 1)
            spread = spread.sliced(2 + axis, at * dilations[axis], strides[axis], places[axis])
        order = [0, rank + 1, *range(1, rank + 1), *range(rank + 2, 2 * rank + 2)]
        one = part.transposed(order).reshaped(spread.shape)
        assert one is not None
        added = apply("({0} + {1})", 1, spread.expression, one.expression)
        program.keep(Value(spread.shape, "float32", added), name, spread)
    cut = whole
    for axis in range(rank):
        cut = cut.sliced(2 + axis, pads[axis], 1, shape[2 + axis])
    assert cut.shape == shape
    lowering.define(cut)


PADDED = ("NOTSET", "VALID")
"""Values of auto_pad that are covered: the padding is stated, or there is none."""

SIGNALS: dict[str, Rule] = {
    "Conv": limited(_conv, constants=(1, 2), auto_pad=PADDED),
    "ConvTranspose": limited(
        _conv_transpose, constants=(1, 2), auto_pad=PADDED, group=(1,), output_shape=([],)
    ),
}
