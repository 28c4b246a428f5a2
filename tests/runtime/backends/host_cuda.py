"""Stand-ins for `cuda.bindings.runtime` and `tensorrt`, which pass every call on to a HostDriver.

With them the real driver runs on the host: each of its lines, though no line of CUDA.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import numpy as np

from edgefold.runtime import BackendError
from edgefold.runtime.backends.tensorrt.cuda_driver import _DTYPES
from edgefold.runtime.backends.tensorrt.variant import Variant
from tests.runtime.backends.host_driver import HostDriver


class Status(IntEnum):
    cudaSuccess = 0  # noqa: N815  # CUDA's names
    cudaErrorIllegalAddress = 700  # noqa: N815


class HostStreamHandle:
    """A stream that turns into a number, as TensorRT demands."""

    def __init__(self, stream: Any):
        self.stream = stream

    def __int__(self) -> int:
        return id(self)


class HostCudart:
    """`cuda.bindings.runtime`: every function answers (status, *results).

    Attributes:
        calls: Names of the functions called so far.
        fail_at: Number of the call that fails, counted from 0; None for none.
    """

    cudaError_t = Status  # noqa: N815
    cudaHostAllocMapped = 2  # noqa: N815
    cudaInitDeviceFlagsAreValid = 1  # noqa: N815
    cudaDeviceScheduleAuto = 0  # noqa: N815
    cudaDeviceScheduleSpin = 1  # noqa: N815
    cudaDeviceScheduleYield = 2  # noqa: N815
    cudaDeviceScheduleBlockingSync = 4  # noqa: N815
    cudaDeviceScheduleMask = 7  # noqa: N815
    cudaDeviceMapHost = 8  # noqa: N815
    cudaStreamNonBlocking = 1  # noqa: N815
    cudaMemcpyKind = SimpleNamespace(  # noqa: N815
        cudaMemcpyHostToDevice=1, cudaMemcpyDeviceToHost=2, cudaMemcpyDeviceToDevice=3
    )
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)  # noqa: N815

    def __init__(self, driver: HostDriver):
        self.driver = driver
        self.pinned: dict[int, Any] = {}
        self.streams: dict[int, Any] = {}
        self.calls: list[str] = []
        self.fail_at: int | None = None
        self.flags = self.cudaDeviceMapHost  # as the real runtime has it from the start

    def __getattr__(self, name: str) -> Any:
        function = self._functions().get(name)
        if function is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> tuple[Any, ...]:
            fails = len(self.calls) == self.fail_at
            self.calls.append(name)
            if fails:  # where the host driver has such a call, it is that one which fails
                self.driver.fail_at = len(self.driver.calls)
            try:
                result = function(*arguments)
            except BackendError:
                return (Status.cudaErrorIllegalAddress, None)
            if fails:
                self.driver.fail_at = -1
                return (Status.cudaErrorIllegalAddress, None)
            if isinstance(result, tuple):
                return (Status.cudaSuccess, *result)
            return (Status.cudaSuccess,) if result is None else (Status.cudaSuccess, result)

        return call

    def _functions(self) -> dict[str, Any]:
        return {name[1:]: getattr(self, name) for name in dir(self) if name.startswith("_cuda")}

    def _cudaInitDevice(self, device: int, flags: int, valid: int) -> None:  # noqa: N802
        assert device == 0 and valid == 1 and "cudaSetDevice" not in self.calls
        self.flags = flags | self.cudaDeviceMapHost

    def _cudaGetDeviceFlags(self) -> int:  # noqa: N802
        self.driver.waits()
        return self.flags

    def _cudaDriverGetVersion(self) -> int:  # noqa: N802
        return 12060

    def _cudaSetDevice(self, device: int) -> None:  # noqa: N802
        assert device == 0

    def _cudaGetDeviceProperties(self, device: int) -> Any:  # noqa: N802
        found = self.driver.device()
        major, minor = map(int, found.compute_capability.split("."))
        return SimpleNamespace(
            name=found.name.encode() + b"\0" * 8,
            major=major,
            minor=minor,
            totalGlobalMem=found.memory_bytes,
            multiProcessorCount=8,
            integrated=int(found.is_integrated),
        )

    def _cudaMalloc(self, n_bytes: int) -> int:  # noqa: N802
        return self.driver.allocate(n_bytes)

    def _cudaMemset(self, address: int, byte: int, n_bytes: int) -> None:  # noqa: N802
        assert byte == 0
        self.driver.clear(address, n_bytes)

    def _cudaDeviceSynchronize(self) -> None:  # noqa: N802
        """Work is done when it is enqueued on the default stream here."""

    def _cudaFree(self, address: int) -> None:  # noqa: N802
        self.driver.release(address)

    def _cudaHostAlloc(self, n_bytes: int, flags: int) -> int:  # noqa: N802
        block = self.driver.allocate_pinned(n_bytes)
        self.pinned[block.ctypes.data] = block
        return int(block.ctypes.data)

    def _cudaHostGetDevicePointer(self, place: int, flags: int) -> int:  # noqa: N802
        assert flags == 0
        return self.driver.device_address(self.pinned[place])

    def _cudaFreeHost(self, place: int) -> None:  # noqa: N802
        self.driver.release_pinned(self.pinned.pop(place))

    def _cudaDeviceGetStreamPriorityRange(self) -> tuple[int, int]:  # noqa: N802
        return 0, -5

    def _cudaStreamCreateWithPriority(  # noqa: N802
        self, flags: int, priority: int
    ) -> HostStreamHandle:
        assert flags == self.cudaStreamNonBlocking and priority in (0, -5)
        handle = HostStreamHandle(self.driver.open_stream(priority == -5))
        self.streams[int(handle)] = handle
        return handle

    def _cudaStreamDestroy(self, stream: HostStreamHandle) -> None:  # noqa: N802
        self.driver.release_stream(stream.stream)

    def _cudaMemcpyAsync(  # noqa: N802
        self, target: int, source: int, n_bytes: int, kind: int, stream: HostStreamHandle
    ) -> None:
        host = source if kind == self.cudaMemcpyKind.cudaMemcpyHostToDevice else target
        array = np.ctypeslib.as_array((ctypes.c_uint8 * n_bytes).from_address(host))
        if kind == self.cudaMemcpyKind.cudaMemcpyHostToDevice:
            self.driver.to_device(target, array, stream.stream)
        else:
            self.driver.to_host(array, source, stream.stream)

    def _cudaMemcpy2DAsync(  # noqa: N802
        self,
        target: int,
        target_pitch: int,
        source: int,
        source_pitch: int,
        width: int,
        height: int,
        kind: int,
        stream: HostStreamHandle,
    ) -> None:
        assert kind == self.cudaMemcpyKind.cudaMemcpyDeviceToDevice and source_pitch == width
        self.driver.copy_pieces(target, target_pitch, source, width, height, stream.stream)

    def _cudaStreamSynchronize(self, stream: HostStreamHandle) -> None:  # noqa: N802
        self.driver.synchronise(stream.stream)

    def _cudaStreamBeginCapture(self, stream: HostStreamHandle, mode: int) -> None:  # noqa: N802
        self.driver.begin_capture(stream.stream)

    def _cudaStreamEndCapture(self, stream: HostStreamHandle) -> Any:  # noqa: N802
        graph = self.driver.end_capture(stream.stream)
        return SimpleNamespace(graph=self.driver.live.pop(id(graph)))

    def _cudaGraphInstantiate(self, recorded: Any, flags: int) -> Any:  # noqa: N802
        self.driver._call("instantiate")
        self.driver.live[id(recorded.graph)] = recorded.graph
        return recorded.graph

    def _cudaGetLastError(self) -> None:  # noqa: N802
        """Forgets a failed capture."""

    def _cudaGraphDestroy(self, recorded: Any) -> None:  # noqa: N802
        """The executable graph is released on its own."""

    def _cudaGraphLaunch(self, graph: Any, stream: HostStreamHandle) -> None:  # noqa: N802
        self.driver.launch(graph, stream.stream)

    def _cudaGraphExecDestroy(self, graph: Any) -> None:  # noqa: N802
        self.driver.release_graph(graph)


class HostTensorRt:
    """The module `tensorrt`."""

    __version__ = "10.3.0"
    ExecutionContextAllocationStrategy = SimpleNamespace(USER_MANAGED=2)
    TensorIOMode = SimpleNamespace(INPUT=1, OUTPUT=2)

    class ILogger:
        Severity = SimpleNamespace(INTERNAL_ERROR=0, ERROR=1, WARNING=2)

    def __init__(self, cudart: HostCudart):
        self.cudart = cudart
        self.log: Any = None
        self.n_shared = 0

    def Runtime(self, logger: Any) -> Any:  # noqa: N802
        self.log = logger
        return SimpleNamespace(deserialize_cuda_engine=self._engine)

    def _said(self, call: Any, *arguments: Any) -> Any:
        """TensorRT's way of failing: a word in the log and None."""
        try:
            return call(*arguments)
        except BackendError as error:
            self.log.log(self.ILogger.Severity.ERROR, str(error))
            return None

    def _engine(self, plan: bytes) -> Any:
        engine = self._said(self.cudart.driver.load, plan)
        return None if engine is None else HostTensorRtEngine(self, engine)


