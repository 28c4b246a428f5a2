"""Allocate a stream's memory on a GPU: tensors on the device, pinned blocks that the host can use.

    a GPU with its own memory       host <──> pinned block ──copy──> its mirror <──> graph
    a GPU that shares the memory    host <──> pinned block <───────────────────────> graph

Pinned memory is host memory that the system never moves, so that the GPU can copy from it or use it
directly. Staged tensors are those that the host writes or reads at every step. A graph's staged
inputs lie in one pinned block, its staged outputs in another, so that a step copies twice, however
many tensors it has, and on a GPU that shares the memory not at all. State, cache and weights are
never pinned, because a GPU that shares the memory does not cache pinned pages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import blocks_of
from edgefold.runtime.backends.tensorrt.driver import Address, TensorRtDriver
from edgefold.runtime.bundle.manifest import StateTensor, Tensor

ALIGNMENT = 256
"""Addresses are multiples of this number of bytes, as TensorRT's scratch memory needs.

Tensors need less.
"""


class CudaBuffer:
    """Holds a tensor in device memory; the host reads and writes it through a pinned block."""

    __slots__ = ("_dtype", "_memory", "_shape", "address", "nbytes")

    def __init__(self, memory: DeviceMemory, tensor: StateTensor | Tensor, address: Address):
        self._memory = memory
        self._shape, self._dtype = tensor.shape, np.dtype(tensor.dtype)
        self.address = address
        self.nbytes = n_bytes_of(tensor)

    def _window(self) -> tuple[Array, Array]:
        """Return a pinned block as large as the tensor: as bytes, and as an array of its shape."""
        pinned = self._memory.window[: self.nbytes]
        return pinned, pinned.view(self._dtype).reshape(self._shape)

    def read(self) -> Array:
        pinned, values = self._window()
        self._memory.copy_out(pinned, self.address)
        return values.copy()

    def write(self, values: Array) -> None:
        pinned, window = self._window()
        np.copyto(window, values)
        self._memory.copy_in(self.address, pinned)

    def fill(self, number: float) -> None:
        """Write a number into all elements if they are floats, else 0."""
        dtype = self._dtype
        self.write(np.full(self._shape, number if dtype.kind == "f" else 0, dtype))

    def write_row(self, row: CudaBuffer, axis: int, slot: int, stream: int | None = None) -> None:
        """Enqueue a copy of a row over the elements at index `slot` of an axis, and do not wait.

        The copy runs after all work that was enqueued before. It writes the elements of one stream,
        by its index on the first axis, or of all streams if `stream` is None.
        """
        n_outer, n_slots = math.prod(self._shape[:axis]), self._shape[axis]
        n_bytes = row.nbytes // n_outer
        pieces, pitch = blocks_of(stream, self._shape[0], n_outer), n_slots * n_bytes
        target = self.address + pieces.start * pitch + slot * n_bytes
        source = row.address + pieces.start * n_bytes
        self._memory.copy_pieces(target, pitch, source, n_bytes, len(pieces))


@dataclass(frozen=True, slots=True)
class Staged:
    """Describes the pinned block that holds a graph's staged inputs, or its staged outputs.

    Staged tensors are those that the host writes or reads at every step; for a graph without them
    the block is empty.

    Attributes:
        host: The pinned block, as bytes.
        address: Address at which the graph uses the block: of the block itself, or of its mirror in
            device memory.
        offsets: Offset of each tensor by name, in bytes from the beginning of the block.
        is_mirrored: Whether the block and its mirror must be copied at every run.
    """

    host: Array
    address: Address
    offsets: dict[str, int]
    is_mirrored: bool


class DeviceMemory:
    """Allocates memory for one GPU; closing `resources` releases all of it.

    Args:
        driver: The object that makes the calls of CUDA.
        stream: The CUDA stream on which copies are enqueued.
        is_shared: Whether the GPU works in the host's memory.
        resources: The stack to which the calls that release the memory are added.
    """

    def __init__(self, driver: TensorRtDriver, stream: Any, is_shared: bool, resources: ExitStack):
        self._driver, self._stream, self._resources = driver, stream, resources
        self._is_shared = is_shared
        self._largest = 0
        self._window: Array = np.empty(0, np.uint8)

    def allocate(self, n_bytes: int) -> Address:
        """Allocate `n_bytes` of device memory, filled with 0, and return the address.

        Each graph runs once before a state is written, and a graph may take numbers of the state
        for places: nobody knows what its kernels do with any bits.
        """
        address = self._driver.allocate(max(n_bytes, ALIGNMENT))
        self._resources.callback(self._driver.release, address)
        self._driver.clear(address, max(n_bytes, ALIGNMENT))
        return address

    def tensor(self, tensor: StateTensor | Tensor) -> CudaBuffer:
        """Allocate device memory for a tensor of the state or cache, or for a new row."""
        self._largest = max(self._largest, n_bytes_of(tensor))
        return CudaBuffer(self, tensor, self.allocate(n_bytes_of(tensor)))

    def stage(self, tensors: Sequence[Tensor]) -> tuple[Staged, dict[str, Array]]:
        """Allocate one pinned block for tensors that the host writes or reads at every step.

        Returns:
            The block, and each tensor's part of it as an array on the host, filled with 0, by name.
        """
        offsets, n_bytes = dict[str, int](), 0
        for tensor in tensors:
            offsets[tensor.name] = n_bytes
            n_bytes += -(-n_bytes_of(tensor) // ALIGNMENT) * ALIGNMENT
        if not n_bytes:
            return Staged(np.empty(0, np.uint8), 0, {}, False), {}
        host = self._pin(n_bytes)
        host.fill(0)
        shared = self._is_shared
        address = self._driver.device_address(host) if shared else self.allocate(n_bytes)
        arrays = {}
        for tensor in tensors:
            start = offsets[tensor.name]
            part = host[start : start + n_bytes_of(tensor)]
            arrays[tensor.name] = part.view(tensor.dtype).reshape(tensor.shape)
        return Staged(host, address, offsets, not shared), arrays

    def _pin(self, n_bytes: int) -> Array:
        block = self._driver.allocate_pinned(max(n_bytes, ALIGNMENT))
        self._resources.callback(self._driver.release_pinned, block)
        return block

    @property
    def window(self) -> Array:
        """Return the pinned block for reading and writing device buffers; made at the first use.

        It is as large as the largest device buffer.
        """
        if len(self._window) < self._largest:
            self._window = self._pin(self._largest)
        return self._window

    def copy_in(self, address: Address, window: Array) -> None:
        """Copy pinned bytes on the host to device memory, and wait until that is done."""
        self._driver.to_device(address, window, self._stream)
        self._driver.synchronise(self._stream)

    def copy_out(self, window: Array, address: Address) -> None:
        """Copy device memory to pinned bytes on the host, and wait until that is done."""
        self._driver.to_host(window, address, self._stream)
        self._driver.synchronise(self._stream)

    def copy_pieces(
        self, target: Address, pitch: int, source: Address, n_bytes: int, n_pieces: int
    ) -> None:
        """Enqueue a copy of `n_pieces` pieces of `n_bytes` bytes each within device memory.

        At `source` the pieces lie next to each other, at `target` one begins every `pitch` bytes.
        """
        self._driver.copy_pieces(target, pitch, source, n_bytes, n_pieces, self._stream)


def n_bytes_of(tensor: StateTensor | Tensor) -> int:
    """Return a tensor's size in bytes."""
    return math.prod(tensor.shape) * np.dtype(tensor.dtype).itemsize
