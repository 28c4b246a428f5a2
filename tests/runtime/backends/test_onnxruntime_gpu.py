"""The execution providers' code path, with the CPU in the GPU's place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import BackendError, EngineOptions, Stream
from edgefold.runtime.backends.base import BackendInfo
from edgefold.runtime.backends.onnxruntime_gpu import OnnxRuntimeGpuBackend, OrtBuffer
from edgefold.runtime.backends.onnxruntime_session import onnxruntime as ort
from edgefold.runtime.backends.registry import BACKENDS
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from tests.contract import Contract
from tests.runtime.stream.subjects import StreamSubject, points


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


@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_the_tensorrt_provider_refuses_narrow_bundles_before_it_opens_them(
    bundles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["TensorrtExecutionProvider"])
    monkeypatch.setattr(ort, "InferenceSession", None)
    info, manifest = BACKENDS["onnxruntime-tensorrt"], load_manifest(bundles / f"tiny-{precision}")
    with pytest.raises(BackendError, match=rf"{precision}; .* Use the backend tensorrt"):
        OnnxRuntimeGpuBackend.open(info, manifest, 1, EngineOptions(tmp_path))
    assert not list(tmp_path.iterdir())


Options = dict[str, str]


@pytest.fixture
def provided(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], tuple[Options, str]]:
    """Opens the TensorRT provider with the CPU in its place: its options, and what is reported."""
    asked: list[Options] = []
    real = ort.InferenceSession

    class Session(real):  # type: ignore[misc, valid-type]
        def __init__(self, path: str, options: Any, providers: Any, enable_fallback: int):
            asked.append(providers[0][1])
            super().__init__(path, providers=["CPUExecutionProvider"])

        def get_providers(self) -> list[str]:
            return ["TensorrtExecutionProvider"]

    monkeypatch.setattr(ort, "InferenceSession", Session)
    monkeypatch.setattr(ort, "get_available_providers", lambda: ["TensorrtExecutionProvider"])

    def provide() -> tuple[Options, str]:
        info, manifest = BACKENDS["onnxruntime-tensorrt"], load_manifest(tiny_bundle)
        options = EngineOptions(tmp_path / "cache")
        backend = OnnxRuntimeGpuBackend.open(info, manifest, 1, options)
        told: str = backend.report()["engine_cache"]
        backend.close()
        return asked[-1], told

    return provide


def test_the_providers_engines_are_kept_in_a_folder_of_this_user_alone(
    provided: Callable[[], tuple[Options, str]], tmp_path: Path
) -> None:
    options, told = provided()
    assert options["trt_engine_cache_path"] == told
    folder = Path(told)
    assert folder.parent.parent == tmp_path / "cache"
    assert all(f.stat().st_mode & 0o777 == 0o700 for f in (folder, *list(folder.parents)[:2]))
    (folder / "engine").write_bytes(b"a plan")
    (folder / "engine").chmod(0o664)  # an umask of 002; nobody else enters the folder
    assert provided() == (options, told)


@pytest.mark.parametrize("harm", ["outer mode", "inner mode", "link", "linked file", "other user"])
def test_engines_that_others_could_have_written_are_not_loaded_by_the_provider(
    provided: Callable[[], tuple[Options, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    harm: str,
) -> None:
    folder = Path(provided()[1])
    if harm == "outer mode":
        (tmp_path / "cache").chmod(0o777)
    elif harm == "inner mode":
        folder.chmod(0o755)
    elif harm == "link":
        folder.rename(tmp_path / "elsewhere")
        folder.symlink_to(tmp_path / "elsewhere")
    elif harm == "linked file":
        (folder / "engine").symlink_to(tmp_path / "elsewhere")
    else:
        owner = folder.stat().st_uid
        if owner == 0:  # whose files everybody trusts
            os.chown(folder, 12345, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    options, told = provided()
    assert "trt_engine_cache_path" not in options and "trt_timing_cache_enable" not in options
    assert told.startswith("off")


def test_without_a_cache_the_provider_builds_at_every_start_and_the_report_says_so(
    provided: Callable[[], tuple[Options, str]], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("in the way")
    options, told = provided()
    assert "trt_engine_cache_enable" not in options and told.startswith("off")