class HostTensorRtEngine:
    def __init__(self, module: HostTensorRt, engine: Any):
        self._module, self._engine = module, engine
        self._driver = module.cudart.driver
        self._tensors = {t.name: t for t in self._driver.tensors(engine)}
        self.num_io_tensors = len(self._tensors)

    def get_tensor_name(self, index: int) -> str:
        return list(self._tensors)[index]

    def get_tensor_shape(self, name: str) -> list[int]:
        return list(self._tensors[name].shape)

    def get_tensor_dtype(self, name: str) -> Any:
        names = {numpy_name: name for name, numpy_name in _DTYPES.items()}
        return SimpleNamespace(name=names[self._tensors[name].dtype])

    def get_tensor_mode(self, name: str) -> int:
        return 1 if self._tensors[name].is_input else 2

    @property
    def device_memory_size_v2(self) -> int:
        return self._driver.scratch_bytes(self._engine)

    def create_runtime_config(self) -> Any:
        """TensorRT-RTX alone has it."""
        module, engine = self._module, self._engine  # no cycle: release must not need a collection

        def share(kernels: HostKernels) -> bool:
            assert isinstance(kernels, HostKernels)
            module.n_shared += 1
            return True

        config = SimpleNamespace(set_runtime_cache=share, how=None)
        config.create_runtime_cache = lambda: HostKernels(module, engine)
        config.set_execution_context_allocation_strategy = lambda how: setattr(config, "how", how)
        return config

    def create_execution_context(self, strategy: Any) -> Any:
        assert getattr(strategy, "how", strategy) == 2
        context = self._module._said(self._driver.context, self._engine)
        return None if context is None else HostTensorRtContext(self._module, context)

    def __del__(self) -> None:
        self._driver.release_engine(self._engine)


