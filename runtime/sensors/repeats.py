"""How well a stream's values repeat after every number of slots."""

from __future__ import annotations

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray

TURNS = 2.5
"""Of a season that are needed to judge it."""
OUTER = 0.005
"""Share of the values at either end that are clipped, so that a spike is not the whole."""
BOUND = 4.0
"""Changes are clipped at so many times their mean."""


def repeats(values: FloatArray) -> FloatArray:
    """Correlate the changes of values with those L slots before, for every L.

    Args:
        values: (n,), the oldest first; NaN where a slot is missing.

    Returns:
        Indexed by L, up to n / `TURNS`: the mean of the correlations at L and 2 L; 0 everywhere
        where nothing changes.
    """
    n_lags = int(len(values) / TURNS) + 1
    known = ~np.isnan(values)
    changes, pairs = _white(values, known)
    size = 1 << (2 * len(changes) - 1).bit_length()
    products = _correlation(changes, size)
    n_pairs = np.arange(len(changes), 0, -1.0)
    if not pairs.all():
        n_pairs = np.maximum(_correlation(pairs.astype(float), size), 1.0)
    if not products[0] > 0:
        return np.zeros(n_lags)
    found: FloatArray = products / n_pairs * (n_pairs[0] / products[0])
    twice = found[: 2 * n_lags : 2][:n_lags]
    return (found[:n_lags] + twice) / 2


def _white(values: FloatArray, known: Array) -> tuple[FloatArray, Array]:
    """What is left of values when the share that the value before tells is taken off, bounded.

    Returns:
        (n - 1,), 0 where either value is missing; and where neither is.
    """
    if known.sum() < 3:
        return np.zeros(len(values) - 1), known[1:]
    low, high = np.quantile(values[known], (OUTER, 1 - OUTER))
    held = np.where(known, np.clip(values, low, high), 0.0)
    if not known.all():  # a missing value is the one before it
        held = held[np.maximum.accumulate(np.where(known, np.arange(len(held)), known.argmax()))]
    held -= held.mean()
    total = held @ held
    phi = held[1:] @ held[:-1] / total if total > 0 else 0.0
    changes, pairs = held[1:] - phi * held[:-1], known[1:] & known[:-1]
    n = max(int(pairs.sum()), 1)
    changes -= (changes * pairs).sum() / n
    bound = BOUND * np.abs(changes * pairs).sum() / n
    return np.clip(changes, -bound, bound) * pairs, pairs


def _correlation(series: FloatArray, size: int) -> FloatArray:
    """Sums of products of a series with itself at every lag, (n,)."""
    waves = np.fft.rfft(series, size)
    sums: FloatArray = np.fft.irfft((waves * waves.conj()).real, size)[: len(series)]
    return sums
