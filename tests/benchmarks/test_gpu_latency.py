"""The GPU's benchmark, with the host in the GPU's place."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.speed.gpu_latency import measure, measure_each
from benchmarks.speed.gpu_table import gpu_latency
from edgefold.runtime import BackendError, EngineOptions
from edgefold.runtime.backends.base import BackendInfo
from edgefold.runtime.backends.tensorrt.backend import TensorRtBackend
from edgefold.runtime.bundle.manifest import Manifest
from tests.runtime.backends.host_driver import HostDriver


def on_the_host(
    info: BackendInfo, manifest: Manifest, threads: int, engine: EngineOptions
) -> TensorRtBackend:
    seam = HostDriver()
    seam.waiting = engine.wait
    return TensorRtBackend(manifest, seam, engine)


def test_every_backend_that_opens_is_measured_and_the_others_give_their_reason(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TensorRtBackend, "open", on_the_host)
    data = {wait: measure(tiny_bundle, 1, wait, tmp_path) for wait in ("auto", "spin")}
    for wait, found in data.items():
        assert set(found["times"]) == {
            *("TensorRT, CUDA graphs", "TensorRT, kernel by kernel", "onnxruntime, CPU"),
        }
        assert set(found["refused"]) == {"onnxruntime, CUDA", "onnxruntime, TensorRT"}
        graphs, plain = (
            found["opened"]["TensorRT, CUDA graphs"],
            found["opened"]["onnxruntime, CPU"],
        )
        assert set(graphs["report"]["engines"].values()) == {"from the cache"}
        assert (graphs["cold_open_s"] is None) == (wait == "spin")  # built by the first alone
        assert graphs["report"]["waits"] == wait
        assert plain["report"]["name"] == "onnxruntime"
        assert found["opened"]["TensorRT, kernel by kernel"]["report"]["launched"] == {}
    tables = [table.markdown() for table in gpu_latency(data)]
    assert len(tables) == 2
    for table in tables:
        assert "onnxruntime, CUDA did not open" in table and "| update " in table


def test_without_a_gpu_nothing_is_measured(tiny_bundle: Path) -> None:
    with pytest.raises(BackendError, match=r"no GPU's backend opens .* TensorRT"):
        measure_each(tiny_bundle, 1)
