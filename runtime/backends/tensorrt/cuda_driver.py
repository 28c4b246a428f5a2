"""Drive a real GPU: call CUDA through NVIDIA's `cuda-bindings`, and run engines with `tensorrt`.

Both variants of TensorRT (`tensorrt` 10.3 to 11, `tensorrt_rtx`) take the same calls. The Python
modules of both libraries are arguments, so that tests can replace them; no GPU has run this file
yet.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.tensorrt.build_process import build_in_child
from edgefold.runtime.backends.tensorrt.builder import require_runnable
from edgefold.runtime.backends.tensorrt.driver import Address, Build, Device, EngineTensor
from edgefold.runtime.backends.tensorrt.variant import Variant, find_variant, installed, make_logger
from edgefold.runtime.errors import BackendError, install_extra

_DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}
_REMEDIES = {
    "cudaErrorInsufficientDriver": "; the CUDA runtime of cuda-bindings is newer than the driver: "
    "pip install 'cuda-bindings==12.*' on JetPack 6 and wherever the driver is of CUDA 12",
    "cudaErrorNoDevice": "; no NVIDIA GPU is visible to this process",
}
"""Gives advice for some of CUDA's errors, by CUDA's name of the error."""
_SCHEDULES = {
    "auto": "cudaDeviceScheduleAuto",
    "spin": "cudaDeviceScheduleSpin",
    "yield": "cudaDeviceScheduleYield",
    "block": "cudaDeviceScheduleBlockingSync",
}
"""Gives the name of CUDA's flag for each way in which a process waits for the GPU."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """Holds a CUDA stream, a queue of GPU work.

    Attributes:
        queue: The stream's object in `cuda-bindings`.
        handle: The stream's number, which TensorRT takes.
    """

    queue: Any
    handle: int


class _Handle:
    """Holds the only reference to one of TensorRT's objects; setting it to None deletes the object.

    Attributes:
        held: The object, such as an engine or a context.
    """

    __slots__ = ("held",)

    def __init__(self, held: Any):
        self.held = held


class CudaDriver:
    """Makes the calls of `TensorRtDriver` on GPU 0 of this machine.

    Args:
        variant: The TensorRT in use.
        cudart: The module `cuda.bindings.runtime`.
        wait: The way in which the process waits for the GPU; see `EngineOptions`.
        handle_of: Function that returns the number of a stream from the stream's object.

    Raises:
        BackendError: No GPU answers.
    """

    def __init__(
        self,
        variant: Variant,
        cudart: Any,
        wait: str = "auto",
        handle_of: Callable[[Any], int] = int,
    ):
        self._trt = variant.module
        self._variant = variant
        self._cudart = cudart
        self._handle_of = handle_of
        if wait != "auto":
            self._wait_by(getattr(cudart, _SCHEDULES[wait]))
        self._call("cudaSetDevice", 0)
        self._logger = make_logger(variant)
        self._kernels: Any = None
        try:
            self._runtime = self._trt.Runtime(self._logger)
        except (TypeError, RuntimeError) as error:  # pybind11's word for a null pointer
            reasons = "; ".join(self._logger.errors) or error
            raise BackendError(f"{variant.title} does not open here: {reasons}") from error

    def _wait_by(self, flag: int) -> None:
        """Set how the process waits for the GPU; call it before `cudaSetDevice` opens the GPU.

        Args:
            flag: CUDA's flag of the way to wait.
        """
        if hasattr(self._cudart, "cudaInitDevice"):
            self._call("cudaInitDevice", 0, flag, self._cudart.cudaInitDeviceFlagsAreValid)
        else:  # bindings of CUDA 11
            self._call("cudaSetDeviceFlags", flag)

    @classmethod
    def open(cls, wait: str = "auto") -> CudaDriver:
        """Find TensorRT and a GPU, and return the driver of both; the quickest checks come first.

        Args:
            wait: The way in which the process waits for the GPU; see `EngineOptions`.

        Raises:
            BackendError: A library or the GPU is missing, or TensorRT-RTX does not know this GPU;
                the message says what to install.
        """
        if installed() is None:
            find_variant()  # raises with what to install
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            raise BackendError(
                "TensorRT is installed, but this machine has no NVIDIA driver (libcuda.so.1 was "
                "not found); on a Jetson it comes with JetPack, elsewhere install the driver."
            ) from None
        driver = cls(find_variant(), _cudart(), wait, _find_handle_of())
        try:
            require_runnable(driver._variant, driver.device())
        except BackendError:
            driver.close()
            raise
        return driver

    @property
    def variant(self) -> str:
        return self._variant.name

    @property
    def version(self) -> str:
        return self._variant.version

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self._logger.warnings)

    def _call(self, function: str, *arguments: Any) -> Any:
        """Call a function of CUDA by its name, and return its result.

        `cuda-bindings` returns (status, *results). No result becomes None, several become a list.

        Raises:
            BackendError: CUDA's status is an error.
        """
        try:
            status, *results = getattr(self._cudart, function)(*arguments)
        except RuntimeError as error:  # the bindings did not find CUDA's library
            raise BackendError(f"{function} failed: {error}") from error
        if status != self._cudart.cudaError_t.cudaSuccess:
            remedy = _REMEDIES.get(status.name, "")
            raise BackendError(f"{function} failed: {status.name} ({int(status)}){remedy}")
        return results if len(results) > 1 else next(iter(results), None)

    def _ask(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of TensorRT, and return its result.

        Args:
            what: Words for the error message after "TensorRT could not".
            function: The function.
            arguments: The function's arguments.

        Raises:
            BackendError: The function returned None or False; the message holds TensorRT's log.
        """
        self._logger.errors.clear()
        result = function(*arguments)
        if result is None or result is False:
            reasons = "; ".join(self._logger.errors) or "no reason given"
            raise BackendError(f"TensorRT could not {what}: {reasons}")
        return result

    def device(self) -> Device:
        properties = self._call("cudaGetDeviceProperties", 0)
        cuda = int(self._call("cudaDriverGetVersion"))  # 13000 is 13.0, 12060 is 12.6
        return Device(
            properties.name.split(b"\0")[0].decode(errors="replace"),
            f"{properties.major}.{properties.minor}",
            int(properties.totalGlobalMem),
            int(properties.multiProcessorCount),
            bool(properties.integrated),
            f"{cuda // 1000}.{cuda % 1000 // 10}",
        )

    def waits(self) -> str:
        flags = int(self._call("cudaGetDeviceFlags")) & self._cudart.cudaDeviceScheduleMask
        words = {getattr(self._cudart, flag): word for word, flag in _SCHEDULES.items()}
        return words.get(flags, f"flag {flags}")

    def build(self, onnx: Path, options: EngineOptions, timing: bytes) -> Build:
        return build_in_child(self._variant.name, onnx, options, timing)

    # Engines and contexts -------------------------------------------------------------------------

    def load(self, plan: bytes) -> _Handle:
        return _Handle(self._ask("load an engine", self._runtime.deserialize_cuda_engine, plan))

    def tensors(self, engine: _Handle) -> list[EngineTensor]:
        asked = engine.held
        names = [asked.get_tensor_name(index) for index in range(asked.num_io_tensors)]
        return [
            EngineTensor(
                name,
                tuple(asked.get_tensor_shape(name)),
                _DTYPES.get(asked.get_tensor_dtype(name).name, "unknown"),
                asked.get_tensor_mode(name) == self._trt.TensorIOMode.INPUT,
            )
            for name in names
        ]

    def scratch_bytes(self, engine: _Handle) -> int:
        return int(engine.held.device_memory_size_v2)

    def share_kernels(self, engine: _Handle, kept: bytes) -> bool:
        config = engine.held.create_runtime_config()
        self._kernels = self._ask("make a cache of kernels", config.create_runtime_cache)
        return bool(kept) and bool(self._kernels.deserialize(kept))

    def kernels(self) -> bytes:
        return bytes(self._ask("give its kernels", self._kernels.serialize))

    def context(self, engine: _Handle) -> _Handle:
        """Make a context that allocates no scratch memory and shares compiled kernels."""
        trt_engine = engine.held
        how = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if self._kernels is not None:
            config = trt_engine.create_runtime_config()
            config.set_execution_context_allocation_strategy(how)
            self._ask("share its kernels", config.set_runtime_cache, self._kernels)
            how = config
        return _Handle(self._ask("make a context", trt_engine.create_execution_context, how))

    def set_scratch(self, context: _Handle, address: Address, n_bytes: int) -> None:
        context.held.set_device_memory(address, n_bytes)

    def set_address(self, context: _Handle, name: str, address: Address) -> None:
        self._ask(f"bind {name}", context.held.set_tensor_address, name, address)

    def release_context(self, context: _Handle) -> None:
        context.held = None

    def release_engine(self, engine: _Handle) -> None:
        engine.held = None

    # Memory ---------------------------------------------------------------------------------------

    def allocate(self, n_bytes: int) -> Address:
        return int(self._call("cudaMalloc", n_bytes))

    def clear(self, address: Address, n_bytes: int) -> None:
        self._call("cudaMemset", address, 0, n_bytes)
        self._call("cudaDeviceSynchronize")

    def release(self, address: Address) -> None:
        self._call("cudaFree", address)

    def allocate_pinned(self, n_bytes: int) -> Array:
        """Allocate page-locked host memory, which the GPU can copy while the host works."""
        place = int(self._call("cudaHostAlloc", n_bytes, self._cudart.cudaHostAllocMapped))
        return np.ctypeslib.as_array((ctypes.c_uint8 * n_bytes).from_address(place))

    def device_address(self, block: Array) -> Address:
        return int(self._call("cudaHostGetDevicePointer", block.ctypes.data, 0))

    def release_pinned(self, block: Array) -> None:
        self._call("cudaFreeHost", block.ctypes.data)

    # Order of work --------------------------------------------------------------------------------

    def open_stream(self, high_priority: bool) -> _Stream:
        """Open a stream whose work does not wait for work on CUDA's default stream."""
        flag = self._cudart.cudaStreamNonBlocking
        highest = self._call("cudaDeviceGetStreamPriorityRange")[1] if high_priority else 0
        queue = self._call("cudaStreamCreateWithPriority", flag, highest)
        return _Stream(queue, self._handle_of(queue))

    def release_stream(self, stream: _Stream) -> None:
        self._call("cudaStreamDestroy", stream.queue)

    def to_device(self, target: Address, source: Array, stream: _Stream) -> None:
        kind = self._cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._call("cudaMemcpyAsync", target, source.ctypes.data, source.nbytes, kind, stream.queue)

    def to_host(self, target: Array, source: Address, stream: _Stream) -> None:
        kind = self._cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._call("cudaMemcpyAsync", target.ctypes.data, source, target.nbytes, kind, stream.queue)

    def copy_pieces(
        self,
        target: Address,
        pitch: int,
        source: Address,
        n_bytes: int,
        n_pieces: int,
        stream: _Stream,
    ) -> None:
        kind = self._cudart.cudaMemcpyKind.cudaMemcpyDeviceToDevice
        self._call(
            "cudaMemcpy2DAsync",
            target,
            pitch,
            source,
            n_bytes,
            n_bytes,
            n_pieces,
            kind,
            stream.queue,
        )

    def enqueue(self, context: _Handle, stream: _Stream) -> None:
        self._ask("enqueue a step", context.held.execute_async_v3, stream.handle)

    def synchronise(self, stream: _Stream) -> None:
        self._call("cudaStreamSynchronize", stream.queue)

    def is_capturable(self, context: _Handle, stream: _Stream) -> bool:
        """Ask TensorRT-RTX whether it can capture a run; TensorRT can always, for our graphs."""
        ask = getattr(context.held, "is_stream_capturable", None)
        return ask is None or bool(ask(stream.handle))

    def begin_capture(self, stream: _Stream) -> None:
        """Begin to record work on the stream; other threads of the process may use CUDA then."""
        mode = self._cudart.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        self._call("cudaStreamBeginCapture", stream.queue, mode)

    def end_capture(self, stream: _Stream) -> Any:
        """End the recording and return it as an executable CUDA graph."""
        try:
            recorded = self._call("cudaStreamEndCapture", stream.queue)
            with ExitStack() as failing:
                with ExitStack() as done:
                    done.callback(self._call, "cudaGraphDestroy", recorded)
                    graph = self._call("cudaGraphInstantiate", recorded, 0)
                    failing.callback(self._call, "cudaGraphExecDestroy", graph)
                failing.pop_all()
            return graph
        except BackendError:
            self._cudart.cudaGetLastError()  # else the next launch would report it
            raise

    def launch(self, graph: Any, stream: _Stream) -> None:
        self._call("cudaGraphLaunch", graph, stream.queue)

    def release_graph(self, graph: Any) -> None:
        self._call("cudaGraphExecDestroy", graph)

    def close(self) -> None:
        self._kernels = None
        self._runtime = None


def _cudart() -> Any:
    try:
        from cuda.bindings import runtime
    except ImportError:
        raise BackendError(
            "TensorRT is installed, but CUDA's Python bindings are not; "
            f"{install_extra('cuda12')} (CUDA 12, JetPack 6) or "
            f"{install_extra('cuda13')} (CUDA 13)."
        ) from None
    return runtime


def _find_handle_of() -> Callable[[Any], int]:
    try:
        from cuda.bindings.utils import get_cuda_native_handle
    except ImportError:  # before 12.9.1
        return int
    return get_cuda_native_handle  # type: ignore[no-any-return]
