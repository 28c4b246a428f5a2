"""Allocate tensors in the process's own memory, for backends whose graphs run on the CPU.

Every buffer is allocated once, when a stream opens, and keeps its address as long as the stream
lives: a bound graph may hold only the address.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, aligned_full
from edgefold.runtime.backends.base import STAGED
from edgefold.runtime.bundle.manifest import Graph, Manifest, StateTensor, Tensor
from edgefold.runtime.errors import BackendError, MemoryLimitError


def _allocated(tensor: StateTensor | Tensor) -> Array:
    try:
        return aligned_full(tensor.shape, tensor.dtype, 0)
    except MemoryError as error:
        raise BackendError(f"there is no memory for {tensor.name}: {error}") from error


class HostBuffer:
    """Holds a tensor in the process's own memory, which graphs on the CPU read and write."""

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
    """Refuse a bundle whose buffers are larger than the machine's memory.

    Otherwise the system would allocate them, and end processes once the buffers are filled.

    Raises:
        MemoryLimitError: State, cache, inputs and outputs take more than the machine's memory.
    """
    plan = manifest.memory_plan
    needed = sum(plan[f"{part}_bytes"] for part in ("state", "cache", "io"))
    present = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > present:
        raise MemoryLimitError(
            f"{manifest.path} has buffers of {needed / 1e9:,.1f} GB, this machine has "
            f"{present / 1e9:.1f} GB of memory; export a smaller model, or with fewer streams."
        )


class HostMemory:
    """Allocates the memory of a backend that runs on the CPU.

    Raises:
        MemoryLimitError: The machine has too little memory for the bundle's buffers.
    """

    def __init__(self, manifest: Manifest):
        _require_memory(manifest)
        self._staged: dict[str, dict[str, Array]] = {}

    def allocate_host(self, graph: Graph) -> dict[str, Array]:
        tensors = (t for t in (*graph.inputs, *graph.outputs) if t.role in STAGED)
        arrays = {t.name: _allocated(t) for t in tensors}
        self._staged[graph.name] = arrays
        return arrays

    def allocate_device(self, tensor: StateTensor | Tensor) -> Any:
        return HostBuffer(tensor)

    def arrays_of(self, graph: Graph, placed: Mapping[str, Any]) -> dict[str, Array]:
        """Return the arrays of all inputs and outputs of a graph, by tensor name.

        Each array has the shape and type that the manifest states.

        Args:
            graph: The graph; `allocate_host` was called for it before.
            placed: The graph's other tensors by name: a `HostBuffer` for each.
        """
        arrays = self._staged[graph.name] | {name: host.array for name, host in placed.items()}
        for tensor in (*graph.inputs, *graph.outputs):
            array = arrays[tensor.name]
            assert array.shape == tensor.shape and array.dtype == tensor.dtype
            assert array.flags.c_contiguous
        return arrays

    def close(self) -> None:
        self._staged.clear()
