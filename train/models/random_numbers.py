"""Random numbers that are computed, not drawn: the same integers give the same number everywhere.

A step of a model may hold no generator, and a graph none either. Each number here is a function of
integers: the state's seed, the count of points, an index. Multiplication and remainder of 64-bit
integers are all that it needs, which every backend computes to the same bit.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

PRIME = 2**31 - 1
"""A product of two residues stays below 2^62. The fifth power permutes the residues, since 5 does
not divide PRIME - 1."""
KEYS = (1_597_334_677, 668_265_263, 1_103_515_245)


def mixed(*numbers: Tensor | int) -> Tensor:
    """Broadcast integers to residues from 0 to PRIME - 1 that look independent of each other.

    Each number is added and three keyed fifth powers follow, as in the cipher MiMC (Albrecht et
    al. 2016).
    """
    found = torch.zeros((), dtype=torch.int64)
    for number in numbers:
        found = found + number % PRIME
        for key in KEYS:
            found = (found + key) % PRIME
            square = found * found % PRIME
            found = square * square % PRIME * found % PRIME
    return found


def uniform(*numbers: Tensor | int) -> Tensor:
    """Floats between 0 and 1, never 0 or 1, in steps of 2^-24."""
    return (mixed(*numbers) // 128 % 2**24).float() * 2.0**-24 + 2.0**-25


def normal(*numbers: Tensor | int) -> Tensor:
    """Standard normal floats (Box and Muller 1958)."""
    radius = torch.sqrt(-2 * torch.log(uniform(*numbers, 0)))
    return radius * torch.cos(2 * math.pi * uniform(*numbers, 1))
