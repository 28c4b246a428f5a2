"""Which backend "auto" tries first: by kept times, and never a GPU whose engines are not built."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from edgefold.runtime import EngineOptions, Stream
from edgefold.runtime.backends.kept_times import KeptTimes
from edgefold.runtime.backends.native.processor import Processor, read_processor
from edgefold.runtime.backends.opening import open_backend
from edgefold.runtime.backends.preference import Preference, choose
from edgefold.runtime.backends.registry import AUTO, BACKENDS
from edgefold.runtime.backends.tensorrt.backend import TensorRtBackend
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache, EngineKey
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.checking.step_times import keep_times, time_steps
from edgefold.runtime.errors import BackendError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.runtime.backends.host_driver import HostDriver

INFOS = [BACKENDS[name] for name in AUTO]


def keep_engines(manifest: Manifest, cache: Path) -> None:
    """Engines of another machine: the cheap look at the cache finds them, a driver refuses them."""
    for graph in manifest.graphs.values():
        key = EngineKey(
            graph.sha256, manifest.weights["sha256"], "tensorrt", "10.3.0", "Orin", "8.7", "float32"
        )
        assert EngineCache(cache).store(key, b"plan") is None


def keep_row(manifest: Manifest, cache: Path, backend: str, seconds: float) -> None:
    times = dict.fromkeys(manifest.graphs, seconds)
    assert KeptTimes(cache).keep(manifest, read_processor(), backend, times) is None


def names(choice: Preference) -> list[str]:
    return [info.name for info in choice.candidates]


def test_compiled_code_is_tried_first_and_no_gpu_without_engines(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    choice = choose(INFOS, load_manifest(tiny_bundle), tmp_path)
    assert names(choice) == ["native", "onnxruntime"]
    assert "edgefold engine" in choice.left_out["tensorrt"] and not choice.row_s


def test_a_gpu_is_tried_where_all_engines_are_built(tiny_bundle: Path, tmp_path: Path) -> None:
    manifest = load_manifest(tiny_bundle)
    keep_engines(manifest, tmp_path)
    assert names(choose(INFOS, manifest, tmp_path)) == ["native", "tensorrt", "onnxruntime"]
    next(tmp_path.glob("*.engine")).unlink()
    assert names(choose(INFOS, manifest, tmp_path)) == ["native", "onnxruntime"]


@pytest.mark.parametrize(
    ("row_s", "order"),
    [
        ({"tensorrt": 55e-6, "onnxruntime": 30e-6}, ["onnxruntime", "tensorrt", "native"]),
        ({"tensorrt": 55e-6, "onnxruntime": 30e-3}, ["tensorrt", "onnxruntime", "native"]),
        ({"native": 2e-6, "tensorrt": 55e-6}, ["native", "tensorrt", "onnxruntime"]),
        ({"native": 2e-3, "tensorrt": 55e-6}, ["tensorrt", "native", "onnxruntime"]),
        ({"onnxruntime": 2e-3}, ["native", "tensorrt", "onnxruntime"]),  # nothing to compare with
    ],
)
def test_the_faster_of_what_was_timed_here_is_tried_first(
    row_s: dict[str, float], order: list[str], tiny_bundle: Path, tmp_path: Path
) -> None:
    manifest = load_manifest(tiny_bundle)
    keep_engines(manifest, tmp_path)
    for name, seconds in row_s.items():
        keep_row(manifest, tmp_path, name, seconds)
    choice = choose(INFOS, manifest, tmp_path)
    assert names(choice) == order
    if len(row_s) > 1:
        fast, slow = sorted(row_s, key=row_s.__getitem__)
        assert choice.row_s[fast] < choice.row_s[slow] and slow in choice.explain(fast)


def test_times_of_another_bundle_or_processor_do_not_count(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    manifest, kept = load_manifest(tiny_bundle), KeptTimes(tmp_path)
    other = Processor("riscv64", "another", frozenset())
    times = dict.fromkeys(manifest.graphs, 1e-3)
    kept.keep(manifest, other, "native", times)
    kept.keep(load_manifest(shipped_bundle()), read_processor(), "native", {"step": 1e-3})
    assert kept.row_s(manifest, read_processor(), "native") is None
    assert kept.row_s(manifest, other, "native") is not None


@pytest.mark.parametrize("damage", [{}, {"update": -1.0}, {"update": "fast"}])
def test_times_that_are_no_times_do_not_count(
    damage: dict[str, float], tiny_bundle: Path, tmp_path: Path
) -> None:
    manifest, kept = load_manifest(tiny_bundle), KeptTimes(tmp_path)
    times = dict.fromkeys(manifest.graphs, 1e-3) | damage if damage else {}
    kept.keep(manifest, read_processor(), "native", times)
    assert kept.row_s(manifest, read_processor(), "native") is None


def test_the_general_model_stays_on_the_cpu_even_with_engines_and_times(tmp_path: Path) -> None:
    manifest = load_manifest(shipped_bundle())
    keep_engines(manifest, tmp_path)
    keep_row(manifest, tmp_path, "tensorrt", 1e-6)
    keep_row(manifest, tmp_path, "onnxruntime", 1e-3)
    choice = choose(INFOS, manifest, tmp_path)
    assert names(choice) == ["native", "onnxruntime"]
    assert "CPU" in choice.left_out["tensorrt"]


def test_auto_never_builds_an_engine(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache holds engines of another GPU, so that auto asks TensorRT for the board's own."""
    driver = HostDriver()
    manifest = load_manifest(tiny_bundle)
    keep_engines(manifest, tmp_path)
    asked: list[EngineOptions] = []

    def opened(info: object, manifest: Manifest, threads: int, engine: EngineOptions) -> object:
        asked.append(engine)
        return TensorRtBackend(manifest, driver, engine)

    monkeypatch.setattr(TensorRtBackend, "open", opened)
    backend, report = open_backend("auto", manifest, 1, EngineOptions(tmp_path))
    backend.close()
    assert len(asked) == 1 and driver.n_builds == 0
    assert report["name"] == "onnxruntime" and "edgefold engine" in report["refused"]["tensorrt"]
    open_backend("tensorrt", manifest, 1, EngineOptions(tmp_path))[0].close()
    assert driver.n_builds == len(manifest.graphs)


