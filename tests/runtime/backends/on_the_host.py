"""Streams of the TensorRT backend on a HostDriver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime import EngineOptions, Stream
from edgefold.runtime.backends.tensorrt.backend import TensorRtBackend
from edgefold.runtime.bundle.manifest_file import load_manifest
from tests.contract import Array
from tests.runtime.backends.host_driver import HostDriver

SESSIONS: dict[bytes, Any] = {}
"""Shared by all drivers here: opening onnxruntime a thousand times proves nothing."""


KINDS = ("discrete", "integrated", "rtx")
"""GPUs with memory of their own, that share the host's, and with kernels compiled at run time."""


def driver(kind: str = "discrete") -> HostDriver:
    variant = "tensorrt_rtx" if kind == "rtx" else "tensorrt"
    return HostDriver(SESSIONS, variant, is_integrated=kind == "integrated")


def opened(
    bundle: Path, seam: HostDriver, cache: Path, buffered: bool = False, cuda_graphs: bool = True
) -> Stream:
    manifest = load_manifest(bundle)
    backend = TensorRtBackend(manifest, seam, EngineOptions(cache, cuda_graphs=cuda_graphs))
    try:
        return Stream(manifest, backend, backend.report(), buffered)
    except BaseException:
        backend.close()
        raise


def assert_same(one: dict[str, Array], other: dict[str, Array]) -> None:
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)
