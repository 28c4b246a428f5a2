"""The real driver over stand-ins for CUDA and TensorRT, and its calls against the real modules."""

from __future__ import annotations

import ast
import ctypes
import gc
import re
from collections.abc import Sequence
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
from edgefold.runtime.bundle.manifest_file import load_manifest
from tests.contract import Contract
from tests.runtime.backends.host_cuda import HostCudart, host_modules
from tests.runtime.backends.host_driver import HostDriver
from tests.runtime.stream.subjects import StreamSubject, points

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
    seam.fail_at = ["device", "waits", "open_stream", "build", "load"].index("load")
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


def test_tensorrt_rtx_compiles_once_for_all_contexts_and_keeps_the_kernels(
    seam: HostDriver, tiny_bundle: Path, tmp_path: Path
) -> None:
    """Its contexts come by a configuration that shares one cache of compiled kernels."""
    manifest = load_manifest(tiny_bundle)
    n_graphs = sum(not graph.opens_late for graph in manifest.graphs.values())
    for told, n_compiled in (("compiled", n_graphs), ("from the cache", 0)):
        below = HostDriver(variant="tensorrt_rtx")
        variant, cudart = host_modules(below)
        driver = CudaDriver(Variant("tensorrt_rtx", variant.module, "1.7"), cudart)
        backend = TensorRtBackend(manifest, driver, EngineOptions(tmp_path))
        with Stream(manifest, backend, backend.report(), False) as stream:
            stream.update(*points(stream, 3))
            assert stream.backend_report["kernels"] == told
            assert below.n_compiled == n_compiled
            assert variant.module.n_shared == below.calls.count("context") == n_graphs
        assert below.live == {}


# Waiting, priority, handles ----------------------------------------------------------------------


@pytest.mark.parametrize("wait", ["spin", "block"])
def test_waiting_is_chosen_before_the_device_is_initialized_and_read_back(wait: str) -> None:
    variant, cudart = host_modules(HostDriver())
    assert CudaDriver(variant, cudart, wait).waits() == wait
    assert cudart.calls == ["cudaInitDevice", "cudaSetDevice", "cudaGetDeviceFlags"]


def test_waiting_is_left_to_cuda_unless_it_was_asked_for() -> None:
    variant, cudart = host_modules(HostDriver())
    assert CudaDriver(variant, cudart).waits() == "auto"
    assert cudart.calls == ["cudaSetDevice", "cudaGetDeviceFlags"]


def test_bindings_of_cuda_11_choose_the_waiting_by_the_older_call() -> None:
    class Older(HostCudart):
        def _functions(self) -> dict[str, Any]:
            functions = super()._functions()
            return {name: of for name, of in functions.items() if name != "cudaInitDevice"}

        def _cudaSetDeviceFlags(self, flags: int) -> None:  # noqa: N802
            assert "cudaSetDevice" not in self.calls
            self.flags = flags

    seam = HostDriver()
    variant, _ = host_modules(seam)
    assert CudaDriver(variant, Older(seam), "block").waits() == "block"


def test_a_wait_that_cuda_did_not_take_is_told(
    seam: HostDriver, tiny_bundle: Path, tmp_path: Path
) -> None:
    variant, cudart = host_modules(seam)
    driver = CudaDriver(variant, cudart, "spin")
    cudart.flags = cudart.cudaDeviceScheduleBlockingSync
    manifest = load_manifest(tiny_bundle)
    backend = TensorRtBackend(manifest, driver, EngineOptions(tmp_path, wait="spin"))
    assert backend.report()["waits"] == "block, although spin was asked"
    backend.close()


def test_steps_may_go_before_other_work_of_the_process() -> None:
    for high_priority in (False, True):
        seam = HostDriver()
        driver = CudaDriver(*host_modules(seam))
        stream = driver.open_stream(high_priority)
        assert stream.queue.stream.high_priority == high_priority
        driver.release_stream(stream)
        assert seam.live == {}


def test_the_streams_handle_is_asked_once(
    seam: HostDriver, tiny_bundle: Path, tmp_path: Path
) -> None:
    asked = []

    def handle_of(stream: Any) -> int:
        asked.append(stream)
        return int(stream)

    variant, cudart = host_modules(seam)
    driver = CudaDriver(variant, cudart, handle_of=handle_of)
    manifest = load_manifest(tiny_bundle)
    backend = TensorRtBackend(manifest, driver, EngineOptions(tmp_path, cuda_graphs=False))
    with Stream(manifest, backend, backend.report(), False) as stream:
        stream.update(*points(stream, 3))
    assert len(asked) == 1


