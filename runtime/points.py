"""Points and targets as callers give them: their shapes are checked, their numbers scaled."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from edgefold.runtime.arrays import Array, aligned_full
from edgefold.runtime.errors import ShapeError, ValueRefusedError
from edgefold.runtime.manifest import Scaling

LIMIT = 1e9
"""Scaled values beyond this are refused: their squares still fit float32 inside the model."""


class Scaler:
    """Raw values into a float32 buffer, in float64 until the last step, refusing what is absurd."""

    def __init__(self, scaling: Scaling, n_streams: int, width: int):
        self._identity = scaling.is_identity
        self._shift = np.array(scaling.shift)
        self._scale = np.array(scaling.scale)
        self.scratch = aligned_full((n_streams, width, len(scaling.shift)), "float64", 0)

    def into(self, target: Array, raw: Array) -> None:
        """Scale raw (B, n, columns), n up to the width, into target; untouched on error."""
        scaled = self.scratch[:, : raw.shape[1]]
        if self._identity:
            np.copyto(scaled, raw)
        else:
            np.subtract(raw, self._shift, out=scaled)
            np.divide(scaled, self._scale, out=scaled)
        # One pass finds NaN, infinity and the absurd alike: a comparison with NaN is false.
        flat = scaled.reshape(-1)
        if not np.vdot(flat, flat) <= LIMIT * LIMIT:
            self._explain(raw)
        np.copyto(target, scaled, casting="same_kind")

    def validate(self, raw: Array) -> None:
        """Refuse bad values before the first of several chunks is folded."""
        scaled = (raw - self._shift) / self._scale
        if not (np.abs(scaled) <= LIMIT).all():
            self._explain(raw)

    def _explain(self, raw: Array) -> None:
        scaled = (raw.astype(np.float64) - self._shift) / self._scale
        bad = ~(np.abs(scaled) <= LIMIT).all(axis=(0, 2))
        if not bad.any():
            return  # many large but lawful values
        row = int(np.argmax(bad))
        raise ValueRefusedError(
            f"row {row} holds {raw[:, row].ravel().tolist()}: NaN, infinite, or beyond {LIMIT:g} "
            "scale units. Nothing was folded; leave the row out or mend it."
        )


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
