"""Draw processes by formulas over n slots (time steps); a season has `season` slots.

The formulas are of autoregressions, kernels, causes, chaos and mixtures. Each function takes a
generator of random numbers, n and season, and returns a random process (n,) of its kind.
"""

from __future__ import annotations

import math

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.train.tasks.sensors.sensor_processes import (
    BURN_IN,
    Family,
    Random,
    autoregression,
    events,
    lasting,
    levels,
    log_uniform,
    profile,
    smooth,
    standard,
    states,
    walk,
    wander,
    week,
)


def autoregressive(random: Random, n: int, season: int) -> FloatArray:
    """Draw an autoregression of one to four poles, each real or one of a pair that resonates.

    Its noise has heavy tails in one of two streams, and sometimes a moving average.
    """
    poles: list[complex] = []
    for _ in range(random.integers(1, 3)):
        if random.random() < 0.5:
            memory = 1 - log_uniform(random, 0.002, 0.9)
            poles.append(memory if random.random() < 0.85 else -memory)
        else:
            radius = 1 - log_uniform(random, 0.003, 0.5)
            poles.append(complex(radius * np.exp(1j * log_uniform(random, 0.02, 3))))
    size = n + BURN_IN
    noise = (
        random.normal(size=size)
        if random.random() < 0.5
        else random.standard_t(random.uniform(2.5, 8), size)
    )
    if random.random() < 0.3:
        noise[1:] += random.uniform(-0.9, 0.9) * noise[:-1]
    return autoregression(noise, poles)


def seasonal(random: Random, n: int, season: int) -> FloatArray:
    """Draw a season whose size and shape drift, perhaps with a weekly pattern, and noise on it."""
    size = 1 + random.uniform(0, 0.4) * wander(random, n, 0.999)
    day = profile(random, n, season)
    if random.random() < 0.4:
        turning = 1 / (1 + np.exp(-2 * smooth(random, n, n / 3)))
        day = turning * day + (1 - turning) * profile(random, n, season)
    if random.random() < 0.4:
        day = (day - day.min()) * week(random, n, season)
    return (
        day * size
        + log_uniform(random, 0.03, 1) * wander(random, n, lasting(random, 1, 100))
        + random.choice([0, 1]) * random.uniform(0, 0.03) * walk(random, n)
        + log_uniform(random, 0.01, 0.5) * random.normal(size=n)
    )


def regimes(random: Random, n: int, season: int) -> FloatArray:
    """Draw a process that switches between two or three autoregressions.

    The autoregressions differ in mean, memory and standard deviation.
    """
    n_states = int(random.integers(2, 4))
    now = states(random, n, n_states, log_uniform(random, 50, 600))
    parts = [
        random.normal(0, 2)
        + math.exp(random.normal(0, 0.8)) * wander(random, n, lasting(random, 0.5, 150))
        for _ in range(n_states)
    ]
    return np.stack(parts)[now, np.arange(n)]


def volatile(random: Random, n: int, season: int) -> FloatArray:
    """Draw noise around a level, whose size wanders slowly or follows the season."""
    log = random.uniform(0.3, 1.2) * wander(random, n, lasting(random, 5, 500))
    log = log + random.choice([0, 1]) * 0.7 * profile(random, n, season)
    noise = random.standard_t(random.uniform(3, 12), n) * np.exp(log)
    level = random.uniform(0, 2) * wander(random, n, lasting(random, 2, 200))
    if random.random() < 0.3:
        return level + np.abs(noise)
    return level + noise


def kernels(random: Random, n: int, season: int) -> FloatArray:
    """Draw a sum or product of up to five smooth, periodic, linear and white random functions.

    This is the mixture of kernels of Chronos (Ansari et al. 2024), by random Fourier features.
    """
    curve = np.zeros(n)
    for k in range(random.integers(1, 6)):
        part = _kernel(random, n, season)
        curve = curve + part if k == 0 or random.random() < 0.5 else curve * part
    return standard(curve) + log_uniform(random, 0.002, 0.1) * random.normal(size=n)


def _kernel(random: Random, n: int, season: int) -> FloatArray:
    kind = random.integers(6)
    if kind == 0:
        return profile(random, n, season, int(random.integers(1, 6)))
    if kind == 1:
        return smooth(random, n, log_uniform(random, 3, n))
    if kind == 2:  # rational quadratic: several lengths
        scale = log_uniform(random, 3, n / 4)
        return 0.6 * np.sum([smooth(random, n, scale * 4**k, 16) for k in (-1, 0, 1)], 0)
    if kind == 3:
        return random.normal() * np.linspace(-1.7, 1.7, n) + random.choice([0, 1])
    if kind == 4:  # a period that no clock has
        period = log_uniform(random, 4, n / 3)
        wave = np.exp(random.uniform(0.2, 2) * np.sin(2 * math.pi * np.arange(n) / period))
        return standard(wave)
    return random.choice([0.1, 0.3, 1.0]) * random.normal(size=n)


