"""Score how well values in evenly spaced slots repeat after each lag, to find their season.

    values ──> without spikes ──> white: v(t) - phi v(t - 1) ──> correlated with L slots before
                             └──> means of 4 and 16 slots, likewise, for seasons that noise hides

The correlations at all lags L are computed at once, by the inverse Fourier transform of the
periodogram. White values (the part that the value before does not predict) keep a slow change of
level from being taken for a season, and their bounds keep a spike from being taken for one. One
turn of a season is one length of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray

TURNS = 2.5
"""The number of lengths of a season that the values must span before it can be judged."""
SMOOTH = {1: 1.0, 4: 0.7, 16: 0.5}
"""Maps each number of slots over which values are averaged to the weight of the scores of these
means."""
SHORTEST = 5
"""The length in slots of the shortest season that is sought; the model sees shorter ones itself."""
LEAST_SCORE, SURE = 0.12, 5.0
"""The lowest score of a season that is found, absolute and in standard deviations of the score that
chance gives."""
OF_SPREAD, LIKELY = 0.7, 2.5
"""The weight of the standard deviation of scores by chance that the values themselves show,
compared with that of normal numbers; and how many times the former a score must be to be unlikely
by chance."""
VALLEY, WITHIN = 0.7, (0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75)
"""The smallest share of a season's score by which correlations must fall at shorter lags, and these
lags, as parts of the season's length."""
SHORTER = 0.75
"""The share of the best score at which a shorter season is taken instead: multiples of a season
repeat as well as the season."""
MULTIPLES, NEAR = 8, 0.1
"""How many multiples of a season show its length to the slot, and how far from the length with the
best score it is sought, as a part of it. Noise decides between neighbours at one and two turns;
after eight turns an error of a slot is one of eight."""
OUTER = 0.005
"""The share of the values that are clipped at either end, so that a spike does not decide."""
BOUND = 4.0
"""The size at which white values (without the part that the value before predicts) are clipped, in
multiples of their mean size."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Holds how well values repeat after each lag, which is a number of slots from 0 on.

    Attributes:
        score: The score of each lag L, (n_lags,): the mean of the correlations at L and 2 L, which
            is 1 for a perfect season.
        is_season: Whether each lag is surely the length of a season or a multiple of it, (n_lags,).
        likely: The score, (n_lags,), but at most 0 where chance may well explain it.
        sharp: The mean of the correlations at up to `MULTIPLES` multiples of each lag, (n_lags,).
    """

    score: FloatArray
    is_season: Array
    likely: FloatArray
    sharp: FloatArray

    @classmethod
    def none(cls, n_lags: int) -> Repeats:
        """Return the result for values that do not repeat after any lag."""
        none = (np.zeros(n_lags) for _ in range(3))
        return cls(next(none), np.zeros(n_lags, bool), *none)

    @property
    def best(self) -> int:
        """Return the length in slots of the shortest season that is about as good as the best one.

        It is 0 if no season is sure.
        """
        if not self.is_season.any():
            return 0
        score = np.where(self.is_season, self.score, 0.0)
        good = np.flatnonzero(score >= SHORTER * score.max())
        ends = np.flatnonzero(np.diff(good) > 1)
        first = good[: ends[0] + 1] if len(ends) else good
        length = first[score[first].argmax()]
        near = good[np.abs(good - length) <= NEAR * length]
        return int(near[self.sharp[near].argmax()])


def repeats(values: FloatArray) -> Repeats:
    """Return a score for every number of slots up to n / 2.5 (`TURNS`) as a season's length.

    Args:
        values: The values of the slots, (n,), the oldest first; NaN where a slot is missing.
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
            np.maximum(found.sharp, weight * one.sharp, out=found.sharp)
            found.is_season[:] |= one.is_season
    return found


def _held(values: FloatArray, known: Array) -> FloatArray:
    """Return the values (n,) with spikes clipped and mean 0, and with missing ones replaced.

    Where `known` (n,) is False, the value is missing: the last known value before it takes its
    place, or the first known one.
    """
    low, high = np.quantile(values[known], (OUTER, 1 - OUTER))
    held: FloatArray = np.where(known, np.clip(values, low, high), 0.0)
    if not known.all():
        held = held[np.maximum.accumulate(np.where(known, np.arange(len(held)), known.argmax()))]
    held -= held.mean()
    return held


def _judged(held: FloatArray, known: Array, n_mean: int, n_lags: int) -> Repeats:
    """Score how well means of `n_mean` slots repeat after each lag.

    Args:
        held: The values of the slots without spikes and with mean 0, (n,).
        known: Whether each slot has a measured value, (n,).
        n_mean: The number of slots of which means are taken.
        n_lags: The number of lags that are scored.
    """
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
    sharp = _at_multiples(found, n_pairs, n_lags)
    return Repeats(score, is_season, np.where(score < LIKELY * spread, 0.0, score), sharp)


def _at_multiples(correlation: FloatArray, n_pairs: FloatArray, n_lags: int) -> FloatArray:
    """Return the mean of the correlations at up to `MULTIPLES` multiples of each lag, (n_lags,).

    `correlation` and `n_pairs`, the number of pairs that each is a mean of, have every lag, (n,).
    """
    total, weight = np.zeros((2, n_lags))
    for turn in range(1, MULTIPLES + 1):
        lags = turn * np.arange(n_lags)
        held = lags < len(correlation)
        weights = np.where(held, n_pairs[lags * held], 0.0)
        total += weights * correlation[lags * held]
        weight += weights
    mean: FloatArray = total / weight
    return mean


@lru_cache(maxsize=2)
def _between(n_lags: int) -> Array:
    """Return, for each lag from 0, the shorter lags at 0.25, 0.3, ... 0.75 times the lag.

    The result has a row for each of these factors (`WITHIN`), (len(WITHIN), n_lags).
    """
    lags = np.rint(np.outer(WITHIN, np.arange(n_lags))).astype(np.int64)
    bounded: Array = np.minimum(np.maximum(lags, 2), n_lags - 1)  # noise alone lowers the first lag
    return bounded


def _white(held: FloatArray, known: Array, n_mean: int) -> tuple[FloatArray, Array]:
    """Return the part of each mean that the mean `n_mean` slots before does not predict, clipped.

    Args:
        held: The values of the slots without spikes and with mean 0, (n,).
        known: Whether each slot has a measured value, (n,).
        n_mean: The number of slots of which means are taken.

    Returns:
        The parts, (n - 2 n_mean + 1,), 0 where a slot is missing; and for each of them, whether the
        last slots of both means are known.
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
    """Return the sums of products of a series (n,) with itself at every lag, (n,).

    Args:
        series: The numbers of the series.
        size: The length of the Fourier transform.
    """
    waves = np.fft.rfft(series, size)
    sums: FloatArray = np.fft.irfft((waves * waves.conj()).real, size)[: len(series)]
    return sums
