"""The rules of ONNX operators, by operator."""

from __future__ import annotations

from edgefold.export.native.lowering import Rule
from edgefold.export.native.rules.elementwise import ELEMENTWISE
from edgefold.export.native.rules.moving import MOVING
from edgefold.export.native.rules.products import PRODUCTS
from edgefold.export.native.rules.reductions import REDUCTIONS
from edgefold.export.native.rules.selecting import SELECTING
from edgefold.export.native.rules.signals import SIGNALS

RULES: dict[str, Rule] = ELEMENTWISE | MOVING | PRODUCTS | REDUCTIONS | SELECTING | SIGNALS
"""Every operator that native code covers; CONTRIBUTING.md says how to add one."""
