"""Weigh the evidence that one model scores better than another, valid whenever one looks.

d_t is the difference of two models' log scores of row t, cut to -B..B nats. The null hypothesis is
that up to now the mean of the expected differences is at most 0. For each lambda in (0, 1/c), with
c = 2B,

    E_t(lambda) = exp(lambda * S_t - psi(lambda) * V_t)
    S_t = d_1 + .. + d_t,   V_t = (d_1 - m_1)^2 + .. + (d_t - m_t)^2
    psi(lambda) = (-log(1 - c*lambda) - c*lambda) / c^2,   m_t = S_(t-1) / (t-1), m_1 = 0

is an e-process (Choe and Ramdas, "Comparing sequential forecasters", Theorem 2, with the bound of
Fan, Grama and Liu 2015): the probability that it ever reaches 1/alpha while the null hypothesis
holds is at most alpha, whenever and how often one looks. A mean of e-processes is one too, so no
lambda need be chosen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

BOUND_NATS = 2.0
"""B, to which differences are cut: one row cannot decide, and a rare bad miss counts this much."""
N_RATES = 16
SMALLEST, LARGEST = 0.01, 0.9
"""The smallest and the largest c * lambda of the mean."""


class Evidence:
    """Sums up differences of log scores.

    Attributes:
        n: Number of differences.
        total: S, the sum of the cut differences, in nats.
        spread: V, the sum of their squares around the mean of those before.
    """

    def __init__(self) -> None:
        self.n = 0
        self.total = self.spread = 0.0

    def add(self, difference: float) -> None:
        """Add the difference of the two log scores of a row, in nats; NaN is passed over."""
        if difference != difference:
            return
        cut = min(max(difference, -BOUND_NATS), BOUND_NATS)
        mean = self.total / self.n if self.n else 0.0
        self.spread += (cut - mean) ** 2
        self.total += cut
        self.n += 1

    @property
    def mean(self) -> float:
        """Return the mean of the cut differences, in nats a row; 0 without any."""
        return self.total / self.n if self.n else 0.0

    @property
    def log_e(self) -> float:
        """Return the logarithm of the e-process: at log(1/alpha) the evidence is enough."""
        logs = [rate * self.total - cost * self.spread for rate, cost in _RATES]
        largest = max(logs)
        return largest + math.log(sum(math.exp(one - largest) for one in logs) / len(logs))

    def to_json(self) -> dict[str, float]:
        """Return everything as a JSON object; the numbers come back exactly."""
        return {"n": self.n, "total": self.total, "spread": self.spread}

    @classmethod
    def from_json(cls, form: Mapping[str, Any]) -> Evidence:
        """Rebuild from what `to_json` returned; raise ValueError or KeyError if it is damaged."""
        evidence = cls()
        n, total, spread = form["n"], float(form["total"]), float(form["spread"])
        if type(n) is not int or n < 0 or not (math.isfinite(total) and 0 <= spread < math.inf):
            raise ValueError("the evidence of a trial is damaged")
        evidence.n, evidence.total, evidence.spread = n, total, spread
        return evidence


def _rates() -> list[tuple[float, float]]:
    """Return pairs of lambda and psi(lambda)."""
    c = 2 * BOUND_NATS
    step = math.log(LARGEST / SMALLEST) / (N_RATES - 1)
    parts = [SMALLEST * math.exp(step * at) for at in range(N_RATES)]  # c * lambda
    return [(part / c, (-math.log1p(-part) - part) / c**2) for part in parts]


_RATES = _rates()
