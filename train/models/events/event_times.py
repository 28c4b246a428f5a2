"""Count the time of an event in whole numbers, so that every angle of it is exact for ever.

A float32 sum of gaps loses small gaps after some million events. So the time is counted in ticks,
int64, and periods are powers of two of ticks: a remainder of whole numbers is exact, and goes on
being so when the count wraps around.

Letters of shapes: B streams, N events, P periods.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

TICKS = 2**16
"""Number of ticks in a unit of scaled time, in which a gap is about 1."""
LONGEST_GAP = 2.0**30
"""Longest gap that is counted, in scaled units: longer ones count as this one, since they change no
angle that is worth keeping."""
PERIODS = (1.0, 2.0**14)
"""Shortest and longest period in scaled units."""


class EventTimes(nn.Module):
    """Computes the angles 2 pi time / period of a time, for P periods from `PERIODS`.

    They are powers of two of ticks, spread about evenly in their logarithms.

    Args:
        n_periods: P, the number of periods.
    """

    periods: Tensor

    def __init__(self, n_periods: int):
        super().__init__()
        low, high = (math.log2(period) for period in PERIODS)
        exponents = torch.linspace(low, high, n_periods).round().long()
        self.register_buffer("periods", TICKS * 2**exponents, persistent=False)

    def angles(self, ticks: Tensor) -> Tensor:
        """Return the angles (..., P), in radians, of times (...) in ticks."""
        part = (ticks[..., None] % self.periods).float() / self.periods.float()
        return part * (2 * math.pi)

    def waves(self, ticks: Tensor) -> Tensor:
        """Return the sines and cosines (..., 2 P) of the angles of times (...) in ticks."""
        angles = self.angles(ticks)
        return torch.cat([angles.sin(), angles.cos()], -1)

    @staticmethod
    def after(ticks: Tensor, gap: Tensor) -> Tensor:
        """Return the time in ticks, (B,), that is a gap (B,) in scaled units later than `ticks`."""
        return ticks + (gap * TICKS).round().long()

    @staticmethod
    def along(gap: Tensor) -> Tensor:
        """Return times in ticks, (B, N): the running sums of gaps (B, N) in scaled units."""
        return (gap * TICKS).round().long().cumsum(1)
