"""The contract on a real GPU, wherever a machine with one runs the tests; elsewhere it skips.

For each of the GPU's backends that opens: the whole suite, the agreement with the processor, and
what a hundred streams leave in the GPU's memory.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import BackendError, EngineOptions, Stream
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache
from edgefold.runtime.backends.tensorrt.engine_facts import kernels_of, products_of
from edgefold.runtime.golden import check_bundle
from edgefold.runtime.manifest_file import load_manifest
from tests.contract import Array, Contract
from tests.runtime.subjects import StreamSubject, points

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


def test_without_cuda_graphs_the_numbers_are_the_same(
    tiny_bundle: Path, backend: str, engines: Path
) -> None:
    if backend != "tensorrt":
        pytest.skip("CUDA graphs are TensorRT's alone")

    def mean(cuda_graphs: bool) -> Array:
        options = EngineOptions(engines, cuda_graphs=cuda_graphs)
        with Stream.open(tiny_bundle, backend, engine=options) as stream:
            launched = set(stream.backend_report["launched"].values())
            assert launched == ({"as one CUDA graph"} if cuda_graphs else set())
            x, y = points(stream, 300)
            stream.update(x, y)
            return stream.query(x[:3]).mean.copy()

    np.testing.assert_array_equal(mean(True), mean(False))


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
    cudart: Any = pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is missing")

    def free_bytes() -> int:
        for _ in range(10):
            with Stream.open(tiny_bundle, backend, engine=EngineOptions(engines)) as stream:
                stream.update(*points(stream, 3))
        return int(cudart.cudaMemGetInfo()[1])

    before = free_bytes()
    for _ in range(10):
        after = free_bytes()
    assert before - after < 8 << 20  # a driver gives back by blocks of 2 MiB
