"""Turn matrix products into C: weights are packed in advance, other factors read where they lie."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgefold.export.native.program.constants import Array, number_text, packed
from edgefold.export.native.program.limits import limited
from edgefold.export.native.program.lowering import Lowering, Rule, c_name
from edgefold.export.native.program.values import (
    Apply,
    Expression,
    Literal,
    Shape,
    Value,
    View,
    apply,
    leaves,
    row_major,
)

APART = (1, 1, 1, 1)
"""Leading axes of an array that all products of a batch share, so that its own axes are not taken
for axes of the batch."""
AT_ONCE = 32
"""Number of columns of narrow weights that products.c converts to float32 at a time."""
SIDE_BY_SIDE = 8
"""Number of sums from which a computed factor is added up without being written to memory."""
FEW = 4
"""Number of columns below which a computed right factor is read column by column."""


@dataclass(frozen=True, slots=True)
class Factor:
    """Describes the right factor of a product, (..., K, N), in memory.

    Attributes:
        value: The factor. For packed weights (see `packed`) the view gives the start of each
            matrix, and its strides along K and N are 0.
        row: Distance from one row to the next, in elements; 0 for packed weights.
        column: Distance from one column to the next, if the numbers of a column lie side by side;
            0 if those of a row do.
        scales: Factor of each column, for int8 weights; else None.
    """

    value: Value
    row: int = 0
    column: int = 0
    scales: Value | None = None

    @property
    def is_narrow(self) -> bool:
        return self.value.dtype in ("int8", "float16")


def _matmul(lowering: Lowering) -> None:
    output, shape, left = lowering.node.output[0], lowering.shape, lowering.value(0)
    right_shape = lowering.shapes[lowering.node.input[1]]
    if min(len(left.shape), len(right_shape)) < 2:
        raise lowering.refuse(f"it multiplies {left.shape} by {right_shape}")
    target = lowering.place(output, shape, "float32")
    n_rows = math.prod(left.shape[:-1])
    rows = left.reshaped((n_rows, left.shape[-1]))
    flat = target.reshaped((n_rows, right_shape[-1]))
    if len(right_shape) == 2 and rows and flat:  # the rows of all matrices are those of one
        product(lowering, rows, flat, right_factor(lowering, (), 1.0), None)
    else:
        batch = shape[:-2]
        wide = left.broadcast((*batch, *left.shape[-2:]))
        if not _is_summed(lowering, wide, target):
            product(lowering, wide, target, right_factor(lowering, batch, 1.0), None)
    lowering.computed(target)


def _is_summed(lowering: Lowering, left: Value, target: Value) -> bool:
    """Write a product to `target` as sums, if each element of a computed factor is needed once.

    So it is where the other factor is one column, or one row. Neighbours among the sums must come
    from neighbours in memory. Return whether all this is so.
    """
    if lowering.is_constant(1):
        return False
    batch, (m, k), n = left.shape[:-2], left.shape[-2:], target.shape[-1]
    right = _turned(lowering.value(1).broadcast((*batch, k, n)))  # (..., N, K)
    by_column = n == 1
    many, other = (left, 1) if by_column else (right, 0)
    if not (by_column or m == 1) or many.shape[-2] < SIDE_BY_SIDE:
        return False
    source = lowering.node.input[1 - other]
    is_once = math.prod(lowering.shapes[source][:-2]) == math.prod(batch)
    is_own = is_once and lowering.uses[source] == 1
    if many.view or not is_own or not _moves_evenly(many.expression):
        return False
    one = lowering.in_memory(other)
    one = (_turned(one) if by_column else one).broadcast(many.shape)
    terms = apply("({0} * {1})", 1, many.expression, one.expression)
    into = target.reshaped(many.shape[:-1])
    assert into is not None
    name = c_name(lowering.node.output[0])
    lowering.program.sums(Value(many.shape, "float32", terms), name, into)
    return True


def _moves_evenly(expression: Expression) -> bool:
    """Return whether neighbours along the last axis but one are neighbours in memory, or equal."""
    if isinstance(expression, View):
        return expression.strides[-2] in (0, 1)
    if isinstance(expression, Apply):
        return all(map(_moves_evenly, expression.arguments))
    return isinstance(expression, Literal)


def _gemm(lowering: Lowering) -> None:
    output, shape = lowering.node.output[0], lowering.shape
    left = lowering.value(0)
    if lowering.attribute("transA", 0):
        left = left.transposed((1, 0))
    bias, beta = None, lowering.attribute("beta", 1.0)
    if lowering.has(2) and lowering.is_constant(2):
        bias = lowering.stored(
            (lowering.constant(2) * np.float32(beta)).astype(np.float32), lowering.node.input[2]
        ).broadcast(shape)
    elif lowering.has(2):
        bias = times(lowering.value(2), beta).broadcast(shape)
    target = lowering.place(output, shape, "float32")
    right = right_factor(lowering, (), lowering.attribute("alpha", 1.0))
    product(lowering, left, target, right, bias)
    lowering.computed(target)


def times(value: Value, factor: float) -> Value:
    """Return a value multiplied by a number."""
    if factor == 1:
        return value
    text = Literal(number_text(factor, "float32"))
    return Value(value.shape, value.dtype, apply("({0} * {1})", 1, value.expression, text))


def product(
    lowering: Lowering, left: Value, target: Value, right: Factor, bias: Value | None
) -> None:
    """Write `left` (..., M, K) times a factor (..., K, N), plus a bias (..., M, N), to `target`."""
    program, name = lowering.program, c_name(lowering.node.output[0])
    result = target
    if not target.in_rows:
        result = program.fresh(name, target.shape, "float32")
    left = _left_factor(lowering, left, f"{name}_left")
    if bias is not None and not bias.in_rows:
        bias = program.keep(bias, f"{name}_bias")
    (m, k), n = left.shape[-2:], target.shape[-1]
    a, c = left.view, result.view
    assert a is not None and c is not None
    operands = [left, result, right.value] + [v for v in (bias, right.scales) if v]
    bias_text = "NULL, 0"
    if bias is not None and bias.view is not None:
        bias_text = f"{{3}}, {bias.view.strides[-2]}"
    sizes = f"{m}, {n}, {k}, {{0}}, {a.strides[-2]}, {a.strides[-1]}"
    into = f"{bias_text}, {{1}}, {c.strides[-2]}"
    if right.is_narrow:
        wide = program.fresh(f"{name}_wide", (*APART, k * min(n, AT_ONCE)), "float32")
        scales = f"{{{len(operands) - 1}}}" if right.scales else "NULL"
        kinds = "{2}, NULL" if right.value.dtype == "int8" else "NULL, {2}"
        call = f"edgefold_product_narrow({sizes}, {kinds}, {scales}, {into}, {{{len(operands)}}});"
        operands.append(wide)
        program.rows(name, left.shape[:-2], operands, call, [result, wide])
    else:
        call = f"edgefold_product({sizes}, {{2}}, {right.row}, {into});"
        if right.column:
            call = f"edgefold_product_columns({sizes}, {{2}}, {right.column}, {into});"
        program.rows(name, left.shape[:-2], operands, call, [result])
    if result is not target:
        program.keep(result, name, target)


def _left_factor(lowering: Lowering, left: Value, name: str) -> Value:
    """Return the left factor in memory, by a copy called `name` if needed.

    If the matrices are computed from transposed ones, the copy is transposed in memory too.
    """
    if left.view:
        return left
    if any(view.strides[-2] == 1 < view.strides[-1] for view in leaves(left.expression)):
        return _turned(lowering.program.keep(_turned(left), name))
    return lowering.program.keep(left, name)


def _turned(matrices: Value) -> Value:
    """Return transposed matrices, which lie in the same memory."""
    rank = len(matrices.shape)
    return matrices.transposed((*range(rank - 2), rank - 1, rank - 2))


def right_factor(lowering: Lowering, batch: Shape, alpha: float) -> Factor:
    """Return the node's second input, times alpha, as right factor of products.

    `batch` is the shape of the axes in front of the matrices.
    """
    name = lowering.node.input[1]
    turned = lowering.node.op_type == "Gemm" and lowering.attribute("transB", 0)
    narrow = lowering.narrow.get(name)
    if narrow is not None and narrow.weights.ndim == 2 and not turned:
        scales = lowering.stored((narrow.scales * np.float32(alpha)).reshape(*APART, -1))
        return Factor(packed_value(lowering, narrow.weights, batch, name), scales=scales)
    if lowering.is_constant(1):
        array = lowering.constant(1)
        if array.dtype != np.float16 or alpha != 1:
            array = array.astype(np.float32) * np.float32(alpha)
        return Factor(packed_value(lowering, array.T if turned else array, batch, name))
    # Memory that other nodes read too is written once for all of them.
    value = lowering.in_memory(1) if lowering.uses[name] > 1 else lowering.value(1)
    value = times(value, alpha)
    value = value.transposed((1, 0)) if turned else value
    kept = f"{c_name(lowering.node.output[0])}_right"
    k, n = value.shape[-2:]
    if n < FEW:
        columns = _turned(value)
        if not columns.in_rows or (n > 1 and columns.view and columns.view.strides[-2] == 0):
            columns = lowering.program.keep(columns, kept)
        assert columns.view is not None
        whole = _turned(columns).broadcast((*batch, k, n))
        return Factor(whole, column=columns.view.strides[-2] or k)
    view = value.view
    if view is None or not value.in_rows or (view.strides[-2] == 0 and k != 1):
        # to products.c, rows 0 apart are packed weights
        value = lowering.program.keep(value, kept)
    assert value.view is not None
    row = value.view.strides[-2] or n
    return Factor(value.broadcast((*batch, k, n)), row)


def packed_value(lowering: Lowering, array: Array, batch: Shape, name: str) -> Value:
    """Store constant matrices (..., K, N) as panels of columns (see `packed`).

    Return their value of shape (*batch, K, N): the leading axes are broadcast to `batch`. `name` is
    their name in the graph.
    """
    k, n = array.shape[-2:]
    matrices = [packed(matrix) for matrix in array.reshape(-1, k, n)]
    buffer = lowering.constants.buffer(np.concatenate(matrices), lowering.reader, name)
    lead = (1,) * (len(batch) + 2 - array.ndim) + array.shape[:-2]
    strides = (*(stride * k * n for stride in row_major(lead)), 0, 0)
    return Value((*batch, k, n), buffer.dtype, View(buffer, 0, strides))


PRODUCTS: dict[str, Rule] = {
    "Gemm": _gemm,
    "MatMul": limited(_matmul, others=("no factor with one axis",)),
}
