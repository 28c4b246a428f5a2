"""The TensorRT seam on the host: engines compute with onnxruntime, addresses are checked.

Device memory is apart from the host's: an address is a number that only this driver can read, so
that a missed copy, a stale address or a missed swap gives wrong numbers or an error. What is
enqueued runs only at `synchronise`, as late as a GPU may run it. A context runs on the addresses
that were set last before an enqueue; a captured graph keeps those of its capture, and needs its
context as long as it lives. An integrated GPU finds pinned blocks under addresses of their own.
Every handle that was made and not released is in `live`.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime import BackendError
from edgefold.runtime.arrays import Array, aligned_full
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.onnxruntime_session import open_session
from edgefold.runtime.backends.tensorrt.driver import Address, Build, Device, EngineTensor
from edgefold.runtime.bundle.manifest import DTYPES

SCRATCH_BYTES = {"refresh": 4096}
"""By graph name; others need 1024."""
FROM_ONNX = {f"tensor({name})": name for name in DTYPES} | {"tensor(float)": "float32"}

Work = Callable[[], None]


@dataclass
class HostEngine:
    session: Any
    name: str


@dataclass(eq=False)  # two contexts of an engine may have the same addresses
class HostContext:
    engine: HostEngine
    addresses: dict[str, Address] = field(default_factory=dict)
    scratch: tuple[Address, int] | None = None
    has_run: bool = False


@dataclass
class HostStream:
    queue: list[Work] = field(default_factory=list)
    recording: list[Work] | None = None
    recorded: list[HostContext] = field(default_factory=list)
    high_priority: bool = False


@dataclass
class HostGraph:
    work: list[Work]
    contexts: list[HostContext]


class HostDriver:
    """A `TensorRtDriver` without a GPU.

    Attributes:
        fail_at: Number of the call that raises, counted from 0; None for none.
        calls: Names of the calls so far.
        live: What was made and not yet released, by its identity.
        n_builds: Engines built, as against loaded.
        built_with: With which options.
        variant: "tensorrt_rtx" compiles each engine's kernels at its first run.
        is_integrated: The GPU shares the host's memory.
        fits: What kept kernels begin with if they fit this machine.
        fresh: The byte that fills device memory which nobody has written.
        graphs_follow_context: Captured graphs run on the addresses that their context has last.
        compiled: Kernels that its contexts share; None while contexts share none.
        n_compiled: Kernels compiled, as against taken from those kept.
        built_with: With which options.
    """

    version = "10.3.0"
    warnings = ("a warning",)

    def __init__(
        self,
        sessions: dict[bytes, Any] | None = None,
        variant: str = "tensorrt",
        is_integrated: bool = False,
    ) -> None:
        self.variant, self.is_integrated = variant, is_integrated
        self.waiting = "auto"
        self.fits = "host"
        self.compiled: set[str] | None = None
        self.n_compiled = 0
        self.fail_at: int | None = None
        self.calls: list[str] = []
        self.live: dict[int, Any] = {}
        self.n_builds = 0
        self.built_with: list[EngineOptions] = []
        self.capturable = True
        self.fresh = 0xCD
        self.graphs_follow_context = False
        self._blocks: dict[Address, Array] = {}
        self._starts: list[Address] = []
        self._next: Address = 0x7000_0000_0000
        self._next_pinned: Address = 0x6000_0000_0000
        self._sessions = {} if sessions is None else sessions

    # The test's own side --------------------------------------------------------------------------

    def _call(self, name: str) -> None:
        index = len(self.calls)
        self.calls.append(name)
        if index == self.fail_at:
            raise BackendError(f"injected into call {index}, {name}")

    def _made(self, handle: Any) -> Any:
        self.live[id(handle)] = handle
        return handle

    def _gone(self, handle: Any) -> None:
        assert self.live.pop(id(handle), None) is not None, "released twice, or never made"

    def memory(self, address: Address, n_bytes: int) -> Array:
        """Device bytes; an address outside every block is the caller's mistake."""
        index = bisect_right(self._starts, address) - 1
        start = self._starts[index] if index >= 0 else -1
        assert start in self._blocks, f"{address:#x} is no device memory"
        block = self._blocks[start]
        assert address - start + n_bytes <= len(block), f"{n_bytes} bytes at {address:#x} overrun"
        return block[address - start : address - start + n_bytes]

    def _pinned(self, array: Array) -> None:
        place = array.ctypes.data
        for block in self.live.values():
            if isinstance(block, np.ndarray):
                start = block.ctypes.data
                if start <= place and place + array.nbytes <= start + block.nbytes:
                    assert array.flags.c_contiguous
                    return
        raise AssertionError("an asynchronous copy needs pinned memory that is still there")

    # Engines --------------------------------------------------------------------------------------

    def device(self) -> Device:
        self._call("device")
        return Device("host", "8.7", 1 << 33, 8, self.is_integrated, "13.0")

    def waits(self) -> str:
        self._call("waits")
        return self.waiting

    def build(self, onnx: Path, options: EngineOptions, timing: bytes) -> Build:
        self._call("build")
        self.n_builds += 1
        self.built_with.append(options)
        return Build(str(onnx).encode(), timing + b"t", {"seconds": 1.5, "kernels": []})

    def load(self, plan: bytes) -> HostEngine:
        self._call("load")
        if plan not in self._sessions:
            self._sessions[plan] = open_session(Path(plan.decode()))
        engine = HostEngine(self._sessions[plan], Path(plan.decode()).stem)
        return self._made(engine)  # type: ignore[no-any-return]

    def tensors(self, engine: HostEngine) -> list[EngineTensor]:
        self._call("tensors")
        session = engine.session
        return [
            EngineTensor(t.name, tuple(t.shape), FROM_ONNX[t.type], is_input)
            for found, is_input in ((session.get_inputs(), True), (session.get_outputs(), False))
            for t in found
        ]

    def scratch_bytes(self, engine: HostEngine) -> int:
        self._call("scratch_bytes")
        return SCRATCH_BYTES.get(engine.name, 1024)

    def share_kernels(self, engine: HostEngine, kept: bytes) -> bool:
        self._call("share_kernels")
        assert id(engine) in self.live and self.variant == "tensorrt_rtx"
        fits, *names = kept.decode().split() or [""]
        self.compiled = set(names) if fits == self.fits else set()
        return fits == self.fits

    def kernels(self) -> bytes:
        self._call("kernels")
        assert self.compiled is not None
        return " ".join([self.fits, *sorted(self.compiled)]).encode()

    def context(self, engine: HostEngine) -> HostContext:
        self._call("context")
        assert id(engine) in self.live
        shares = self.compiled is not None
        assert shares == (self.variant == "tensorrt_rtx"), "each context compiles its own kernels"
        return self._made(HostContext(engine))  # type: ignore[no-any-return]

    def set_scratch(self, context: HostContext, address: Address, n_bytes: int) -> None:
        self._call("set_scratch")
        assert address % 256 == 0
        assert n_bytes >= SCRATCH_BYTES.get(context.engine.name, 1024)
        self.memory(address, n_bytes)
        context.scratch = (address, n_bytes)

    def set_address(self, context: HostContext, name: str, address: Address) -> None:
        self._call("set_address")
        context.addresses[name] = address

    def release_context(self, context: HostContext) -> None:
        self._call("release_context")
        if self.fail_at is None:  # else a graph's release may be what failed
            graphs = [g for g in self.live.values() if isinstance(g, HostGraph)]
            assert all(context not in g.contexts for g in graphs), "a graph outlives its context"
        self._gone(context)

    def release_engine(self, engine: HostEngine) -> None:
        self._call("release_engine")
        if self.fail_at is None:  # else a context's release may be what failed
            contexts = [c for c in self.live.values() if isinstance(c, HostContext)]
            assert all(c.engine is not engine for c in contexts), "an engine outlives its contexts"
        self._gone(engine)

    # Memory ---------------------------------------------------------------------------------------

    def allocate(self, n_bytes: int) -> Address:
        self._call("allocate")
        address = self._next
        self._next += -(-n_bytes // 256) * 256 + 256  # a gap, so that an overrun is noticed
        self._blocks[address] = np.full(n_bytes, self.fresh, np.uint8)
        insort(self._starts, address)
        self.live[address] = "device memory"
        return address

    def clear(self, address: Address, n_bytes: int) -> None:
        self._call("clear")
        self.memory(address, n_bytes).fill(0)

    def release(self, address: Address) -> None:
        self._call("release")
        del self._blocks[address]
        del self.live[address]

    def allocate_pinned(self, n_bytes: int) -> Array:
        self._call("allocate_pinned")
        block = aligned_full((n_bytes,), "uint8", 0xCD)
        return self._made(block)  # type: ignore[no-any-return]

    def device_address(self, block: Array) -> Address:
        self._call("device_address")
        assert self.is_integrated, "a GPU with its own memory would read over the bus"
        self._pinned(block)
        address = self._next_pinned
        self._next_pinned += -(-block.nbytes // 256) * 256 + 256
        self._blocks[address] = block
        insort(self._starts, address)
        return address

    def release_pinned(self, block: Array) -> None:
        self._call("release_pinned")
        self._blocks = {a: kept for a, kept in self._blocks.items() if kept is not block}
        self._gone(block)

    # Order of work --------------------------------------------------------------------------------

    def open_stream(self, high_priority: bool) -> HostStream:
        self._call("open_stream")
        return self._made(HostStream(high_priority=high_priority))  # type: ignore[no-any-return]

    def release_stream(self, stream: HostStream) -> None:
        self._call("release_stream")
        self._gone(stream)

    def _put(self, stream: HostStream, work: Work) -> None:
        (stream.queue if stream.recording is None else stream.recording).append(work)

    def to_device(self, target: Address, source: Array, stream: HostStream) -> None:
        self._call("to_device")

        def copy() -> None:
            self._pinned(source)
            self.memory(target, source.nbytes)[:] = source.reshape(-1).view(np.uint8)

        self._put(stream, copy)

    def to_host(self, target: Array, source: Address, stream: HostStream) -> None:
        self._call("to_host")

        def copy() -> None:
            self._pinned(target)
            target.reshape(-1).view(np.uint8)[:] = self.memory(source, target.nbytes)

        self._put(stream, copy)

    def copy_pieces(
        self,
        target: Address,
        pitch: int,
        source: Address,
        n_bytes: int,
        n_pieces: int,
        stream: HostStream,
    ) -> None:
        self._call("copy_pieces")
        assert 0 < n_bytes <= pitch, "pieces overlap"

        def copy() -> None:
            for index in range(n_pieces):
                piece = self.memory(source + index * n_bytes, n_bytes)
                self.memory(target + index * pitch, n_bytes)[:] = piece

        self._put(stream, copy)

    def enqueue(self, context: HostContext, stream: HostStream) -> None:
        self._call("enqueue")
        if stream.recording is not None:
            if not context.has_run:
                raise BackendError("operation not permitted when stream is capturing")
            stream.recorded.append(context)
        addresses, scratch = dict(context.addresses), context.scratch  # a capture keeps these
        if self.graphs_follow_context and stream.recording is not None:
            addresses = context.addresses
        self._put(stream, lambda: self._run(context, addresses, scratch))

    def _run(
        self,
        context: HostContext,
        addresses: dict[str, Address],
        scratch: tuple[Address, int] | None,
    ) -> None:
        assert id(context) in self.live, "a context ran after its release"
        assert scratch is not None, "a context ran without scratch memory"
        context.has_run = True
        if self.compiled is not None and context.engine.name not in self.compiled:
            self.n_compiled += 1
            self.compiled.add(context.engine.name)
        session = context.engine.session
        read = {t.name: self._tensor(t, addresses) for t in session.get_inputs()}
        written = {t.name: self._tensor(t, addresses) for t in session.get_outputs()}
        for name, output in written.items():
            for other, value in read.items():
                assert not np.shares_memory(output, value), f"{name} is written where {other} is"
        for output in written.values():
            output.fill(0)  # a kernel may write in any order, also before it has read
        for name, value in zip(written, session.run(list(written), read), strict=True):
            written[name][...] = value
        self.memory(*scratch).fill(0xCD)

    def _tensor(self, tensor: Any, addresses: dict[str, Address]) -> Array:
        kind = np.dtype(FROM_ONNX[tensor.type])
        n_bytes = int(np.prod(tensor.shape, dtype=np.int64)) * kind.itemsize
        return self.memory(addresses[tensor.name], n_bytes).view(kind).reshape(tensor.shape)

    def synchronise(self, stream: HostStream) -> None:
        self._call("synchronise")
        assert stream.recording is None, "a wait inside a capture breaks it"
        queue, stream.queue = stream.queue, []
        for work in queue:
            work()

    def is_capturable(self, context: HostContext, stream: HostStream) -> bool:
        self._call("is_capturable")
        return True

    def begin_capture(self, stream: HostStream) -> None:
        self._call("begin_capture")
        assert stream.recording is None
        stream.recording = []

    def end_capture(self, stream: HostStream) -> HostGraph:
        recorded, stream.recording = stream.recording, None
        contexts, stream.recorded = stream.recorded, []
        self._call("end_capture")
        if not self.capturable:
            raise BackendError("operation not permitted when stream is capturing")
        assert recorded is not None
        return self._made(HostGraph(recorded, contexts))  # type: ignore[no-any-return]

    def launch(self, graph: HostGraph, stream: HostStream) -> None:
        self._call("launch")
        assert id(graph) in self.live
        stream.queue.extend(graph.work)

    def release_graph(self, graph: HostGraph) -> None:
        self._call("release_graph")
        self._gone(graph)

    def close(self) -> None:
        self._call("close")
