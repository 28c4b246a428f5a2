"""Turn poolings into C: each output joins the elements under a window, as one expression."""

from __future__ import annotations

import math

import numpy as np

from edgefold.export.native.program.limits import limited
from edgefold.export.native.program.lowering import Lowering, Rule, c_name
from edgefold.export.native.program.values import Shape, Value, View, apply
from edgefold.export.native.rules.reductions import reduced
from edgefold.export.native.rules.signals import PADDED, padded


def _geometry(lowering: Lowering) -> tuple[Shape, Shape, Shape, Shape]:
    """Return a window's shape, strides, dilations and pads, in ONNX's order."""
    kernel = tuple(lowering.attribute("kernel_shape"))
    rank = len(kernel)
    strides = tuple(lowering.attribute("strides", [1] * rank))
    dilations = tuple(lowering.attribute("dilations", [1] * rank))
    return kernel, strides, dilations, tuple(lowering.attribute("pads", [0] * (2 * rank)))


def _pooled(lowering: Lowering, kind: str, fill: str) -> Value:
    """Return the window of each output reduced by `kind`; what lies outside counts as `fill`."""
    value, name = lowering.value(0), c_name(lowering.node.output[0])
    kernel, strides, dilations, pads = _geometry(lowering)
    rank, out = len(kernel), lowering.shape[2:]
    # Of what lies behind the axes only as much as windows reach, which may be more with ceil_mode.
    reach = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(out, strides, kernel, dilations, strict=True)
    ]
    behind = [max(0, r - p - n) for r, p, n in zip(reach, pads, value.shape[2:], strict=False)]
    whole = padded(lowering, value, (*pads[:rank], *behind), name, fill)
    source = lowering.program.in_memory(whole, f"{name}_input")
    view = source.view
    assert view is not None
    # (*kernel, B, C, *out): the axes of the window first, so that neighbours stay side by side
    spatial = view.strides[2:]
    windows = View(
        view.buffer,
        view.offset,
        (
            *(s * d * (k != 1) for s, d, k in zip(spatial, dilations, kernel, strict=True)),
            *view.strides[:2],
            *(s * step * (n != 1) for s, step, n in zip(spatial, strides, out, strict=True)),
        ),
    )
    shape = (*kernel, *value.shape[:2], *out)
    return reduced(lowering, Value(shape, "float32", windows), [*range(rank)], kind)


def _max_pool(lowering: Lowering) -> None:
    lowering.computed(_pooled(lowering, "max", "(-INFINITY)"))


def _average_pool(lowering: Lowering) -> None:
    total = _pooled(lowering, "sum", "0.0f")
    kernel, strides, dilations, pads = _geometry(lowering)
    rank, shape = len(kernel), lowering.shapes[lowering.node.input[0]]
    counts = np.ones(lowering.shape[2:], np.float32)
    for axis in range(rank):
        first, last = 0, shape[2 + axis]
        if lowering.attribute("count_include_pad", 0):
            first, last = -pads[axis], last + pads[rank + axis]
        starts = np.arange(counts.shape[axis])[:, None] * strides[axis] - pads[axis]
        places = starts + np.arange(kernel[axis]) * dilations[axis]
        n = ((places >= first) & (places < last)).sum(1)
        counts *= n.reshape((-1, *[1] * (rank - 1 - axis)))
    divisor = lowering.of_array(counts).broadcast(total.shape)
    mean = apply("({0} / {1})", 4, total.expression, divisor.expression)
    value = Value(total.shape, "float32", mean)
    lowering.computed(lowering.program.keep(value, c_name(lowering.node.output[0]), total))


def _global(kind: str) -> Rule:
    def rule(lowering: Lowering) -> None:
        value = lowering.value(0)
        axes = list(range(2, len(value.shape)))
        result = reduced(lowering, value, axes, "sum" if kind == "mean" else kind)
        if kind == "mean":
            n = math.prod(value.shape[2:])
            mean = Value(result.shape, "float32", apply(f"({{0}} / {n}.0f)", 4, result.expression))
            result = lowering.program.keep(mean, c_name(lowering.node.output[0]), result)
        lowering.computed(result)

    return rule


WINDOWS: dict[str, Rule] = {
    "AveragePool": limited(_average_pool, auto_pad=PADDED),
    "GlobalAveragePool": _global("mean"),
    "GlobalMaxPool": _global("max"),
    "MaxPool": limited(_max_pool, auto_pad=PADDED, n_outputs=1),
}
"""Rules of poolings, which are computed in single precision only."""
