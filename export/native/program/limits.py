"""State what a rule demands of a node besides its types, and refuse nodes that are otherwise.

The table of operators in docs/native.md is made of the same limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefold.export.native.program.lowering import Lowering, Rule


@dataclass(frozen=True, slots=True)
class Limits:
    """Holds the forms of a node that a rule covers.

    Attributes:
        attributes: The values of an attribute that are covered, by its name; the first is ONNX's
            default. Attributes that are not here may have any value.
        constants: Numbers of the inputs that must be constant.
        absent: Numbers of the inputs that must be left out.
        n_outputs: Number of outputs, from the first on, that the rule gives; None for all.
        others: What the rule itself refuses, in words.
    """

    attributes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    constants: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    n_outputs: int | None = None
    others: tuple[str, ...] = ()

    def require(self, lowering: Lowering) -> None:
        """Raise UncoveredError if the lowering's node is not within the limits."""
        for name, values in self.attributes.items():
            setting = lowering.attribute(name, values[0])
            if setting not in values:
                raise lowering.refuse(f"its attribute {name} is {setting!r}")
        for index in filter(lowering.has, self.constants):
            lowering.constant(index)
        for index in filter(lowering.has, self.absent):
            raise lowering.refuse(f"it has input {lowering.node.input[index]!r}, number {index}")
        if self.n_outputs is not None and any(lowering.node.output[self.n_outputs :]):
            raise lowering.refuse(f"it gives more than {self.n_outputs} of its outputs")


@dataclass(frozen=True, slots=True)
class LimitedRule:
    """Is a rule that lowers only nodes within its limits."""

    rule: Rule
    limits: Limits

    def __call__(self, lowering: Lowering) -> None:
        self.limits.require(lowering)
        self.rule(lowering)


def limited(
    rule: Rule,
    *,
    constants: tuple[int, ...] = (),
    absent: tuple[int, ...] = (),
    n_outputs: int | None = None,
    others: tuple[str, ...] = (),
    **attributes: tuple[Any, ...],
) -> LimitedRule:
    """Return a rule with limits; see `Limits`, whose `attributes` are the further arguments."""
    return LimitedRule(rule, Limits(attributes, constants, absent, n_outputs, others))


def limits_of(rule: Rule) -> Limits:
    """Return the limits of a rule; one without any has those that refuse nothing."""
    return rule.limits if isinstance(rule, LimitedRule) else Limits()
