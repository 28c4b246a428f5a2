"""Run a bundle's graphs as TensorRT's engines, on device memory that is all allocated at open.

    open     build or load engines ──> one scratch block, as the largest engine needs it
    bind     one context for each graph; one CUDA graph for each set of addresses that it runs on
    step     staged inputs ──> run ──> staged outputs, then wait

State and cache stay on the device between steps. All contexts use the same scratch block, because a
stream runs one step at a time. The module `memory` explains staged tensors, `context` explains
contexts.

Everything is released in reverse order, also when opening fails halfway.
This file reaches a GPU only through `edgefold.runtime.backends.tensorrt.driver`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import STAGED, BackendInfo, BoundStep, EngineOptions
from edgefold.runtime.backends.tensorrt.builder import with_board_defaults
from edgefold.runtime.backends.tensorrt.context import AS_ONE_GRAPH, GraphContext
from edgefold.runtime.backends.tensorrt.driver import Build, Device, TensorRtDriver
from edgefold.runtime.backends.tensorrt.engine_cache import EngineCache, EngineKey, TimingKey
from edgefold.runtime.backends.tensorrt.engine_facts import birth, describe_modes
from edgefold.runtime.backends.tensorrt.kernels import KeptKernels
from edgefold.runtime.backends.tensorrt.memory import CudaBuffer, DeviceMemory, Staged
from edgefold.runtime.backends.tensorrt.replays import Combination, launches_agree
from edgefold.runtime.backends.tensorrt.variant import find_variant, installed
from edgefold.runtime.bundle.graph_interface import require_same_tensors
from edgefold.runtime.bundle.manifest import Graph, Manifest, StateTensor, Tensor
from edgefold.runtime.bundle.onnx_file import read_graph
from edgefold.runtime.errors import BackendError

APART = (
    "as one CUDA graph, each in a context of its own, because several graphs of one context gave "
    "other results than plain runs"
)
"""Words for the report where `launches_agree` found a difference."""


class TensorRtBackend:
    """Runs the engines of all graphs of a bundle on one GPU."""

    def __init__(self, manifest: Manifest, driver: TensorRtDriver, options: EngineOptions):
        self._driver = driver
        self._options = options
        self._cache = EngineCache(options.cache)
        self._origins: dict[str, str] = {}
        self._births: dict[str, dict[str, Any]] = {}
        self._engines: dict[str, Any] = {}
        self._contexts: dict[str, GraphContext] = {}
        self._staged: dict[str, tuple[Staged, Staged]] = {}
        self._results: dict[str, list[Array]] = {}
        self._combinations: dict[str, list[Combination]] = {}
        self._apart: set[str] = set()
        self._kernels: KeptKernels | None = None
        self._resources = ExitStack()
        self._resources.callback(driver.close)
        try:
            self._conditions = options.conditions() if options.conditions else {}
            self._device = driver.device()
            self._waits = driver.waits()
            self._stream = driver.open_stream(options.high_priority)
            self._resources.callback(driver.release_stream, self._stream)
            for graph in manifest.graphs.values():
                self._engines[graph.name] = self._load(graph, manifest)
            if driver.variant == "tensorrt_rtx":
                late = [graph.name for graph in manifest.graphs.values() if graph.opens_late]
                self._kernels = KeptKernels(driver, self._device, self._cache, self._engines, late)
            self._memory = DeviceMemory(
                driver, self._stream, self._device.is_integrated, self._resources
            )
            self._scratch_bytes = max(driver.scratch_bytes(e) for e in self._engines.values())
            self._scratch = self._memory.allocate(self._scratch_bytes)
        except BaseException:
            self._resources.close()
            raise

    @classmethod
    def open(
        cls, info: BackendInfo, manifest: Manifest, threads: int, engine: EngineOptions
    ) -> TensorRtBackend:
        """Find TensorRT and a GPU, then build or load the engine of every graph.

        Raises:
            BackendError: TensorRT or a GPU is missing, or an engine cannot be built.
        """
        if installed() is None:  # before more is imported: "auto" tries this on every board
            find_variant()  # raises with what to install
        from edgefold.runtime.backends.tensorrt.cuda_driver import CudaDriver

        return cls(manifest, CudaDriver.open(engine.wait), engine)

    # Engines --------------------------------------------------------------------------------------

    def _load(self, graph: Graph, manifest: Manifest) -> Any:
        driver, device = self._driver, self._device
        if self._options.watch:
            self._options.watch("open", graph.name)
        key = engine_key(graph, manifest, driver.variant, driver.version, device)
        (plan, facts), engine = self._cache.find(key) or (None, {}), None
        origin = "built"
        if plan is not None:
            try:
                engine, origin = driver.load(plan), "from the cache"
            except BackendError as error:  # whole, but it does not fit this machine
                origin = f"built again, since the cached one did not load: {error}"
        if engine is None:
            if not self._options.may_build:
                raise BackendError(
                    f"no engine of {graph.name} for this GPU and this TensorRT is in the cache; "
                    f"`edgefold engine {manifest.path}` builds it."
                )
            if self._options.progress:
                self._options.progress(f"building TensorRT's engine of {graph.name}, once")
            fresh = self._build(graph, manifest)
            facts = fresh.facts | {"conditions": self._conditions}
            reason = self._cache.store(key, fresh.plan, facts)
            origin += f", but not kept: {reason}" if reason else ""
            engine = driver.load(fresh.plan)
        self._resources.callback(driver.release_engine, engine)
        tensors = driver.tensors(engine)
        inputs, outputs = (
            [(t.name, t.shape, t.dtype) for t in tensors if t.is_input is wanted]
            for wanted in (True, False)
        )
        require_same_tensors(graph, inputs, outputs)
        self._origins[graph.name], self._births[graph.name] = origin, birth(facts)
        return engine

    def _build(self, graph: Graph, manifest: Manifest) -> Build:
        driver, cache = self._driver, self._cache
        options = with_board_defaults(self._options, self._device)
        key = TimingKey(driver.variant, driver.version, self._device.kind)
        timing = cache.load(key) or b""
        read_graph(manifest, graph)  # the builder opens whatever file it names
        build = driver.build(manifest.path / graph.file, options, timing)
        if build.timing != timing:
            cache.store(key, build.timing)
        return build

    # Memory and steps -----------------------------------------------------------------------------

    def allocate_device(self, tensor: StateTensor | Tensor) -> CudaBuffer:
        return self._memory.tensor(tensor)

    def allocate_host(self, graph: Graph) -> dict[str, Array]:
        """Allocate page-locked host arrays for a graph's staged tensors, and make its context.

        Staged are the tensors that the host writes or reads at every step.

        Returns:
            The arrays by the tensors' names.
        """
        inputs, arrays = self._memory.stage([t for t in graph.inputs if t.role in STAGED])
        outputs, results = self._memory.stage([t for t in graph.outputs if t.role in STAGED])
        self._staged[graph.name] = inputs, outputs
        self._results[graph.name] = list(results.values())
        self._contexts[graph.name] = self._context(graph)
        self._combinations[graph.name] = []
        return arrays | results

    def _context(self, graph: Graph) -> GraphContext:
        return GraphContext(
            graph.name,
            self._engines[graph.name],
            (self._scratch, self._scratch_bytes),
            self._staged[graph.name],
            self._driver,
            self._stream,
            self._resources,
        )

    def bind(self, graph: Graph, placed: Mapping[str, CudaBuffer]) -> BoundStep:
        """Run the graph once on these device buffers, and capture the run as a CUDA graph.

        Returns:
            A callable that runs the graph on these buffers again.
        """
        combination = Combination(placed, lambda: None)
        # Comparing the replays of several combinations would run them on buffers of the state.
        is_second = graph.opens_late and self._combinations[graph.name]
        if is_second or graph.name in self._apart:
            self._bind_apart(graph, [combination])
        else:
            context, earlier = self._contexts[graph.name], self._combinations[graph.name]
            addresses = combination.addresses()
            combination.run = context.bind(addresses, self._options.cuda_graphs)
            earlier.append(combination)
            captured = context.launched == AS_ONE_GRAPH and len(earlier) > 1
            results = self._results[graph.name]
            if captured and not launches_agree(graph, context, earlier, results):
                self._bind_apart(graph, earlier)
        if self._kernels is not None:
            self._kernels.note_run(graph.name)
        return combination.step

    def _bind_apart(self, graph: Graph, combinations: Sequence[Combination]) -> None:
        """Bind each combination in a context of its own, which takes more memory."""
        self._apart.add(graph.name)
        for combination in combinations:
            context = self._context(graph)
            combination.run = context.bind(combination.addresses(), self._options.cuda_graphs)
            apart = context.launched == AS_ONE_GRAPH
            self._contexts[graph.name].launched = APART if apart else context.launched

    def report(self) -> dict[str, Any]:
        asked, waits = self._options.wait, self._waits
        contexts = self._contexts.items()
        report = {
            "name": "tensorrt",
            "device": self._device.name,
            "compute_capability": self._device.compute_capability,
            "version": f"{self._driver.variant} {self._driver.version}",
            "engines": dict(self._origins),
            "builds": dict(self._births),
            "mode": describe_modes(self._births.values(), self._conditions),
            "launched": {name: context.launched for name, context in contexts if context.launched},
            "staged": "shared with the GPU" if self._device.is_integrated else "copied",
            "waits": waits if asked in ("auto", waits) else f"{waits}, although {asked} was asked",
            "scratch_bytes": self._scratch_bytes,
            "warnings": list(self._driver.warnings),
        }
        return report if self._kernels is None else report | {"kernels": self._kernels.origin}

    def close(self) -> None:
        self._engines.clear()
        self._contexts.clear()
        self._combinations.clear()
        self._resources.close()


def engine_key(
    graph: Graph, manifest: Manifest, variant: str, version: str, device: Device
) -> EngineKey:
    """Make the key under which the engine cache keeps the engine of a graph.

    For TensorRT-RTX the device is "", because its engines fit every GPU of a compute capability.
    """
    return EngineKey(
        graph_sha256=graph.sha256,
        weights_sha256=manifest.weights["sha256"],
        variant=variant,
        version=version,
        device="" if variant == "tensorrt_rtx" else device.kind,
        compute_capability=device.compute_capability,
        precision=manifest.precision["name"],
    )
