"""Report each piece of work of a backend before it begins, so that a crash can be located.

A parent process that waits for this one learns from the last report where it ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgefold.runtime.backends.base import Backend, BoundStep, DeviceBuffer, Watch

if TYPE_CHECKING:
    from edgefold.runtime.bundle.manifest import Graph


class WatchedBackend:
    """Wraps a backend, and calls `watch` before a graph is bound or runs.

    `watch` gets "bind" or "run", and the name of the graph. All other members are those of the
    wrapped backend.
    """

    def __init__(self, backend: Backend, watch: Watch):
        self._backend, self._watch = backend, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def bind(self, graph: Graph, placed: Mapping[str, DeviceBuffer]) -> BoundStep:
        watch = self._watch
        watch("bind", graph.name)
        bound = self._backend.bind(graph, placed)

        def step() -> None:
            watch("run", graph.name)
            bound()

        return step
