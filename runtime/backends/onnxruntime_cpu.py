"""ONNX Runtime on the CPU, with every tensor bound to a fixed host buffer.

Nothing is copied between steps and nothing is allocated after the first run of each graph: inputs
and outputs are bound by address, intermediates come from the session's arena.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, aligned_full
from edgefold.runtime.backends.base import STAGED, BackendInfo, BoundStep, EngineOptions, Watch
from edgefold.runtime.backends.onnxruntime_session import (
    CPU,
    TAKES_BYTES,
    Provider,
    onnxruntime,
    open_session,
    require_same_tensors,
)
from edgefold.runtime.errors import BackendError, MemoryLimitError
from edgefold.runtime.manifest import Graph, Manifest, StateTensor, Tensor
from edgefold.runtime.onnx_file import read_graph


def _allocated(tensor: StateTensor | Tensor) -> Array:
    try:
        return aligned_full(tensor.shape, tensor.dtype, 0)
    except MemoryError as error:
        raise BackendError(f"there is no memory for {tensor.name}: {error}") from error


class HostBuffer:
    """A tensor in the process's own memory, where the graphs run too."""

    __slots__ = ("_rows", "array")

    def __init__(self, tensor: StateTensor | Tensor):
        self.array = _allocated(tensor)
        self._rows = [np.moveaxis(self.array, axis, 0) for axis in range(self.array.ndim)]

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    def read(self) -> Array:
        return self.array.copy()

    def write(self, values: Array) -> None:
        np.copyto(self.array, values)

    def write_row(self, row: HostBuffer, axis: int, slot: int, stream: int | None = None) -> None:
        if stream is None:
            self._rows[axis][slot] = row._rows[axis][0]
        else:
            self._rows[axis][slot, stream] = row._rows[axis][0, stream]


def _require_memory(manifest: Manifest) -> None:
    """Refuse buffers that no machine of this size can hold; raises MemoryLimitError.

    The system would give them out, and end processes once they are filled.
    """
    plan = manifest.memory_plan
    needed = sum(plan[f"{part}_bytes"] for part in ("state", "cache", "io"))
    present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > present:
        raise MemoryLimitError(
            f"{manifest.path} has buffers of {needed / 1e9:,.1f} GB, this machine has "
            f"{present / 1e9:.1f} GB of memory; export a smaller model, or with fewer streams."
        )


class OnnxRuntimeBackend:
    """Sessions of all graphs of a bundle, on one or more CPU threads.

    Args:
        info: Which backend, for reports.
        providers: onnxruntime's names of providers; see `open_session`.
        device: onnxruntime's name of where their memory lies.
        watch: See `EngineOptions`.
    """

    def __init__(
        self,
        info: BackendInfo,
        manifest: Manifest,
        threads: int,
        providers: Sequence[Provider] = (CPU,),
        device: str = "cpu",
        watch: Watch | None = None,
    ):
        self._info, self._threads, self._providers = info, threads, providers
        self.device = device
        self._staged: dict[str, dict[str, Array]] = {}
        self._sessions: dict[str, Any] = {}
        _require_memory(manifest)
        # onnxruntime's GPU providers find the weights by the graph's own path alone.
        as_bytes = TAKES_BYTES and info.device == "cpu"
        for graph in manifest.graphs.values():
            if watch:
                watch("open", graph.name)
            path, model = manifest.path / graph.file, read_graph(manifest, graph)
            # A pattern saves 3 µs in the steps that run at every arrival; in the wide ones the
            # block that it keeps is too large.
            session = open_session(
                model if as_bytes else path,
                path=path,
                threads=threads,
                providers=providers,
                mem_pattern=graph.width == 1 or info.device == "gpu",
                shared_arena=info.device == "cpu",
            )
            require_same_tensors(graph, session)
            self._sessions[graph.name] = session

    @classmethod
    def open(
        cls, info: BackendInfo, manifest: Manifest, threads: int, engine: EngineOptions
    ) -> OnnxRuntimeBackend:
        return cls(info, manifest, threads, watch=engine.watch)

    def report(self) -> dict[str, Any]:
        return {
            "name": self._info.name,
            "device": self.device,
            "version": onnxruntime.__version__,
            "provider": self._info.provider,
            "threads": self._threads,
        }

    def allocate_host(self, graph: Graph) -> dict[str, Array]:
        tensors = (t for t in (*graph.inputs, *graph.outputs) if t.role in STAGED)
        arrays = {t.name: _allocated(t) for t in tensors}
        self._staged[graph.name] = arrays
        return arrays

    def allocate_device(self, tensor: StateTensor | Tensor) -> Any:
        return HostBuffer(tensor)

    def bind(self, graph: Graph, placed: Mapping[str, Any]) -> BoundStep:
        """Bind every input and output of a graph to its buffer, by address."""
        session = self._sessions[graph.name]
        binding = session.io_binding()
        arrays = self._staged[graph.name] | {name: host.array for name, host in placed.items()}

        def place(tensor: Tensor) -> tuple[Any, ...]:
            array = arrays[tensor.name]
            assert array.shape == tensor.shape and array.dtype == tensor.dtype
            assert array.flags.c_contiguous
            return tensor.name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data

        for tensor in graph.inputs:
            binding.bind_input(*place(tensor))
        for tensor in graph.outputs:
            binding.bind_output(*place(tensor))
        run = session._sess.run_with_iobinding  # the public wrapper only adds a try and a retry
        low_level = binding._iobinding

        def step() -> None:
            try:
                run(low_level, None)
            except Exception as error:
                raise BackendError(f"{graph.name} failed in onnxruntime: {error}") from error

        step.buffers = arrays  # type: ignore[attr-defined]  # the binding knows addresses only
        return step

    def close(self) -> None:
        self._sessions.clear()
        self._staged.clear()
