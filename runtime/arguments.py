"""What callers hand to a stream, brought into one form."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from edgefold.runtime.buffers import Array
from edgefold.runtime.errors import ShapeError


def as_rows(
    call: str, name: str, values: ArrayLike, n_streams: int, columns: int
) -> tuple[Array, int]:
    """The values as (B, n, columns), and n; values are not copied where they are an array already.

    Raises:
        ShapeError: They are no rows of `columns` numbers; the message names `call` and `name`.
    """
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:  # rows of different lengths
        raise ShapeError(
            f"{call}() got {name} that is no array ({error}); give rows of {columns} numbers."
        ) from error
    shape = array.shape
    if n_streams == 1 and array.ndim == 2:
        array = array[None]
    elif n_streams == 1 or array.ndim != 3:
        array = np.empty((0, 0, 0))
    if array.shape[0] != n_streams or array.shape[2] != columns:
        lead = "" if n_streams == 1 else f"{n_streams}, "
        raise ShapeError(
            f"{call}() got {name} of shape {shape}; this bundle takes "
            f"({lead}n, {columns}). Reshape it, or export for other sizes."
        )
    if array.dtype.kind not in "fiub":
        raise ShapeError(f"{call}() got {name} of type {array.dtype}; give numbers.")
    return array, array.shape[1]
