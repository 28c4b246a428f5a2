"""The GPU's benchmark, with the host in the GPU's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu_latency import measure
from benchmarks.gpu_table import gpu_latency
from edgefold.runtime import BackendError, EngineOptions
from edgefold.runtime.backends.base import BackendInfo
from edgefold.runtime.backends.tensorrt.backend import TensorRtBackend
from edgefold.runtime.manifest import Manifest
from tests.runtime.host_driver import HostDriver


def on_the_host(
    info: BackendInfo, manifest: Manifest, threads: int, engine: EngineOptions
) -> TensorRtBackend:
    return TensorRtBackend(manifest, HostDriver(), engine)


def test_every_backend_that_opens_is_measured_and_the_others_give_their_reason(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TensorRtBackend, "open", on_the_host)
    data = measure(tiny_bundle, 1)
    assert set(data["times"]) == {
        *("TensorRT, CUDA graphs", "TensorRT, kernel by kernel", "onnxruntime, CPU"),
    }
    assert set(data["refused"]) == {"onnxruntime, CUDA", "onnxruntime, TensorRT"}
    graphs, plain = data["opened"]["TensorRT, CUDA graphs"], data["opened"]["onnxruntime, CPU"]
    assert set(graphs["report"]["engines"].values()) == {"from the cache"}
    assert plain["report"]["name"] == "onnxruntime"
    assert data["opened"]["TensorRT, kernel by kernel"]["report"]["launched"] == {}
    table = gpu_latency(data)[0].markdown()
    assert "onnxruntime, CUDA did not open" in table and "| update " in table


def test_without_a_gpu_nothing_is_measured(tiny_bundle: Path) -> None:
    with pytest.raises(BackendError, match=r"no GPU's backend opens .* TensorRT"):
        measure(tiny_bundle, 1)
