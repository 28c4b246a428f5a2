"""Turn ONNX operators into C that compute each element from those at the same place."""

from __future__ import annotations

from functools import reduce

import numpy as np

from edgefold.export.native.program.c_words import C_TYPES
from edgefold.export.native.program.constants import number_text
from edgefold.export.native.program.limits import limited
from edgefold.export.native.program.lowering import (
    FREE,
    Lowering,
    NarrowWeights,
    Rule,
    c_name,
    elementwise,
)
from edgefold.export.native.program.values import Expression, Literal, Value, apply
from edgefold.runtime.arrays import Array

DEAR, FUNCTION = 4, 10
"""Costs of a division or root (DEAR) and of a function such as exp (FUNCTION), in additions."""


def _chain(template: str) -> Rule:
    """Return the rule that joins any number of arguments in turn by C text, as "({0} + {1})"."""

    def rule(lowering: Lowering) -> None:
        shape = lowering.shape
        values = [lowering.value(i).broadcast(shape) for i in range(len(lowering.node.input))]
        terms: list[Expression] = [value.expression for value in values]
        joined = reduce(lambda a, b: apply(template, 1, a, b), terms)
        lowering.define(Value(shape, lowering.dtype, joined))

    return rule


_above, _below = _chain("edgefold_above({0}, {1})"), _chain("edgefold_below({0}, {1})")


def _by_type(whole: Rule, floats: Rule) -> Rule:
    def rule(lowering: Lowering) -> None:
        (floats if lowering.dtype.startswith("float") else whole)(lowering)

    return rule


def _wrapping(operator: str) -> Rule:
    """Return the rule of +, - or *, whose integers wrap as in onnxruntime (unsigned in C)."""
    wrapped = integers(f"((uint64_t){{0}} {operator} (uint64_t){{1}})", 1)
    return _by_type(wrapped, elementwise(f"({{0}} {operator} {{1}})", 1))


def integers(template: str, cost: int) -> Rule:
    """Return a rule that computes integers in 64 bits by C text as "edgefold_abs_int({0})".

    The result is converted to the node's type; `cost` is counted in additions.
    """

    def rule(lowering: Lowering) -> None:
        elementwise(f"(({C_TYPES[lowering.dtype]}){template})", cost)(lowering)

    return rule


def _clip(lowering: Lowering) -> None:
    value = lowering.value(0)
    expression = value.expression
    for index, template in ((1, "edgefold_max({0}, {1})"), (2, "edgefold_min({0}, {1})")):
        if lowering.has(index):
            bound = lowering.value(index).broadcast(value.shape).expression
            expression = apply(_of_type(template, value.dtype), 1, expression, bound)
    lowering.define(Value(value.shape, value.dtype, expression))


def _of_type(template: str, dtype: str) -> str:
    """Return a C template, for an integer type with `_int` at the end of its function's name."""
    return template if dtype.startswith("float") else template.replace("(", "_int(", 1)


def _extreme(name: str) -> Rule:
    def rule(lowering: Lowering) -> None:
        _chain(_of_type(f"edgefold_{name}({{0}}, {{1}})", lowering.dtype))(lowering)

    return rule


