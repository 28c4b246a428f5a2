"""Turn activation functions that have numbers of their own into C, element by element."""

from __future__ import annotations

import math

from edgefold.export.native.program.constants import number_text
from edgefold.export.native.program.limits import limited
from edgefold.export.native.program.lowering import Lowering, Rule, elementwise

FUNCTION = 10
"""Cost of a function such as exp, in additions."""


def _by_attributes(template: str, cost: int, **defaults: float) -> Rule:
    """Return the rule of a function whose C text names attributes of the node as %(alpha)s.

    `{0}` stands for the element, `defaults` are ONNX's values of attributes that are left out.
    """

    def rule(lowering: Lowering) -> None:
        numbers = {name: lowering.attribute(name, value) for name, value in defaults.items()}
        texts = {name: number_text(number, "float32") for name, number in numbers.items()}
        elementwise(template % texts, cost)(lowering)

    return rule


def _gelu(lowering: Lowering) -> None:
    root = number_text(math.sqrt(0.5), "float32")
    inner = f"edgefold_erf({{0}} * {root})"
    if lowering.attribute("approximate", "none") == "tanh":
        slope = number_text(math.sqrt(2 / math.pi), "float32")
        inner = f"edgefold_tanh({slope} * ({{0}} + 0.044715f * {{0}} * {{0}} * {{0}}))"
    elementwise(f"(0.5f * {{0}} * (1.0f + {inner}))", FUNCTION)(lowering)


ACTIVATIONS: dict[str, Rule] = {
    # NaN is not below 0 and passes everywhere.
    "Celu": _by_attributes(
        "edgefold_where(({0} < 0.0f), %(alpha)s * edgefold_elu({0} / %(alpha)s), {0})",
        FUNCTION + 5,
        alpha=1.0,
    ),
    "Elu": _by_attributes(
        "edgefold_where(({0} < 0.0f), %(alpha)s * edgefold_elu({0}), {0})", FUNCTION, alpha=1.0
    ),
    "Gelu": limited(_gelu, approximate=("none", "tanh")),
    "HardSigmoid": _by_attributes(
        "edgefold_min(edgefold_max(%(alpha)s * {0} + %(beta)s, 0.0f), 1.0f)",
        4,
        alpha=0.2,
        beta=0.5,
    ),
    "HardSwish": elementwise(
        "({0} * edgefold_min(edgefold_max({0} / 6.0f + 0.5f, 0.0f), 1.0f))", 8
    ),
    "LeakyRelu": _by_attributes(
        "edgefold_where(({0} < 0.0f), %(alpha)s * {0}, {0})", 2, alpha=0.01
    ),
    "Mish": elementwise("({0} * edgefold_tanh(edgefold_softplus({0})))", 3 * FUNCTION),
    "PRelu": elementwise("edgefold_where(({0} < 0.0f), {1} * {0}, {0})", 2),
    "Selu": _by_attributes(
        "(%(gamma)s * edgefold_where(({0} < 0.0f), %(alpha)s * edgefold_elu({0}), {0}))",
        FUNCTION,
        alpha=1.6732632,
        gamma=1.0507010,
    ),
    "Softsign": elementwise("({0} / (1.0f + fabsf({0})))", 5),
}
"""Rules of operators that are computed in single precision only."""
