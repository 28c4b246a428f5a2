"""Describe the C function that the generator makes for each step graph."""

from __future__ import annotations

from dataclasses import dataclass

from edgefold.export.native.program.arena import ArenaPlan
from edgefold.runtime.bundle.manifest import Graph


@dataclass(frozen=True, slots=True)
class GraphFunction:
    """Holds a step graph as a static C function; see `edgefold.export.native.generator`.

    Attributes:
        graph: The graph in the manifest. The function's arguments are its inputs, then its outputs,
            then the arena: memory for intermediate values, aligned to 64 bytes.
        c_name: Name of the function.
        source: C text of the function.
        arena: Places of its intermediate values in the arena.
    """

    graph: Graph
    c_name: str
    source: str
    arena: ArenaPlan

    @property
    def arena_bytes(self) -> int:
        """Return the number of bytes of the arena that the function needs."""
        return self.arena.n_bytes
