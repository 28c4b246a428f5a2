"""Mix several forecasts of one value by their evidence.

    weight of forecast k for the next row   w_k = (1 - SHARE) * v_k + SHARE * prior_k
    after the row                           v_k = w_k * density_k / sum over j of w_j * density_j

With SHARE = 0 this is the mixture of Bayes. The share lets the weights go over to another forecast
when that becomes better (fixed share, Herbster and Warmuth 1998). Forecast 0 is that of the sensor
itself, with a prior of a half. So the mixture loses to it at most log 2 nats once, and
-log(1 - SHARE / 2) nats with each row.

Letters of shapes: M forecasts, Q levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgefold.runtime.arrays import FloatArray

SHARE = 0.01
"""The share of all weights that is set back to the prior with each row that is scored."""
OWN = 0.5
"""The prior weight of the sensor's own forecast; the others share the rest evenly."""
LEAST = 1e-3
"""The least weight of a forecast that counts in quantiles: less would move no level by more."""
N_HALVINGS = 20
"""How often the interval of a quantile is halved: to a millionth of it."""
SNAP = 2e-6
"""The part of the first interval within which a quantile becomes that of one of the forecasts, so
that a value that is forecast exactly stays exact."""
NO_WIDTH = 1e-200
"""A width below all that numbers of 32 bits have, whose inverse times 1e30 is still a number."""
OUTER = np.array([0.001, 0.01, 0.025])
"""The levels of more quantiles of each forecast, as a normal density has them beyond the last two
that are known; those on the other side mirror them."""
NORMAL_OUTER, NORMAL_TWO = np.array([-3.0902, -2.3263, -1.96]), (-1.6449, -1.2816)
"""The quantiles of a standard normal density at the levels `OUTER`, and at 5 and 10 %."""
REACH = (NORMAL_TWO[0] - NORMAL_OUTER) / (NORMAL_TWO[1] - NORMAL_TWO[0])
"""How far these quantiles are beyond the one at 5 %, in distances of it from the one at 10 %."""


def prior_of(n: int) -> FloatArray:
    """Return the logarithms of the prior weights of the own forecast and of n others, (1 + n,)."""
    prior: FloatArray = np.log(np.concatenate([[OWN], np.full(n, (1.0 - OWN) / n)]))
    return prior


def weights_of(log_weights: FloatArray) -> FloatArray:
    """Return the logarithms of the weights (M,) with which the next row is forecast.

    Args:
        log_weights: The logarithms of the weights after the last row, (M,), of any sum. A forecast
            that has -inf has failed, and gets nothing back.
    """
    prior = np.where(np.isneginf(log_weights), -np.inf, prior_of(len(log_weights) - 1))
    held = log_weights - np.logaddexp.reduce(log_weights)
    back = prior - np.logaddexp.reduce(prior)
    mixed: FloatArray = np.logaddexp(held + math.log1p(-SHARE), back + math.log(SHARE))
    return mixed


def following(log_weights: FloatArray, log_densities: FloatArray) -> FloatArray:
    """Return the logarithms of the weights after a row, (M,).

    Args:
        log_weights: The logarithms of the weights with which the row was forecast, (M,).
        log_densities: The log densities of its value, (M,).
    """
    sums = log_weights + log_densities
    after: FloatArray = sums - np.logaddexp.reduce(sums)
    return after


def mixed_p_value(
    log_weights: FloatArray, p_values: FloatArray, medians: FloatArray, value: float
) -> float:
    """Return twice the smaller of the mixture's probabilities below and above a value.

    Args:
        log_weights: The logarithms of the weights, (M,).
        p_values: The same of each forecast, (M,).
        medians: The median of each forecast, (M,), which shows the side on which the value is.
        value: The value.
    """
    below = np.where(value >= medians, 1.0 - 0.5 * p_values, 0.5 * p_values)
    share = float(np.exp(log_weights) @ below)
    return max(min(2.0 * min(share, 1.0 - share), 1.0), 0.0)


def mixed_quantiles(
    log_weights: FloatArray, quantiles: FloatArray, levels: Sequence[float]
) -> FloatArray:
    """Return the quantiles of mixtures of forecasts, (..., Q).

    Between two of its quantiles a forecast is taken as even. A mixture's quantile is between the
    smallest and the largest one of the forecasts at the same level, which are halved until it is
    found.

    Args:
        log_weights: The logarithms of the weights, (M,).
        quantiles: The quantiles of the forecasts, (M, ..., Q), rising.
        levels: Their levels, (Q,).
    """
    counts = log_weights >= math.log(LEAST)
    log_weights, quantiles = log_weights[counts], quantiles[counts]
    log_weights = log_weights - np.logaddexp.reduce(log_weights)
    asked = np.asarray(levels)
    known = np.concatenate([OUTER, asked, 1.0 - OUTER[::-1]])
    first = quantiles[..., :1] - REACH * (quantiles[..., 1:2] - quantiles[..., :1])
    last = quantiles[..., -1:] + REACH[::-1] * (quantiles[..., -1:] - quantiles[..., -2:-1])
    edges = np.concatenate([first, quantiles, last], -1)[..., None, :]  # (M, ..., 1, Q + 6)
    widths = np.diff(edges)
    # An interval without width is a step: any value beyond its edge is above all of it.
    slopes = 1.0 / np.maximum(widths, NO_WIDTH)
    gains = np.diff(known)
    weights = np.exp(log_weights).reshape(-1, *[1] * (quantiles.ndim - 1))  # (M, ..., 1)

    low, high = quantiles.min(0), quantiles.max(0)  # (..., Q)
    near = SNAP * (high - low)
    for _ in range(N_HALVINGS):
        middle = 0.5 * (low + high)
        passed = np.clip((middle[..., None] - edges[..., :-1]) * slopes, 0.0, 1.0)
        reached = (weights * (OUTER[0] + passed @ gains)).sum(0) >= asked
        low, high = np.where(reached, low, middle), np.where(reached, middle, high)
    nodes = quantiles[..., None, :]  # (M, ..., 1, Q)
    away = np.abs(nodes - high[..., None])
    flat = np.moveaxis(away, 0, -2).reshape(*high.shape, -1)
    values = np.moveaxis(np.broadcast_to(nodes, away.shape), 0, -2).reshape(*high.shape, -1)
    nearest = np.take_along_axis(values, flat.argmin(-1)[..., None], -1)[..., 0]
    found: FloatArray = np.where(flat.min(-1) <= near, nearest, high)
    return found
