"""Score how well values in evenly spaced slots repeat after each lag, to find their season.

    values ──> without spikes ──> white: v(t) - phi v(t - 1) ──> correlated with L slots before
                             └──> means of 4 and 16 slots, likewise, for seasons that noise hides

The correlations at all lags L are computed at once, by the inverse Fourier transform of the
periodogram. White values (the part that the value before does not predict) keep a slow change of
level from being taken for a season, and their bounds keep a spike from being taken for one. One
turn of a season is one length of it.

The search works in four arrays that are lent to it, and makes what it needs several times from the
values again: so a microcontroller searches in the memory in which its model computes a step.
"""

from __future__ import annotations

import numpy as np

from edgefold.runtime.arrays import Counts, FloatArray, Reals
from edgefold.runtime.kept_numbers import KeptNumbers, filled, replaced
from edgefold.runtime.sensors.clock.season_arrays import (
    correlate,
    fill_forward,
    outer_quantiles,
    running_means,
)

TURNS = 2.5
"""The number of lengths of a season that the values must span before it can be judged."""
MEANS, WEIGHTS = (1, 4, 16), (1.0, 0.7, 0.5)
"""The numbers of slots over which values are averaged, and the weights of the scores of these
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
TIE = 4e-6
"""The difference between two scores up to which they count as equal, so that the shorter season is
taken: about the rounding of float32. Without it, rounding decides between values that repeat
exactly after several lags."""
N_ASKED = 3
NO_REALS = np.zeros(0)
NO_COUNTS = np.zeros(0, np.uint16)
NO_VALUES = np.zeros(0, np.float32)


class SeasonSearch(KeptNumbers):
    """Scores each lag, a number of slots, as the length of a season.

    Attributes:
        ring: The values of the slots in a ring; NaN where a slot is missing.
        n: The number of values.
        n_lags: The lags are 0 to n_lags - 1; at most n / 2.5 (`TURNS`) of n values.
        asked: Lags whose likely scores are wanted; 0 for none.
        likely: The scores of these lags, but at most 0 where chance may well explain them.
    """

    ring: FloatArray = NO_VALUES
    n: int = 0
    n_lags: int = 0
    asked: list[int] = filled(0, N_ASKED)
    likely: list[float] = filled(0.0, N_ASKED)
    _n_known: int = 0
    _n_ring: int = 0
    _first: int = 0  # the place of the oldest value in the ring
    _low: float = 0.0
    _high: float = 0.0
    _waves: Reals = NO_REALS  # (size of the transform,)
    _pairs: Counts = NO_COUNTS  # (n,): how many pairs of values there are at each lag
    _score: Reals = NO_REALS  # (n_lags,): of each lag; below 0 if it surely is of a season
    _level: Reals = NO_REALS  # (n_lags,)

    def lend(self, n: int) -> None:
        """Allocate the four arrays for n values; in C the caller does."""
        n_lags = int(n / TURNS) + 1
        self._waves = np.zeros(1 << (n + 2 * n_lags).bit_length())
        self._pairs = np.zeros(n, np.uint16)
        self._score, self._level = np.zeros(n_lags), np.zeros(n_lags)

    def release(self) -> None:
        """Give the arrays back; in C they stay where they are."""
        self._waves = self._score = self._level = NO_REALS
        self._pairs = NO_COUNTS
        self.ring = NO_VALUES

    def search(self, n_ring: int, end: int, n: int) -> None:
        """Score all lags.

        Args:
            n_ring: The length of the ring.
            end: The place in the ring behind the newest value, where the oldest one may be.
            n: The number of values, up to n_ring.
        """
        self.n, self.n_lags = n, int(n / TURNS) + 1
        self._n_ring, self._first = n_ring, (end - n) % n_ring
        self.likely = filled(0.0, 3)
        score, waves = self._score, self._waves
        score[: self.n_lags] = 0.0
        self._load()
        n_known = int(np.sum(np.where(np.isnan(waves[:n]), 0.0, 1.0)))
        self._n_known = n_known
        if n_known < SHORTEST:
            return
        low, high = outer_quantiles(waves, n, OUTER)
        self._low, self._high = low, high
        for n_mean, weight in zip(MEANS, WEIGHTS, strict=True):
            if self.n_lags > 2 * SHORTEST * n_mean:
                self._judge(n_mean, weight)

    # The values ----------------------------------------------------------------------------------

    def _load(self) -> None:
        """Copy the values into the array `_waves`, the oldest first."""
        ring, waves, first, n = self.ring, self._waves, self._first, self.n
        n_old = min(n, self._n_ring - first)
        waves[:n_old] = ring[first : first + n_old]
        waves[n_old:n] = ring[: n - n_old]

    def _blank(self, n: int, offset: int) -> None:
        """Set each of the first n numbers of `_waves` to 0 whose value lies in a missing slot.

        `offset` is how many slots its value comes after the one of the same place.
        """
        ring, waves, n_ring = self.ring, self._waves, self._n_ring
        first = (self._first + offset) % n_ring
        n_old = min(n, n_ring - first)
        waves[:n_old] = np.where(np.isnan(ring[first : first + n_old]), 0.0, waves[:n_old])
        waves[n_old:n] = np.where(np.isnan(ring[: n - n_old]), 0.0, waves[n_old:n])

    def _blank_pairs(self, n: int, n_mean: int) -> None:
        """Set each number of `_waves` to 0 that is not made of two means whose last slots exist."""
        if self._n_known < self.n:
            self._blank(n, 2 * n_mean - 1)
            self._blank(n, n_mean - 1)

    def _whiten(self, n_mean: int) -> int:
        """Write the white values into `_waves`, and return how many they are.

        A white value is the part of a mean of `n_mean` slots that the mean of as many slots before
        does not predict. It is clipped, and 0 where the last slot of one of the two is missing.
        """
        waves, n = self._waves, self.n
        self._load()
        waves[:n] = np.minimum(np.maximum(waves[:n], self._low), self._high)
        if self._n_known < n:
            fill_forward(waves, n)
        mean, span = float(np.sum(waves[:n])) / n, self._high - self._low
        waves[:n] = waves[:n] - mean
        if span > 0.0:  # no product of numbers up to 1 is too large for float32
            waves[:n] = waves[:n] / span
        if n_mean > 1:
            running_means(waves, n, n_mean)
            n = n - n_mean + 1
            mean = float(np.sum(waves[:n])) / n
            waves[:n] = waves[:n] - mean
        total = float(np.sum(waves[:n] * waves[:n]))
        n_white = n - n_mean
        phi = 0.0
        if total > 0.0:
            phi = float(np.sum(waves[n_mean:n] * waves[:n_white])) / total
        waves[:n_white] = waves[n_mean:n] - phi * waves[:n_white]
        self._blank_pairs(n_white, n_mean)
        n_pairs = max(self._pairs[0], 1.0)
        mean = float(np.sum(waves[:n_white])) / n_pairs
        waves[:n_white] = waves[:n_white] - mean
        self._blank_pairs(n_white, n_mean)
        bound = BOUND * float(np.sum(np.abs(waves[:n_white]))) / n_pairs
        waves[:n_white] = np.minimum(np.maximum(waves[:n_white], -bound), bound)
        return n_white

    def _count_pairs(self, n_mean: int) -> int:
        """Write how many pairs there are at each lag into `_pairs`; return the number of lags."""
        waves, pairs, n_white = self._waves, self._pairs, self.n - 2 * n_mean + 1
        pairs[:n_white] = n_white - np.arange(n_white)
        if self._n_known < self.n:
            waves[:n_white] = 1.0
            self._blank_pairs(n_white, n_mean)
            correlate(waves, n_white, self._size(n_white))
            pairs[:n_white] = np.maximum(np.rint(waves[:n_white]), 1.0)
        return n_white

    def _size(self, n_white: int) -> int:
        """Return the length of the Fourier transform of n_white numbers."""
        return 1 << (n_white + 2 * self.n_lags).bit_length()

    def _correlations(self, n_mean: int) -> float:
        """Write the correlation of white values at each lag into `_waves`.

        Returns:
            The factor that made correlations of means of products; 0 if all white values are 0.
        """
        waves, pairs = self._waves, self._pairs
        n_white = self._whiten(n_mean)
        correlate(waves, n_white, self._size(n_white))
        first = waves[0]
        if not first > 0.0:
            return 0.0
        scale = pairs[0] / first
        waves[:n_white] = waves[:n_white] / pairs[:n_white] * scale
        return float(scale)

    # The scores ----------------------------------------------------------------------------------

    def _judge(self, n_mean: int, weight: float) -> None:
        """Score how well means of `n_mean` slots repeat after each lag.

        Where these scores, times `weight`, are higher than those before, they take their places.
        The score of a lag is the mean of the correlations at one and two times the lag.
        """
        n, waves, pairs, level, score = (
            self.n_lags,
            self._waves,
            self._pairs,
            self._level,
            self._score,
        )
        n_white = self._count_pairs(n_mean)
        # Few large values agree by chance more often than many: by the squares of their products.
        self._whiten(n_mean)
        waves[:n_white] = waves[:n_white] * waves[:n_white]
        correlate(waves, n_white, self._size(n_white))
        level[:n] = np.maximum(waves[:n], 0.0) + np.maximum(waves[0 : 2 * n : 2], 0.0)
        scale = self._correlations(n_mean)
        if scale == 0.0:
            return
        end = n_white + n  # what lies behind the correlations is free: n scores find place there
        waves[n_white:end] = waves[:n] * pairs[:n] + waves[0 : 2 * n : 2] * pairs[0 : 2 * n : 2]
        waves[n_white:end] = waves[n_white:end] / (pairs[:n] + pairs[0 : 2 * n : 2])
        level[:n] = np.sqrt(n_mean * level[:n]) / (pairs[:n] + pairs[0 : 2 * n : 2]) * scale
        first = SHORTEST * n_mean
        if n_mean > 1:  # shorter lags share the slots of a mean
            waves[n_white : n_white + first] = 0.0
        for place, lag in enumerate(self.asked):
            if 0 < lag < n and waves[n_white + lag] >= LIKELY * level[lag]:
                likely = max(self.likely[place], weight * waves[n_white + lag])
                self.likely = replaced(self.likely, place, likely)
        score[:n] = np.where(
            score[:n] < 0.0,
            -np.maximum(-score[:n], weight * waves[n_white:end]),
            np.maximum(score[:n], weight * waves[n_white:end]),
        )
        # From here on, `level` holds how much a score is above the least one of a season.
        level[:n] = np.maximum(
            np.sqrt(n_mean / (pairs[:n] + pairs[0 : 2 * n : 2])), OF_SPREAD * level[:n]
        )
        level[:n] = waves[n_white:end] - np.maximum(LEAST_SCORE, SURE * level[:n])
        for lag in range(first, n):
            if level[lag] > 0.0:
                own = waves[n_white + lag]
                if own - self._valley(lag) >= VALLEY * own:
                    score[lag] = -abs(score[lag])

    def _valley(self, lag: int) -> float:
        """Return the lowest correlation at shorter lags; that of lag 1 is low by noise already."""
        lowest = 2.0
        for part in WITHIN:
            shorter = min(max(round(part * lag), 2), self.n_lags - 1)
            lowest = min(lowest, self._waves[shorter])
        return float(lowest)

    def score_at(self, lag: int) -> float:
        """Return the score of a lag; 1 is a perfect season."""
        return abs(float(self._score[lag]))

    # The length ----------------------------------------------------------------------------------

    def best(self) -> int:
        """Return the length in slots of the shortest season that is about as good as the best one.

        It is 0 if no season is sure. From then on `sharp_at` answers for lags near the length.
        """
        score = self._score
        highest = 0.0
        for lag in range(self.n_lags):
            highest = max(highest, -score[lag])
        if highest == 0.0:
            return 0
        least, length, top = SHORTER * highest, 0, 0.0
        for lag in range(self.n_lags):
            if -score[lag] >= least:
                if -score[lag] > top + TIE:
                    length, top = lag, float(-score[lag])
            elif length:
                break
        self._sharpen(length)
        sharpest = -1.0
        for lag in range(self._low_near(length), self._high_near(length) + 1):
            if -score[lag] >= least and self._level[lag] > sharpest + TIE:
                length, sharpest = lag, float(self._level[lag])
        return length

    def _low_near(self, length: int) -> int:
        """Return the shortest lag that is near a length."""
        return length - int(NEAR * length)

    def _high_near(self, length: int) -> int:
        """Return the longest lag that is near a length."""
        return min(length + int(NEAR * length), self.n_lags - 1)

    def _sharpen(self, length: int) -> None:
        """Write into `_level`, for the lags near a length, how well many multiples of them repeat.

        That is the mean of the correlations at up to 8 multiples (`MULTIPLES`).
        """
        waves, pairs, level = self._waves, self._pairs, self._level
        first, last = self._low_near(length), self._high_near(length)
        level[first : last + 1] = 0.0
        for n_mean, weight in zip(MEANS, WEIGHTS, strict=True):
            if self.n_lags > 2 * SHORTEST * n_mean:
                n_white = self._count_pairs(n_mean)
                if self._correlations(n_mean) > 0.0:
                    for lag in range(first, last + 1):
                        total, n_pairs = 0.0, 0.0
                        for turn in range(1, MULTIPLES + 1):
                            if turn * lag < n_white:
                                total += pairs[turn * lag] * waves[turn * lag]
                                n_pairs += pairs[turn * lag]
                        level[lag] = max(level[lag], weight * total / n_pairs)

    def sharp_at(self, lag: int) -> float:
        """Return how well many multiples of a lag repeat; it is near the length of `best`."""
        return float(self._level[lag])