def _pow(lowering: Lowering) -> None:
    base = lowering.value(0)
    exponent = lowering.arrays.get(lowering.node.input[1])
    number = exponent.reshape(-1)[0] if exponent is not None and exponent.size == 1 else None
    if number == 2:
        base = base if base.cost <= 0 else lowering.in_memory(0)
        term = base.broadcast(lowering.shape).expression
        lowering.define(Value(lowering.shape, base.dtype, apply("({0} * {1})", 1, term, term)))
    elif number == 0.5:
        term = base.broadcast(lowering.shape).expression
        lowering.define(Value(lowering.shape, base.dtype, apply("sqrtf({0})", DEAR, term)))
    elif exponent is not None and np.all((np.abs(exponent) < 16) & (exponent == exponent // 1)):
        elementwise("edgefold_whole_pow({0}, {1})", FUNCTION)(lowering)
    elif (constant := lowering.arrays.get(lowering.node.input[0])) is not None and np.all(
        (constant > 0) & (constant < np.inf) & (constant != 1)
    ):
        _power_of_constant(lowering, constant)
    else:
        elementwise("edgefold_pow({0}, {1})", 4 * FUNCTION)(lowering)


def _power_of_constant(lowering: Lowering, base: Array) -> None:
    """Lower a power of positive constants but 1, whose logarithms are constants, too."""
    logarithm = np.log2(base.astype(np.float64))
    first = (logarithm.astype(np.float32).view(np.uint32) & 0xFFFFF000).view(np.float32)
    parts = (first, (logarithm - first).astype(np.float32))
    exponent = lowering.value(1)
    if exponent.cost > FREE and exponent.size < np.prod(lowering.shape):
        exponent = lowering.in_memory(1)
    values = [exponent, *(lowering.of_array(part) for part in parts)]
    terms = [value.broadcast(lowering.shape).expression for value in values]
    power = apply("edgefold_power_of({0}, {1}, {2})", 2 * FUNCTION, *terms)
    lowering.define(Value(lowering.shape, lowering.dtype, power))


def _divide(lowering: Lowering) -> None:
    """Lower a division of floats; by a constant, as a product, which takes a tenth of the time."""
    divisor = lowering.arrays.get(lowering.node.input[1])
    number = divisor.item() if divisor is not None and divisor.size == 1 else 0.0
    if not 1e-30 < abs(number) < 1e30:
        elementwise("({0} / {1})", DEAR)(lowering)
        return
    value = lowering.value(0).broadcast(lowering.shape)
    text = Literal(number_text(1 / number, value.dtype))
    product = apply("({0} * {1})", 1, value.expression, text)
    lowering.define(Value(value.shape, value.dtype, product))


def _cast(lowering: Lowering) -> None:
    value, dtype = lowering.value(0), lowering.dtype
    if dtype == value.dtype:
        lowering.define(value)
        return
    if dtype == "int64" and value.dtype == "float64":
        raise lowering.refuse("it makes int64 of float64")
    template = "({0} != 0)" if dtype == "bool" else f"(({C_TYPES[dtype]})({{0}}))"
    if dtype == "int64" and value.dtype.startswith("float"):
        template = "edgefold_to_int({0})"
    lowering.define(Value(value.shape, dtype, apply(template, 1, value.expression)))


def _wave(name: str) -> Rule:
    """Return the rule of "sin" or "cos", which one call computes for all elements.

    Large arguments are computed in another way than small ones.
    """

    def rule(lowering: Lowering) -> None:
        output, value = lowering.node.output[0], lowering.value(0)
        result = lowering.place(output, value.shape, value.dtype)
        if not result.is_row_major:
            result = lowering.program.fresh(c_name(output), value.shape, value.dtype)
        lowering.program.keep(value, c_name(output), result)
        call = f"edgefold_{name}_all({{0}}, {result.size});"
        lowering.program.rows(c_name(output), (), [result], call, [result])
        lowering.define(result)

    return rule


def _quantize(lowering: Lowering) -> None:
    value = lowering.value(0)
    if lowering.dtype not in ("int8", "uint8"):
        raise lowering.refuse(f"it makes {lowering.dtype}")
    low, high = {"int8": (-128, 127), "uint8": (0, 255)}[lowering.dtype]
    scale, zero = (_along_axis(lowering, index, value) for index in (1, 2))
    steps = apply("edgefold_round({0} / {1})", DEAR, value.expression, scale)
    shifted = apply("({0} + (float)({1}))", 1, steps, zero)
    clipped = apply(
        f"(({C_TYPES[lowering.dtype]})edgefold_min(edgefold_max({{0}}, {low}.0f), {high}.0f))",
        3,
        shifted,
    )
    lowering.define(Value(value.shape, lowering.dtype, clipped))


def _dequantize(lowering: Lowering) -> None:
    if all(lowering.is_constant(index) for index in range(len(lowering.node.input))):
        array, scale = lowering.constant(0), lowering.constant(1)
        zero = lowering.constant(2) if lowering.has(2) else np.zeros((), array.dtype)
        axis = lowering.attribute("axis", 1)
        scale = scale.reshape(()) if scale.size == 1 else scale
        lead = (-1,) + (1,) * (array.ndim - 1 - axis % array.ndim) if scale.ndim else ()
        numbers = (
            array.astype(np.float32) - zero.astype(np.float32).reshape(lead)
        ) * scale.reshape(lead)
        name = lowering.node.output[0]
        lowering.arrays[name] = numbers.astype(np.float32)
        by_column = scale.ndim == 0 or (scale.ndim == 1 and axis % array.ndim == array.ndim - 1)
        if array.dtype == np.int8 and array.ndim and by_column and not zero.any():
            scales = np.broadcast_to(scale.astype(np.float32), array.shape[-1])
            lowering.narrow[name] = NarrowWeights(array, scales)
        return
    value = lowering.value(0)
    scale_text, zero_text = (_along_axis(lowering, index, value) for index in (1, 2))
    made_text = apply("((float)({0} - {1}) * {2})", 3, value.expression, zero_text, scale_text)
    lowering.define(Value(value.shape, "float32", made_text))


def _along_axis(lowering: Lowering, index: int, value: Value) -> Expression:
    """Return input number `index`, a scale or a zero point, broadcast to the shape of `value`.

    A vector lies along the axis that the node names; an input that is left out is 0.
    """
    if not lowering.has(index):
        return Literal("0")
    array = lowering.constant(index)
    if array.size == 1:
        return Literal(number_text(array.reshape(-1)[0], array.dtype.name))
    axis = lowering.attribute("axis", 1) % len(value.shape)
    lead = (-1,) + (1,) * (len(value.shape) - 1 - axis)
    return lowering.of_array(array.reshape(lead)).broadcast(value.shape).expression


def _mod(lowering: Lowering) -> None:
    if lowering.dtype.startswith("float"):
        elementwise("fmodf({0}, {1})", FUNCTION)(lowering)
    elif lowering.attribute("fmod", 0):
        raise lowering.refuse("its attribute fmod is 1")
    else:
        elementwise("edgefold_mod_i64({0}, {1})", DEAR)(lowering)


ELEMENTWISE: dict[str, Rule] = {
    "Above": _by_type(integers("edgefold_max_int({0}, {1})", 1), _above),
    "Abs": _by_type(integers("edgefold_abs_int({0})", 1), elementwise("fabsf({0})", 1)),
    "Add": _wrapping("+"),
    "And": elementwise("((int){0} & (int){1})", 1),
    "Below": _by_type(integers("edgefold_min_int({0}, {1})", 1), _below),
    "Cast": limited(_cast, others=("no int64 of float64",)),
    "Clip": _clip,
    "DequantizeLinear": limited(_dequantize, constants=(1, 2), block_size=(0,)),
    "Div": _by_type(integers("edgefold_div_int({0}, {1})", DEAR), _divide),
    "Equal": elementwise("({0} == {1})", 1),
    "Greater": elementwise("({0} > {1})", 1),
    "GreaterOrEqual": elementwise("({0} >= {1})", 1),
    "Less": elementwise("({0} < {1})", 1),
    "LessOrEqual": elementwise("({0} <= {1})", 1),
    "Max": _extreme("max"),
    "Min": _extreme("min"),
    "Mod": limited(_mod, others=("integers: fmod=0",)),
    "Mul": _wrapping("*"),
    "Neg": _by_type(integers("(0 - (uint64_t){0})", 1), elementwise("(-{0})", 1)),
    "Not": elementwise("(!{0})", 1),
    "Or": elementwise("((int){0} | (int){1})", 1),
    "Relu": _by_type(
        elementwise("edgefold_max_int({0}, 0)", 1), elementwise("edgefold_max({0}, 0.0f)", 1)
    ),
    "Sign": _by_type(
        elementwise("edgefold_min_int(edgefold_max_int({0}, -1), 1)", 1),
        elementwise("edgefold_sign({0})", 1),
    ),
    "Sub": _wrapping("-"),
    "Sum": _chain("({0} + {1})"),
    # A function, so that both numbers are read whatever is chosen: loops then become vector code.
    "Where": _by_type(
        elementwise("edgefold_where_int({0}, {1}, {2})", 1),
        elementwise("edgefold_where({0}, {1}, {2})", 1),
    ),
    "Xor": elementwise("({0} ^ {1})", 1),
}
"""Rules of operators that are computed in single precision and in whole numbers of 64 bits."""

FUNCTIONS: dict[str, Rule] = {
    "Ceil": elementwise("ceilf({0})", 1),
    "Cos": _wave("cos"),
    "Erf": elementwise("edgefold_erf({0})", FUNCTION),
    "Exp": elementwise("edgefold_exp({0})", FUNCTION),
    "Floor": elementwise("edgefold_floor({0})", 1),
    "IsInf": limited(
        elementwise("(isinf({0}) != 0)", 1), detect_negative=(1,), detect_positive=(1,)
    ),
    "IsNaN": elementwise("(isnan({0}) != 0)", 1),
    "Log": elementwise("edgefold_log({0})", FUNCTION),
    "Pow": _pow,
    "QuantizeLinear": limited(
        _quantize, constants=(1, 2), block_size=(0,), others=("only to int8 and uint8",)
    ),
    "Reciprocal": elementwise("(1.0f / {0})", DEAR),
    "Round": elementwise("edgefold_round({0})", 1),
    "Sigmoid": elementwise("edgefold_sigmoid({0})", FUNCTION),
    "Sin": _wave("sin"),
    "Softplus": elementwise("edgefold_softplus({0})", 2 * FUNCTION),
    "Sqrt": elementwise("sqrtf({0})", DEAR),
    "Tanh": elementwise("edgefold_tanh({0})", FUNCTION),
}
"""Rules of operators that are computed in single precision only."""
