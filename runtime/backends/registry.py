"""List the backends by name; `opening` opens one of them.

A new backend is a file in this folder and an entry in `BACKENDS`.
"""

from __future__ import annotations

from edgefold.runtime.backends.base import BackendInfo
from edgefold.runtime.errors import BackendError

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
AUTO = ("native", "tensorrt", "onnxruntime")
"""Names the backends that "auto" tries, in this order where no times are kept (see `preference`).

"native" opens where `edgefold build` compiled and checked the bundle for this processor, "tensorrt"
where `edgefold engine` built its engines, the last one wherever onnxruntime is installed.
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
