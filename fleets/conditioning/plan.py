"""Split a lake into units, and say in which order their states are folded.

Units hold whole row groups, in the order of the lake. A unit of a model whose states merge is read
on its own; of any other model it goes on from the unit before, so that one process reads all rows
in their order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgefold.fleets.conditioning.job import FoldArgument, ReadArgument, WriteArgument
from edgefold.fleets.conditioning.setup import ConditionSetup, RowSlice
from edgefold.fleets.tables.lake import Lake
from edgefold.fleets.work.unit import WorkUnit, folds
from edgefold.runtime.hashing import sha256

FAN_IN = 8
"""The number of results that a fold reads. More of them lie on the disk at once, less are written
twice."""
WRITTEN = "written"
VERSION = 1
"""The number of the way in which points become states; unfinished work of another one is refused.
"""


@dataclass(frozen=True, slots=True)
class ConditionPlan:
    """Holds the units of a plan.

    Attributes:
        units: The units; the last one writes the snapshots.
        n_read: The number of units that read rows.
        merges: Whether units are read on their own and folded.
    """

    units: tuple[WorkUnit, ...]
    n_read: int
    merges: bool


def slices_of(lake: Lake, unit_rows: int) -> list[tuple[RowSlice, ...]]:
    """Return the rows of each unit: whole row groups of at least `unit_rows` rows together.

    Args:
        lake: The files.
        unit_rows: The number of rows that end a unit.
    """
    units: list[tuple[RowSlice, ...]] = []
    parts, n = list[RowSlice](), 0
    for file in lake.files:
        first = 0
        for i, rows in enumerate(file.row_groups):
            n += rows
            if n >= unit_rows:
                units.append((*parts, RowSlice(file, first, i + 1)))
                parts, n, first = [], 0, i + 1
        if first < len(file.row_groups):
            parts.append(RowSlice(file, first, len(file.row_groups)))
    return [*units, tuple(parts)] if parts or not units else units


def plan_of(lake: Lake, unit_rows: int, merges: bool, folder: Path) -> ConditionPlan:
    """Return the units for a lake.

    Args:
        lake: The files.
        unit_rows: The number of rows that end a unit.
        merges: Whether the states of the model merge.
        folder: Where the snapshots are written.
    """
    units, names = list[WorkUnit](), list[str]()
    for i, parts in enumerate(slices_of(lake, unit_rows)):
        before = None if merges or not names else names[-1]
        name = f"read-{i:06}"
        n_rows = sum(part.stop - part.start for part in parts)
        argument, after = ReadArgument(parts, before), () if before is None else (before,)
        units.append(WorkUnit(name, argument, _words(parts), after, n_rows, is_remote=merges))
        names.append(name)
    last, n_read = names[-1], len(units)
    for level in folds(names, FAN_IN) if merges else ():
        for name, parts_of in level:
            words = f"the fold of {parts_of[0]} to {parts_of[-1]}"
            units.append(WorkUnit(name, FoldArgument(parts_of), words, parts_of))
            last = name
    words = "the writing of the snapshots"
    units.append(WorkUnit(WRITTEN, WriteArgument(last, folder), words, (last,)))
    return ConditionPlan(tuple(units), n_read, merges)


def _words(parts: Sequence[RowSlice]) -> str:
    if not parts:
        return "no rows"
    return parts[0].words if len(parts) == 1 else f"{parts[0].words} and what follows"


def facts_of(setup: ConditionSetup, lake: Lake, unit_rows: int) -> dict[str, str]:
    """Return what the results of a plan depend on, as texts by subject.

    The paths of the files are not among them: the lake may move between two runs.
    """
    files = [
        [file.identity, list(file.row_groups), sorted(file.values.items())] for file in lake.files
    ]
    return {
        "bundle": setup.bundle_hash,
        "files": sha256(json.dumps(files).encode()).hexdigest(),
        "x": json.dumps(setup.x),
        "y": json.dumps(setup.y),
        "by": json.dumps(setup.by),
        "filter": setup.filter or "",
        "skip-bad": str(setup.skip_bad),
        "unit-rows": str(unit_rows),
        "backend": f"{setup.backend} {setup.backend_version}",
        "version": f"{VERSION}.{FAN_IN}.{setup.window_rows}",
    }