def causes(random: Random, n: int, season: int) -> FloatArray:
    """Draw the last node of a random graph in which nodes cause others (CauKer, Xie et al. 2025).

    Each node is a noisy sum of earlier nodes, each delayed and passed through a nonlinear function.
    """
    size = n + 64
    nodes = [standard(_kernel(random, size, season) + 1e-3 * walk(random, size)) for _ in range(2)]
    nodes.append(wander(random, size, lasting(random, 1, 100)))
    for _ in range(random.integers(2, 5)):
        total = log_uniform(random, 0.003, 0.3) * random.normal(size=size)
        for parent in random.choice(len(nodes), random.integers(1, 4), replace=False):
            lag = int(log_uniform(random, 1, 30)) - 1
            bent = _bend(random, random.normal() + random.normal(0, 1.5) * nodes[parent])
            total = total + random.normal() * np.concatenate([np.full(lag, bent[0]), bent])[:size]
        nodes.append(standard(total))
    return nodes[-1][64:]


def _bend(random: Random, values: FloatArray) -> FloatArray:
    kind = random.integers(7)
    bent = (
        np.maximum(values, 0), np.sin(values), np.tanh(values), values, np.abs(values),
        np.floor(values), np.where(values > 0, values, 0.2 * values) ** 2,
    )[kind]  # fmt: skip
    result: FloatArray = bent
    return result


def chaotic(random: Random, n: int, season: int) -> FloatArray:
    """Draw a chaotic process, a deterministic one that never repeats, and add a little noise."""
    kind = random.integers(3)
    states: list[float] = []
    if kind == 0:  # Hénon's map and the logistic one
        a, b = random.uniform(1.2, 1.4), random.choice([0.0, 0.3])
        a = a + 0.3 if b == 0 else a
        x, y = 0.1, 0.1
        for _ in range(n):
            x, y = min(max(1 - a * x * x + y, -2.0), 2.0), b * x
            states.append(x)
        values = np.array(states)
    elif kind == 1:  # Lorenz
        step, (x, y, z) = log_uniform(random, 0.01, 0.05), random.normal(0, 3, 3)
        x, y, z = float(x), float(y), float(z) + 25
        for _ in range(2 * n):
            half = step / 2
            dx, dy, dz = 10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z
            x, y, z = x + half * dx, y + half * dy, z + half * dz
            states.append(x)
        values = np.array(states[::2])
    else:  # Mackey and Glass
        lag, past = int(random.integers(17, 40)), [1.2] * 41
        for _ in range(n):
            delayed = past[-lag]
            past.append(past[-1] + 0.2 * delayed / (1 + delayed**10) - 0.1 * past[-1])
        values = np.array(past[41:])
    values = np.nan_to_num(np.clip(values, -1e3, 1e3))
    return standard(values) + log_uniform(random, 0.001, 0.1) * random.normal(size=n)


def threshold(random: Random, n: int, season: int) -> FloatArray:
    """Draw an autoregression with a coefficient for each sign, or a process at -1 or 1."""
    noise = random.normal(0, 1, n)
    wells = random.random() < 0.5
    pull, size = log_uniform(random, 0.01, 0.3), log_uniform(random, 0.05, 0.5)
    low, high = random.uniform(-0.5, 0.98, 2).tolist()
    value, states = 1.0, []
    for push in (noise * (size if wells else 1.0)).tolist():
        if wells:
            value = min(max(value + pull * (value - value**3) + push, -3.0), 3.0)
        else:
            value = (high if value > 0 else low) * value + push
        states.append(value)
    return np.array(states)


def sparse(random: Random, n: int, season: int) -> FloatArray:
    """Draw a process that is mostly 0 and sometimes another value, as rare counts or alarms are."""
    rate = log_uniform(random, 0.005, 0.3) * np.exp(
        random.uniform(0, 1) * wander(random, n, lasting(random, 5, 200))
    )
    if random.random() < 0.4:
        rate = rate * np.exp(random.uniform(0.3, 1.5) * profile(random, n, season))
    hits = events(random, n, np.minimum(rate, 0.95))
    kind = random.integers(3)
    if kind == 0:
        return hits * random.poisson(random.uniform(0.5, 6), n)
    if kind == 1:
        return hits * random.lognormal(0, random.uniform(0.2, 1.5), n)
    return hits * np.abs(levels(random, n, 4, 1 / log_uniform(random, 0.02, 0.5)))


def constant(random: Random, n: int, season: int) -> FloatArray:
    """Draw levels that each last for long, with noise of a few of the sensor's smallest steps."""
    level = levels(random, n, 4, log_uniform(random, 100, 1000))
    noise = random.normal(size=n) * random.choice([0.0, 0.02, 0.3, 1.0])
    return 3 * level + np.round(noise * log_uniform(random, 0.3, 3)) / 3


FORMULAS: dict[str, tuple[Family, bool]] = {
    "autoregressive": (autoregressive, False),
    "seasonal": (seasonal, True),
    "regimes": (regimes, False),
    "volatile": (volatile, True),
    "kernels": (kernels, True),
    "causes": (causes, True),
    "chaotic": (chaotic, False),
    "threshold": (threshold, False),
    "sparse": (sparse, True),
    "constant": (constant, False),
}
"""Function of each kind of process by its name, and whether the process has a season."""
