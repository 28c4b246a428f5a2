"""What a query gives back."""

from __future__ import annotations

from dataclasses import dataclass

from edgefold.runtime.buffers import FloatArray

BAND_90 = 1.6448536269514722
"""Half the width of a normal's central 90 % band, in standard deviations."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A normal prediction per target and output, in the caller's units.

    Attributes:
        mean: (M, Y) float64, or (B, M, Y) for more than one stream.
        std: Same shape, positive.

    Both are views of fixed buffers that the next query overwrites: copy them to keep them.
    """

    mean: FloatArray
    std: FloatArray
