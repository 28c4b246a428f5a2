"""Compute a stream's scale: the mean absolute change of its value, robust against outliers.

A change counts for at most `JUMP` times the median of the last changes, and the mean is never more
than `MOST` times that median: whatever came, the scale is sound again once half of the last
`N_CHANGES` changes are. Repeats count in the mean, and not in the median.

Letters of shapes: B streams, N changes.
"""

from __future__ import annotations

import torch
from torch import Tensor

MEMORY = 0.998
JUMP, MOST = 20.0, 30.0
N_CHANGES, N_LEVEL = 32, 8
FEW = 6
"""Number of changes other than 0 that the last ones must hold, so that there is a median."""
LEAST, RELATIVE, GREATEST = 1e-12, 1e-6, 1e15
"""Bounds of the scale: its least value, the least share of the level, and its greatest value, of
which squares of a thousand times it are still numbers of 32 bits."""
LARGEST = 1e30


def scale_of(total: Tensor, weight: Tensor, recent: Tensor, started: Tensor) -> Tensor:
    """Return the scale, (B, 1), positive, in the units of the value.

    Args:
        total: Weighted sum of the absolute changes, (B, 1); older ones weigh less.
        weight: Sum of the weights of these changes, (B, 1).
        recent: The last values, newest first, (B, n).
        started: 0.0 where there were no values before, else 1.0, (B, 1).
    """
    level = recent[:, :N_LEVEL].abs().amin(-1, keepdim=True) * started  # no spike's
    return (total / weight.clamp(min=1.0) + RELATIVE * level + LEAST).clamp(max=GREATEST)


def following(
    total: Tensor, weight: Tensor, recent: Tensor, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the sum and the weight of changes after a slot, each (B, 1).

    Args:
        total: Sum of changes before the slot, (B, 1).
        weight: Weight of changes before the slot, (B, 1).
        recent: The last values, newest first, the slot's own included, (B, N_CHANGES + 1).
        counts: 1.0 where the slot's change is known, else 0.0, (B, 1).
    """
    last = (recent[:, :-1] - recent[:, 1:]).abs()
    newest = last[:, :1]
    median, n = _median(last)
    bound = torch.where(n >= FEW, median, LARGEST)
    forget = 1 - (1 - MEMORY) * counts
    total = forget * total + counts * torch.minimum(newest, JUMP * bound)
    weight = forget * weight + counts
    return torch.minimum(total, MOST * bound * weight.clamp(min=1.0)), weight


def within(values: Tensor, n: float, scale: Tensor) -> Tensor:
    """Limit values to at most n scales from 0 on either side."""
    return scale * (values / scale).clamp(-n, n)


def _median(sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the lower median of the sizes (B, N) above 0, and how many there are, each (B, 1)."""
    n = (sizes > 0).float().sum(-1, keepdim=True)
    place = (sizes.shape[-1] - 0.5 * (n + 1)).long()  # in rising order, those of 0 come first
    return sizes.sort(-1).values.gather(-1, place), n
