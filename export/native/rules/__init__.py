"""The rules of ONNX operators, by operator."""

from __future__ import annotations

from edgefold.export.graphs.operators import having
from edgefold.export.native.program.lowering import Lowering, Rule
from edgefold.export.native.rules.elementwise import ELEMENTWISE
from edgefold.export.native.rules.moving import MOVING
from edgefold.export.native.rules.products import PRODUCTS
from edgefold.export.native.rules.reductions import REDUCTIONS
from edgefold.export.native.rules.selecting import SELECTING
from edgefold.export.native.rules.signals import SIGNALS

SINGLE = having("float32") | {*PRODUCTS, *SIGNALS}
"""Operators that are computed in single precision alone."""
NUMBERS = {*ELEMENTWISE, *REDUCTIONS} - {"Cast"}
"""Operators that are computed in single precision or in signed integers of 64 bits."""
WIDE = {"float64", "uint64"}


def _typed(operator: str, rule: Rule) -> Rule:
    """The rule, for the types that its operator is computed in."""

    def checked(lowering: Lowering) -> None:
        names = lowering.node.input[0], *filter(None, lowering.node.output)
        given, *made = (lowering.dtypes[name].name for name in names)
        wide = operator in NUMBERS and {given, *made} & WIDE
        if wide or (operator in SINGLE and given != "float32"):
            raise lowering.refuse(f"it takes {given} and gives {', '.join(made)}")
        rule(lowering)

    return checked


RULES: dict[str, Rule] = {
    operator: _typed(operator, rule) if operator in SINGLE | NUMBERS else rule
    for rules in (ELEMENTWISE, MOVING, PRODUCTS, REDUCTIONS, SELECTING, SIGNALS)
    for operator, rule in rules.items()
}
"""Every operator that native code covers; CONTRIBUTING.md says how to add one."""
