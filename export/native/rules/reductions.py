"""Turn ONNX operators into C that make one number of many: sums, extremes, normalisations."""

from __future__ import annotations

import math

import numpy as np

from edgefold.export.native.program.c_words import C_TYPES
from edgefold.export.native.program.constants import number_text
from edgefold.export.native.program.limits import limited
from edgefold.export.native.program.lowering import LARGEST_EXPRESSION, Lowering, Rule, c_name
from edgefold.export.native.program.values import Apply, Expression, Shape, Value, apply

MOST_TERMS = 32
"""Largest number of rows that one expression joins. More are transposed, so that a kernel passes
along each sum."""


def _axes(lowering: Lowering, rank: int) -> list[int]:
    if lowering.has(1):
        axes = [int(axis) for axis in lowering.constant(1).reshape(-1)]
    else:
        axes = list(lowering.attribute("axes", []))
    if not axes and not lowering.attribute("noop_with_empty_axes", 0):
        axes = list(range(rank))
    return sorted(axis % rank for axis in axes)


def _reduction(kind: str) -> Rule:
    """Return the rule of a reduction by `kind`: "sum", "max" or "min"."""

    def rule(lowering: Lowering) -> None:
        value = lowering.value(0)
        lowering.define(reduced(lowering, value, _axes(lowering, len(value.shape)), kind))

    return rule


def reduced(lowering: Lowering, value: Value, axes: list[int], kind: str) -> Value:
    """Return a value reduced along axes by `kind`, in memory and in the shape of the output."""
    output = lowering.node.output[0]
    name = c_name(output)
    others = [axis for axis in range(len(value.shape)) if axis not in axes]
    turned = value.transposed([*others, *axes])
    lead, n = tuple(value.shape[a] for a in others), math.prod(value.shape[a] for a in axes)
    target = lowering.place(output, lowering.shape, value.dtype)
    rows = target.reshaped(lead)
    into = rows if rows is not None else lowering.program.fresh(name, lead, value.dtype)
    if others and others[-1] > max(axes, default=-1) and 1 < n <= MOST_TERMS:
        _over_rows(lowering, turned, lead, n, into, kind)
    else:
        flat = turned.reshaped((*lead, n))
        if flat is None or flat.view is None or flat.view.strides[-1] not in (0, 1):
            flat = lowering.program.contiguous(turned, name).reshaped((*lead, n))
        assert flat is not None
        _within_rows(lowering, flat, into, kind)
    if rows is None:
        shaped = into.reshaped(lowering.shape)
        assert shaped is not None
        lowering.program.keep(shaped, name, target)
    return target


def _combine(kind: str, dtype: str) -> str:
    if kind == "sum" and not dtype.startswith("float"):
        return f"(({C_TYPES[dtype]})((uint64_t){{0}} + (uint64_t){{1}}))"
    if kind == "sum":
        return "({0} + {1})"
    return f"edgefold_{kind}" + ("" if dtype.startswith("float") else "_int") + "({0}, {1})"


def _over_rows(
    lowering: Lowering, turned: Value, lead: Shape, n: int, into: Value, kind: str
) -> None:
    """Reduce to `into` by one expression of n terms, a + b + ..., for each result.

    Neighbouring results then come from neighbouring elements, as the value's last axis stays.

    Args:
        lowering: The graph and the node.
        turned: The value, its reduced axes last.
        lead: Shape of the axes that stay.
        n: Number of elements of which each result is made.
        into: Memory for the results, of shape `lead`.
        kind: "sum", "max" or "min".
    """
    program, name = lowering.program, c_name(lowering.node.output[0])
    flat = turned.reshaped((*lead, n))
    if flat is None:
        flat = program.contiguous(turned, name).reshaped((*lead, n))
    assert flat is not None
    template = _combine(kind, flat.dtype)
    first = flat.sliced(len(lead), 0, 1, 1).reshaped(lead)
    assert first is not None
    expression: Expression = first.expression
    for at in range(1, n):
        term = flat.sliced(len(lead), at, 1, 1).reshaped(lead)
        assert term is not None
        expression = apply(template, 1, expression, term.expression)
        if isinstance(expression, Apply) and expression.size > LARGEST_EXPRESSION and at < n - 1:
            program.keep(Value(lead, flat.dtype, expression), name, into)
            expression = into.expression
    program.keep(Value(lead, flat.dtype, expression), name, into)


