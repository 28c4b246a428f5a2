"""Draw building blocks of made-up sensors over n slots (time steps): walks, seasons and more.

Most functions draw from a numpy generator `random` and return n slots in float64; none of them
loops over slots.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray

Random = np.random.Generator
Family = Callable[[Random, int, int], FloatArray]
"""A function of a generator, a number of slots n and a season in slots, which draws a process (n,);
the process need not have the season."""

BURN_IN = 300
BLOCK = 64
DAYS_OF_A_WEEK = 7


def log_uniform(random: Random, low: float, high: float) -> float:
    """Draw a number between two positive ones, whose logarithm is uniform."""
    return math.exp(random.uniform(math.log(low), math.log(high)))


def standard(values: FloatArray) -> FloatArray:
    """Shift and scale values to mean 0 and standard deviation 1."""
    scaled: FloatArray = (values - values.mean()) / (values.std() + 1e-9)
    return scaled


def filtered(noise: FloatArray, pole: complex) -> Array:
    """Filter noise (n,) by one pole: y_t = pole y_{t-1} + noise_t, from y_{-1} = 0.

    The result (n,) is computed in blocks, each by one product of matrices.
    """
    n = len(noise)
    rows = np.concatenate([noise, np.zeros(-n % BLOCK)]).reshape(-1, BLOCK)
    powers = np.power(pole, np.arange(BLOCK + 1))
    lags = np.subtract.outer(np.arange(BLOCK), np.arange(BLOCK))
    kernel = np.where(lags >= 0, powers[np.abs(lags)], 0).T
    blocks = rows @ kernel.real  # a product of complex matrices would take ten times as long
    if np.iscomplexobj(kernel):
        blocks = blocks + 1j * (rows @ kernel.imag)
    carried, last = [], powers[0] * 0
    for end in blocks[:, -1]:
        carried.append(last)
        last = end + powers[BLOCK] * last
    blocks = blocks + np.outer(np.array(carried), powers[1:])
    return blocks.reshape(-1)[:n]


def autoregression(noise: FloatArray, poles: list[complex]) -> FloatArray:
    """Filter noise (BURN_IN + n,) by one pole after the other; return the last n slots, (n,).

    A complex pole stands for itself and its conjugate.
    """
    series: Array = noise
    for pole in poles:
        if isinstance(pole, complex):  # the pair as a sum of two fractions
            series = np.real(2 * pole / (pole - pole.conjugate()) * filtered(series, pole))
        else:
            series = filtered(series, pole)
    return series[BURN_IN:]


def wander(random: Random, n: int, memory: float) -> FloatArray:
    """Draw a first-order autoregression of variance 1, stationary from its first slot on.

    Args:
        random: Source of random numbers.
        n: Number of slots.
        memory: Correlation between neighbouring slots.
    """
    noise = random.normal(0, math.sqrt(max(1 - memory**2, 1e-12)), n)
    noise[0] = random.normal()
    return filtered(noise, memory)


def lasting(random: Random, low: float, high: float) -> float:
    """Draw `memory` for `wander`; correlation is 1/e after low to high slots, log-uniform."""
    return math.exp(-1 / log_uniform(random, low, high))


def walk(random: Random, n: int) -> FloatArray:
    """Draw a random walk: the cumulative sum of n standard normal steps."""
    return np.cumsum(random.normal(size=n))


def averaged(values: FloatArray, width: int) -> FloatArray:
    """Return the running mean of the last `width` values at each slot, (n,)."""
    sums = np.cumsum(np.concatenate([np.full(width, values[0]), values]))
    means: FloatArray = (sums[width:] - sums[:-width]) / width
    return means


def smooth(random: Random, n: int, length: float, n_waves: int = 32) -> FloatArray:
    """Draw a smooth function of variance about 1 as a sum of random waves.

    Args:
        random: Source of random numbers.
        n: Number of slots.
        length: Length scale in slots.
        n_waves: Number of waves.
    """
    frequency = random.normal(0, 1 / length, n_waves)
    phase = random.uniform(0, 2 * math.pi, n_waves)
    size = random.normal(0, math.sqrt(2 / n_waves), n_waves)
    stride = max(1, int(length / 12))  # a long scale needs few points
    if stride > 1:
        coarse = np.arange(0, n + stride, stride)
        return np.interp(np.arange(n), coarse, size @ _waves(frequency, phase, coarse))
    curve: FloatArray = size @ _waves(frequency, phase, np.arange(n))
    return curve


def _waves(frequency: FloatArray, phase: FloatArray, slots: Array) -> FloatArray:
    waves: FloatArray = np.cos(np.outer(frequency, slots) + phase[:, None])
    return waves


# Seasons.


def profile(random: Random, n: int, season: int, n_harmonics: int = 4) -> FloatArray:
    """Draw a pattern of variance 1 that repeats exactly after each season of `season` slots, (n,).

    It is a sum of up to n_harmonics sines, one to three peaks, or a level with one higher stretch.
    """
    slots = np.arange(season)
    kind = random.random()
    if kind < 0.6:
        one = _harmonics(random, season, n_harmonics)
    elif kind < 0.85:
        one = np.zeros(season)
        for _ in range(random.integers(1, 4)):
            width = random.uniform(0.02, 0.15) * season + 0.5
            apart = (slots - random.uniform(0, season) + season / 2) % season - season / 2
            one += random.uniform(0.4, 1) * np.exp(-0.5 * (apart / width) ** 2)
    else:
        start, part = random.uniform(0, season), random.uniform(0.15, 0.7)
        one = ((slots - start) % season < part * season).astype(np.float64)
        width = int(random.integers(1, max(2, season // 8)))
        one = averaged(np.tile(one, 2), width)[season:]
    if one.std() < 1e-6:
        one = np.sin(2 * math.pi * slots / season)
    return np.resize(standard(one), n)


def _harmonics(random: Random, season: int, n_harmonics: int) -> FloatArray:
    orders = np.arange(1, max(min(n_harmonics, season // 2), 1) + 1)
    size = random.normal(size=len(orders)) / orders ** random.uniform(0.5, 1.5)
    phase = random.uniform(0, 2 * math.pi, len(orders))
    turns = np.outer(orders, 2 * math.pi * np.arange(season) / season) + phase[:, None]
    curve: FloatArray = size @ np.sin(turns)
    return curve


def week(random: Random, n: int, season: int) -> FloatArray:
    """Draw a factor for each slot that depends on its day of the week, (n,).

    A day has `season` slots. Factors are near 1, on the last two days mostly smaller.
    """
    days = 1 + 0.1 * random.normal(size=DAYS_OF_A_WEEK)
    days[5:] *= random.uniform(0.2, 1.1)
    start = random.integers(0, DAYS_OF_A_WEEK * season)
    return np.abs(days)[(start + np.arange(n)) // season % DAYS_OF_A_WEEK]


# Switches and events.


def states(random: Random, n: int, n_states: int, length: float, regular: float = 1.0) -> Array:
    """Draw the number of a state for each slot, (n,), int64, from 0 to n_states - 1.

    A state stays for random times of the mean `length`, in slots. They have a gamma distribution of
    shape `regular`: 1 for times without memory, more for nearly equal times.
    """
    n_stays = int(3 * n / max(length, 1.0)) + 8
    stays = 1 + random.gamma(regular, length / regular, n_stays).astype(np.int64)
    stays[-1] = n
    steps = random.integers(1, max(n_states, 2), n_stays)
    order = np.cumsum(steps) % n_states
    return np.repeat(order, stays)[:n]


def levels(random: Random, n: int, n_states: int, length: float) -> FloatArray:
    """Draw a process that jumps between random levels and stays for `length` slots on average."""
    heights: FloatArray = random.normal(size=n_states)[states(random, n, n_states, length)]
    return heights


def events(random: Random, n: int, rate: float | FloatArray) -> FloatArray:
    """Draw in which of n slots an event happens: 1.0 there, else 0.0; `rate` is the probability."""
    return (random.random(n) < rate).astype(np.float64)


def beats(random: Random, n: int, period: float, jitter: float) -> FloatArray:
    """Draw the phase of a rhythm at each slot, (n,): it rises by 1 in each cycle.

    Cycles last `period` slots on average, each another time, with a relative deviation of `jitter`.
    """
    n_cycles = int(n / (0.3 * period)) + 8
    slow = 0.7 * wander(random, n_cycles, 0.9) + 0.7 * random.normal(size=n_cycles)
    lengths = period * np.clip(1 + jitter * slow, 0.35, 3)
    ends = np.concatenate([[0.0], np.cumsum(lengths)])
    return np.interp(np.arange(n) + random.uniform(0, period), ends, np.arange(n_cycles + 1.0))


def bumps(phase: FloatArray, places: Any, widths: Any, sizes: Any) -> FloatArray:
    """Return a sum of bell curves in each cycle, (n,).

    Args:
        phase: Phase of each slot, (n,); a cycle lasts from one whole number to the next.
        places: Middle of each curve within a cycle, from 0 to 1.
        widths: Width of each curve (the standard deviation), as a share of the cycle.
        sizes: Height of each curve.
    """
    within, curve = phase % 1, np.zeros(len(phase))
    for place, width, size in zip(places, widths, sizes, strict=True):
        apart = (within - place + 0.5) % 1 - 0.5
        curve += size * np.exp(-0.5 * (apart / width) ** 2)
    return curve


def decaying(hits: FloatArray, half_life: float) -> FloatArray:
    """Let each hit (n,) fade exponentially, to a half within `half_life` slots; sum them, (n,)."""
    return filtered(hits, 0.5 ** (1 / half_life))
