"""The generator makes one C function for each step graph."""

from __future__ import annotations

from dataclasses import dataclass

from edgefold.runtime.bundle.manifest import Graph


@dataclass(frozen=True, slots=True)
class GraphFunction:
    """A step graph as a static C function; see `edgefold.export.native.generator`.

    Attributes:
        graph: The manifest's graph; its inputs, then its outputs, then the arena are the arguments.
        c_name: Name of the function.
        source: Its text.
        arena_bytes: What it needs of the arena, which is aligned to 64 bytes.
    """

    graph: Graph
    c_name: str
    source: str
    arena_bytes: int
