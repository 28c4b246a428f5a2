"""TensorRT: engines of a bundle's graphs on device memory that is all allocated at open.

    open     build or load engines ──> one scratch block, the largest engine's, for all contexts
    bind     per graph and combination of sides: a context, its addresses set once, a CUDA graph
    step     staged inputs ──copy──> device   run   device ──copy──> staged outputs, then wait

A graph's staged tensors lie in one pinned block for inputs and one for outputs, each mirrored on
the device, so that a step copies twice, however many tensors it has. State and cache stay on the
device between steps. Contexts share their scratch because a stream runs one step at a time.

Everything is released in the reverse order of its making, also when something fails on the way.
This file reaches a GPU only through `edgefold.runtime.backends.tensorrt.driver`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import STAGED, BackendInfo, BoundStep, EngineOptions
from edgefold.runtime.backends.tensorrt.builder import Build, with_board_defaults
from edgefold.runtime.backends.tensorrt.driver import Address, Device, Driver, EngineTensor
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache, EngineKey, TimingKey
from edgefold.runtime.backends.tensorrt.engine_facts import birth, describe_modes
from edgefold.runtime.backends.tensorrt.variant import find_variant, installed
from edgefold.runtime.errors import BackendError
from edgefold.runtime.manifest import Graph, Manifest, StateTensor, Tensor

ALIGNMENT = 256
"""Bytes: what TensorRT asks of scratch, and more than any tensor needs."""


class CudaBuffer:
    """A tensor in device memory; the host reads and writes it through a pinned block."""

    __slots__ = ("_backend", "_dtype", "_shape", "address", "nbytes")

    def __init__(self, backend: TensorRtBackend, tensor: StateTensor | Tensor, address: Address):
        self._backend = backend
        self._shape, self._dtype = tensor.shape, np.dtype(tensor.dtype)
        self.address = address
        self.nbytes = _n_bytes(tensor)

    def _window(self) -> tuple[Array, Array]:
        """Return the pinned bytes, and the same as an array of this shape."""
        pinned = self._backend.window[: self.nbytes]
        return pinned, pinned.view(self._dtype).reshape(self._shape)

    def read(self) -> Array:
        pinned, values = self._window()
        self._backend.copy_out(pinned, self.address)
        return values.copy()

    def write(self, values: Array) -> None:
        pinned, window = self._window()
        np.copyto(window, values)
        self._backend.copy_in(self.address, pinned)

    def write_row(self, row: CudaBuffer, axis: int, slot: int) -> None:
        """Overwrite one slot along an axis, in the order of the stream; it does not wait."""
        n_outer, n_slots = math.prod(self._shape[:axis]), self._shape[axis]
        n_bytes = row.nbytes // n_outer
        target = self.address + slot * n_bytes
        self._backend.copy_pieces(target, n_slots * n_bytes, row.address, n_bytes, n_outer)


@dataclass(frozen=True, slots=True)
class Mirror:
    """A pinned block and its place on the device, with every tensor's offset in it.

    For a graph without such tensors it is empty: nothing is allocated or copied.
    """

    host: Array
    address: Address
    offsets: dict[str, int]


class TensorRtBackend:
    """Engines of all graphs of a bundle on one GPU."""

    def __init__(self, manifest: Manifest, driver: Driver, options: EngineOptions):
        self._driver = driver
        self._options = options
        self._largest = 0
        self._cache = EngineCache(options.cache)
        self._built: dict[str, str] = {}
        self._births: dict[str, dict[str, Any]] = {}
        self._launched: dict[str, str] = {}
        self._engines: dict[str, Any] = {}
        self._mirrors: dict[str, tuple[Mirror, Mirror]] = {}
        self._resources = ExitStack()
        self._resources.callback(driver.close)
        try:
            self._conditions = options.conditions() if options.conditions else {}
            self._device = driver.device()
            self._stream = driver.open_stream()
            self._resources.callback(driver.release_stream, self._stream)
            for graph in manifest.graphs.values():
                self._engines[graph.name] = self._load(graph, manifest)
            self._scratch_bytes = max(driver.scratch_bytes(e) for e in self._engines.values())
            self._scratch = self._allocate(self._scratch_bytes)
        except BaseException:
            self._resources.close()
            raise

    @classmethod
    def open(
        cls, info: BackendInfo, manifest: Manifest, threads: int, engine: EngineOptions
    ) -> TensorRtBackend:
        """Find TensorRT and a GPU, then build or load every engine."""
        if installed() is None:  # asked before more is imported: "auto" comes here on every board
            find_variant()  # raises with what to install
        from edgefold.runtime.backends.tensorrt.cuda_driver import CudaDriver

        return cls(manifest, CudaDriver.open(), engine)

    # Engines --------------------------------------------------------------------------------------

    def _load(self, graph: Graph, manifest: Manifest) -> Any:
        driver, device = self._driver, self._device
        key = engine_key(graph, manifest, driver.variant, driver.version, device)
        (plan, facts), engine = self._cache.find(key) or (None, {}), None
        self._built[graph.name] = "from the cache"
        if plan is not None:
            try:
                engine = driver.load(plan)
            except BackendError as error:  # whole, but it does not fit this machine
                self._built[graph.name] = f"built again, since the cached one did not load: {error}"
        if engine is None:
            if self._options.progress:
                self._options.progress(f"building TensorRT's engine of {graph.name}, once")
            fresh = self._build(graph, manifest)
            facts = fresh.facts | {"conditions": self._conditions}
            reason = self._cache.store(key, fresh.plan, facts)
            if plan is None:
                self._built[graph.name] = f"built, but not kept: {reason}" if reason else "built"
            engine = driver.load(fresh.plan)
        self._resources.callback(driver.release_engine, engine)
        _compare(graph, driver.tensors(engine))
        self._births[graph.name] = birth(facts)
        return engine

    def _build(self, graph: Graph, manifest: Manifest) -> Build:
        driver, cache = self._driver, self._cache
        options = with_board_defaults(self._options, self._device)
        key = TimingKey(driver.variant, driver.version, self._device.kind)
        timing = cache.load(key) or b""
        build = driver.build(manifest.path / graph.file, options, timing)
        if build.timing != timing:
            cache.store(key, build.timing)
        return build

    # Memory ---------------------------------------------------------------------------------------

    def _allocate(self, n_bytes: int) -> Address:
        address = self._driver.allocate(max(n_bytes, ALIGNMENT))
        self._resources.callback(self._driver.release, address)
        return address

    def _allocate_pinned(self, n_bytes: int) -> Array:
        block = self._driver.allocate_pinned(max(n_bytes, ALIGNMENT))
        self._resources.callback(self._driver.release_pinned, block)
        return block

    @cached_property
    def window(self) -> Array:
        """The pinned block through which the host reads and writes device buffers."""
        return self._allocate_pinned(self._largest)

    def copy_in(self, address: Address, window: Array) -> None:
        """Copy pinned bytes to the device and wait."""
        self._driver.to_device(address, window, self._stream)
        self._driver.synchronise(self._stream)

    def copy_out(self, window: Array, address: Address) -> None:
        """Copy device memory to pinned bytes and wait."""
        self._driver.to_host(window, address, self._stream)
        self._driver.synchronise(self._stream)

    def copy_pieces(
        self, target: Address, pitch: int, source: Address, n_bytes: int, n_pieces: int
    ) -> None:
        """Copy adjacent pieces on the device to places that lie `pitch` bytes apart."""
        self._driver.copy_pieces(target, pitch, source, n_bytes, n_pieces, self._stream)

    def allocate_device(self, tensor: StateTensor | Tensor) -> CudaBuffer:
        self._largest = max(self._largest, _n_bytes(tensor))
        return CudaBuffer(self, tensor, self._allocate(_n_bytes(tensor)))

    def allocate_host(self, graph: Graph) -> dict[str, Array]:
        """Allocate pinned arrays, copied to and from the device around every run."""
        arrays: dict[str, Array] = {}
        mirrors = []
        for tensors in (graph.inputs, graph.outputs):
            staged = [tensor for tensor in tensors if tensor.role in STAGED]
            mirror = self._mirror(staged)
            mirrors.append(mirror)
            for tensor in staged:
                start = mirror.offsets[tensor.name]
                part = mirror.host[start : start + _n_bytes(tensor)]
                arrays[tensor.name] = part.view(tensor.dtype).reshape(tensor.shape)
        self._mirrors[graph.name] = (mirrors[0], mirrors[1])
        return arrays

    def _mirror(self, tensors: Sequence[Tensor]) -> Mirror:
        offsets, n_bytes = {}, 0
        for tensor in tensors:
            offsets[tensor.name] = n_bytes
            n_bytes += -(-_n_bytes(tensor) // ALIGNMENT) * ALIGNMENT
        if not n_bytes:
            return Mirror(np.empty(0, np.uint8), 0, {})
        host = self._allocate_pinned(n_bytes)
        host.fill(0)
        return Mirror(host, self._allocate(n_bytes), offsets)

    # Steps ----------------------------------------------------------------------------------------

    def bind(self, graph: Graph, placed: Mapping[str, CudaBuffer]) -> BoundStep:
        """Make a context, set every address, and capture a CUDA graph; runs the step once."""
        driver, stream = self._driver, self._stream
        inputs, outputs = self._mirrors[graph.name]
        context = driver.context(self._engines[graph.name])
        self._resources.callback(driver.release_context, context)
        driver.set_scratch(context, self._scratch, self._scratch_bytes)
        for mirror in (inputs, outputs):
            for name, offset in mirror.offsets.items():
                driver.set_address(context, name, mirror.address + offset)
        for name, tensor in placed.items():
            driver.set_address(context, name, tensor.address)

        def enqueue() -> None:
            if inputs.offsets:
                driver.to_device(inputs.address, inputs.host, stream)
            driver.enqueue(context, stream)
            if outputs.offsets:
                driver.to_host(outputs.host, outputs.address, stream)

        enqueue()  # the first run settles what TensorRT leaves to it, which capture forbids
        driver.synchronise(stream)
        captured = self._capture(graph, context, enqueue) if self._options.cuda_graphs else None

        def step() -> None:
            try:
                if captured is None:
                    enqueue()
                else:
                    driver.launch(captured, stream)
                driver.synchronise(stream)
            except BackendError as error:
                raise BackendError(f"{graph.name} failed in TensorRT: {error}") from error

        return step

    def _capture(self, graph: Graph, context: Any, enqueue: BoundStep) -> Any:
        """Return the step as one CUDA graph, or None and put the reason into the report."""
        driver, stream = self._driver, self._stream
        try:
            if not driver.is_capturable(context, stream):
                raise BackendError("TensorRT answers that this context cannot be captured")
            driver.begin_capture(stream)
            try:
                enqueue()
            except BackendError:
                with suppress(BackendError):  # what was recorded so far; the first reason counts
                    driver.release_graph(driver.end_capture(stream))
                raise
            captured = driver.end_capture(stream)
        except BackendError as error:
            self._launched[graph.name] = f"kernel by kernel, because it was not captured: {error}"
            return None
        self._resources.callback(driver.release_graph, captured)
        self._launched.setdefault(graph.name, "as one CUDA graph")  # one side may have failed
        return captured

    def report(self) -> dict[str, Any]:
        return {
            "name": "tensorrt",
            "device": self._device.name,
            "compute_capability": self._device.compute_capability,
            "version": f"{self._driver.variant} {self._driver.version}",
            "engines": dict(self._built),
            "builds": dict(self._births),
            "mode": describe_modes(self._births.values(), self._conditions),
            "launched": dict(self._launched),
            "scratch_bytes": self._scratch_bytes,
            "warnings": list(self._driver.warnings),
        }

    def close(self) -> None:
        self._engines.clear()
        self._mirrors.clear()
        self._resources.close()


def engine_key(
    graph: Graph, manifest: Manifest, variant: str, version: str, device: Device
) -> EngineKey:
    """Collect what an engine depends on; TensorRT-RTX's fit every device of a capability."""
    return EngineKey(
        graph_sha256=graph.sha256,
        weights_sha256=manifest.weights["sha256"],
        variant=variant,
        version=version,
        device="" if variant == "tensorrt_rtx" else device.kind,
        compute_capability=device.compute_capability,
        precision=manifest.precision["name"],
    )


def _n_bytes(tensor: StateTensor | Tensor) -> int:
    return math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize


def _compare(graph: Graph, found: Sequence[EngineTensor]) -> None:
    """Refuse an engine whose tensors are not those of the manifest."""
    listed = {
        (t.name, tuple(t.shape), t.dtype, is_input)
        for tensors, is_input in ((graph.inputs, True), (graph.outputs, False))
        for t in tensors
    }
    real = {(t.name, t.shape, t.dtype, t.is_input) for t in found}
    if listed != real:
        raise BackendError(
            f"the engine of {graph.name} has other tensors than its manifest: found "
            f"{sorted(real - listed)}, listed {sorted(listed - real)}; export the bundle again."
        )
