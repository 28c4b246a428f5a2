"""The time of an event as a whole number, of which every angle is exact for ever.

A float32 sum of gaps loses small gaps after some million events. So the time is counted in ticks,
int64, and periods are powers of two of them: a remainder of whole numbers is exact, and goes on
being so when the count wraps around.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

TICKS = 2**16
"""In a unit of scaled time, where a gap is about 1."""
LONGEST_GAP = 2.0**30
"""Longer gaps, in scaled units, change no angle that is worth keeping, and count as this one."""
PERIODS = (1.0, 2.0**14)
"""Shortest and longest period in scaled units."""


class EventTimes(nn.Module):
    """Angles of the time at periods that are spread evenly in their logarithms.

    Args:
        n_periods: P.
    """

    periods: Tensor

    def __init__(self, n_periods: int):
        super().__init__()
        low, high = (math.log2(period) for period in PERIODS)
        exponents = torch.linspace(low, high, n_periods).round().long()
        self.register_buffer("periods", TICKS * 2**exponents, persistent=False)

    def angles(self, ticks: Tensor) -> Tensor:
        """Return angles of times (...), in radians, (..., P)."""
        part = (ticks[..., None] % self.periods).float() / self.periods.float()
        return part * (2 * math.pi)

    def waves(self, ticks: Tensor) -> Tensor:
        """Sines and cosines of times (...), (..., 2 P)."""
        angles = self.angles(ticks)
        return torch.cat([angles.sin(), angles.cos()], -1)

    @staticmethod
    def after(ticks: Tensor, gap: Tensor) -> Tensor:
        """The time (B,) after a gap (B,) in scaled units."""
        return ticks + (gap * TICKS).round().long()

    @staticmethod
    def along(gap: Tensor) -> Tensor:
        """The times of events with these gaps, (B, N)."""
        return (gap * TICKS).round().long().cumsum(1)
