"""Declare all calls through which the TensorRT backend uses CUDA and TensorRT.

`cuda_driver` implements them. Tests implement them on the host, so that they can check without a
GPU what is bound, in which order calls come, and what is released. Engines, contexts, streams and
graphs are opaque objects of type Any. Every call may raise BackendError, and then has done nothing;
only work that was enqueued before may fail as late as in `synchronise`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import EngineOptions

Address = int
"""Addresses in device memory are given as plain ints."""


@dataclass(frozen=True, slots=True)
class Device:
    """Describes the GPU that runs the engines.

    Attributes:
        name: CUDA's name of the GPU; all boards of one family have the same name.
        compute_capability: The kind of GPU, such as "8.7".
        memory_bytes: Size of the GPU's memory in bytes.
        n_multiprocessors: Number of multiprocessors; it distinguishes an Orin Nano from an NX.
        is_integrated: Whether the GPU shares the host's memory; it then reads and writes
            page-locked host memory without a copy.
        cuda_version: The newest CUDA that the GPU's driver supports, such as "13.0".
    """

    name: str
    compute_capability: str
    memory_bytes: int
    n_multiprocessors: int = 0
    is_integrated: bool = False
    cuda_version: str = ""

    @property
    def kind(self) -> str:
        """Return words for the kind of GPU: name, number of multiprocessors and memory in GiB.

        TensorRT's engines are tuned on one kind of GPU and fit only this kind.
        """
        gib = round(self.memory_bytes / (1 << 30))
        return f"{self.name}, {self.n_multiprocessors} multiprocessors, {gib} GiB"


@dataclass(frozen=True, slots=True)
class EngineTensor:
    """Describes an input or output of an engine, as the engine declares it.

    Attributes:
        dtype: numpy's name of the element type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_input: bool


@dataclass(frozen=True, slots=True)
class Build:
    """Holds an engine that the builder has made, and facts about the build.

    Attributes:
        plan: The serialized engine.
        timing: TensorRT's timing cache, with the times that this build measured; b"" for
            TensorRT-RTX, which measures nothing.
        facts: Facts of the build and of the engine, as JSON values: `seconds`, `peak_bytes`
            (the most bytes that the builder's process had in memory), `workspace_bytes`,
            `optimization_level`, `kernels` (fields of `inspection.Kernel`; empty if they could not
            be listed, and then `kernels_missing` is the reason), `products` (see
            `inspection.asked_products`).
    """

    plan: bytes
    timing: bytes
    facts: dict[str, Any]


class TensorRtDriver(Protocol):
    """Makes the calls of CUDA and TensorRT; each method is one call."""

    @property
    def variant(self) -> str:
        """Return the name of the TensorRT in use, "tensorrt" or "tensorrt_rtx"."""

    @property
    def version(self) -> str:
        """Return the version of the TensorRT in use."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return TensorRT's last warnings, oldest first."""

    def device(self) -> Device:
        """Describe the GPU in use."""

    def waits(self) -> str:
        """Return how this process really waits for the GPU: "auto", "spin", "yield" or "block"."""

    def build(self, onnx: Path, options: EngineOptions, timing: bytes) -> Build:
        """Build the engine of a graph; see `builder.build_plan` for arguments and errors."""

    # Engines and contexts

    def load(self, plan: bytes) -> Any:
        """Make an engine from its plan, the bytes of a serialized engine."""

    def tensors(self, engine: Any) -> list[EngineTensor]:
        """List an engine's inputs and outputs."""

    def scratch_bytes(self, engine: Any) -> int:
        """Return how many bytes of scratch memory each of an engine's contexts needs to run."""

    def share_kernels(self, engine: Any, kept: bytes) -> bool:
        """Let all contexts that are made later share the kernels that TensorRT-RTX compiles.

        Args:
            engine: Any of the engines.
            kept: Kernels that `kernels` returned in an earlier process; b"" without any.

        Returns:
            True if these kernels fit this machine and are used; False if no kernel is shared yet.
        """

    def kernels(self) -> bytes:
        """Return all kernels that are shared now, serialized."""

    def context(self, engine: Any) -> Any:
        """Make an execution context, in which an engine runs; it has no scratch memory yet."""

    def set_scratch(self, context: Any, address: Address, n_bytes: int) -> None:
        """Set the scratch memory that a context uses for as long as it lives."""

    def set_address(self, context: Any, name: str, address: Address) -> None:
        """Set the address of an input or output for all later runs of a context.

        CUDA graphs that were captured before keep the addresses of their capture.
        """

    def release_context(self, context: Any) -> None: ...

    def release_engine(self, engine: Any) -> None: ...

    # Memory

    def allocate(self, n_bytes: int) -> Address:
        """Allocate device memory; return its address, a multiple of 256 bytes."""

    def clear(self, address: Address, n_bytes: int) -> None:
        """Fill device memory with 0, and wait until that is done."""

    def release(self, address: Address) -> None: ...

    def allocate_pinned(self, n_bytes: int) -> Array:
        """Allocate page-locked ("pinned") host memory, as an array (n_bytes,) of uint8."""

    def device_address(self, block: Array) -> Address:
        """Return the address at which an integrated GPU reads and writes a pinned block."""

    def release_pinned(self, block: Array) -> None: ...

    # Order of work: everything below is enqueued on a stream and runs in that order

    def open_stream(self, high_priority: bool) -> Any:
        """Open a CUDA stream, a queue of GPU work.

        It has the highest priority among the process's streams, or else the default priority.
        """

    def release_stream(self, stream: Any) -> None: ...

    def to_device(self, target: Address, source: Array, stream: Any) -> None:
        """Enqueue a copy from a contiguous pinned array on the host to device memory."""

    def to_host(self, target: Array, source: Address, stream: Any) -> None:
        """Enqueue a copy from device memory to a contiguous pinned array on the host."""

    def copy_pieces(
        self,
        target: Address,
        pitch: int,
        source: Address,
        n_bytes: int,
        n_pieces: int,
        stream: Any,
    ) -> None:
        """Enqueue a copy within device memory of pieces that lie next to each other.

        Args:
            target: Address to which the first piece is copied.
            pitch: Bytes from the start of one copied piece to the start of the next.
            source: Address of the first piece.
            n_bytes: Size of each piece in bytes.
            n_pieces: Number of pieces.
            stream: The stream on which the copy is enqueued.
        """

    def enqueue(self, context: Any, stream: Any) -> None:
        """Enqueue one run of a context."""

    def synchronise(self, stream: Any) -> None:
        """Wait until all work that was enqueued on the stream has run."""

    def is_capturable(self, context: Any, stream: Any) -> bool:
        """Return whether TensorRT expects that a run of this context can be captured."""

    def begin_capture(self, stream: Any) -> None:
        """Begin a capture: record all work that is enqueued from now on, instead of running it."""

    def end_capture(self, stream: Any) -> Any:
        """End the capture, also after an error, and return it as an executable CUDA graph."""

    def launch(self, graph: Any, stream: Any) -> None:
        """Enqueue all work that a captured CUDA graph holds."""

    def release_graph(self, graph: Any) -> None: ...

    def close(self) -> None:
        """Drop all references to the device; the caller has released everything else before."""
