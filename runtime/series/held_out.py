"""A series of which the last part is scored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.series.features import SeriesPoints, SeriesSpec

FloatArray = NDArray[np.float64]
HELD_OUT = 0.2
"""Share of the rows that is scored where nothing else is said."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A series' points, of which the first `n_training` are only learned."""

    spec: SeriesSpec
    points: SeriesPoints
    n_training: int

    @property
    def came(self) -> FloatArray:
        """Changes that came in the held-out part, (n,)."""
        return self.points.y[self.n_training :, 0]
