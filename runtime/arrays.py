"""Allocate aligned arrays in host memory: a stream allocates all of its memory once, at open."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # bytes: a cache line, and the widest vector register of today's CPUs

Array = NDArray[Any]
FloatArray = NDArray[np.floating[Any]]
Reals = NDArray[np.float64]
"""Arrays of one axis in which rules compute; in the C of a microcontroller they are of float32."""
Counts = NDArray[np.uint16]
"""Arrays of one axis in which rules keep whole numbers from 0 to 65,535."""


def aligned_full(shape: tuple[int, ...], dtype: str, value: float) -> Array:
    """Allocate a C-contiguous array that is filled with `value`.

    Its address is a multiple of `ALIGNMENT` bytes.
    """
    element = np.dtype(dtype)
    n_bytes = int(np.prod(shape, dtype=np.int64)) * element.itemsize
    block = np.empty(n_bytes + ALIGNMENT, np.uint8)
    offset = -block.ctypes.data % ALIGNMENT
    array = block[offset : offset + n_bytes].view(element).reshape(shape)
    array.fill(value)
    return array