def _within_rows(lowering: Lowering, flat: Value, into: Value, kind: str) -> None:
    """Reduce the last axis of `flat` to `into`: a kernel passes along each row.

    `kind` is "sum", "max" or "min".
    """
    lead, n = flat.shape[:-1], flat.shape[-1]
    suffix = "" if flat.dtype == "float32" else "_int"
    if flat.dtype not in ("float32", "int64"):
        raise lowering.refuse(f"it reduces {flat.dtype}")
    assert flat.view is not None and into.view is not None
    if flat.view.strides[-1] == 0 and n > 1:  # the same number again and again
        flat = lowering.program.keep(flat, "spread")
    lowering.program.rows(
        c_name(lowering.node.output[0]),
        lead,
        [flat, into],
        f"*({{1}}) = edgefold_row_{kind}{suffix}({{0}}, {n});",
        [into],
    )


def _mean(lowering: Lowering) -> None:
    value = lowering.value(0)
    axes = _axes(lowering, len(value.shape))
    n = math.prod(value.shape[a] for a in axes)
    total = reduced(lowering, value, axes, "sum")
    scaled = Value(total.shape, total.dtype, apply(f"({{0}} / {n}.0f)", 4, total.expression))
    lowering.computed(lowering.program.keep(scaled, c_name(lowering.node.output[0]), total))


def _log_sum_exp(lowering: Lowering) -> None:
    value = lowering.value(0)
    flat = _last_rows(lowering, value, _axes(lowering, len(value.shape)))
    into = lowering.place(lowering.node.output[0], lowering.shape, "float32")
    rows = into.reshaped(flat.shape[:-1])
    assert rows is not None
    n = flat.shape[-1]
    lowering.program.rows(
        c_name(lowering.node.output[0]),
        flat.shape[:-1],
        [flat, rows],
        f"*({{1}}) = edgefold_row_log_sum_exp({{0}}, {n});",
        [rows],
    )
    lowering.computed(into)


def _last_rows(lowering: Lowering, value: Value, axes: list[int]) -> Value:
    """Return a value in memory whose given axes are joined to one, innermost and without gaps."""
    others = [axis for axis in range(len(value.shape)) if axis not in axes]
    turned = lowering.program.contiguous(
        value.transposed([*others, *axes]), c_name(lowering.node.output[0])
    )
    n = math.prod(value.shape[a] for a in axes)
    flat = turned.reshaped((*(value.shape[a] for a in others), n))
    assert flat is not None
    return flat


def _softmax(function: str) -> Rule:
    def rule(lowering: Lowering) -> None:
        value, output = lowering.value(0), lowering.node.output[0]
        axis = lowering.attribute("axis", -1) % len(value.shape)
        order = [a for a in range(len(value.shape)) if a != axis] + [axis]
        back = [order.index(a) for a in range(len(order))]
        name = c_name(output)
        may_overwrite = output not in lowering.places and lowering.is_read_once(0)
        value = value.transposed(order)
        if may_overwrite and value.in_rows:
            target = value
        else:
            target = lowering.place(output, lowering.shape, "float32").transposed(order)
        if not target.in_rows:
            target = lowering.program.fresh(name, value.shape, "float32")
        if not value.in_rows:
            value = lowering.program.keep(value, name, target)
        _by_matrices(lowering, f"edgefold_{function}({{}});", value, target)
        lowering.define(target.transposed(back))

    return rule


def _by_matrices(lowering: Lowering, template: str, value: Value, target: Value) -> None:
    """Append calls of a kernel that passes along each row of a value, many rows at a time.

    Args:
        lowering: The graph and the node.
        template: C text of a call, in which `{}` stands for the number of rows, their length, and
            the address and the distance of the rows of `value` and of `target`.
        value: The value in memory, neighbours of its last axis side by side.
        target: Memory for the result in the same shape; `value` itself if it is overwritten.
    """
    lead, n = tuple(n for n in value.shape[:-1] if n != 1), value.shape[-1]
    front, m = lead[:-1], lead[-1] if lead else 1
    rows = value.reshaped((*front, m, n))
    into = rows if value is target else target.reshaped((*front, m, n))
    assert rows is not None and rows.view is not None
    assert into is not None and into.view is not None
    values = [rows] if into is rows else [rows, into]
    arguments = (
        f"{m}, {n}, {{0}}, {rows.view.strides[-2]}, {{{len(values) - 1}}}, {into.view.strides[-2]}"
    )
    call = template.format(arguments)
    lowering.program.rows(c_name(lowering.node.output[0]), front, values, call, [into])


