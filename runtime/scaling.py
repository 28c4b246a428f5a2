"""Raw numbers into the model's: scaled in float64, refused when absurd, rounded once."""

from __future__ import annotations

import numpy as np

from edgefold.runtime.buffers import Array, aligned_full
from edgefold.runtime.errors import ValueRefusedError
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
