"""Sums along a sequence that decay from event to event, for all events at once."""

from __future__ import annotations

import torch
from torch import Tensor


def decayed_sums(values: Tensor, stays: Tensor) -> Tensor:
    """The sums before each event, (B, N, ...): sum[0] = 0, sum[i+1] = stays[i] sum[i] + values[i].

    It takes log2(N) rounds, each of which doubles how far back a sum reaches (Hillis and Steele
    1986). Only products of shares occur, so that no number on the way is large.

    Args:
        values: (B, N, ...), what each event adds.
        stays: (B, N, ...), broadcasting: the share from 0 to 1 of the sum before an event that is
            left after it.
    """
    total, share = _later(values, 1, 0.0), _later(stays, 1, 0.0)
    reach = 1
    while reach < values.shape[1]:
        total = total + share * _later(total, reach, 0.0)
        share = share * _later(share, reach, 1.0)
        reach *= 2
    return total


def _later(rows: Tensor, n: int, first: float) -> Tensor:
    """Rows (B, N, ...) moved by n places; the first n are `first`."""
    return torch.cat([torch.full_like(rows[:, :n], first), rows[:, :-n]], 1)
