"""Compute sums along a sequence that decay from event to event, for all events at once."""

from __future__ import annotations

import torch
from torch import Tensor


def decayed_sums(values: Tensor, stays: Tensor) -> Tensor:
    """Return the sum before each event, (B, N, ...), for N events of B sequences.

    The sums are sum[0] = 0, sum[i+1] = stays[i] sum[i] + values[i]. They take log2(N) rounds, each
    of which doubles how far back a sum reaches (Hillis and Steele 1986). Only products of shares
    occur, so that no number on the way is large.

    Args:
        values: Number that each event adds, (B, N, ...).
        stays: Share from 0 to 1 of the sum before an event that is left after it, (B, N, ...); it
            broadcasts to the shape of `values`.
    """
    total, share = _later(values, 1, 0.0), _later(stays, 1, 0.0)
    reach = 1
    while reach < values.shape[1]:
        total = total + share * _later(total, reach, 0.0)
        share = share * _later(share, reach, 1.0)
        reach *= 2
    return total


def _later(rows: Tensor, n: int, first: float) -> Tensor:
    """Move rows (B, N, ...) by n places to later ones; the first n rows become `first`."""
    return torch.cat([torch.full_like(rows[:, :n], first), rows[:, :-n]], 1)
