"""List the backends by name, and open one of them.

A new backend is a file in this folder and an entry in `BACKENDS`.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from edgefold.runtime.backends.base import Backend, BackendInfo, EngineOptions
from edgefold.runtime.backends.watched import WatchedBackend
from edgefold.runtime.errors import BackendError, Remedy

if TYPE_CHECKING:
    from edgefold.runtime.bundle.manifest import Manifest

_ORT_GPU = "onnxruntime_gpu:OnnxRuntimeGpuBackend"
BACKENDS = {
    info.name: info
    for info in (
        BackendInfo(
            name="tensorrt",
            place="tensorrt.backend:TensorRtBackend",
            device="gpu",
            builds_engines=True,
            board_key="tensorrt",
            trial="driver",
        ),
        BackendInfo(
            name="native",
            place="native.backend:NativeBackend",
            device="cpu",
            maps_weights=True,
            trial="compiler",
        ),
        BackendInfo(
            name="onnxruntime",
            place="onnxruntime_cpu:OnnxRuntimeBackend",
            device="cpu",
            provider="CPUExecutionProvider",
        ),
        BackendInfo(
            name="onnxruntime-cuda",
            place=_ORT_GPU,
            device="gpu",
            provider="CUDAExecutionProvider",
            board_key="tensorrt",
        ),
        BackendInfo(
            name="onnxruntime-tensorrt",
            place=_ORT_GPU,
            device="gpu",
            provider="TensorrtExecutionProvider",
            builds_engines=True,
            board_key="tensorrt",
        ),
    )
}
AUTO = ("tensorrt", "native", "onnxruntime")
"""Names the backends that "auto" tries, in this order.

The last one opens on every machine; "native" opens where `edgefold build` compiled and checked the
bundle for this processor.
"""


def info_of(name: str) -> BackendInfo:
    """Return the facts of a backend by its name; "auto" returns those of the last one it tries.

    Raises:
        BackendError: The name is unknown.
    """
    chosen = AUTO[-1] if name == "auto" else name
    if not isinstance(name, str) or chosen not in BACKENDS:
        names = ", ".join(("auto", *BACKENDS))
        raise BackendError(f"backend {name!r} is unknown; choose one of: {names}.")
    return BACKENDS[chosen]


def open_backend(
    name: str, manifest: Manifest, threads: int, engine: EngineOptions
) -> tuple[Backend, dict[str, Any]]:
    """Open a backend by name, or with "auto" the first of `AUTO` that opens.

    Args:
        name: The backend's name, or "auto".
        manifest: The bundle's manifest.
        threads: Number of CPU threads for one step.
        engine: Settings of engines, and the folder of built code.

    Returns:
        The backend, and a report of JSON values: "asked" (the name), the backend's own report, and
        "refused" (for each backend that did not open, the reason).

    Raises:
        BackendError: The backend does not open, or with "auto" none does; the error carries the
            remedies of all backends that were tried.
    """
    chosen = info_of(name)
    n_processors = os.cpu_count() or 1
    if type(threads) is not int or not 1 <= threads <= n_processors:
        raise BackendError(
            f"threads is {threads!r}; give 1 to {n_processors}, this machine's processors."
        )
    refused: dict[str, str] = {}
    remedies: list[Remedy] = []
    for info in [BACKENDS[n] for n in AUTO] if name == "auto" else [chosen]:
        module, _, kind = info.place.partition(":")
        if engine.watch:
            engine.watch("load", info.name)
        try:
            opener: type[Backend] = getattr(import_module(f"{__package__}.{module}"), kind)
            backend = opener.open(info, manifest, threads, engine)
        except BackendError as error:
            refused[info.name] = str(error)
            remedies += error.remedies
            continue
        if engine.watch:
            backend = cast(Backend, WatchedBackend(backend, engine.watch))
        return backend, {"asked": name, **backend.report(), "refused": refused}
    reasons = "; ".join(f"{candidate}: {reason}" for candidate, reason in refused.items())
    raise BackendError(f"no backend opened {manifest.path}: {reasons}", *remedies)
