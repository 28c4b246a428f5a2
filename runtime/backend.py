"""The seam between a stream and what computes: a backend owns memory and runs graphs on it.

`Stream` owns the state's meaning: which buffer is current and when to swap. A backend knows nothing
of that. It gives out memory of two kinds, so that the same stream drives a CPU and a GPU:

    staging     host arrays that the caller's points go into and predictions come out of
    resident    where the graphs run: state and memory, never seen by the host between steps

A backend is chosen by name; `auto` takes the first of `ORDER` that opens and reports why the others
did not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edgefold.runtime.buffers import Array
from edgefold.runtime.errors import BackendError
from edgefold.runtime.manifest import Graph, Manifest, StateTensor

STAGED = ("points.x", "points.y", "points.mask", "targets.x", "prediction", "check")
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


class Resident(Protocol):
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

    def staging(self, graph: Graph) -> dict[str, Array]:
        """Host arrays of a graph's staged tensors, by tensor name, zeroed; asked for once."""

    def resident(self, tensor: StateTensor) -> Resident:
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


Opener = Callable[[Manifest, int, EngineOptions], Backend]


def _open_onnxruntime(manifest: Manifest, threads: int, engine: EngineOptions) -> Backend:
    from edgefold.runtime.onnxruntime_backend import OnnxRuntimeBackend

    return OnnxRuntimeBackend(manifest, threads)


def _open_tensorrt(manifest: Manifest, threads: int, engine: EngineOptions) -> Backend:
    from edgefold.runtime.tensorrt.cuda_driver import CudaDriver

    driver = CudaDriver.open()
    from edgefold.runtime.tensorrt.backend import TensorRtBackend

    return TensorRtBackend(manifest, driver, engine)


def _open_cuda_provider(manifest: Manifest, threads: int, engine: EngineOptions) -> Backend:
    from edgefold.runtime.onnxruntime_gpu import open_provider

    return open_provider("onnxruntime-cuda", manifest, threads, engine)


def _open_tensorrt_provider(manifest: Manifest, threads: int, engine: EngineOptions) -> Backend:
    from edgefold.runtime.onnxruntime_gpu import open_provider

    return open_provider("onnxruntime-tensorrt", manifest, threads, engine)


OPENERS: dict[str, Opener] = {
    "tensorrt": _open_tensorrt,
    "onnxruntime": _open_onnxruntime,
    "onnxruntime-cuda": _open_cuda_provider,
    "onnxruntime-tensorrt": _open_tensorrt_provider,
}
ORDER = ("tensorrt", "onnxruntime")
"""What `auto` tries, best first."""


def open_backend(
    name: str, manifest: Manifest, threads: int, engine: EngineOptions
) -> tuple[Backend, dict[str, Any]]:
    """Open a backend by name, or the best one that opens for "auto".

    Returns:
        The backend, and a report: asked, name, device, version, and refused (name: reason).

    Raises:
        BackendError: The named backend, or with "auto" every one, does not open.
    """
    if not isinstance(name, str) or name not in ("auto", *OPENERS):
        raise BackendError(
            f"backend {name!r} is unknown; choose one of: auto, {', '.join(OPENERS)}."
        )
    n_processors = os.cpu_count() or 1
    if type(threads) is not int or not 1 <= threads <= n_processors:
        raise BackendError(
            f"threads is {threads!r}; give 1 to {n_processors}, this machine's processors."
        )
    refused: dict[str, str] = {}
    for candidate in ORDER if name == "auto" else (name,):
        try:
            backend = OPENERS[candidate](manifest, threads, engine)
        except BackendError as error:
            refused[candidate] = str(error)
            continue
        return backend, {"asked": name, **backend.report(), "refused": refused}
    reasons = "; ".join(f"{candidate}: {reason}" for candidate, reason in refused.items())
    raise BackendError(f"no backend opened {manifest.path}: {reasons}")
