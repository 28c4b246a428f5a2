"""The execution providers' code path, with the CPU in the GPU's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import BackendError, EngineOptions, Stream
from edgefold.runtime.backends.base import BackendInfo
from edgefold.runtime.backends.onnxruntime_gpu import OnnxRuntimeGpuBackend, OrtBuffer
from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort
from edgefold.runtime.backends.registry import BACKENDS
from edgefold.runtime.manifest import Manifest
from edgefold.runtime.manifest_file import load_manifest
from tests.contract import Contract
from tests.runtime.subjects import StreamSubject, points


def on_the_cpu(
    info: BackendInfo, manifest: Manifest, threads: int, engine: EngineOptions
) -> OnnxRuntimeGpuBackend:
    return OnnxRuntimeGpuBackend(info, manifest, threads, [("CPUExecutionProvider", {})], "cpu")


@pytest.fixture
def opened(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(OnnxRuntimeGpuBackend, "open", on_the_cpu)
    with Stream.open(tiny_bundle, backend="onnxruntime-cuda") as stream:
        yield stream


class TestOneStream(Contract):
    @pytest.fixture
    def subject(self, opened: Stream) -> StreamSubject:
        return StreamSubject(opened)


class TestThreeStreams(Contract):
    @pytest.fixture
    def subject(self, bundles: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setattr(OnnxRuntimeGpuBackend, "open", on_the_cpu)
        with Stream.open(bundles / "streams", backend="onnxruntime-cuda") as stream:
            yield StreamSubject(stream)


def test_it_gives_the_numbers_of_the_plain_backend(opened: Stream) -> None:
    with Stream.open(opened.manifest.path) as plain:
        x, y = points(plain, 200)
        for stream in (opened, plain):
            stream.update(x, y)
        np.testing.assert_array_equal(opened.query(x[:3]).mean, plain.query(x[:3]).mean)


def test_the_state_stays_in_the_providers_memory(opened: Stream) -> None:
    pairs: dict[str, Any] = opened._state.pairs
    places = [tensor.value.data_ptr() for pair in pairs.values() for tensor in pair]
    assert all(isinstance(tensor, OrtBuffer) for pair in pairs.values() for tensor in pair)
    x, y = points(opened, 100)
    opened.update(x, y)
    assert places == [tensor.value.data_ptr() for pair in pairs.values() for tensor in pair]


@pytest.mark.parametrize("name", ["onnxruntime-cuda", "onnxruntime-tensorrt"])
def test_a_build_without_the_provider_says_what_to_install(tiny_bundle: Path, name: str) -> None:
    with pytest.raises(BackendError, match=r"has no .*ExecutionProvider; on a Jetson install"):
        Stream.open(tiny_bundle, backend=name)


def test_a_provider_that_gave_way_to_another_is_refused(
    tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """onnxruntime opens on the CPU, with a line in its log, where CUDA's libraries are missing."""

    class Session:
        def __init__(self, *_: Any, **__: Any):
            pass

        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    monkeypatch.setattr(ort, "InferenceSession", Session)
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    with pytest.raises(BackendError, match="instead of CUDAExecutionProvider"):
        Stream.open(tiny_bundle, "onnxruntime-cuda")


def test_every_bundle_has_engines_of_its_own(
    bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorRT's provider would give one bundle the engine of another that is built alike."""
    folders = []

    class Session:
        def __init__(self, path: str, options: Any, providers: Any, enable_fallback: int):
            folders.append(providers[0][1]["trt_engine_cache_path"])

        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    monkeypatch.setattr(ort, "InferenceSession", Session)
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["TensorrtExecutionProvider"])
    for name in ("tiny", "foreign"):
        info, manifest = BACKENDS["onnxruntime-tensorrt"], load_manifest(bundles / name)
        with pytest.raises(BackendError, match="instead of Tensorrt"):
            OnnxRuntimeGpuBackend.open(info, manifest, 1, EngineOptions(tmp_path))
    assert len(set(folders)) == 2
    assert all(Path(folder).is_dir() for folder in folders)
