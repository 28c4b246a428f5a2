"""The contract on a real GPU, wherever a machine with one runs the tests; elsewhere it skips.

For each of the GPU's backends that opens: the whole suite, the agreement with the processor (the
errors of sums by themselves, since no recorded stream shows them), and what a hundred streams leave
in the GPU's memory. For TensorRT also every way to launch and to wait.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.devices.memory.gpu import CudaMemory
from edgefold.devices.memory.nvmap import NvmapTotal
from edgefold.devices.memory.process import SystemMemory
from edgefold.runtime import BackendError, EngineOptions, Stream
from edgefold.runtime.backends.base import Wait
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache
from edgefold.runtime.backends.tensorrt.engine_facts import kernels_of, products_of
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.checking.golden import check_bundle
from edgefold.runtime.errors import MeterError
from tests.contract import Array, Contract
from tests.runtime.stream.consolidations import assert_errors_of_sums_are_kept
from tests.runtime.stream.subjects import StreamSubject, points

try:
    ctypes.CDLL("libcuda.so.1")
except OSError:
    pytest.skip("this machine has no NVIDIA driver", allow_module_level=True)

BACKENDS = ("tensorrt", "onnxruntime-cuda", "onnxruntime-tensorrt")


@cache
def refusal(bundle: Path, backend: str, folder: Path) -> str | None:
    try:
        Stream.open(bundle, backend, engine=EngineOptions(folder)).close()
    except BackendError as error:
        return str(error)
    return None


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engines")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tiny_bundle: Path, engines: Path) -> str:
    name = str(request.param)
    skip_if_refused(tiny_bundle, name, engines)
    return name


def skip_if_refused(bundle: Path, backend: str, engines: Path) -> None:
    """A backend that opens one bundle may refuse another's precision."""
    reason = refusal(bundle, backend, engines)
    if reason is not None:
        pytest.skip(reason)


class TestContract(Contract):
    @pytest.fixture(params=["tiny", "streams", "tiny-float16", "tiny-int8"])
    def subject(
        self, bundles: Path, backend: str, engines: Path, request: pytest.FixtureRequest
    ) -> Any:
        options = EngineOptions(engines)
        skip_if_refused(bundles / request.param, backend, engines)
        with Stream.open(bundles / request.param, backend, engine=options) as stream:
            yield StreamSubject(stream)


@pytest.mark.parametrize("name", ["tiny", "scaled", "streams", "tiny-float16", "tiny-int8"])
def test_the_recorded_stream_is_replayed(
    bundles: Path, backend: str, engines: Path, name: str
) -> None:
    skip_if_refused(bundles / name, backend, engines)
    report = check_bundle(bundles / name, backend, engine=EngineOptions(engines))
    assert report.passed, report.worst


def test_the_errors_of_sums_are_kept(
    tiny_bundle: Path, backend: str, engines: Path, tmp_path: Path
) -> None:
    options = EngineOptions(engines)
    with (
        Stream.open(tiny_bundle, backend, engine=options) as stream,
        Stream.open(tiny_bundle, "onnxruntime") as cpu,
    ):
        assert_errors_of_sums_are_kept(stream, cpu, tmp_path)


@pytest.mark.parametrize("change", [{"cuda_graphs": False}, {"high_priority": True}])
def test_how_a_step_is_launched_changes_no_number(
    tiny_bundle: Path, backend: str, engines: Path, change: dict[str, Any]
) -> None:
    if backend != "tensorrt":
        pytest.skip("CUDA graphs and priorities are TensorRT's alone")

    def mean(options: EngineOptions) -> Array:
        with Stream.open(tiny_bundle, backend, engine=options) as stream:
            launched = set(stream.backend_report["launched"].values())
            assert launched == ({"as one CUDA graph"} if options.cuda_graphs else set())
            x, y = points(stream, 300)
            for row in range(20):  # the sides of the state take turns
                stream.update(x[row : row + 1], y[row : row + 1])
            stream.update(x[20:], y[20:])
            return stream.query(x[:3]).mean.copy()

    plain = mean(EngineOptions(engines))
    np.testing.assert_array_equal(mean(EngineOptions(engines, **change)), plain)


@pytest.mark.parametrize("wait", ["spin", "block"])
def test_the_process_waits_as_it_was_asked_to(
    tiny_bundle: Path, backend: str, engines: Path, wait: Wait
) -> None:
    if backend != "tensorrt":
        pytest.skip("only TensorRT's backend chooses how to wait")
    options = EngineOptions(engines, wait=wait)
    with Stream.open(tiny_bundle, backend, engine=options) as stream:
        assert stream.backend_report["waits"] == wait
        stream.update(*points(stream, 3))


def used_bytes() -> tuple[int, str]:
    """Memory in use that a GPU's memory is part of, by the narrowest meter that reads here."""
    for meter in (NvmapTotal, lambda: CudaMemory(pytest.importorskip("cuda.bindings.runtime"))):
        try:
            opened = meter()
            return opened.read_bytes(), opened.name
        except MeterError:
            continue
    return -SystemMemory().available_bytes() - SystemMemory().listed_bytes(), "MemAvailable"


@pytest.mark.parametrize("name", ["tiny", "tiny-float16", "tiny-int8"])
def test_every_engine_tells_its_kernels(
    bundles: Path, backend: str, engines: Path, name: str
) -> None:
    """TensorRT's inspector reads an engine only where there is a GPU."""
    if backend != "tensorrt":
        pytest.skip("only the engines of the backend tensorrt are inspected")
    skip_if_refused(bundles / name, backend, engines)
    graphs = {graph.sha256: graph for graph in load_manifest(bundles / name).graphs.values()}
    entries = [e for e in EngineCache(engines).entries() if e.key.graph_sha256 in graphs]
    assert len(entries) == len(graphs)
    for entry in entries:
        kernels = kernels_of(entry.facts)
        assert kernels and "kernels_missing" not in entry.facts
        assert {word for k in kernels for word in (*k.reads, *k.writes)} != {"unknown"}
        precision = graphs[entry.key.graph_sha256].precision
        assert {asked for asked, _ in products_of(entry.facts).values()} <= {precision}


def test_a_hundred_streams_leave_the_gpus_memory_as_it_was(
    tiny_bundle: Path, backend: str, engines: Path
) -> None:
    def after_ten() -> tuple[int, str]:
        for _ in range(10):
            with Stream.open(tiny_bundle, backend, engine=EngineOptions(engines)) as stream:
                stream.update(*points(stream, 3))
        return used_bytes()

    before, meter = after_ten()
    for _ in range(10):
        after, _ = after_ten()
    # A driver gives back by blocks of 2 MiB. MemAvailable holds every other process's changes too:
    # there only a leak of a context a stream shows, some megabytes each.
    assert after - before < (64 << 20 if meter == "MemAvailable" else 8 << 20), meter
