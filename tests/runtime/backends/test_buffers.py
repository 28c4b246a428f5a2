"""Every backend's memory: tensors of any dtype, and rows written into a slot."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.runtime import BackendError, BundleError, EngineOptions
from edgefold.runtime.backends.base import Backend
from edgefold.runtime.backends.onnxruntime_cpu import OnnxRuntimeBackend
from edgefold.runtime.backends.onnxruntime_gpu import IDENTITY, OnnxRuntimeGpuBackend
from edgefold.runtime.backends.registry import BACKENDS
from edgefold.runtime.backends.tensorrt.backend import TensorRtBackend
from edgefold.runtime.backends.tensorrt.cuda_driver import CudaDriver
from edgefold.runtime.backends.tensorrt.driver import Build
from edgefold.runtime.bundle.manifest import Graph, Manifest, StateTensor, Tensor
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.hashing import sha256_of
from tests.runtime.backends.host_cuda import host_modules
from tests.runtime.backends.host_driver import HostDriver

onnx = pytest.importorskip("onnx", reason="boards have no onnx")
DTYPES = ("bool", "uint8", "int32", "int64", "float32")
PLANNED_BUFFERS = ("state_bytes", "cache_bytes", "io_bytes")
Opener = Callable[[Manifest], Backend]


def on_the_cpu(manifest: Manifest) -> Backend:
    return OnnxRuntimeBackend(BACKENDS["onnxruntime"], manifest, 1)


def on_a_provider(manifest: Manifest) -> Backend:
    info = BACKENDS["onnxruntime-cuda"]
    return OnnxRuntimeGpuBackend(info, manifest, 1, [("CPUExecutionProvider", {})], "cpu")


@pytest.fixture(params=["cpu", "provider", "host driver", "cuda driver"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    def on_a_driver(manifest: Manifest) -> Backend:
        seam: Any = HostDriver()
        if request.param == "cuda driver":
            seam = CudaDriver(*host_modules(seam))
            seam.build = lambda onnx, options, timing: Build(str(onnx).encode(), b"", {})
        return TensorRtBackend(manifest, seam, EngineOptions(tmp_path / "cache"))

    plain: dict[str, Opener] = {"cpu": on_the_cpu, "provider": on_a_provider}
    return plain.get(request.param, on_a_driver)


@pytest.fixture
def manifest(tiny_bundle: Path, tmp_path: Path) -> Manifest:
    """One graph that passes a mask of each dtype and a state through: y = x."""
    inputs, outputs, nodes = [], [], []
    for dtype in DTYPES:
        shape = (2, 3)
        inputs.append(Tensor(f"in_{dtype}", "points.mask", f"in_{dtype}", shape, dtype))
        outputs.append(Tensor(f"out_{dtype}", "prediction", f"out_{dtype}", shape, dtype))
        nodes.append(onnx.helper.make_node("Identity", [f"in_{dtype}"], [f"out_{dtype}"]))

    def infos(tensors: list[Tensor]) -> list[Any]:
        kind = onnx.helper.np_dtype_to_tensor_dtype
        make = onnx.helper.make_tensor_value_info
        return [make(t.name, kind(np.dtype(t.dtype)), t.shape) for t in tensors]

    graph = onnx.helper.make_graph(nodes, "pass", infos(inputs), infos(outputs))
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    onnx.save(model, tmp_path / "pass.onnx")
    digest = sha256_of(tmp_path / "pass.onnx")
    one = Graph("pass", "update", 3, "pass.onnx", digest, tuple(inputs), tuple(outputs))
    plan = {"graphs": {"pass": {"weights_bytes": 0}}, **dict.fromkeys(PLANNED_BUFFERS, 0)}
    found = load_manifest(tiny_bundle)
    return dataclasses.replace(found, path=tmp_path, graphs={"pass": one}, memory_plan=plan)


@pytest.fixture
def backend(opener: Opener, manifest: Manifest) -> Iterator[Backend]:
    opened = opener(manifest)
    yield opened
    opened.close()


def test_staged_tensors_of_every_dtype_cross_unchanged(
    backend: Backend, manifest: Manifest
) -> None:
    graph = manifest.graphs["pass"]
    arrays = backend.allocate_host(graph)
    step = backend.bind(graph, {})
    for dtype in DTYPES:
        assert arrays[f"in_{dtype}"].dtype == dtype and not arrays[f"in_{dtype}"].any()
        arrays[f"in_{dtype}"][...] = np.array([[0, 1, 1], [1, 0, 1]])
    step()
    for dtype in DTYPES:
        assert arrays[f"out_{dtype}"].tolist() == arrays[f"in_{dtype}"].tolist()


def test_a_graph_of_another_dtype_than_its_manifest_is_refused(
    opener: Opener, manifest: Manifest
) -> None:
    graph = manifest.graphs["pass"]
    wrong = dataclasses.replace(graph.inputs[0], dtype="float32")
    lying = dataclasses.replace(graph, inputs=(wrong, *graph.inputs[1:]))
    with pytest.raises(BundleError, match="other inputs than its manifest"):
        opener(dataclasses.replace(manifest, graphs={"pass": lying}))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
@pytest.mark.parametrize(("shape", "axis"), [((5,), 0), ((1, 4, 3), 1), ((2, 3, 4, 2), 2)])
def test_a_row_is_written_into_its_slot_alone(
    backend: Backend, shape: tuple[int, ...], axis: int, dtype: str
) -> None:
    random = np.random.default_rng(0)
    row_shape = (*shape[:axis], 1, *shape[axis + 1 :])
    ring = backend.allocate_device(StateTensor("ring", shape, dtype, 0.0))
    row = backend.allocate_device(Tensor("row", "row", "ring", row_shape, dtype))
    expected = random.integers(0, 2, shape).astype(dtype)
    ring.write(expected)
    for slot in (0, shape[axis] - 1, 1):
        values = random.integers(0, 2, row_shape).astype(dtype)
        row.write(values)
        ring.write_row(row, axis, slot)
        index = (slice(None),) * axis + (slice(slot, slot + 1),)
        expected[index] = values
        np.testing.assert_array_equal(ring.read(), expected)
    np.testing.assert_array_equal(row.read(), values)


def test_a_row_that_cannot_be_copied_is_an_error_and_leaves_the_ring(
    manifest: Manifest, tmp_path: Path
) -> None:
    seam = HostDriver()
    backend = TensorRtBackend(manifest, seam, EngineOptions(tmp_path / "cache"))
    ring = backend.allocate_device(StateTensor("ring", (4, 2), "float32", 0.0))
    row = backend.allocate_device(StateTensor("row", (1, 2), "float32", 0.0))
    ring.write(np.zeros((4, 2)))
    row.write(np.ones((1, 2)))
    seam.fail_at = len(seam.calls)
    with pytest.raises(BackendError, match="injected"):
        ring.write_row(row, 0, 3)
    seam.fail_at = None
    assert not ring.read().any()
    ring.write_row(row, 0, 3)
    assert ring.read()[3].all()
    backend.close()
    assert seam.live == {}


def test_a_provider_that_cannot_copy_says_so(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = on_a_provider(manifest)
    ring = backend.allocate_device(StateTensor("ring", (4,), "float32", 0.0))
    row = backend.allocate_device(StateTensor("row", (1,), "float32", 0.0))

    def broken(*_: Any) -> None:
        raise RuntimeError("illegal address")

    monkeypatch.setattr(backend, "copy", broken)
    with pytest.raises(BackendError, match="illegal address"):
        ring.write_row(row, 0, 0)


def test_the_copying_model_is_what_it_says() -> None:
    model = onnx.load_from_string(IDENTITY)
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["Identity"]
