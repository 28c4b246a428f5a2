"""The backends by name; `auto` takes the first of `ORDER` that opens and reports why others did not.

A new backend is a file in this folder and a line in `OPENERS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from edgefold.runtime.backends.base import Backend, EngineOptions
from edgefold.runtime.errors import BackendError
from edgefold.runtime.manifest import Manifest

Opener = Callable[[Manifest, int, EngineOptions], Backend]


def _open_onnxruntime(manifest: Manifest, threads: int, engine: EngineOptions) -> Backend:
    from edgefold.runtime.backends.onnxruntime_cpu import OnnxRuntimeBackend

    return OnnxRuntimeBackend(manifest, threads)


def _open_tensorrt(manifest: Manifest, threads: int, engine: EngineOptions) -> Backend:
    from edgefold.runtime.backends.tensorrt.cuda_driver import CudaDriver

    driver = CudaDriver.open()
    from edgefold.runtime.backends.tensorrt.backend import TensorRtBackend

    return TensorRtBackend(manifest, driver, engine)


def _open_cuda_provider(manifest: Manifest, threads: int, engine: EngineOptions) -> Backend:
    from edgefold.runtime.backends.onnxruntime_gpu import open_provider

    return open_provider("onnxruntime-cuda", manifest, threads, engine)


def _open_tensorrt_provider(manifest: Manifest, threads: int, engine: EngineOptions) -> Backend:
    from edgefold.runtime.backends.onnxruntime_gpu import open_provider

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
