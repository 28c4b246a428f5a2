"""How well a stream's values repeat after every number of slots.

    values ──> without spikes ──> white: v(t) - phi v(t - 1) ──> correlated with L slots before
                             └──> means of 4 and 16 slots, likewise, for seasons that noise hides

All lags are correlated at once by the Fourier transform: the periodogram turned back. White values
keep a slow level from being taken for a season; that they are bounded, a spike for one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray

TURNS = 2.5
"""Turns of a season that are needed to judge it."""
SMOOTH = {1: 1.0, 4: 0.7, 16: 0.5}
"""Slots of which means are looked at, and how much their correlations count."""
SHORTEST = 5
"""Slots of a season that is found; shorter ones are what any forecast sees."""
LEAST_SCORE, SURE = 0.12, 5.0
"""A season that is found repeats so well at least, and by so many deviations of chance."""
OF_SPREAD, LIKELY = 0.7, 2.5
"""How much the deviation counts that the products themselves show, next to that of as many normal
numbers; and so many of it are not likely to be chance."""
VALLEY, WITHIN = 0.7, (0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75)
"""Between one turn and the next, at one of these parts of a turn, correlations fall by this share
of the score at least."""
SHORTER = 0.75
"""A shorter season is taken if it repeats so well compared with the best one: multiples do too."""
OUTER = 0.005
"""Share of the values at either end that are clipped, so that a spike is not the whole."""
BOUND = 4.0
"""White values are clipped at so many times their mean size."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """How well values repeat.

    Attributes:
        score: (n_lags,), by lag: the mean of the correlations at L and 2 L, 1 for a perfect season.
        is_season: (n_lags,), whether a lag is surely a season's, or a multiple of one.
        likely: (n_lags,), the score, but at most 0 where chance alone may well give it.
    """

    score: FloatArray
    is_season: Array
    likely: FloatArray

    @classmethod
    def none(cls, n_lags: int) -> Repeats:
        """Nothing repeats."""
        return cls(np.zeros(n_lags), np.zeros(n_lags, bool), np.zeros(n_lags))

    @property
    def best(self) -> int:
        """The shortest season that is about as good as the best one; 0 if none is sure."""
        if not self.is_season.any():
            return 0
        score = np.where(self.is_season, self.score, 0.0)
        good = np.flatnonzero(score >= SHORTER * score.max())
        ends = np.flatnonzero(np.diff(good) > 1)
        first = good[: ends[0] + 1] if len(ends) else good
        return int(first[score[first].argmax()])


def repeats(values: FloatArray) -> Repeats:
    """Judge every number of slots up to n / `TURNS` as a season.

    Args:
        values: (n,), the oldest first; NaN where a slot is missing.
    """
    n_lags = int(len(values) / TURNS) + 1
    found = Repeats.none(n_lags)
    known = ~np.isnan(values)
    if known.sum() < SHORTEST:
        return found
    held = _held(values, known)
    for n_mean, weight in SMOOTH.items():
        if n_lags > 2 * SHORTEST * n_mean:
            one = _judged(held, known, n_mean, n_lags)
            np.maximum(found.score, weight * one.score, out=found.score)
            np.maximum(found.likely, weight * one.likely, out=found.likely)
            found.is_season[:] |= one.is_season
    return found


def _held(values: FloatArray, known: Array) -> FloatArray:
    """Values without spikes, around 0; a missing one is the one before it."""
    low, high = np.quantile(values[known], (OUTER, 1 - OUTER))
    held: FloatArray = np.where(known, np.clip(values, low, high), 0.0)
    if not known.all():
        held = held[np.maximum.accumulate(np.where(known, np.arange(len(held)), known.argmax()))]
    held -= held.mean()
    return held


def _judged(held: FloatArray, known: Array, n_mean: int, n_lags: int) -> Repeats:
    """How well means of `n_mean` slots repeat after each lag."""
    white, is_pair = _white(held, known, n_mean)
    n = len(white)
    size = 1 << (n + 2 * n_lags).bit_length()
    products = _correlated(white, size)
    n_pairs = np.arange(n, 0, -1.0)
    if not is_pair.all():
        n_pairs = np.maximum(_correlated(is_pair.astype(float), size), 1.0)
    if not products[0] > 0:
        return Repeats.none(n_lags)
    found = products / n_pairs * (n_pairs[0] / products[0])
    once, twice = found[:n_lags], found[: 2 * n_lags : 2]
    weight, more = n_pairs[:n_lags], n_pairs[: 2 * n_lags : 2]
    score = (once * weight + twice * more) / (weight + more)
    # Few large values agree by chance more often than many: by the squares of their products.
    squares = np.maximum(_correlated(white * white, size), 0.0)
    both = squares[:n_lags] + squares[: 2 * n_lags : 2]
    spread = np.sqrt(n_mean * both) / (weight + more) * (n_pairs[0] / products[0])
    chance = np.maximum(np.sqrt(n_mean / (weight + more)), OF_SPREAD * spread)
    valley = once[_between(n_lags)].min(axis=0)
    falls = score - valley >= VALLEY * score
    is_season = falls & (score > np.maximum(LEAST_SCORE, SURE * chance))
    is_season[: SHORTEST * n_mean] = False
    score[: SHORTEST * n_mean] *= n_mean == 1  # such lags share the slots of a mean
    return Repeats(score, is_season, np.where(score < LIKELY * spread, 0.0, score))


@lru_cache(maxsize=2)
def _between(n_lags: int) -> Array:
    """Lags between one turn and the next, for each lag, (len(WITHIN), n_lags)."""
    lags = np.rint(np.outer(WITHIN, np.arange(n_lags))).astype(np.int64)
    bounded: Array = np.minimum(np.maximum(lags, 2), n_lags - 1)  # noise alone lowers the first lag
    return bounded


def _white(held: FloatArray, known: Array, n_mean: int) -> tuple[FloatArray, Array]:
    """Return the part of each mean that the mean before it does not predict, bounded.

    Returns:
        0 where a slot is missing; and where none is.
    """
    if n_mean > 1:
        sums = np.concatenate([[0.0], np.cumsum(held)])
        held, known = (sums[n_mean:] - sums[:-n_mean]) / n_mean, known[n_mean - 1 :]
        held = held - held.mean()
    total = held @ held
    phi = held[n_mean:] @ held[:-n_mean] / total if total > 0 else 0.0
    white, is_pair = held[n_mean:] - phi * held[:-n_mean], known[n_mean:] & known[:-n_mean]
    n = max(int(is_pair.sum()), 1)
    white = white - (white * is_pair).sum() / n
    bound = BOUND * np.abs(white * is_pair).sum() / n
    return np.clip(white, -bound, bound) * is_pair, is_pair


def _correlated(series: FloatArray, size: int) -> FloatArray:
    """Sums of products of a series with itself at every lag, (n,)."""
    waves = np.fft.rfft(series, size)
    sums: FloatArray = np.fft.irfft((waves * waves.conj()).real, size)[: len(series)]
    return sums
