"""The real driver over stand-ins for CUDA and TensorRT, and its calls against the real modules."""

from __future__ import annotations

import ast
import ctypes
import gc
import re
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import edgefold.runtime.backends.tensorrt.cuda_driver as cuda_driver
from edgefold.runtime import BackendError, EngineOptions, Stream
from edgefold.runtime.backends.tensorrt.backend import TensorRtBackend
from edgefold.runtime.backends.tensorrt.cuda_driver import CudaDriver
from edgefold.runtime.backends.tensorrt.variant import Variant, find_variant
from edgefold.runtime.manifest_file import load_manifest
from tests.contract import Contract
from tests.runtime.host_cuda import HostCudart, host_modules
from tests.runtime.host_driver import HostDriver
from tests.runtime.subjects import StreamSubject, points

CALLS = re.compile(r"^(cuda[A-Z]\w+)$")


@pytest.fixture
def seam(monkeypatch: pytest.MonkeyPatch) -> HostDriver:
    """A host below CUDA; building, which has tests of its own, is the host's as well."""
    driver = HostDriver()
    monkeypatch.setattr(
        cuda_driver,
        "build_in_child",
        lambda variant, onnx, options, timing: driver.build(onnx, EngineOptions(), timing),
    )
    return driver


def opened(bundle: Path, seam: HostDriver, cache: Path) -> Stream:
    manifest = load_manifest(bundle)
    backend = TensorRtBackend(manifest, CudaDriver(*host_modules(seam)), EngineOptions(cache))
    return Stream(manifest, backend, backend.report(), False)


class TestContract(Contract):
    @pytest.fixture
    def subject(self, seam: HostDriver, tiny_bundle: Path, tmp_path: Path) -> Any:
        with opened(tiny_bundle, seam, tmp_path / "cache") as stream:
            yield StreamSubject(stream)


def test_close_releases_everything_at_once(
    seam: HostDriver, tiny_bundle: Path, tmp_path: Path
) -> None:
    gc.disable()  # release must not wait for a collection
    try:
        stream = opened(tiny_bundle, seam, tmp_path)
        stream.update(*points(stream, 3))
        assert seam.live
        stream.close()
        assert seam.live == {}
    finally:
        gc.enable()


def test_a_failing_launch_names_the_function_and_the_code(
    seam: HostDriver, tiny_bundle: Path, tmp_path: Path
) -> None:
    with opened(tiny_bundle, seam, tmp_path) as stream:
        x, y = points(stream, 1)
        before = stream.state()
        seam.fail_at = len(seam.calls)
        with pytest.raises(
            BackendError, match=r"update failed in TensorRT: cudaGraphLaunch.*IllegalAddress \(700"
        ):
            stream.update(x, y)
        seam.fail_at = None
        after = stream.state()
        assert all(np.array_equal(before[name], after[name]) for name in before)


def test_tensorrts_own_words_reach_the_user(
    seam: HostDriver, tiny_bundle: Path, tmp_path: Path
) -> None:
    seam.fail_at = ["device", "open_stream", "build", "load"].index("load")
    with pytest.raises(BackendError, match=r"could not load an engine: injected into call .* load"):
        opened(tiny_bundle, seam, tmp_path)


def test_an_old_driver_is_told_which_bindings_fit() -> None:
    class Old(HostCudart):
        class cudaError_t(IntEnum):  # noqa: N801  # CUDA's name
            cudaSuccess = 0  # noqa: N815
            cudaErrorInsufficientDriver = 35  # noqa: N815

        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: (self.cudaError_t.cudaErrorInsufficientDriver,)

    variant, _ = host_modules(HostDriver())
    with pytest.raises(
        BackendError, match=r"InsufficientDriver \(35\); .*cuda-bindings==12.*JetPack"
    ):
        CudaDriver(variant, Old(HostDriver()))


def test_bindings_that_do_not_find_cuda_are_an_error_of_ours() -> None:
    class Lost(HostCudart):
        def __getattr__(self, name: str) -> Any:
            def call(*arguments: Any) -> Any:
                raise RuntimeError("libcudart was not found")

            return call

    variant, _ = host_modules(HostDriver())
    with pytest.raises(BackendError, match="libcudart was not found"):
        CudaDriver(variant, Lost(HostDriver()))


def test_tensorrt_rtx_compiles_once_for_all_contexts(
    seam: HostDriver, tiny_bundle: Path, tmp_path: Path
) -> None:
    """Its contexts come by a configuration that shares one cache of compiled kernels."""
    variant, cudart = host_modules(seam)
    driver = CudaDriver(Variant("tensorrt_rtx", variant.module, "1.7"), cudart)
    manifest = load_manifest(tiny_bundle)
    backend = TensorRtBackend(manifest, driver, EngineOptions(tmp_path))
    with Stream(manifest, backend, backend.report(), False) as stream:
        stream.update(*points(stream, 3))
        assert variant.module.n_kernel_caches == 1
        assert variant.module.n_shared == seam.calls.count("context") == 14
    assert seam.live == {}


