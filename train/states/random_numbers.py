"""Compute random numbers from integers: the same integers give the same number everywhere.

A step of a model may hold no generator, and a graph none either. Each number here is a function of
integers: the state's seed, the count of points, an index. Multiplication and remainder of 64-bit
integers are all that it needs, which every backend computes to the same bit. There are few such
operations, because a graph on a small machine pays for each node, and an engine's builder far more.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

PRIME = 2**30 - 35
"""Prime modulus of all random integers. Sums of two residues stay below 2^31, and their product
below 2^62. The fifth power permutes the residues, since 5 does not divide PRIME - 1."""
KEYS = (597_334_677, 668_265_263, 103_515_245)
SPREAD = 747_796_405


def mixed(*numbers: Tensor | int) -> Tensor:
    """Turn integers into residues from 0 to PRIME - 1 that look independent of each other.

    The arguments broadcast. They are the coefficients of a polynomial whose value is hidden by
    three keyed fifth powers, as in the cipher MiMC (Albrecht et al. 2016). The first one may be any
    integer from 0 on, the others below 2^62.
    """
    residues, *others = (torch.as_tensor(number) for number in numbers)
    residues = residues % PRIME
    for number in others:
        residues = (residues * SPREAD + number) % PRIME
    for key in KEYS:
        residues = _fifth_power(residues + key)
    return _settled(residues)


def _settled(residues: Tensor) -> Tensor:
    """Return the residues unchanged, through a CumSum over one term, so that TensorRT-RTX ends.

    Where a reduction follows, TensorRT-RTX 1.7 computes a chain of integers again for each use of
    each value: its build of the rounds of `mixed` does not end. A CumSum keeps it from doing so.
    The exporter writes a TopK instead, which does so too: older versions make a CumSum a loop.
    """
    return residues[None].cumsum(0)[0]


def _fifth_power(number: Tensor) -> Tensor:
    square = number * number % PRIME
    return square * square % PRIME * number % PRIME


def _unit(residues: Tensor) -> Tensor:
    return (residues // 128).float() * 2.0**-23 + 2.0**-24


def uniform(*numbers: Tensor | int) -> Tensor:
    """Return uniform random floats between 0 and 1, never 0 or 1, in steps of 2^-23.

    The floats are computed from the integers `numbers`, which broadcast.
    """
    return _unit(mixed(*numbers))


def normal(*numbers: Tensor | int) -> Tensor:
    """Return standard normal random floats (Box and Muller 1958) from integers, which broadcast."""
    residues = mixed(*numbers)
    radius = torch.sqrt(-2 * torch.log(_unit(residues)))
    return radius * torch.cos(2 * math.pi * _unit(_settled(_fifth_power(residues + KEYS[0]))))
