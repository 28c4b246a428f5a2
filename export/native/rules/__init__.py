"""Collect the rules by which ONNX operators become C, by operator."""

from __future__ import annotations

from edgefold.export.native.program.limits import LimitedRule, limits_of
from edgefold.export.native.program.lowering import Lowering, Rule
from edgefold.export.native.rules.activations import ACTIVATIONS
from edgefold.export.native.rules.elementwise import ELEMENTWISE, FUNCTIONS
from edgefold.export.native.rules.moving import MOVING
from edgefold.export.native.rules.products import PRODUCTS
from edgefold.export.native.rules.recurrent import RECURRENT
from edgefold.export.native.rules.reductions import MEANS, REDUCTIONS
from edgefold.export.native.rules.selecting import SELECTING, SORTING
from edgefold.export.native.rules.signals import SIGNALS
from edgefold.export.native.rules.windows import WINDOWS

SINGLE = ACTIVATIONS | FUNCTIONS | MEANS | PRODUCTS | RECURRENT | SIGNALS | SORTING | WINDOWS
"""Operators that are computed in single precision only."""
NUMBERS = (ELEMENTWISE | REDUCTIONS).keys() - {"Cast"}
"""Operators that are computed in single precision or in signed integers of 64 bits."""
WIDE = {"float64", "uint64"}


def types_of(operator: str) -> str:
    """Return words for the element types for which an operator has C code."""
    if operator in SINGLE:
        return "float32"
    return "float32, bool, integers but uint64" if operator in NUMBERS else "all"


def _typed(operator: str, rule: Rule) -> Rule:
    """Return `rule` with a check that refuses element types for which `operator` has no C code."""

    def checked(lowering: Lowering) -> None:
        names = lowering.node.input[0], *filter(None, lowering.node.output)
        dtype, *results = (lowering.dtypes[name].name for name in names)
        wide = operator in NUMBERS and {dtype, *results} & WIDE
        if wide or (operator in SINGLE and dtype != "float32"):
            raise lowering.refuse(f"it takes {dtype} and gives {', '.join(results)}")
        rule(lowering)

    return LimitedRule(checked, limits_of(rule))


RULES: dict[str, Rule] = {
    operator: _typed(operator, rule) if operator in SINGLE.keys() | NUMBERS else rule
    for operator, rule in (SINGLE | ELEMENTWISE | REDUCTIONS | MOVING | SELECTING).items()
}
"""Rule of every operator that native code covers; CONTRIBUTING.md says how to add one."""
