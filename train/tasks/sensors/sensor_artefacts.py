"""Add what a sensor adds to values (n,), one a slot (time step); a season has `season` slots.

Each artefact takes a generator of random numbers, values (n,) with a variance of about 1, and the
season, and returns the changed values (n,): with noise, faults and more. `digitised` comes last and
rounds them; `measured_slots` draws which slots have a value.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.train.tasks.sensors.sensor_processes import (
    Random,
    averaged,
    events,
    log_uniform,
    profile,
    smooth,
    wander,
)

Artefact = Callable[[Random, FloatArray, int], FloatArray]


def noisy(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Add noise whose size depends on the phase of the season."""
    size = np.exp(random.uniform(0.3, 1.2) * profile(random, len(values), season))
    return values + random.uniform(0.02, 0.4) * size * random.normal(size=len(values))


def skewed(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Read the values on a curved scale: the exponential of a multiple of them."""
    bent: FloatArray = np.exp(np.clip(values, -4, 3) * random.uniform(0.3, 1))
    return bent


def shifted(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Add a level that jumps now and then and stays there until the next jump."""
    n = len(values)
    jumps = events(random, n, random.uniform(0.0005, 0.003)) * random.normal(0, 2, n)
    return values + np.cumsum(jumps)


def spiked(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Add outliers, some of them very large, one at a time or a few in a row."""
    n = len(values)
    hits = events(random, n, log_uniform(random, 0.0005, 0.01)) * random.standard_t(2, n)
    spikes: FloatArray = np.clip(hits, -40, 40)
    if random.random() < 0.3:
        width = int(random.integers(2, 4))
        spikes = width * averaged(spikes, width)
    return values + random.uniform(1, 4) * spikes


def drifting(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Let the gain of the sensor wander slowly, or its offset drift, over the whole stream."""
    n = len(values)
    if random.random() < 0.5:
        return values * np.exp(0.3 * wander(random, n, 0.9995))
    return values + random.normal(0, 1.5) * np.linspace(0, 1, n) ** random.uniform(0.5, 2)


def hummed(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Add a fast wave whose frequency has no relation to the clock, as of sampled mains voltage."""
    speed = random.uniform(0.05, 0.5) + 1e-4 * smooth(random, len(values), 300)
    wave = np.sin(2 * math.pi * np.cumsum(speed) + random.uniform(0, 6))
    return values + log_uniform(random, 0.01, 0.4) * wave


def floored(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Raise all values below a floor to it, at which the process rests for up to half its time."""
    return np.maximum(values, np.quantile(values, random.uniform(0.02, 0.5)))


def capped(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Lower all values above the end of the sensor's range to that end."""
    return np.minimum(values, np.quantile(values, random.uniform(0.7, 0.98)))


def lagging(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Replace each value by the mean of the last ones, as a slow probe or a filter does."""
    return averaged(values, int(log_uniform(random, 2, 20)))


def jittered(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Read each value a little early or late, up to half a slot."""
    slots = np.arange(len(values)) + random.uniform(0, 0.5) * random.uniform(-1, 1, len(values))
    return np.interp(slots, np.arange(len(values)), values)


def dropping(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Replace the values of some stretches by one wrong value, as a bad contact does."""
    n, result = len(values), values.copy()
    wrong = random.choice([0.0, values.min() - 1, values.max() + 1, values.min()])
    for start in random.integers(0, n, random.integers(1, 12)):
        result[start : start + int(log_uniform(random, 1, 30))] = wrong
    return result


def fading(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Add noise in some stretches, half to five times as large as the changes of the values."""
    n, result = len(values), values.copy()
    for start in random.integers(0, n, random.integers(1, 4)):
        part = slice(start, start + int(log_uniform(random, 20, 400)))
        changes = np.diff(values).std() + 1e-6
        result[part] += (
            log_uniform(random, 0.5, 5) * changes * random.normal(size=len(result[part]))
        )
    return result


BEFORE: tuple[tuple[float, Artefact], ...] = (
    (0.20, noisy),
    (0.12, skewed),
    (0.10, lagging),
    (0.06, jittered),
    (0.15, shifted),
    (0.10, drifting),
    (0.06, hummed),
    (0.06, fading),
    (0.10, floored),
    (0.08, capped),
    (0.22, spiked),
    (0.05, dropping),
)
"""Artefacts with the probability of each, in the order in which they are applied."""

QUANTISED, CONVERTED, HELD, DEAD, STUCK = 0.5, 0.15, 0.06, 0.06, 0.10


def digitised(random: Random, values: FloatArray) -> FloatArray:
    """Return values (n,) as a sensor sends them: rounded, held, sent only on change, or stuck."""
    if random.random() < HELD:
        values = _held(random, values)
    if random.random() < DEAD:
        values = _sent_on_change(random, values)
    if random.random() < QUANTISED:
        changes = np.abs(np.diff(values))
        usual = np.median(changes[changes > 0]) if changes.any() else 1.0
        quantum = max(float(usual), 1e-3) * log_uniform(random, 0.03, 6)
        values = np.round(values / quantum) * quantum
        if random.random() < CONVERTED:  # to another unit, which has steps of its own
            quantum *= log_uniform(random, 0.03, 0.8)
            values = np.round(values / quantum) * quantum
    if random.random() < STUCK:
        values = _stuck(random, values)
    return values


def _held(random: Random, values: FloatArray) -> FloatArray:
    """Hold each value until a new one comes, every few slots or after random times."""
    n, every = len(values), int(random.integers(2, 13))
    new = np.arange(n) % every == 0
    if random.random() < 0.5:
        new = random.random(n) < 1 / every
    return values[np.maximum.accumulate(np.where(new, np.arange(n), 0))]


def _sent_on_change(random: Random, values: FloatArray) -> FloatArray:
    """Hold the last sent value until a value differs from it by more than a random threshold."""
    band = log_uniform(random, 0.3, 4) * (np.abs(np.diff(values)).mean() + 1e-6)
    sent, readings = float(values[0]), []
    for value in values.tolist():
        if abs(value - sent) > band:
            sent = value
        readings.append(sent)
    return np.array(readings)


def _stuck(random: Random, values: FloatArray) -> FloatArray:
    result = values.copy()
    for start in random.integers(0, len(values), random.integers(1, 4)):
        result[start : start + int(log_uniform(random, 8, 250))] = result[start]
    return result


def measured_slots(random: Random, n: int) -> Array:
    """Draw which of n slots (time steps) have a value, (n,) of bool.

    In about one stream of four some have none. Values get lost one at a time, many at random (an
    irregular sensor), or in stretches of slots.
    """
    measured = np.ones(n, bool)
    kind = random.random()
    if kind < 0.15:
        measured &= random.random(n) > log_uniform(random, 0.001, 0.08)
    elif kind < 0.18:  # an irregular sensor
        measured &= random.random(n) > random.uniform(0.1, 0.6)
    if kind < 0.1 or kind > 0.92:
        for start in random.integers(0, n, random.integers(1, 5)):
            measured[start : start + int(log_uniform(random, 2, 120))] = False
    measured[0] = True
    return measured
