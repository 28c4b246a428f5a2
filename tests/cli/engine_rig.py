"""What tests of `edgefold engine` run on: a stand-in for the builder, and a machine to choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.tensorrt import build_process, cuda_driver
from edgefold.runtime.backends.tensorrt import variant as tensorrt_variant
from edgefold.runtime.backends.tensorrt.driver import Build, Device
from edgefold.runtime.backends.tensorrt.inspection import read_log
from edgefold.runtime.backends.tensorrt.variant import Variant
from edgefold.runtime.errors import BackendError

ORIN = Device("Orin", "8.7", 8 << 30, 8)
CAPABILITIES = SimpleNamespace(__members__={"CURRENT": 1, "SM86": 86, "SM89": 89})
BOARD = replace(ORIN, is_integrated=True)
RECORDED = Path(__file__).parents[1] / "runtime/backends/recorded"


def kernels(name: str) -> list[dict[str, Any]]:
    message = (RECORDED / f"tensorrt-rtx-1.7.1-{name}.txt").read_text()
    return [asdict(kernel) for kernel in read_log(message)]


FACTS: dict[str, Any] = {
    "seconds": 2.5,
    "peak_bytes": 300_000_000,
    "workspace_bytes": 256 << 20,
    "optimization_level": None,
    "kernels": kernels("int8-refresh"),
    "products": {"reshape_18_product": "int8", "layernormalization_35_product": "int8"},
}
Built = list[tuple[str, EngineOptions, bytes]]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Built:
    """What was asked of the builder: graph, options, timing cache. Nothing is in the cache yet."""
    asked: Built = []

    def build(variant: str, onnx: Path, options: EngineOptions, timing: bytes) -> Build:
        asked.append((onnx.stem, options, timing))
        return Build(
            b"plan of " + onnx.stem.encode(),
            timing + b"." if variant == "tensorrt" else b"",
            dict(FACTS),
        )

    monkeypatch.setattr(build_process, "build_in_child", build)
    monkeypatch.setenv("EDGEFOLD_CACHE", str(tmp_path / "cache"))
    return asked


Machine = Callable[[str, Device | None], None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Sets which TensorRT is installed and which GPU answers."""

    def set_up(name: str, device: Device | None) -> None:
        variant = Variant(name, SimpleNamespace(ComputeCapability=CAPABILITIES), "10.3.0")

        def open_driver(wait: str | None = None) -> Any:
            if wait is not None:  # a stream
                raise BackendError("the stand-in runs no engine.")
            if device is None:
                raise BackendError("this machine has no NVIDIA driver.")
            return SimpleNamespace(device=lambda: device, close=lambda: None)

        monkeypatch.setattr(tensorrt_variant, "find_variant", lambda: variant)
        monkeypatch.setattr(cuda_driver.CudaDriver, "open", open_driver)

    return set_up
