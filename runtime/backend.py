"""The seam between a stream and what computes: a backend runs a graph on bound buffers.

`Stream` owns the state, decides which buffer is current and when to swap; a backend knows nothing
of it. A backend is chosen by name; `auto` takes the first of `ORDER` that opens and reports why the
others did not.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from edgefold.runtime.buffers import Array
from edgefold.runtime.errors import BackendError
from edgefold.runtime.manifest import Graph, Manifest


class BoundStep(Protocol):
    """A graph bound to buffers for good; calling it computes the outputs in place."""

    def __call__(self) -> None:
        """Run the graph once.

        Raises:
            BackendError: The graph failed; outputs are undefined, inputs untouched.
        """


class Backend(Protocol):
    """Opens a bundle's graphs and binds them to buffers."""

    name: str

    def report(self) -> dict[str, Any]:
        """What really runs: backend, device, version."""

    def bind(self, graph: Graph, buffers: Mapping[str, Array]) -> BoundStep:
        """A callable that runs `graph` on the given buffers, by tensor name."""

    def close(self) -> None:
        """Release everything; idempotent."""


def _open_onnxruntime(manifest: Manifest, threads: int) -> Backend:
    from edgefold.runtime.onnxruntime_backend import OnnxRuntimeBackend

    return OnnxRuntimeBackend(manifest, threads)


OPENERS: dict[str, Callable[[Manifest, int], Backend]] = {"onnxruntime": _open_onnxruntime}
ORDER = ("onnxruntime",)
"""What `auto` tries, best first."""


def open_backend(name: str, manifest: Manifest, threads: int) -> tuple[Backend, dict[str, Any]]:
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
            backend = OPENERS[candidate](manifest, threads)
        except BackendError as error:
            refused[candidate] = str(error)
            continue
        return backend, {"asked": name, **backend.report(), "refused": refused}
    reasons = "; ".join(f"{candidate}: {reason}" for candidate, reason in refused.items())
    raise BackendError(f"no backend opened {manifest.path}: {reasons}")
