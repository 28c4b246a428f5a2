"""Made-up sensors: streams like those of machines, buildings, rivers, roads and bodies.

    family      what the sensor measures: 12 kinds of processes, with a season or without
    artefacts   what a sensor makes of it: noise, spikes, shifts, quanta, floors, repeats, gaps
    unit        an offset and a scale

A general model of sensor streams is trained on them (`edgefold.train.models.sensors`). Everything
is drawn from one numpy generator, so that a seed names a corpus.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray

Random = np.random.Generator
Family = Callable[[Random, int, int], FloatArray]
SEASONS = (7, 12, 24, 24, 48, 48, 52, 96, 144, 168, 288)
"""Slots: days of a week, months, hours, half hours, weeks, quarters and so on."""
BURN_IN = 300
TOLD, WRONG = 0.85, 0.05
"""How often a season is told to the model, and how often one that is not there is."""


@dataclass(frozen=True, slots=True)
class DrawnSensor:
    """One made-up stream.

    Attributes:
        values: (n,).
        measured: (n,), False in gaps.
        season: Slots of the season that the model is told; 0 for none.
        family: Name of its kind.
    """

    values: FloatArray
    measured: Array
    season: int
    family: str


def draw_sensor(random: Random, n: int) -> DrawnSensor:
    """Draw a stream of n slots."""
    season = int(random.choice(SEASONS))
    name = str(random.choice(list(FAMILIES)))
    family, is_seasonal = FAMILIES[name]
    values = _standard(family(random, n, season))
    for probability, artefact in ARTEFACTS:
        if random.random() < probability:
            values = artefact(random, values, season)
    told = season if is_seasonal and random.random() < TOLD and 4 * season < n else 0
    if not told and random.random() < WRONG:
        told = int(random.choice(SEASONS))
    unit = math.exp(random.normal(0, 3))
    values = unit * (values + random.normal(0, 3) * math.exp(random.normal(0, 1)))
    return DrawnSensor(values, _gaps(random, n), told, name)


def _standard(values: FloatArray) -> FloatArray:
    spread: FloatArray = (values - values.mean()) / (values.std() + 1e-9)
    return spread


def _gaps(random: Random, n: int) -> Array:
    """One stream in five has gaps: single slots, and some long ones."""
    measured = np.ones(n, bool)
    if random.random() < 0.2:
        measured = random.random(n) > random.uniform(0.001, 0.05)
        for _ in range(random.integers(0, 4)):
            start = random.integers(0, n)
            measured[start : start + random.integers(2, 60)] = False
    measured[0] = True
    return measured


# What families are made of.


def _filtered(noise: FloatArray, poles: FloatArray) -> FloatArray:
    """Noise through an autoregressive filter with poles in the unit circle, without its start."""
    kept = -np.real(np.poly(poles))[1:]
    held = [0.0] * len(kept)
    found = []
    for value in noise:
        following = value + sum(k * h for k, h in zip(kept, held, strict=True))
        held = [following, *held[:-1]]
        found.append(following)
    return np.array(found[BURN_IN:])


def _wander(random: Random, n: int, memory: float) -> FloatArray:
    """A first-order autoregression of variance 1."""
    noise = random.normal(0, math.sqrt(max(1 - memory**2, 1e-4)), n + BURN_IN)
    return _filtered(noise, np.array([memory]))


def _profile(random: Random, n: int, season: int, n_harmonics: int = 4) -> FloatArray:
    """A season with random harmonics, of variance 1."""
    turns = 2 * math.pi * np.arange(n) / season
    found = np.zeros(n)
    for k in range(1, min(n_harmonics, max(season // 2, 1)) + 1):
        size = random.normal() / k ** random.uniform(0.5, 1.5)
        found += size * np.sin(k * turns + random.uniform(0, 2 * math.pi))
    return found / (found.std() + 1e-9)


# Families: what is measured.


def _autoregressive(random: Random, n: int, season: int) -> FloatArray:
    """Two real poles or a resonance; one in two with heavy tails."""
    if random.random() < 0.5:
        poles = random.uniform(0.2, 0.99, 2) * random.choice([-1, 1], 2, p=[0.2, 0.8])
    else:
        pole = random.uniform(0.5, 0.995) * np.exp(1j * random.uniform(0.02, 1.5))
        poles = np.array([pole, pole.conjugate()])
    size = n + BURN_IN
    return _filtered(
        random.normal(size=size) if random.random() < 0.5 else random.standard_t(4, size), poles
    )


def _seasonal(random: Random, n: int, season: int) -> FloatArray:
    """A season whose size drifts, with weather around it."""
    return (
        _profile(random, n, season) * (1 + 0.3 * _wander(random, n, 0.999))
        + random.uniform(0.1, 1) * _wander(random, n, random.uniform(0.5, 0.99))
        + random.uniform(0, 0.02) * np.cumsum(random.normal(size=n))
        + random.uniform(0, 0.4) * random.normal(size=n)
    )


def _regimes(random: Random, n: int, season: int) -> FloatArray:
    """A mean-reverting process that changes between two ways to behave."""
    regime = np.cumsum(random.random(n) < random.uniform(0.001, 0.01)) % 2
    pull = random.uniform([0.2, 0.005], [0.9, 0.1])[regime]
    size = np.exp(random.normal([-0.5, 0.5], 0.5))[regime] * np.sqrt(pull)
    mean, noise = random.normal(0, 2, 2)[regime], random.normal(size=n)
    value, found = 0.0, np.empty(n)
    for t in range(n):
        value += pull[t] * (mean[t] - value) + size[t] * noise[t]
        found[t] = value
    return found


def _daylight(random: Random, n: int, season: int) -> FloatArray:
    """The sun above a horizon, behind clouds: a solar panel."""
    turns = 2 * math.pi * np.arange(n) / season + random.uniform(0, 2 * math.pi)
    height = np.maximum(0, np.sin(turns) - random.uniform(-0.3, 0.4)) ** random.uniform(0.7, 1.5)
    clouds = _wander(random, n, random.uniform(0.6, 0.98)) + random.uniform(-0.5, 1.5)
    return height / (1 + np.exp(-random.uniform(1, 3) * clouds))


def _counts(random: Random, n: int, season: int) -> FloatArray:
    """Events in each slot, with a day and a week."""
    rate = (
        random.uniform(0, 4)
        + random.uniform(0.3, 1.2) * _profile(random, n, season)
        + 0.3 * _wander(random, n, 0.9)
    )
    if 7 * season < n / 2:
        rate = rate + 0.4 * _profile(random, n, 7 * season)
    spread = random.gamma(8, 1 / 8, n)
    return random.poisson(np.minimum(np.exp(rate), 1e5) * spread).astype(np.float64)


def _thermostat(random: Random, n: int, season: int) -> FloatArray:
    """A heater that is switched at two thresholds."""
    up, down, reach = random.uniform([0.02, 0.02, 0.5], [0.3, 0.3, 2.0])
    outside, noise = 0.006 * _profile(random, n, season), random.normal(size=n)
    value, is_on, found = random.normal(), True, np.empty(n)
    for t in range(n):
        value += (up if is_on else -down) * (1 + 0.2 * noise[t]) + outside[t]
        is_on = value < -reach or (is_on and value <= reach)
        found[t] = value
    return found + random.uniform(0, 0.1) * random.normal(size=n)


def _recession(random: Random, n: int, season: int) -> FloatArray:
    """Rain into a river: sudden rises, slow falls, wet and dry years."""
    rain = (random.random(n + BURN_IN) < random.uniform(0.01, 0.1)) * random.gamma(
        1, 2, n + BURN_IN
    )
    flow = _filtered(rain, np.array([random.uniform(0.85, 0.995)])) + random.uniform(0, 0.5)
    flow = flow + np.abs(0.05 * _wander(random, n, 0.99))
    return flow * np.exp(0.5 * _wander(random, n, 0.999))


def _server(random: Random, n: int, season: int) -> FloatArray:
    """A load with bursts, and a job at the same time of every season."""
    level = random.uniform(1, 50) + random.uniform(0.2, 2) * _wander(
        random, n, random.uniform(0, 0.95)
    )
    bursts = random.random(n) < random.uniform(0.002, 0.03)
    job = np.arange(n) % season < random.integers(1, 4)
    return (
        level + bursts * random.exponential(random.uniform(3, 20), n) + job * random.uniform(0, 10)
    )


def _pulses(random: Random, n: int, season: int) -> FloatArray:
    """A train of pulses with a period that jitters: a heart, steps, strokes."""
    period, jitter = random.uniform(8, 150), random.uniform(0, 0.1)
    phase = np.cumsum((1 + jitter * random.normal(size=n)) / period) % 1
    pulse = random.uniform(1, 5) * np.exp(-(((phase - 0.3) / random.uniform(0.02, 0.08)) ** 2))
    dip = 0.3 * np.exp(-(((phase - 0.45) / 0.05) ** 2))
    return (
        pulse
        - dip
        + 0.3 * np.sin(2 * math.pi * phase)
        + 0.1 * _wander(random, n, 0.95)
        + random.uniform(0, 0.05) * random.normal(size=n)
    )


def _climate(random: Random, n: int, season: int) -> FloatArray:
    """A smooth random walk with a season: temperature of air, water or ground."""
    walk = 0.05 * np.cumsum(_wander(random, n, random.uniform(0.5, 0.95)))
    walk -= np.linspace(0, walk[-1] - walk[0], n) * random.random()
    day = _profile(random, n, season, 2) * np.exp(0.2 * _wander(random, n, 0.998))
    return walk + random.uniform(0.5, 3) * day + random.uniform(0, 0.1) * random.normal(size=n)


def _kernels(random: Random, n: int, season: int) -> FloatArray:
    """Sums and products of up to five smooth, periodic, linear and white functions.

    The mixture of kernels of Chronos (Ansari et al. 2024), by random Fourier features.
    """
    time = np.linspace(0, 1, n)
    found = np.zeros(n)
    for k in range(random.integers(1, 6)):
        kind = random.integers(4)
        if kind == 0:
            part = _profile(random, n, season, random.integers(1, 6))
        elif kind == 1:
            frequency = random.normal(0, 1 / (2 * math.pi * random.choice([0.02, 0.1, 1.0])), 40)
            phase = random.uniform(0, 2 * math.pi, 40)
            waves = np.cos(2 * math.pi * frequency[:, None] * time + phase[:, None])
            part = random.normal(size=40) @ waves / math.sqrt(20)
        elif kind == 2:
            part = random.normal() * time + random.normal() * random.choice([0, 1])
        else:
            part = random.choice([0.1, 0.3]) * random.normal(size=n)
        found = found + part if k == 0 or random.random() < 0.5 else found * (1 + part)
    return found + 0.02 * random.normal(size=n)


def _machine(random: Random, n: int, season: int) -> FloatArray:
    """A machine with states of random length, ramps between them, and its own noise in each."""
    n_states = random.integers(2, 5)
    levels, noise = random.normal(0, 2, n_states), random.exponential(0.2, n_states)
    states = np.empty(n, np.int64)
    start = 0
    while start < n:
        length = 1 + int(random.exponential(random.uniform(10, 100)))
        states[start : start + length] = random.integers(n_states)
        start += length
    width = random.integers(1, 12)
    ramps = np.convolve(levels[states], np.ones(width) / width, "full")[:n]
    return ramps + noise[states] * random.normal(size=n)


FAMILIES: dict[str, tuple[Family, bool]] = {
    "autoregressive": (_autoregressive, False),
    "seasonal": (_seasonal, True),
    "regimes": (_regimes, False),
    "daylight": (_daylight, True),
    "counts": (_counts, True),
    "thermostat": (_thermostat, False),
    "recession": (_recession, False),
    "server": (_server, True),
    "pulses": (_pulses, False),
    "climate": (_climate, True),
    "kernels": (_kernels, True),
    "machine": (_machine, False),
}
"""Each family, and whether it has a season."""


# Artefacts: what the sensor makes of it. Values come and go with variance of about 1.


def _noise_by_phase(random: Random, values: FloatArray, season: int) -> FloatArray:
    size = np.exp(random.uniform(0.3, 1.2) * _profile(random, len(values), season))
    return values + random.uniform(0.02, 0.4) * size * random.normal(size=len(values))


def _skewed(random: Random, values: FloatArray, season: int) -> FloatArray:
    skewed: FloatArray = np.exp(np.clip(values, -4, 3) * random.uniform(0.3, 1))
    return skewed


def _shifted(random: Random, values: FloatArray, season: int) -> FloatArray:
    jumps = (random.random(len(values)) < 0.002) * random.normal(0, 2, len(values))
    shifted: FloatArray = values + np.cumsum(jumps)
    return shifted


def _spiked(random: Random, values: FloatArray, season: int) -> FloatArray:
    hit = random.random(len(values)) < random.uniform(0.0005, 0.01)
    return values + hit * random.standard_t(2, len(values)) * random.uniform(1, 4)


def _gained(random: Random, values: FloatArray, season: int) -> FloatArray:
    """An amplifier that drifts."""
    gained: FloatArray = values * np.exp(0.3 * _wander(random, len(values), 0.9995))
    return gained


def _hummed(random: Random, values: FloatArray, season: int) -> FloatArray:
    """Mains, sampled: a fast wave of a frequency that the clock does not know."""
    wave = 2 * math.pi * random.uniform(0.05, 0.5) * np.arange(len(values))
    return values + random.uniform(0.02, 0.3) * np.sin(wave + random.uniform(0, 6))


def _floored(random: Random, values: FloatArray, season: int) -> FloatArray:
    return np.maximum(values, np.quantile(values, random.uniform(0.02, 0.4)))


def _capped(random: Random, values: FloatArray, season: int) -> FloatArray:
    return np.minimum(values, np.quantile(values, random.uniform(0.7, 0.98)))


def _quantised(random: Random, values: FloatArray, season: int) -> FloatArray:
    quantum = (np.diff(values).std() + 1e-9) * math.exp(random.uniform(-3, 1.2))
    quantised: FloatArray = np.round(values / quantum) * quantum
    return quantised


def _stuck(random: Random, values: FloatArray, season: int) -> FloatArray:
    stuck = values.copy()
    for _ in range(random.integers(1, 4)):
        start = random.integers(0, len(values))
        stuck[start : start + random.integers(10, 200)] = stuck[start]
    return stuck


def _turned(random: Random, values: FloatArray, season: int) -> FloatArray:
    return -values


Artefact = Callable[[Random, FloatArray, int], FloatArray]
ARTEFACTS: tuple[tuple[float, Artefact], ...] = (
    (0.25, _noise_by_phase),
    (0.15, _skewed),
    (0.15, _shifted),
    (0.25, _spiked),
    (0.08, _gained),
    (0.08, _hummed),
    (0.12, _floored),
    (0.08, _capped),
    (0.50, _quantised),
    (0.10, _stuck),
    (0.50, _turned),
)
"""How often each is applied, in this order."""
