"""Declare all calls through which the TensorRT backend uses CUDA and TensorRT.

`cuda_driver` implements them. Tests implement them on the host, so that they can check bindings,
order and releases without a GPU. Handles are opaque. Every call may raise BackendError, and then
has done nothing, except that work enqueued earlier may fail as late as `synchronise`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import EngineOptions

Address = int
"""A place in device memory."""


@dataclass(frozen=True, slots=True)
class Device:
    """The GPU that runs the engines.

    Attributes:
        name: CUDA's name of the GPU; boards of one family have the same.
        compute_capability: The kind of GPU, such as "8.7".
        n_multiprocessors: Number of multiprocessors; it distinguishes an Orin Nano from an NX.
        is_integrated: The GPU shares the host's memory, and uses pinned memory without a copy.
        cuda_version: The newest CUDA that its driver supports, such as "13.0".
    """

    name: str
    compute_capability: str
    memory_bytes: int
    n_multiprocessors: int = 0
    is_integrated: bool = False
    cuda_version: str = ""

    @property
    def kind(self) -> str:
        """The kind of device that an engine is timed on and belongs to."""
        gib = round(self.memory_bytes / (1 << 30))
        return f"{self.name}, {self.n_multiprocessors} multiprocessors, {gib} GiB"


@dataclass(frozen=True, slots=True)
class EngineTensor:
    """An input or output as the engine declares it; dtype is numpy's name."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_input: bool


@dataclass(frozen=True, slots=True)
class Build:
    """An engine that the builder has made.

    Attributes:
        plan: The serialized engine.
        timing: The timing cache with the times of this build: b"" where the variant has none.
        facts: Facts of the build and of the engine, as JSON values: `seconds`, `peak_bytes`
            (the most bytes that the builder's process had resident), `workspace_bytes`,
            `optimization_level`, `kernels` (of `inspection.Kernel`; empty with `kernels_missing`,
            the reason), `products` (`inspection.asked_products`).
    """

    plan: bytes
    timing: bytes
    facts: dict[str, Any]


class TensorRtDriver(Protocol):
    """The calls of CUDA and TensorRT; each method is one call."""

    @property
    def variant(self) -> str:
        """Name of the TensorRT in use, "tensorrt" or "tensorrt_rtx"."""

    @property
    def version(self) -> str:
        """Version of the TensorRT in use."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """TensorRT's last warnings, oldest first."""

    def device(self) -> Device:
        """Describe the GPU in use."""

    def waits(self) -> str:
        """Return how this process really waits for the GPU: "auto", "spin", "yield" or "block"."""

    def build(self, onnx: Path, options: EngineOptions, timing: bytes) -> Build:
        """Build a graph's engine; see `builder.build_plan`."""

    # Engines and contexts

    def load(self, plan: bytes) -> Any:
        """Make an engine from its plan."""

    def tensors(self, engine: Any) -> list[EngineTensor]:
        """List an engine's inputs and outputs."""

    def scratch_bytes(self, engine: Any) -> int:
        """Return the bytes of scratch memory that an engine's contexts need while they run."""

    def share_kernels(self, engine: Any, kept: bytes) -> bool:
        """Let all contexts made from now on share the kernels that TensorRT-RTX compiles.

        Args:
            engine: Any engine.
            kept: The result of `kernels` in an earlier process, or nothing.

        Returns:
            Whether these kernels fit this machine; if not, the sharing begins with none.
        """

    def kernels(self) -> bytes:
        """Return the kernels that were compiled so far."""

    def context(self, engine: Any) -> Any:
        """Make an execution context without scratch memory."""

    def set_scratch(self, context: Any, address: Address, n_bytes: int) -> None:
        """Lend scratch memory to a context for good."""

    def set_address(self, context: Any, name: str, address: Address) -> None:
        """Bind a tensor for what is enqueued from now on; captured graphs keep theirs."""

    def release_context(self, context: Any) -> None: ...

    def release_engine(self, engine: Any) -> None: ...

    # Memory

    def allocate(self, n_bytes: int) -> Address:
        """Allocate device memory, aligned to 256 bytes."""

    def release(self, address: Address) -> None: ...

    def allocate_pinned(self, n_bytes: int) -> Array:
        """Allocate page-locked host memory as bytes, (n_bytes,) uint8."""

    def device_address(self, block: Array) -> Address:
        """Return the address at which an integrated GPU reads and writes a pinned block."""

    def release_pinned(self, block: Array) -> None: ...

    # Order of work: everything below is enqueued on a stream and runs in that order

    def open_stream(self, high_priority: bool) -> Any:
        """Open a stream, of the highest priority among the process's streams or of the default."""

    def release_stream(self, stream: Any) -> None: ...

    def to_device(self, target: Address, source: Array, stream: Any) -> None:
        """Copy a contiguous pinned array."""

    def to_host(self, target: Array, source: Address, stream: Any) -> None:
        """Copy into a contiguous pinned array."""

    def copy_pieces(
        self,
        target: Address,
        pitch: int,
        source: Address,
        n_bytes: int,
        n_pieces: int,
        stream: Any,
    ) -> None:
        """Copy `n_pieces` adjacent pieces of `n_bytes` to places that lie `pitch` bytes apart."""

    def enqueue(self, context: Any, stream: Any) -> None:
        """Run a context."""

    def synchronise(self, stream: Any) -> None:
        """Wait until everything enqueued has run."""

    def is_capturable(self, context: Any, stream: Any) -> bool:
        """Whether TensorRT expects a capture of this context to work."""

    def begin_capture(self, stream: Any) -> None:
        """Record what is enqueued from now on instead of running it."""

    def end_capture(self, stream: Any) -> Any:
        """Return the recording as an executable CUDA graph; the capture ends also on an error."""

    def launch(self, graph: Any, stream: Any) -> None:
        """Enqueue a whole recording."""

    def release_graph(self, graph: Any) -> None: ...

    def close(self) -> None:
        """Drop the references to the device; everything was released before."""