def _layer_normalization(lowering: Lowering) -> None:
    value, output = lowering.in_memory(0), lowering.node.output[0]
    axis = lowering.attribute("axis", -1) % len(value.shape)
    n = math.prod(value.shape[axis:])
    lead = value.shape[:axis]
    rows = value.reshaped((*lead, n))
    assert value.view is not None
    if rows is None or not rows.in_rows:
        rows = lowering.program.contiguous(value, c_name(output)).reshaped((*lead, n))
    assert rows is not None
    target = lowering.place(output, value.shape, "float32")
    into = target.reshaped((*lead, n))
    if into is None or not into.in_rows:
        into = lowering.program.fresh(c_name(output), (*lead, n), "float32")
    texts = []
    for index, plain in ((1, 1.0), (2, 0.0)):
        array = lowering.constant(index) if lowering.has(index) else None
        if array is None or (array == plain).all():
            texts.append("NULL")
        else:
            whole = np.broadcast_to(array.astype(np.float32), value.shape[axis:])
            named = lowering.node.input[index]
            texts.append(lowering.constants.buffer(whole, lowering.reader, named).name)
    epsilon = number_text(lowering.attribute("epsilon", 1e-5), "float32")
    template = f"edgefold_normalize({{}}, {epsilon}, {texts[0]}, {texts[1]});"
    _by_matrices(lowering, template, rows, into)
    result = into.reshaped(value.shape)
    assert result is not None
    lowering.define(result)


def _of_terms(term: str, last: str = "") -> Rule:
    """Return the rule of a sum of C text `term` over the elements, to which `last` is applied."""

    def rule(lowering: Lowering) -> None:
        value = lowering.value(0) if term.count("{0}") == 1 else lowering.in_memory(0)
        terms = Value(value.shape, value.dtype, apply(term, 1, value.expression))
        total = reduced(lowering, terms, _axes(lowering, len(value.shape)), "sum")
        if last:
            ended = Value(total.shape, total.dtype, apply(last, 4, total.expression))
            total = lowering.program.keep(ended, c_name(lowering.node.output[0]), total)
        lowering.computed(total)

    return rule


def _instance_normalization(lowering: Lowering) -> None:
    """Lower the normalisation of each channel of (B, C, ...); torch writes GroupNorm by it, too."""
    value, output = lowering.value(0), lowering.node.output[0]
    rows_shape = (*value.shape[:2], math.prod(value.shape[2:]))
    rows = lowering.program.contiguous(value, c_name(output)).reshaped(rows_shape)
    assert rows is not None
    into = lowering.program.fresh(c_name(output), rows_shape, "float32")
    epsilon = number_text(lowering.attribute("epsilon", 1e-5), "float32")
    _by_matrices(lowering, f"edgefold_normalize({{}}, {epsilon}, NULL, NULL);", rows, into)
    result = into.reshaped(value.shape)
    assert result is not None
    terms = []
    for index in (1, 2):
        array = lowering.constant(index).reshape((-1, *[1] * (len(value.shape) - 2)))
        factors = lowering.of_array(array, lowering.node.input[index])
        terms.append(factors.broadcast(value.shape).expression)
    scaled = apply("({0} * {1} + {2})", 2, result.expression, *terms)
    lowering.define(Value(value.shape, "float32", scaled))


def _arg_min(lowering: Lowering) -> None:
    value = lowering.value(0)
    _arg_max(lowering, Value(value.shape, value.dtype, apply("(-{0})", 1, value.expression)))


def _arg_max(lowering: Lowering, opposite: Value | None = None) -> None:
    value, output = opposite or lowering.value(0), lowering.node.output[0]
    axis = lowering.attribute("axis", 0) % len(value.shape)
    flat = _last_rows(lowering, value, [axis])
    target = lowering.place(output, lowering.shape, "int64")
    rows = target.reshaped(flat.shape[:-1])
    assert rows is not None
    call = f"*({{1}}) = edgefold_row_arg_max({{0}}, {flat.shape[-1]});"
    lowering.program.rows(
        c_name(lowering.node.output[0]), flat.shape[:-1], [flat, rows], call, [rows]
    )
    lowering.computed(target)


REDUCTIONS: dict[str, Rule] = {
    "ReduceMax": limited(_reduction("max"), constants=(1,)),
    "ReduceMin": limited(_reduction("min"), constants=(1,)),
    "ReduceSum": limited(_reduction("sum"), constants=(1,)),
}
"""Rules of operators that are computed in single precision and in whole numbers of 64 bits."""

MEANS: dict[str, Rule] = {
    "ArgMax": limited(_arg_max, select_last_index=(0,)),
    "ArgMin": limited(_arg_min, select_last_index=(0,)),
    "InstanceNormalization": limited(_instance_normalization, constants=(1, 2)),
    "LayerNormalization": limited(_layer_normalization, constants=(1, 2), n_outputs=1),
    "LogSoftmax": _softmax("log_softmax"),
    "ReduceL1": limited(_of_terms("fabsf({0})"), constants=(1,)),
    "ReduceL2": limited(_of_terms("({0} * {0})", "sqrtf({0})"), constants=(1,)),
    "ReduceSumSquare": limited(_of_terms("({0} * {0})"), constants=(1,)),
    "ReduceLogSumExp": limited(_log_sum_exp, constants=(1,)),
    "ReduceMean": limited(_mean, constants=(1,)),
    "Softmax": _softmax("softmax"),
}
"""Rules of operators that are computed in single precision only."""
