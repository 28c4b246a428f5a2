"""Draw processes of weather, water, bodies over n slots (time steps), `season` slots a season.

Each function takes a generator of random numbers, n and season, and returns a random process (n,)
of its kind.
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
    averaged,
    beats,
    bumps,
    decaying,
    events,
    lasting,
    levels,
    log_uniform,
    profile,
    smooth,
    standard,
    states,
    wander,
    week,
)


def climate(random: Random, n: int, season: int) -> FloatArray:
    """Draw the temperature of air or water: a smooth walk, fronts, and a day of varying size."""
    steps = wander(random, n + 3 * BURN_IN, random.uniform(0.3, 0.95))
    air = standard(decaying(steps, log_uniform(random, season / 2 + 4, 20 * season + 40))[-n:])
    sky = wander(random, n, lasting(random, season / 2 + 1, 5 * season))
    day = profile(random, n, season, 2) * np.exp(random.uniform(0, 0.5) * sky)
    jumps = np.cumsum(events(random, n, 0.3 / season) * random.normal(size=n))
    fronts = averaged(jumps - np.linspace(0, jumps[-1], n), int(random.integers(1, 6)))
    return (
        random.uniform(0.5, 3) * air
        + random.uniform(0.1, 2) * day
        + random.uniform(0, 0.6) * fronts
        + log_uniform(random, 0.002, 0.1) * random.normal(size=n)
    )


def daylight(random: Random, n: int, season: int) -> FloatArray:
    """Draw the power of a solar panel: sun and clouds, and a converter that limits and sleeps."""
    turns = 2 * math.pi * (np.arange(n) / season + random.random())
    noon = random.uniform(-0.2, 0.4) + random.uniform(0, 0.3) * np.sin(turns / 365)
    height = np.maximum(0, np.sin(turns) + noon) ** random.uniform(0.7, 1.6)
    weather = np.array([0.0, 1.0, 2.5])[states(random, n, 3, random.uniform(0.3, 2) * season)]
    clouds = wander(random, n, random.uniform(0.4, 0.98)) * weather
    clear = 1 / (1 + np.exp(-random.uniform(1, 2.5) * (clouds - weather + random.uniform(1, 2.5))))
    power = height * clear * (1 + 0.01 * random.normal(size=n))
    if random.random() < 0.3:
        power = np.minimum(power, random.uniform(0.5, 0.9) * power.max())
    asleep = random.choice([0.0, 0.0, -0.004, 0.003])
    return np.where(height <= random.choice([0, 0.02]), asleep, np.maximum(power, asleep))


def recession(random: Random, n: int, season: int) -> FloatArray:
    """Draw the flow of a river: sudden rises after rain, slow falls of two speeds, dry spells."""
    size = n + 3 * BURN_IN
    wet = np.exp(random.uniform(0, 1.5) * wander(random, size, lasting(random, 50, 500)))
    rain = events(random, size, np.minimum(random.uniform(0.005, 0.1) * wet, 0.8))
    rain *= random.gamma(random.uniform(0.5, 2), 1, size)
    rain = averaged(rain, int(random.integers(1, 5)))
    fast = decaying(rain, log_uniform(random, 1, 20))[-n:]
    slow = decaying(rain, log_uniform(random, 30, 500))[-n:]
    ground = random.uniform(0, 0.5) + random.uniform(0, 0.2) * smooth(random, n, n / 8)
    flow = fast + random.uniform(0.02, 0.4) * slow + np.abs(ground)
    return flow * np.exp(random.uniform(0.002, 0.05) * wander(random, n, random.uniform(0, 0.8)))


def rain(random: Random, n: int, season: int) -> FloatArray:
    """Draw the readings of a rain gauge: zero for long times, then showers in steps of 0.2."""
    wet = states(random, n, 2, log_uniform(random, 4, 60)) * (
        random.random() < 0.5 or wander(random, n, lasting(random, 20, 300)) > 0.2
    )
    size = np.exp(random.uniform(0.5, 1.2) * wander(random, n, random.uniform(0.3, 0.95)))
    return np.floor(wet * size * random.uniform(0.5, 8)) * 0.2


def wind(random: Random, n: int, season: int) -> FloatArray:
    """Draw the speed of wind from two wandering components, with gusts as a share of the speed."""
    memory = lasting(random, 4, 200)
    base = np.hypot(
        wander(random, n, memory) + random.uniform(0, 1.5), wander(random, n, memory)
    ) * (1 + random.uniform(0, 0.4) * profile(random, n, season, 2))
    gusts = random.uniform(0.03, 0.3) * wander(random, n, random.uniform(0, 0.7))
    return np.abs(base) * np.exp(gusts)


def tide(random: Random, n: int, season: int) -> FloatArray:
    """Draw the water level of a tide: waves of unrelated periods, and a slow surge."""
    base = log_uniform(random, 6, 150)
    periods = base * np.array([1.0, 1.035, 1.96, 1.86, 0.5, 2.1])[: random.integers(2, 7)]
    sizes = random.exponential(1.0, len(periods)) / np.arange(1, len(periods) + 1)
    phase = random.uniform(0, 2 * math.pi, len(periods))
    waves = sizes @ np.sin(np.outer(2 * math.pi / periods, np.arange(n)) + phase[:, None])
    surge = random.uniform(0.02, 0.5) * wander(random, n, lasting(random, 10, 300))
    return waves + surge + random.uniform(0, 0.05) * random.normal(size=n)


def ground(random: Random, n: int, season: int) -> FloatArray:
    """Draw a slow temperature of soil, a wall or a cellar, read in steps wider than its changes."""
    values = (
        smooth(random, n, log_uniform(random, 30, 600))
        + random.uniform(0, 0.7) * profile(random, n, season, 1)
        + random.uniform(0, 0.3) * wander(random, n, lasting(random, 20, 200))
        + log_uniform(random, 0.001, 0.05) * random.normal(size=n)
    )
    quantum = log_uniform(random, 0.02, 0.4)
    return np.round(values / quantum) * quantum


def glucose(random: Random, n: int, season: int) -> FloatArray:
    """Draw blood glucose: smooth swings, meals that raise it for a while, a sensor that lags."""
    pole = random.uniform(0.9, 0.985) * np.exp(1j * log_uniform(random, 0.02, 0.3))
    noise = random.normal(size=n + BURN_IN)
    meals = events(random, n, random.uniform(1, 5) / season) * random.gamma(3, 1, n)
    rise, fall = log_uniform(random, 2, 12), log_uniform(random, 4, 30)
    swing = standard(autoregression(noise, [complex(pole)]))
    eaten = decaying(decaying(meals, rise), fall)
    curve = swing + random.uniform(0, 3) * eaten / (eaten.std() + 1e-9)
    return averaged(np.exp(0.3 * standard(curve)), int(random.integers(1, 4)))


def heart(random: Random, n: int, season: int) -> FloatArray:
    """Draw a heart trace: pulses of varying length, a wandering base line and muscle noise."""
    phase = beats(random, n, log_uniform(random, 12, 160), log_uniform(random, 0.005, 0.12))
    width = random.uniform(0.008, 0.03)
    places = np.array([0.18, 0.27, 0.3, 0.33, 0.55]) + 0.01 * random.normal(size=5)
    widths = np.array([0.03, 1.2 * width, width, 1.4 * width, 0.05])
    sizes = np.array([0.15, -0.15, 1.0, -0.25, 0.3]) * random.lognormal(0, 0.3, 5)
    size = 1 + random.uniform(0, 0.15) * random.normal(size=int(phase[-1]) + 2)
    trace = bumps(phase, places, widths, sizes) * size[phase.astype(np.int64)]
    base = random.uniform(0, 0.4) * wander(random, n, lasting(random, 30, 500))
    return trace + base + log_uniform(random, 0.002, 0.08) * random.normal(size=n)


def gait(random: Random, n: int, season: int) -> FloatArray:
    """Draw the acceleration of a body that walks, stops and turns: harmonics of steps, impacts."""
    phase = beats(random, n, log_uniform(random, 10, 90), log_uniform(random, 0.01, 0.1))
    orders = np.arange(1, 6)
    size = random.normal(size=5) / orders ** random.uniform(0, 1)
    turn = random.uniform(0, 2 * math.pi, 5)
    trace = size @ np.sin(2 * math.pi * np.outer(orders, phase) + turn[:, None])
    trace = standard(trace) + bumps(
        phase, random.random(2), random.uniform(0.01, 0.05, 2), random.normal(0, 2, 2)
    )
    moving: FloatArray = np.ones(n)
    if random.random() < 0.4:
        moving = averaged(1.0 * states(random, n, 2, log_uniform(random, 100, 800)), 8)
    noise = log_uniform(random, 0.03, 0.4) * wander(random, n, random.uniform(0, 0.9))
    tilt = random.uniform(0, 0.5) * levels(random, n, 4, 300)
    return moving * (trace + noise) + tilt + 0.02 * random.normal(size=n)


def breath(random: Random, n: int, season: int) -> FloatArray:
    """Draw a breathing rhythm, which rises faster than it falls and changes from cycle to cycle."""
    phase = beats(random, n, log_uniform(random, 8, 250), log_uniform(random, 0.02, 0.3))
    size = np.abs(1 + random.uniform(0.05, 0.5) * random.normal(size=int(phase[-1]) + 3))
    sizes = np.interp(phase, np.arange(len(size)), size)
    wave = np.sin(math.pi * (phase % 1) ** random.uniform(0.4, 1)) ** random.uniform(0.6, 3)
    noise = random.uniform(0, 0.15) * random.normal(size=n) * (0.1 + wave)
    return wave * sizes * (1 + noise) + random.uniform(0, 0.1) * wander(random, n, 0.9)


def visitors(random: Random, n: int, season: int) -> FloatArray:
    """Draw counts of people, cars or calls that follow the hour, the weekday and the weather."""
    rate = log_uniform(random, 0.05, 1000)
    shape = random.uniform(0.3, 1.3) * profile(random, n, season)
    weather = random.uniform(0, 0.4) * wander(random, n, lasting(random, 2, 100))
    mean = rate * np.exp(np.clip(shape + weather, -8, 4))
    if random.random() < 0.6:
        mean = mean * week(random, n, season)
    if random.random() < 0.5:  # more scattered than Poisson
        regular = log_uniform(random, 2, 60)
        mean = mean * random.gamma(regular, 1 / regular, n)
    return random.poisson(np.minimum(mean, 1e6)).astype(np.float64)


NATURE: dict[str, tuple[Family, bool]] = {
    "climate": (climate, True),
    "daylight": (daylight, True),
    "recession": (recession, False),
    "rain": (rain, False),
    "wind": (wind, True),
    "tide": (tide, False),
    "ground": (ground, True),
    "glucose": (glucose, False),
    "heart": (heart, False),
    "gait": (gait, False),
    "breath": (breath, False),
    "visitors": (visitors, True),
}
"""Function of each kind of process by its name, and whether the process has a season."""
