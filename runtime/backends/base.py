"""The seam between a stream and what computes: a backend owns memory and runs graphs on it.

`Stream` owns the state's meaning: which buffer is current and when to swap. A backend knows nothing
of that. It gives out memory of two kinds, so that the same stream drives a CPU and a GPU:

    staging     host arrays that the caller's points go into and predictions come out of
    resident    where the graphs run: state and memory, never seen by the host between steps
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edgefold.runtime.arrays import Array
from edgefold.runtime.manifest import Graph, StateTensor

STAGED = ("points.x", "points.y", "points.mask", "targets.x", "prediction", "finite")
"""Roles of the tensors that the host writes or reads at every step."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How TensorRT builds and runs; other backends have nothing to build and ignore it.

    Attributes:
        cache: Folder of built engines; None is `EngineCache`'s own.
        workspace_bytes: The most scratch memory that a layer may ask for while engines are built.
        optimization_level: 0 (quick, small) to 5; None is TensorRT's own default.
        cuda_graphs: Launch each step as one captured CUDA graph.
        progress: Called with a line before each build, which may take minutes on a board.
    """

    cache: Path | None = None
    workspace_bytes: int | None = None
    optimization_level: int | None = None
    cuda_graphs: bool = True
    progress: Callable[[str], None] | None = None


class BoundStep(Protocol):
    """A graph bound to buffers for good; calling it computes the outputs in place."""

    def __call__(self) -> None:
        """Run the graph once; when it returns, staged outputs are on the host.

        Raises:
            BackendError: The graph failed; outputs are undefined, inputs untouched.
        """


class DeviceBuffer(Protocol):
    """One tensor's memory where the graphs run."""

    @property
    def nbytes(self) -> int:
        """Its size."""

    def read(self) -> Array:
        """A copy on the host; raises BackendError."""

    def write(self, values: Array) -> None:
        """Overwrite it with an array that broadcasts to its shape; raises BackendError."""


class Backend(Protocol):
    """Opens a bundle's graphs, gives out memory, binds graphs to it."""

    name: str

    def report(self) -> dict[str, Any]:
        """What really runs: backend, device, version."""

    def allocate_host(self, graph: Graph) -> dict[str, Array]:
        """Host arrays of a graph's staged tensors, by tensor name, zeroed; asked for once."""

    def allocate_device(self, tensor: StateTensor) -> DeviceBuffer:
        """Memory for one state or memory tensor; its content is undefined."""

    def bind(self, graph: Graph, placed: Mapping[str, Any]) -> BoundStep:
        """A callable that runs `graph`; placed are its resident tensors by tensor name.

        Binding may run the graph once, so it comes before the state is given its first values.
        """

    def close(self) -> None:
        """Release everything; idempotent.

        Raises:
            BackendError: Something could not be released; everything else was.
        """