def test_a_gpu_that_tensorrt_rtx_does_not_know_is_refused_at_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before a graph is parsed; the host's device has compute capability 8.7."""
    variant, cudart = host_modules(HostDriver())
    known = SimpleNamespace(__members__={"CURRENT": 1, "SM86": 86, "SM120": 120})
    monkeypatch.setattr(variant.module, "ComputeCapability", known, raising=False)
    rtx = Variant("tensorrt_rtx", variant.module, "1.7.1")
    monkeypatch.setattr(cuda_driver, "installed", lambda: "tensorrt_rtx")
    monkeypatch.setattr(cuda_driver, "find_variant", lambda: rtx)
    monkeypatch.setattr(cuda_driver, "_cudart", lambda: cudart)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    with pytest.raises(BackendError, match=r"8\.7; it knows 8\.6, 12\.0\. .*tensorrt-cu13"):
        CudaDriver.open()
    known.__members__["SM87"] = 87
    CudaDriver.open().close()


# Against the real modules -----------------------------------------------------------------------


def called() -> dict[str, int]:
    """CUDA functions that the driver calls, with the number of their arguments."""
    tree = ast.parse(Path(cuda_driver.__file__).read_text())
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = node.args[0].value
            if isinstance(name, str) and CALLS.match(name):
                found[name] = len(node.args) - 1
    return found


def test_every_cuda_function_exists_and_takes_as_many_arguments() -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    functions = called()
    assert len(functions) >= 15
    for name, n_arguments in functions.items():
        signature = getattr(runtime, name).__doc__.splitlines()[0]
        inside = signature[signature.index("(") + 1 : signature.rindex(")")]
        assert len([part for part in inside.split(",") if part.strip()]) == n_arguments, signature


def test_every_cuda_constant_exists() -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    assert runtime.cudaMemcpyKind.cudaMemcpyHostToDevice == 1
    assert runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost == 2
    assert runtime.cudaMemcpyKind.cudaMemcpyDeviceToDevice == 3
    assert runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal == 1
    assert runtime.cudaHostAllocDefault == 0
    assert runtime.cudaStreamNonBlocking == 1
    assert runtime.cudaError_t.cudaSuccess == 0


def test_every_name_of_tensorrt_exists() -> None:
    trt: Any = pytest.importorskip("tensorrt_rtx", reason="tensorrt-rtx is not installed")
    assert trt.ExecutionContextAllocationStrategy.USER_MANAGED is not None
    assert trt.TensorIOMode.INPUT is not None
    for owner, names in {
        trt.Runtime: ["deserialize_cuda_engine"],
        trt.ICudaEngine: [
            *("num_io_tensors", "get_tensor_name", "get_tensor_shape", "get_tensor_dtype"),
            *("get_tensor_mode", "device_memory_size_v2", "create_execution_context"),
            "create_runtime_config",
        ],
        trt.IExecutionContext: [
            *("set_device_memory", "set_tensor_address", "execute_async_v3"),
            "is_stream_capturable",
        ],
        trt.IRuntimeConfig: [
            *("set_execution_context_allocation_strategy", "create_runtime_cache"),
            "set_runtime_cache",
        ],
    }.items():
        assert not [name for name in names if not hasattr(owner, name)]
    listed = {name for name in cuda_driver._DTYPES if hasattr(trt.DataType, name)}
    assert listed == set(cuda_driver._DTYPES)


def test_without_a_device_the_real_runtime_says_so() -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    pytest.importorskip("tensorrt_rtx", reason="tensorrt-rtx is not installed")
    if runtime.cudaGetDeviceCount()[0] == runtime.cudaError_t.cudaSuccess:
        pytest.skip("this machine has a GPU")
    with pytest.raises(BackendError, match=r"cudaSetDevice failed: cudaError\w+"):
        CudaDriver(find_variant(), runtime)


# What is missing --------------------------------------------------------------------------------


def test_without_a_driver_of_the_gpu_tensorrt_is_not_even_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(cuda_driver, "installed", lambda: "tensorrt")
    monkeypatch.setattr(cuda_driver, "find_variant", None)  # calling it would raise
    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(BackendError, match=r"no NVIDIA driver \(libcuda"):
        CudaDriver.open()


def test_without_tensorrt_every_kind_of_machine_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("edgefold.runtime.backends.tensorrt.variant.find_spec", lambda name: None)
    with pytest.raises(BackendError) as caught:
        CudaDriver.open()
    for words in ("On a Jetson", "nvidia-jetpack", "on a server", "RTX machine", "tensorrt-rtx"):
        assert words in str(caught.value)


def test_without_cudas_bindings_the_fitting_versions_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda_driver, "installed", lambda: "tensorrt")
    monkeypatch.setattr(cuda_driver, "find_variant", lambda: Variant("tensorrt", None, "10.3"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings", None)
    with pytest.raises(BackendError, match=r"cuda-bindings==12.*JetPack 6"):
        CudaDriver.open()
