"""Report what a backend is about to do, to a process that waits for this one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgefold.runtime.backends.base import Backend, BoundStep, DeviceBuffer, Watch

if TYPE_CHECKING:
    from edgefold.runtime.bundle.manifest import Graph


class WatchedBackend:
    """A backend that reports before a graph runs; all other members are the wrapped backend's."""

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
