"""Functions of whole arrays that the search for seasons needs, as numpy has them.

C has the same functions, written by hand (`export/sensors/c/season_arrays.c`): they hold no rule.
Each changes its array in place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from edgefold.runtime.arrays import Reals


class Bounds(NamedTuple):
    """Holds two numbers, the smaller one first."""

    low: float
    high: float


def correlate(series: Reals, n: int, size: int) -> None:
    """Replace the first n numbers by the sums of products of the series with itself at each lag.

    Args:
        series: The numbers; at least `size` places, of which those from n on are overwritten.
        n: How many numbers the series has.
        size: The length of the Fourier transform, a power of two. Where it is less than 2 n, sums
            at lags beyond size - n are mixed with others.
    """
    waves = np.fft.rfft(series[:n], size)
    series[:n] = np.fft.irfft(waves.real**2 + waves.imag**2, size)[:n]


def outer_quantiles(numbers: Reals, n: int, share: float) -> Bounds:
    """Return the quantiles at `share` and 1 - `share` of the first n numbers but NaN.

    The order of the numbers may change.
    """
    known = numbers[:n]
    low, high = np.quantile(known[~np.isnan(known)], (share, 1.0 - share))
    return Bounds(float(low), float(high))


def fill_forward(numbers: Reals, n: int) -> None:
    """Replace each NaN among the first n numbers by the last number before it, or the first one."""
    held = numbers[:n]
    known = ~np.isnan(held)
    places = np.where(known, np.arange(n), known.argmax())
    numbers[:n] = held[np.maximum.accumulate(places)]


def running_means(numbers: Reals, n: int, n_mean: int) -> None:
    """Replace the first n numbers by n - n_mean + 1 means of n_mean neighbours each."""
    sums = np.concatenate([[0.0], np.cumsum(numbers[:n])])
    numbers[: n - n_mean + 1] = (sums[n_mean:] - sums[:-n_mean]) / n_mean
