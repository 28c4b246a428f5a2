"""Points and targets as callers give them: their shapes are checked, their numbers scaled."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike

from edgefold.runtime.arrays import Array, aligned_full
from edgefold.runtime.errors import ShapeError, ValueRefusedError
from edgefold.runtime.manifest import Manifest, Scaling
from edgefold.runtime.predictions import Prediction

LIMIT = 1e9
"""Scaled values beyond this are refused: their squares still fit float32 inside the model."""


class PointBuffers:
    """Scale raw values into a graph's buffer: in float64 until the last step, refusing nonsense.

    Attributes:
        role: Of the graph's inputs that it fills. name: "x" or "y".
        is_used: Whether any graph has such an input; else what a caller gives is not looked at.
    """

    def __init__(self, role: str, scaling: Scaling, n_streams: int, width: int, is_used: bool):
        self.role, self.name = role, role[-1]
        self.is_used = is_used
        self.n_columns = len(scaling.shift)
        self._identity = scaling.is_identity
        self._shift, self._scale = np.array(scaling.shift), np.array(scaling.scale)
        width = width if is_used else 0
        self._scratch = aligned_full((n_streams, width, self.n_columns), "float64", 0)
        # One row comes most often: its views are made here, which saves 0.3 us of 1.6.
        self._row = aligned_full((n_streams, min(width, 1), self.n_columns), "float64", 0)
        self._flat_row = self._row.reshape(-1)
        self.n_bytes = self._scratch.nbytes + self._row.nbytes

    def into(self, target: Array, raw: Array) -> None:
        """Scale raw (B, n, columns), n up to the width, into target; untouched on error."""
        n = raw.shape[1]
        scaled = self._row if n == 1 else self._scratch[:, :n]
        if self._identity and raw.dtype == np.float32:  # nothing is lost without the detour
            scaled = raw
        elif self._identity:
            np.copyto(scaled, raw)
        else:
            np.subtract(raw, self._shift, out=scaled)
            np.divide(scaled, self._scale, out=scaled)
        # One pass finds NaN, infinity and the absurd alike: a comparison with NaN is false.
        flat = self._flat_row if scaled is self._row else scaled.reshape(-1)
        if not np.vdot(flat, flat) <= LIMIT * LIMIT:
            self._explain(raw)
        np.copyto(target, scaled, casting="same_kind")

    def validate(self, raw: Array) -> None:
        """Refuse bad values before the first of several runs commits."""
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
            "scale units. Nothing was learned; leave the row out or correct it."
        )


class RawPredictions:
    """Return predictions to the caller's units, in buffers of their own."""

    def __init__(self, manifest: Manifest, width: int):
        self._one_stream = manifest.n_streams == 1
        shift, scale = np.array(manifest.scaling_y.shift), np.array(manifest.scaling_y.scale)
        self._tensors = []
        for told in manifest.prediction_tensors:
            dtype = told.dtype if told.unscale == "none" else "float64"
            buffer = aligned_full((manifest.n_streams, width, *told.shape), dtype, 0)
            by = None if told.unscale == "none" else scale
            self._tensors.append(
                (told.name, buffer, by, shift if told.unscale == "affine" else None)
            )
        self.n_bytes = sum(buffer.nbytes for _, buffer, _, _ in self._tensors)

    def of(self, outputs: Mapping[str, Array], m: int) -> Prediction:
        """The prediction that lies in a graph's output buffers, each (B, width, *shape)."""
        found = {}
        for name, buffer, scale, shift in self._tensors:
            raw = buffer[:, :m]
            if scale is None:
                np.copyto(raw, outputs[name][:, :m])
            else:
                np.multiply(outputs[name][:, :m], scale, out=raw)
            if shift is not None:
                np.add(raw, shift, out=raw)
            found[name] = raw[0] if self._one_stream else raw
        return Prediction(found)


def as_rows(
    call: str, name: str, values: ArrayLike | None, n_streams: int, columns: int, bare: bool = False
) -> tuple[Array, int]:
    """The values as (B, n, columns), and n; values are not copied where they are an array already.

    With `bare`, one row may come without the axis n.

    Raises:
        ShapeError: They are not rows of `columns` numbers; the message names `call` and `name`.
    """
    if values is None:
        raise ShapeError(f"{call}() got no {name}; give rows of {columns} numbers.")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:  # rows of different lengths
        raise ShapeError(
            f"{call}() got {name} that is not an array ({error}); give rows of {columns} numbers."
        ) from error
    shape = array.shape
    if bare and array.ndim == (1 if n_streams == 1 else 2):
        array = array[..., None, :]
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