class HostKernels:
    """TensorRT-RTX's cache of compiled kernels."""

    def __init__(self, module: HostTensorRt, engine: Any):
        self._module, self._engine = module, engine
        module.cudart.driver.compiled = set()

    def deserialize(self, blob: bytes) -> bool:
        return bool(self._module.cudart.driver.share_kernels(self._engine, blob))

    def serialize(self) -> Any:
        return self._module._said(self._module.cudart.driver.kernels)


class HostTensorRtContext:
    def __init__(self, module: HostTensorRt, context: Any):
        self._module, self._context = module, context
        self._driver = module.cudart.driver

    def set_device_memory(self, address: int, n_bytes: int) -> None:
        self._driver.set_scratch(self._context, address, n_bytes)

    def set_tensor_address(self, name: str, address: int) -> bool:
        self._driver.set_address(self._context, name, address)
        return True

    def execute_async_v3(self, stream: int) -> bool | None:
        handle = self._module.cudart.streams[stream]
        try:
            self._driver.enqueue(self._context, handle.stream)
        except BackendError as error:
            self._module.log.log(1, str(error))
            return False
        return True

    def __del__(self) -> None:
        self._driver.release_context(self._context)


def host_modules(driver: HostDriver) -> tuple[Variant, HostCudart]:
    """A variant of TensorRT and a CUDA runtime on top of a HostDriver."""
    cudart = HostCudart(driver)
    return Variant("tensorrt", HostTensorRt(cudart), HostTensorRt.__version__), cudart
