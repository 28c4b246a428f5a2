"""Estimate how rare a number is from the excesses (numbers beyond a level) among earlier ones.

    level     the number that one number in 50 exceeds, found step by step
    excesses  numbers beyond it follow three laws: a power (c = 0), exponential (c = 1) or normal
              (c = 2) law

              P(x > s | x > level) = exp(-g(s / level) / m),  g(r) = (r^c - 1) / c,  log r for c = 0

    m         the mean of g over the excesses, for each law
    weight    one for each law, by how well the law has explained the excesses

This is the method of peaks over a threshold, which Siffer et al. 2017 use for streams. Three fixed
laws replace the shape parameter, which few excesses cannot show. One number moves m by at most a
bounded step, however large it is.
"""

from __future__ import annotations

import math

from edgefold.runtime.kept_numbers import KeptNumbers

SHARE = 0.02
"""The share of numbers that exceed the level."""
STEP, FIRST_STEP = 0.05, 5.0
"""Set how far the level, beyond which numbers are excesses, moves relative to itself: for number n,
by the larger of STEP and FIRST_STEP / (n + FIRST_STEP)."""
N_REMEMBERED, N_PRIOR = 20_000.0, 50.0
"""The most numbers over which the share of excesses is averaged, and the count of numbers that the
first guess of this share stands for."""
N_EXCESSES, N_EXCESSES_PRIOR = 200.0, 10.0
"""The most excesses over which the mean of each tail law is averaged, and the count of excesses
that the first guess of these means stands for."""
MEAN_RATE, MEAN_BOUND, SMALL = 0.005, 1e3, 0.25
"""The rate of the running mean of the numbers; the size at which a number is clipped for it, in
means; and the part of the mean below which numbers do not move the level, since some sensors rarely
change."""
RECENT_RATE, MOST_RECENT, RISE = 0.02, 0.25, 1.5
"""The rate of the running share of recent numbers above the level; the share beyond which the level
is too low; and the factor by which it then rises."""
MEANS = (0.17, 0.20, 0.24)
"""Lists the first guess of the mean excess for each tail law: power, exponential and normal."""
WEIGHTS = (-2.0, 0.0, -1.0)
"""Lists the logarithm of the first weight of each tail law: power, exponential and normal."""
WEIGHT_MEMORY, WEIGHT_BOUND = 0.99, 10.0
CLIP = 6.0
"""Excesses are clipped at this many times their mean before they are averaged."""
N_LEVEL = 150.0
"""The number of first numbers that move only the level, not the laws."""
LARGEST_RATIO, LARGEST_LEARNED = 1e3, 30.0


class Tail(KeptNumbers):
    """Learns how often numbers >= 0 of a stream are large, in fixed memory.

    The level is learned as the number that one number in 50 exceeds; zeros do not move it.
    """

    KEPT = (
        *("level", "mean", "recent", "n", "share", "n_excesses"),
        *("m0", "m1", "m2", "w0", "w1", "w2"),
    )

    level: float = 0.0
    mean: float = 0.0
    recent: float = 0.0
    n: float = 0.0
    share: float = SHARE
    n_excesses: float = N_EXCESSES_PRIOR
    m0: float = MEANS[0]
    m1: float = MEANS[1]
    m2: float = MEANS[2]
    w0: float = WEIGHTS[0]
    w1: float = WEIGHTS[1]
    w2: float = WEIGHTS[2]

    def see(self, number: float) -> float:
        """Estimate the probability that a number is as large as this one, then learn the number.

        Returns:
            The probability, between 0 and 1; 1.0 if the number is not above the level (which one
            number in 50 exceeds), or the level is not yet learned or too low.
        """
        n = self.n
        if n < N_REMEMBERED:
            self.n = n + 1.0
        memory = 1.0 / (n + N_PRIOR)
        level = self.level
        if number <= level:
            self.share -= memory * self.share
            self.recent *= 1.0 - RECENT_RATE
            mean = self.mean
            self.mean = mean + MEAN_RATE * (number - mean)
            if number > SMALL * mean:
                step = FIRST_STEP / (n + FIRST_STEP)
                self.level = level * (1.0 - SHARE * (step if step > STEP else STEP))
            return 1.0
        if level <= 0.0:
            self.level, self.mean = 3.0 * number, number
            return 1.0
        self.mean += MEAN_RATE * (min(number, MEAN_BOUND * self.mean) - self.mean)
        self.recent += RECENT_RATE * (1.0 - self.recent)
        if self.recent > MOST_RECENT:
            self.level = level * RISE
            return 1.0
        self.share += memory * (1.0 - self.share)
        step = max(STEP, FIRST_STEP / (n + FIRST_STEP))
        self.level = max(level * math.exp((1.0 - SHARE) * step), SMALL * self.mean)
        return self._excess(number / level)

    def _excess(self, ratio: float) -> float:
        ratio = min(ratio, LARGEST_RATIO)
        far = math.log(ratio)
        g0, g1, g2 = far, ratio - 1.0, 0.5 * (ratio * ratio - 1.0)
        m0, m1, m2 = self.m0, self.m1, self.m2
        most = max(self.w0, self.w1, self.w2)
        w0, w1, w2 = math.exp(self.w0 - most), math.exp(self.w1 - most), math.exp(self.w2 - most)
        beyond = w0 * math.exp(-g0 / m0) + w1 * math.exp(-g1 / m1) + w2 * math.exp(-g2 / m2)
        beyond /= w0 + w1 + w2
        if self.n > N_LEVEL:
            self._learn(min(ratio, LARGEST_LEARNED))
        return self.share * beyond

    def _learn(self, ratio: float) -> None:
        far = math.log(ratio)
        g0, g1, g2 = far, ratio - 1.0, 0.5 * (ratio * ratio - 1.0)
        m0, m1, m2 = self.m0, self.m1, self.m2
        # Log densities of the logarithm of the ratio.
        s0 = -math.log(m0) - g0 / m0
        s1 = far - math.log(m1) - g1 / m1
        s2 = 2.0 * far - math.log(m2) - g2 / m2
        best = max(s0, s1, s2)
        self.w0 = WEIGHT_MEMORY * self.w0 + max(s0 - best, -WEIGHT_BOUND)
        self.w1 = WEIGHT_MEMORY * self.w1 + max(s1 - best, -WEIGHT_BOUND)
        self.w2 = WEIGHT_MEMORY * self.w2 + max(s2 - best, -WEIGHT_BOUND)
        part = 1.0 / (self.n_excesses + 1.0)
        self.n_excesses = min(self.n_excesses + 1.0, N_EXCESSES)
        self.m0 = m0 + part * (min(g0, CLIP * m0) - m0)
        self.m1 = m1 + part * (min(g1, CLIP * m1) - m1)
        self.m2 = m2 + part * (min(g2, CLIP * m2) - m2)