def test_the_bindings_own_way_to_a_handle_is_taken_where_they_have_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    utils = pytest.importorskip("cuda.bindings.utils", reason="cuda-bindings is before 12.9.1")
    handle_of = cuda_driver._find_handle_of()
    assert handle_of is utils.get_cuda_native_handle
    assert handle_of(runtime.cudaStream_t(7)) == 7
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings.utils", None)
    assert cuda_driver._find_handle_of() is int


RELEASES = {"cudaFree", "cudaFreeHost", "cudaStreamDestroy", "cudaGraphExecDestroy"}


def places_in(calls: Sequence[str], step: int) -> list[int]:
    """Return the first two and the last place of each call, and each `step`-th of all."""
    places = {name: [k for k, other in enumerate(calls) if other == name] for name in calls}
    ends = {k for own in places.values() for k in (*own[:2], own[-1])}
    return sorted(ends | set(range(0, len(calls), step)))


@pytest.mark.long
@pytest.mark.usefixtures("seam")  # which builds
@pytest.mark.parametrize("is_integrated", [False, True])
@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.slow)])
def test_a_failure_at_any_call_of_cuda_leaves_nothing_behind(
    tiny_bundle: Path, tmp_path: Path, step: int, is_integrated: bool
) -> None:
    """Also at calls that are no call of the seam's own, such as destroying a recording."""
    manifest, options = load_manifest(tiny_bundle), EngineOptions(tmp_path, high_priority=True)
    sessions: dict[bytes, Any] = {}

    def run(fail_at: int | None) -> tuple[list[str], HostDriver, dict[str, str], bool]:
        seam = HostDriver(sessions, is_integrated=is_integrated)
        variant, cudart = host_modules(seam)
        cudart.fail_at = fail_at
        told: dict[str, str] = {}
        try:
            backend = TensorRtBackend(manifest, CudaDriver(variant, cudart, "spin"), options)
            try:
                stream = Stream(manifest, backend, backend.report(), False)
                told = stream.backend_report["launched"]
                stream.update(*points(stream, 1))
            finally:
                backend.close()
        except BackendError as error:
            assert "IllegalAddress" in str(error)
            return cudart.calls, seam, told, True
        return cudart.calls, seam, told, False

    calls, _, _, _ = run(None)
    elsewhere = {"cudaSetDeviceFlags", "cudaMemcpy2DAsync"}  # CUDA 11's, and that of rings
    elsewhere |= set() if is_integrated else {"cudaHostGetDevicePointer"}
    assert set(called()) - set(calls) == elsewhere
    for index in places_in(calls, step):  # one of 1,800 takes 0.2 s
        name = calls[index]
        _, seam, told, raised = run(index)
        assert raised or any("IllegalAddress" in words for words in told.values()), name
        assert len(seam.live) == (name in RELEASES), f"call {index}, {name}"


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
        CudaDriver.open("auto")
    known.__members__["SM87"] = 87
    CudaDriver.open("auto").close()


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
    assert runtime.cudaHostAllocMapped == 2
    assert runtime.cudaInitDeviceFlagsAreValid == 1
    assert runtime.cudaDeviceScheduleMask == 7
    assert {word: getattr(runtime, name) for word, name in cuda_driver._SCHEDULES.items()} == {
        **{"auto": 0, "spin": 1, "yield": 2, "block": 4}
    }
    assert hasattr(runtime.cudaDeviceProp, "integrated")
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
        trt.IRuntimeCache: ["deserialize", "serialize"],
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
        CudaDriver.open("auto")


def test_without_tensorrt_every_kind_of_machine_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("edgefold.runtime.backends.tensorrt.variant.find_spec", lambda name: None)
    with pytest.raises(BackendError) as caught:
        CudaDriver.open("auto")
    for words in ("On a Jetson", "nvidia-jetpack", "on a server", "RTX machine", "tensorrt-rtx"):
        assert words in str(caught.value)


def test_without_cudas_bindings_the_fitting_versions_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda_driver, "installed", lambda: "tensorrt")
    monkeypatch.setattr(cuda_driver, "find_variant", lambda: Variant("tensorrt", None, "10.3"))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: None)
    monkeypatch.setitem(__import__("sys").modules, "cuda.bindings", None)
    with pytest.raises(BackendError, match=r"\[cuda12\].*JetPack 6.*\[cuda13\]"):
        CudaDriver.open("auto")