def test_the_report_says_what_was_chosen_and_why(tiny_bundle: Path, tmp_path: Path) -> None:
    engine = EngineOptions(tmp_path)
    with Stream.open(tiny_bundle, engine=engine) as stream:
        assert "nothing was measured" in stream.backend_report["chosen"]
        keep_times(stream, tmp_path)
        times = time_steps(stream)
    assert set(times) == set(load_manifest(tiny_bundle).graphs)
    keep_row(load_manifest(tiny_bundle), tmp_path, "native", 1.0)
    with Stream.open(tiny_bundle, engine=engine) as stream:
        report = stream.backend_report
    assert report["row_s"]["native"] > report["row_s"]["onnxruntime"] > 0
    assert "native" in report["chosen"] and report["asked"] == "auto"
    with Stream.open(tiny_bundle, "onnxruntime", engine=engine) as stream:
        assert "chosen" not in stream.backend_report


def test_a_stream_on_several_threads_keeps_no_times(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with Stream.open(tiny_bundle, threads=2, engine=EngineOptions(tmp_path)) as stream:
        keep_times(stream, tmp_path)
    assert not list(tmp_path.glob("*.times"))


def test_a_bundle_that_no_backend_opens_names_only_those_that_were_tried(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for name in ("onnxruntime_cpu", "onnxruntime_session"):
        monkeypatch.delitem(sys.modules, f"edgefold.runtime.backends.{name}", raising=False)
    with pytest.raises(BackendError) as refused:
        open_backend("auto", load_manifest(tiny_bundle), 1, EngineOptions(tmp_path))
    assert "onnxruntime is not installed" in str(refused.value)
    assert "edgefold build" in str(refused.value) and "tensorrt" not in str(refused.value)
