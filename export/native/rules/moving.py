"""Turn ONNX operators that move elements into C: most change where a value is read, some copy."""

from __future__ import annotations

import numpy as np

from edgefold.export.native.program.constants import number_text
from edgefold.export.native.program.limits import limited
from edgefold.export.native.program.lowering import Lowering, Rule, c_name
from edgefold.export.native.program.values import Literal, Value


def _reshape(lowering: Lowering) -> None:
    value, shape = lowering.value(0), lowering.shape
    moved = value.reshaped(shape)
    if moved is None:
        moved = lowering.program.contiguous(value, c_name(lowering.node.output[0]))
        moved = moved.reshaped(shape)
        assert moved is not None
    lowering.define(moved)


def _transpose(lowering: Lowering) -> None:
    value = lowering.value(0)
    axes = lowering.attribute("perm", list(range(len(value.shape)))[::-1])
    lowering.define(value.transposed(axes))


def _identity(lowering: Lowering) -> None:
    lowering.define(lowering.value(0))


def _expand(lowering: Lowering) -> None:
    lowering.define(lowering.value(0).broadcast(lowering.shape))


def _constant_of_shape(lowering: Lowering) -> None:
    attribute = lowering.attribute("value")
    number = 0.0 if attribute is None else attribute_number(attribute)
    lowering.define(
        Value(lowering.shape, lowering.dtype, Literal(number_text(number, lowering.dtype)))
    )


def attribute_number(tensor: object) -> float:
    """Return the only number of an attribute that is a tensor."""
    from onnx import numpy_helper

    return numpy_helper.to_array(tensor).reshape(-1)[0]  # type: ignore[arg-type, no-any-return]


def _slice(lowering: Lowering) -> None:
    value = lowering.value(0)
    starts, ends = lowering.constant(1), lowering.constant(2)
    axes = lowering.constant(3) if lowering.has(3) else np.arange(len(starts))
    steps = lowering.constant(4) if lowering.has(4) else np.ones(len(starts), np.int64)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        at = int(axis) % len(value.shape)
        first, stop, stride = slice(int(start), int(end), int(step)).indices(value.shape[at])
        if step < 0 and end < -value.shape[at]:
            stop = -1
        value = value.sliced(at, first, stride, len(range(first, stop, stride)))
    lowering.define(value)


def _split(lowering: Lowering) -> None:
    value = lowering.value(0)
    axis, start = lowering.attribute("axis", 0) % len(value.shape), 0
    for output, name in enumerate(lowering.node.output):
        n = lowering.shapes[name][axis]
        lowering.define(value.sliced(axis, start, 1, n), output)
        start += n


def _concat(lowering: Lowering) -> None:
    output = lowering.node.output[0]
    whole = lowering.places[output]
    axis, start = lowering.attribute("axis") % len(whole.shape), 0
    for index, name in enumerate(lowering.node.input):
        value = lowering.value(index)
        part = whole.sliced(axis, start, 1, value.shape[axis])
        if value.expression != part.expression:
            lowering.program.keep(value, c_name(name), part)
        start += value.shape[axis]
    lowering.computed(whole)


def _pad(lowering: Lowering) -> None:
    value, mode = lowering.value(0), lowering.attribute("mode", "constant")
    n_axes = len(value.shape)
    amounts = [int(n) for n in lowering.constant(1)]
    axes = [int(a) for a in lowering.constant(3)] if lowering.has(3) else range(n_axes)
    pads = [(0, 0)] * n_axes
    for at, axis in enumerate(axes):
        pads[axis] = amounts[at], amounts[at + len(amounts) // 2]
    if any(n < 0 for pair in pads for n in pair):
        raise lowering.refuse(f"its pads are {pads}")
    output = lowering.node.output[0]
    whole = lowering.place(output, lowering.shape, lowering.dtype)
    for axis, (before, after) in enumerate(pads):
        if before or after:
            value = _padded(lowering, value, axis, before, after, mode)
    lowering.program.keep(value, c_name(output), whole)
    lowering.computed(whole)


def _padded(
    lowering: Lowering, value: Value, axis: int, before: int, after: int, mode: str
) -> Value:
    """Return a value in new memory, `before` and `after` elements longer along one axis.

    `mode` says what fills them: "constant", "reflect" or "edge".
    """
    n = value.shape[axis]
    shape = (*value.shape[:axis], before + n + after, *value.shape[axis + 1 :])
    name = c_name(lowering.node.output[0])
    result = lowering.program.fresh(name, shape, value.dtype)
    lowering.program.keep(value, name, result.sliced(axis, before, 1, n))
    fill = lowering.value(2).reshaped(()) if lowering.has(2) else None
    number = Literal(number_text(0, value.dtype)) if fill is None else fill.expression
    for start, count, first, step in (
        (0, before, before if mode == "reflect" else 0, -1),
        (before + n, after, n - 2 if mode == "reflect" else n - 1, -1),
    ):
        if not count:
            continue
        part = result.sliced(axis, start, 1, count)
        if mode == "constant":
            source = Value((), value.dtype, number).broadcast(part.shape)
        elif mode == "reflect":
            source = value.sliced(axis, first, step, count)
        else:
            source = value.sliced(axis, first, 1, 1).broadcast(part.shape)
        lowering.program.keep(source, name, part)
    return result


def _tile(lowering: Lowering) -> None:
    value, repeats = lowering.value(0), [int(n) for n in lowering.constant(1)]
    doubled = tuple(n for pair in zip([1] * len(repeats), value.shape, strict=True) for n in pair)
    wide = tuple(n for pair in zip(repeats, value.shape, strict=True) for n in pair)
    spread = value.reshaped(doubled)
    assert spread is not None  # axes of length 1 never need a copy
    name = c_name(lowering.node.output[0])
    result = lowering.program.contiguous(spread.broadcast(wide), name).reshaped(lowering.shape)
    assert result is not None
    lowering.define(result)


MOVING: dict[str, Rule] = {
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Flatten": _reshape,
    "Identity": _identity,
    "Pad": limited(
        _pad,
        constants=(1, 3),
        mode=("constant", "reflect", "edge"),
        others=("no pads below 0",),
    ),
    "Reshape": _reshape,
    "Slice": limited(_slice, constants=(1, 2, 3, 4)),
    "Split": _split,
    "Squeeze": _reshape,
    "Tile": limited(_tile, constants=(1,)),
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
}
