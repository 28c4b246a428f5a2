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
BASE = 10_000.0
"""Ratio of about the longest to the shortest period as published."""


class EventTimes(nn.Module):
    """Computes the angles 2 pi time / period of a time, for P periods from `PERIODS`.

    They are powers of two of ticks, spread about evenly in their logarithms.

    Args:
        n_periods: P, the number of periods.
    """

    periods: Tensor
    one: Tensor

    def __init__(self, n_periods: int):
        super().__init__()
        self.register_buffer("periods", self.periods_of(n_periods), persistent=False)
        self.register_buffer("one", torch.ones(()), persistent=False)  # of the model's float type

    @staticmethod
    def periods_of(n_periods: int) -> Tensor:
        """Return P = n_periods periods in ticks, (P,)."""
        low, high = (math.log2(period) for period in PERIODS)
        return TICKS * 2 ** torch.linspace(low, high, n_periods).round().long()

    def angles(self, ticks: Tensor) -> Tensor:
        """Return the angles (..., P), in radians, of times (...) in ticks."""
        kind = self.one.dtype
        part = (ticks[..., None] % self.periods).to(kind) / self.periods.to(kind)
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


class PublishedTimes(EventTimes):
    """Encodes a time as published (Zuo et al. 2020, eq. 2): sines and cosines in turn.

    The periods are 2 pi 10000^(k/P) scaled units, rounded to whole ticks: their relative error is
    1.2e-6 at most.
    """

    @staticmethod
    def periods_of(n_periods: int) -> Tensor:
        exponents = torch.arange(n_periods, dtype=torch.float64) / n_periods
        return (TICKS * 2 * math.pi * BASE**exponents).round().long()

    def waves(self, ticks: Tensor) -> Tensor:
        angles = self.angles(ticks)
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(-2)
