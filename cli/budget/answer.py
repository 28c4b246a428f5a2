"""Hold a bundle against a board with Linux, or, written as C, against a microcontroller."""

from __future__ import annotations

import re
from pathlib import Path

from edgefold.devices.boards.board import Board, Microcontroller
from edgefold.devices.budget.budget import Budget, Demand, judge
from edgefold.devices.budget.microcontroller import (
    CSizes,
    MicrocontrollerBudget,
    judge_microcontroller,
)
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import ExportError


def answer(
    manifest: Manifest,
    profile: Board | Microcontroller,
    demand: Demand,
    sizes: CSizes | None,
) -> Budget | MicrocontrollerBudget:
    """Hold a bundle against a board or a microcontroller."""
    if isinstance(profile, Board):
        return judge(manifest, profile, demand)
    return judge_microcontroller(manifest, profile, demand, sizes)


def sizes_as_c(bundle: Path) -> CSizes | None:
    """Return what the bundle needs as C; None where it cannot be written here."""
    try:
        from edgefold.export.native.generator import generate

        native = generate(bundle)
    except (ImportError, ExportError):  # the base install; an operator that is not covered
        return None
    stream = re.search(r"_RAM_BYTES \((\d+) \+", native.header)
    assert stream, "the header tells the size of the stream"
    return CSizes(int(stream[1]) + native.arena_bytes, native.arena_bytes, native.weight_bytes)
