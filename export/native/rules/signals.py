"""Turn convolutions, as products over patches, and the LSTM into C."""

from __future__ import annotations

import math
from itertools import product as combinations

import numpy as np

from edgefold.export.native.program.constants import Array
from edgefold.export.native.program.limits import limited
from edgefold.export.native.program.lowering import Lowering, Rule, c_name
from edgefold.export.native.program.values import Literal, Shape, Value, View, apply
from edgefold.export.native.rules.products import Factor, packed_value, product


def _dense(lowering: Lowering, rows: Value, weights: Array, bias: Array | None, name: str) -> Value:
    """Return rows (M, K) times constant weights (K, N), plus a bias (N,), in new memory."""
    shape = (rows.shape[0], weights.shape[1])
    result = lowering.program.fresh(name, shape, "float32")
    bias_rows = None if bias is None else lowering.stored(bias).broadcast(shape)
    product(lowering, rows, result, Factor(packed_value(lowering, weights, ())), bias_rows)
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


def _padded(lowering: Lowering, value: Value, pads: Shape, name: str) -> Value:
    """Return a value (B, C, ...) with zeros around each axis behind C; a copy if there are any.

    `pads` are the numbers of zeros before each axis, then those after each.
    """
    rank = len(pads) // 2
    if not any(pads):
        return value
    spatial = tuple(n + pads[axis] + pads[rank + axis] for axis, n in enumerate(value.shape[2:]))
    result = lowering.program.fresh(f"{name}_padded", (*value.shape[:2], *spatial), "float32")
    lowering.program.keep(
        Value((), "float32", Literal("0.0f")).broadcast(result.shape), name, result
    )
    inner = result
    for axis, n in enumerate(value.shape[2:]):
        inner = inner.sliced(2 + axis, pads[axis], 1, n)
    lowering.program.keep(value, name, inner)
    return result


def _conv(lowering: Lowering) -> None:
    """Lower a convolution of (B, C, ...) with weights (O, C/groups, ...) to one product a group.

    The left factor has a row for each output position: the patch of inputs under the kernel there.
    """
    value, weights = lowering.value(0), lowering.constant(1).astype(np.float32)
    kernel, strides, dilations, pads = _spatial(lowering)
    groups, output = lowering.attribute("group", 1), lowering.node.output[0]
    bias = lowering.constant(2).astype(np.float32) if lowering.has(2) else None
    name, shape = c_name(output), lowering.shape
    source = lowering.program.in_memory(_padded(lowering, value, pads, name), f"{name}_input")
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
        result = _dense(
            lowering, rows, weights[part].reshape(made_each, k).T,
            None if bias is None else bias[part], f"{name}_rows",
        ).reshaped((n_streams, *out, made_each))  # fmt: skip
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
    value, weights = lowering.value(0), lowering.constant(1).astype(np.float32)
    kernel, strides, dilations, pads = _spatial(lowering)
    output, shape, rank = lowering.node.output[0], lowering.shape, len(kernel)
    name, program = c_name(output), lowering.program
    n_streams, places, channels = value.shape[0], value.shape[2:], weights.shape[1]
    turned = value.transposed([0, *range(2, rank + 2), 1])
    flat = (n_streams * math.prod(places), value.shape[1])
    rows = turned.reshaped(flat) or program.keep(turned, f"{name}_rows").reshaped(flat)
    assert rows is not None
    result = _dense(lowering, rows, weights.reshape(weights.shape[0], -1), None, f"{name}_patches")
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
    start = lowering.of_array(bias.reshape((-1,) + (1,) * rank)).broadcast(whole_shape)
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


def _lstm(lowering: Lowering) -> None:
    """Lower an LSTM of one direction with default activations; ONNX orders gates as i, o, f, c."""
    node = lowering.node
    sequence = lowering.value(0)
    steps, n_streams, _ = sequence.shape
    w, r = (lowering.constant(index)[0].astype(np.float32).T for index in (1, 2))
    size = r.shape[0]
    both = lowering.constant(3)[0].astype(np.float32) if lowering.has(3) else np.zeros(8 * size)
    bias = (both[: 4 * size] + both[4 * size :]).astype(np.float32)
    zeros = Value((), "float32", Literal("0.0f")).broadcast((n_streams, size))
    hidden, cell = (
        _first(lowering, index, (n_streams, size)) if lowering.has(index) else zeros
        for index in (5, 6)
    )
    name = c_name(node.output[0] or node.output[1])
    flat = (steps * n_streams, sequence.shape[2])
    tokens = sequence.reshaped(flat) or lowering.program.keep(sequence, name).reshaped(flat)
    assert tokens is not None
    driven = _dense(lowering, tokens, w, bias, f"{name}_driven")
    outputs = lowering.program.fresh(f"{name}_all", (steps, 1, n_streams, size), "float32")
    for step in range(steps):
        fed = driven.sliced(0, step * n_streams, 1, n_streams)
        back = _dense(lowering, hidden, r, None, f"{name}_back")
        gates = []
        for gate in range(4):
            a, b = (v.sliced(1, gate * size, 1, size).expression for v in (fed, back))
            squash = "edgefold_tanh({0})" if gate == 3 else "edgefold_sigmoid({0})"
            gates.append(apply(squash, 10, apply("({0} + {1})", 1, a, b)))
        i, o, f, c = gates
        memory = apply("({0} * {1} + {2} * {3})", 3, f, cell.expression, i, c)
        cell = lowering.program.keep(Value((n_streams, size), "float32", memory), f"{name}_cell")
        answer = apply("({0} * edgefold_tanh({1}))", 11, o, cell.expression)
        into = outputs.sliced(0, step, 1, 1).reshaped((n_streams, size))
        hidden = lowering.program.keep(
            Value((n_streams, size), "float32", answer), f"{name}_hidden", into
        )
    for output, value in enumerate((outputs, hidden, cell)):
        if output < len(node.output) and node.output[output]:
            shaped = value.reshaped(lowering.shapes[node.output[output]])
            assert shaped is not None
            lowering.define(shaped, output)


def _first(lowering: Lowering, index: int, shape: Shape) -> Value:
    """Return input number `index` of an LSTM, an initial state (1, B, H), in `shape`, (B, H)."""
    result = lowering.in_memory(index).reshaped(shape)
    assert result is not None
    return result


PADDED = ("NOTSET", "VALID")
"""Values of auto_pad that are covered: the padding is stated, or there is none."""

SIGNALS: dict[str, Rule] = {
    "Conv": limited(_conv, constants=(1, 2), auto_pad=PADDED),
    "ConvTranspose": limited(
        _conv_transpose, constants=(1, 2), auto_pad=PADDED, group=(1,), output_shape=([],)
    ),
    "LSTM": limited(
        _lstm,
        constants=(1, 2, 3),
        absent=(4, 7),
        activations=([],),
        clip=(0.0,),
        direction=("forward",),
        input_forget=(0,),
        layout=(0,),
    ),
}
