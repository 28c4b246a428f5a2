"""The calls through which the TensorRT backend reaches CUDA and TensorRT; all of them are here.

`cuda_driver` implements them. Tests implement them on the host, so that they can check without a
GPU what is bound where, what runs when and what is released. Handles are opaque. Every call may
raise BackendError, and then has done nothing, except that work enqueued earlier may fail as late as
`synchronise`.
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
        name: As CUDA reports it; boards of one family share theirs.
        compute_capability: As "8.7".
        n_multiprocessors: Tells an Orin Nano from an Orin NX.
        is_integrated: It shares the host's memory, and runs on pinned memory as it lies.
        cuda_version: The newest CUDA that its driver supports, as "13.0".
    """

    name: str
    compute_capability: str
    memory_bytes: int
    n_multiprocessors: int = 0
    is_integrated: bool = False
    cuda_version: str = ""

    @property
    def kind(self) -> str:
        """What an engine depends on: it was timed on one kind of device and belongs to it."""
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
    """An engine as the builder left it.

    Attributes:
        plan: The serialized engine.
        timing: The timing cache grown by this build: b"" where the variant has none.
        facts: How it was built and what it consists of, as JSON has it: `seconds`, `peak_bytes`
            (the most that the builder's process had resident), `workspace_bytes`,
            `optimization_level`, `kernels` (of `inspection.Kernel`; empty with `kernels_missing`,
            the reason), `products` (`inspection.asked_products`).
    """

    plan: bytes
    timing: bytes
    facts: dict[str, Any]


class TensorRtDriver(Protocol):
    """CUDA and TensorRT, one call a method."""

    @property
    def variant(self) -> str:
        """Which TensorRT: "tensorrt" or "tensorrt_rtx"."""

    @property
    def version(self) -> str:
        """Its version."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """TensorRT's last warnings, oldest first."""

    def device(self) -> Device:
        """The GPU in use."""

    def waits(self) -> str:
        """How this process really waits for the GPU: "auto", "spin", "yield" or "block"."""

    def build(self, onnx: Path, options: EngineOptions, timing: bytes) -> Build:
        """Build a graph's engine; see `builder.build_plan`."""

    # Engines and contexts

    def load(self, plan: bytes) -> Any:
        """An engine from its plan."""

    def tensors(self, engine: Any) -> list[EngineTensor]:
        """Its inputs and outputs."""

    def scratch_bytes(self, engine: Any) -> int:
        """Scratch memory that its contexts need while they run."""

    def share_kernels(self, engine: Any, kept: bytes) -> bool:
        """Let all contexts made from now on share the kernels that TensorRT-RTX compiles.

        Args:
            engine: Any engine.
            kept: What `kernels` gave in an earlier process, or nothing.

        Returns:
            Whether the kept ones fit this machine; else the sharing begins with none.
        """

    def kernels(self) -> bytes:
        """What was compiled so far."""

    def context(self, engine: Any) -> Any:
        """An execution context without scratch memory of its own."""

    def set_scratch(self, context: Any, address: Address, n_bytes: int) -> None:
        """Lend scratch memory to a context for good."""

    def set_address(self, context: Any, name: str, address: Address) -> None:
        """Bind a tensor for what is enqueued from now on; captured graphs keep theirs."""

    def release_context(self, context: Any) -> None: ...

    def release_engine(self, engine: Any) -> None: ...

    # Memory

    def allocate(self, n_bytes: int) -> Address:
        """Device memory, aligned to 256 bytes."""

    def release(self, address: Address) -> None: ...

    def allocate_pinned(self, n_bytes: int) -> Array:
        """Page-locked host memory as bytes, (n_bytes,) uint8."""

    def device_address(self, block: Array) -> Address:
        """Where an integrated GPU finds a pinned block, of which it reads and writes the bytes."""

    def release_pinned(self, block: Array) -> None: ...

    # Order of work: everything below is enqueued on a stream and runs in that order

    def open_stream(self, high_priority: bool) -> Any:
        """A stream; of the highest priority among the process's streams, or as all others."""

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
        """Tell whether TensorRT expects a capture of this context to work."""

    def begin_capture(self, stream: Any) -> None:
        """Record what is enqueued from now on instead of running it."""

    def end_capture(self, stream: Any) -> Any:
        """Return the recording as an executable CUDA graph; capture ends even if this raises."""

    def launch(self, graph: Any, stream: Any) -> None:
        """Enqueue a whole recording."""

    def release_graph(self, graph: Any) -> None: ...

    def close(self) -> None:
        """Forget the device; everything was released before."""
