"""Estimate how certain a mean of noisy, correlated samples is.

Samples of power are not independent: regulators, governors and averaging sensors make neighbours
alike, and the textbook error, deviation over root n, comes out too small. So windows are cut into
blocks much longer than that memory, and the blocks' means are compared. Blocks start short (many of
them, a certain estimate) and grow until neighbouring blocks no longer resemble each other; what
resemblance is left at the longest is corrected for as in a first-order process.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

N_BLOCKS = (64, 48, 32, 24, 16, 12, 8)  # over all windows; from many short ones to few long ones
MIN_PER_BLOCK = 10  # samples; a trapezoid across an edge makes shorter neighbours alike
MIN_MEMORIES = 2.0  # averages in a block: beneath that, neighbours share much of one average
MAX_CORRELATION = 0.8  # of neighbouring blocks; beyond it the windows are simply too short
MIN_CHANGES = 8  # of a reading, to estimate how often it is renewed
QUICK = 0.1  # quantile of the times between changes
OLDER = 1.25  # of what a sensor states: the scatter of few changes does not make more
LONE = 7.0  # deviations above both neighbours: one in 1e6 samples of white noise


def noise_density(
    windows: Sequence[tuple[FloatArray, FloatArray]], memory_s: float = 0.0
) -> tuple[float, float]:
    """Return the long-run variance of power, in W^2 s: divide it by T for a mean over T seconds.

    Args:
        windows: For each window of one kind, (N,) times of its samples in s, and (N,) energy in J
            accumulated until each of them, which serves counters and sampled power alike.
        memory_s: Length of the sensor's averages.

    Returns:
        The variance in W^2 s, and the degrees of freedom of this estimate.
    """
    total_s = sum(float(times[-1] - times[0]) for times, _ in windows)
    n_samples = sum(len(times) for times, _ in windows)
    most = n_samples / MIN_PER_BLOCK
    if memory_s > 0:
        most = min(most, total_s / (MIN_MEMORIES * memory_s))
    fits = [n for n in N_BLOCKS if n <= most * (1 + 1e-9)]
    for n_blocks in fits or N_BLOCKS[-1:]:
        squares = products = 0.0
        n = 0
        for times_s, energy_j in windows:
            deviations = _block_deviations(times_s, energy_j, total_s / n_blocks)
            squares += float(deviations @ deviations)
            products += float(deviations[1:] @ deviations[:-1])
            n += len(deviations)
        freedom = n - len(windows)
        # Deviations from a window's own mean look less alike than the noise is: the bias is 1/m.
        correlation = products / squares + len(windows) / n if squares > 0 else 0.0
        if correlation < 1 / math.sqrt(n):
            break
    left = min(max(correlation, 0.0), MAX_CORRELATION)
    return squares / freedom * (1 + left) / (1 - left), float(freedom)


def _block_deviations(times_s: FloatArray, energy_j: FloatArray, block_s: float) -> FloatArray:
    """Return (mean power of block - of window) * sqrt(block's length) of m >= 2 blocks, (m,).

    Args:
        times_s: Times of a window's samples, (N,).
        energy_j: Energy accumulated until each sample, (N,).
        block_s: Wanted length of a block.
    """
    n = max(2, round(float(times_s[-1] - times_s[0]) / block_s))
    edges = np.linspace(times_s[0], times_s[-1], n + 1)
    length_s = float(edges[1] - edges[0])
    power_w = np.diff(np.interp(edges, times_s, energy_j)) / length_s
    return np.asarray((power_w - power_w.mean()) * math.sqrt(length_s))


def renewal_s(times_s: FloatArray, readings: FloatArray) -> float | None:
    """Return how many seconds lie between two renewals of a reading; None with too few changes.

    Where every renewal changes the reading, this is the time between changes. Where a coarse step
    hides many of them, the shortest times show it, hence the low quantile.
    """
    changed_s = times_s[1:][np.diff(readings) != 0]
    if len(changed_s) < MIN_CHANGES:
        return None
    return float(np.quantile(np.diff(changed_s), QUICK))


def is_older(measured_s: float | None, memory_s: float, period_s: float) -> bool:
    """Return whether a sensor renews its reading less often than every `memory_s`.

    Args:
        measured_s: Seconds between two renewals, as `renewal_s` found them; None is not older.
        memory_s: Seconds between two renewals, as the sensor states them.
        period_s: Seconds between two samples, which limit what can be seen.
    """
    return measured_s is not None and measured_s > OLDER * memory_s + 2 * period_s


def student_95(freedom: float) -> float:
    """Return Student's 97.5 % quantile at `freedom` degrees of freedom (Cornish and Fisher)."""
    z = 1.959964
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / freedom**power for power, term in enumerate(terms))


def rounding_w(readings_w: FloatArray, step_w: float) -> float:
    """Return the standard deviation in W that rounding to multiples of step_w gives to a mean.

    A reading that stands still has one error of up to half a step all along: step / sqrt(12).
    Noise of the readings averages this error away: it shrinks by exp(-2 (pi noise / step)^2).
    The square of the noise is the readings' variance less step^2 / 4, the most that toggling
    between two steps can cause.
    """
    noise2 = max(0.0, float(readings_w.var()) - step_w**2 / 4)
    return step_w / math.sqrt(12) * math.exp(-2 * math.pi**2 * noise2 / step_w**2)


def smallest_difference(readings: FloatArray) -> float:
    """Return the smallest difference above 0 between any two readings (N,); 0 if all are equal."""
    levels = np.unique(readings)
    return float(np.diff(levels).min()) if len(levels) > 1 else 0.0


def noise_of(power_w: FloatArray) -> float:
    """Return the noise of samples in watts from differences of neighbours, robust to outliers."""
    if len(power_w) < 3:
        return 0.0
    return 1.4826 * float(np.median(np.abs(np.diff(power_w)))) / math.sqrt(2)


def count_lone_samples(power_w: FloatArray, threshold_w: float) -> int:
    """Count samples that stand above both neighbours, or below both, by over threshold_w.

    An event there was shorter than the sampling period; how much of it the sensor caught is
    unknown.
    """
    before, after = power_w[1:-1] - power_w[:-2], power_w[1:-1] - power_w[2:]
    lone = (np.minimum(before, after) > threshold_w) | (np.maximum(before, after) < -threshold_w)
    return int(lone.sum())
