"""Draw processes of machines, roads, markets over n slots (time steps), `season` slots a season.

Each function takes a generator of random numbers, n and season, and returns a random process (n,)
of its kind, also of buildings and servers.
"""

from __future__ import annotations

import math

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.train.tasks.sensors.sensor_processes import (
    Family,
    Random,
    averaged,
    beats,
    decaying,
    events,
    lasting,
    levels,
    log_uniform,
    profile,
    smooth,
    states,
    walk,
    wander,
    week,
)


def thermostat(random: Random, n: int, season: int) -> FloatArray:
    """Draw a slow probe's readings in a room whose heater switches at two temperatures."""
    up, down, reach = random.uniform([0.02, 0.02, 0.5], [0.3, 0.3, 2.0])
    leak = log_uniform(random, 0.001, 0.05)
    outside = random.uniform(0, 0.5) * down * profile(random, n, season)
    pushes = (outside + 0.2 * up * random.normal(size=n)).tolist()
    value, is_on, temperatures = 0.0, True, []
    for push in pushes:
        value += (up if is_on else -down) - leak * value + push
        is_on = value < -reach or (is_on and value <= reach)
        temperatures.append(value)
    trace = averaged(np.array(temperatures), int(random.integers(1, 6)))
    return trace + log_uniform(random, 0.001, 0.1) * random.normal(size=n)


def server(random: Random, n: int, season: int) -> FloatArray:
    """Draw the load of a server in percent, with bursts that fade and a job at regular times."""
    level = random.uniform(1, 30) + random.uniform(0.2, 2) * wander(
        random, n, random.uniform(0, 0.97)
    )
    hits = events(random, n, log_uniform(random, 0.001, 0.05))
    bursts = decaying(
        hits * random.exponential(random.uniform(2, 20), n), log_uniform(random, 0.2, 10)
    )
    every = season if random.random() < 0.6 else int(log_uniform(random, 6, 120))
    start = random.integers(0, every)
    job = (np.arange(n) - start) % every < random.integers(1, max(2, every // 12))
    daily = random.uniform(0, 1.5) * profile(random, n, season) if random.random() < 0.5 else 0.0
    size = np.abs(random.uniform(0, 10) + levels(random, n, 3, log_uniform(random, 200, 2000)))
    load = level + bursts + job * random.choice([0, 1]) * size + daily
    if random.random() < 0.3:
        load = load + random.uniform(1, 8) * levels(random, n, 3, log_uniform(random, 100, 800))
    return np.clip(load, 0, 100)


def traffic_bytes(random: Random, n: int, season: int) -> FloatArray:
    """Draw the traffic of a network link: a daily pattern, a constant part, rare transfers."""
    log = random.uniform(0, 1) * profile(random, n, season) + random.uniform(0.1, 1) * wander(
        random, n, lasting(random, 1, 50)
    )
    hits = events(random, n, log_uniform(random, 0.001, 0.03)) * random.pareto(1.5, n)
    noise = random.uniform(0, 0.4) * random.normal(size=n)
    return np.exp(log + noise) + random.uniform(0, 2) + np.minimum(hits, 200)


def latency(random: Random, n: int, season: int) -> FloatArray:
    """Draw a server's response times: a least time, a queue, and in some streams three routes."""
    arrivals = random.gamma(random.uniform(0.3, 3), 1, n)
    arrivals *= 1 + random.uniform(0, 0.5) * profile(random, n, season)
    excess = np.cumsum(arrivals / arrivals.mean() * random.uniform(0.5, 0.98) - 1)
    queue = excess - np.minimum.accumulate(np.minimum(excess, 0))
    ways = np.exp(random.normal(0, 0.7, 3))[random.choice(3, n, p=random.dirichlet([2, 1, 0.5]))]
    noise = np.exp(random.uniform(0.02, 0.5) * random.normal(size=n))
    return (random.uniform(0.2, 3) + 0.2 * queue) * noise + random.choice([0, 1]) * 0.5 * ways


def household(random: Random, n: int, season: int) -> FloatArray:
    """Draw the power of a household: standby, a fridge, and appliances that switch on and off."""
    standby = random.uniform(0.02, 0.2)
    power = np.full(n, standby)
    if random.random() < 0.8:
        on = beats(random, n, log_uniform(random, 4, 60), 0.15) % 1 < random.uniform(0.2, 0.6)
        power += random.uniform(0.05, 0.2) * on
    awake = 1 / (1 + np.exp(-random.uniform(1, 5) * profile(random, n, season)))
    for _ in range(random.integers(1, 5)):
        lasts = log_uniform(random, 1, max(season / 6, 2))
        starts = events(random, n, awake * random.uniform(0.3, 4) / season)
        ends = (random.gamma(4, lasts / 4, n) + 1).astype(np.int64)
        switched = np.zeros(n + int(ends.max()) + 1)
        begun = np.flatnonzero(starts)
        np.add.at(switched, begun, 1.0)
        np.add.at(switched, begun + ends[begun], -1.0)
        running = np.minimum(np.cumsum(switched)[:n], 1)
        pulsed = np.arange(n) % random.integers(2, 8) < 2 if random.random() < 0.3 else 1.0
        power += running * pulsed * random.lognormal(0, 0.8)
    if random.random() < 0.5:  # a meter's slot is longer than the appliances' times
        power = averaged(power, int(random.integers(2, 12)))
    return power * (1 + random.uniform(0, 0.02) * random.normal(size=n))


def meter(random: Random, n: int, season: int) -> FloatArray:
    """Draw the energy or water that is used in each slot, in whole units.

    It rests at standby or zero, and follows the hour and the day of the week.
    """
    use = np.maximum(profile(random, n, season) + random.uniform(-0.5, 1), 0)
    use = use * week(random, n, season) * random.gamma(random.uniform(0.7, 6), 1, n)
    home = states(random, n, 2, log_uniform(random, 2, 20) * season) if random.random() < 0.4 else 1
    power = random.choice([0, 1]) * random.uniform(0.1, 0.6) + use * home
    quantum = random.choice([0.01, 0.05, 0.1, 0.25])
    return np.round(power / quantum) * quantum


def duty(random: Random, n: int, season: int) -> FloatArray:
    """Draw a machine that is on or off: by a timetable, at random, or in cycles as a pump."""
    kind = random.integers(3)
    if kind == 0:
        part = random.uniform(0.1, 0.8)
        on = (np.arange(n) + random.integers(0, season)) % season < part * season
        on = on & (week(random, n, season) > random.choice([0.0, 0.8]))
    elif kind == 1:
        on = states(random, n, 2, log_uniform(random, 3, 200), random.choice([1, 1, 10])) > 0
    else:
        part = random.uniform(0.05, 0.9)
        on = (
            beats(random, n, log_uniform(random, 6, 200), log_uniform(random, 0.01, 0.3)) % 1 < part
        )
    lag = log_uniform(random, 0.1, 6)
    trace = decaying(on.astype(np.float64), lag) * (1 - 0.5 ** (1 / lag))
    noise = log_uniform(random, 1e-4, 0.1) * (0.3 + on) * random.normal(size=n)
    return trace * (1 + random.uniform(0, 0.1) * wander(random, n, 0.97)) + noise


def machine(random: Random, n: int, season: int) -> FloatArray:
    """Draw a machine with states that last random times, ramps between them, and noise in each."""
    n_states = int(random.integers(2, 6))
    now = states(random, n, n_states, log_uniform(random, 10, 200), log_uniform(random, 1, 20))
    level, noise = random.normal(0, 2, n_states), random.exponential(0.2, n_states)
    ramps = averaged(level[now], int(random.integers(1, 12)))
    warm = decaying(ramps, log_uniform(random, 1, 30)) if random.random() < 0.5 else ramps
    deviation = noise[now] * wander(random, n, random.uniform(0, 0.9))
    return warm / (warm.std() + 1e-6) + deviation


def vibration(random: Random, n: int, season: int) -> FloatArray:
    """Draw the vibration of a rotating machine whose speed drifts, with hits of a bearing."""
    speed = log_uniform(random, 0.01, 0.45)
    turns = np.cumsum(speed * (1 + random.uniform(0, 0.05) * smooth(random, n, n / 6)))
    signal = np.zeros(n)
    for order in random.choice([1, 2, 3, 4.3, 0.5], random.integers(1, 4), replace=False):
        envelope = np.exp(random.uniform(0, 0.5) * wander(random, n, 0.995))
        signal += random.exponential(1) * envelope * np.sin(2 * math.pi * order * turns)
    ring = events(random, n, random.uniform(0, 0.05)) * random.normal(0, 2, n)
    load = 0.3 + np.abs(levels(random, n, 3, log_uniform(random, 100, 1000)))
    return load * (
        signal + decaying(ring, 3.0) + log_uniform(random, 0.05, 1) * random.normal(size=n)
    )


def tank(random: Random, n: int, season: int) -> FloatArray:
    """Draw the level of a store that is used up and filled again, as a tank or a battery."""
    phase = beats(random, n, log_uniform(random, 15, 400), log_uniform(random, 0.01, 0.3))
    filling, bend = log_uniform(random, 0.005, 0.5), log_uniform(random, 0.5, 2)
    within = phase % 1
    level = np.where(within < filling, within / filling, (1 - within) / (1 - filling))
    use = random.uniform(0, 0.1) * wander(random, n, lasting(random, 5, 100))
    return (
        np.clip(level, 0, 1) ** bend + use + log_uniform(random, 5e-4, 0.05) * random.normal(size=n)
    )


def counter(random: Random, n: int, season: int) -> FloatArray:
    """Draw a total that only grows, sometimes rests, and sometimes starts at 0 again when full."""
    rate = np.exp(random.uniform(0, 0.8) * wander(random, n, lasting(random, 5, 200)))
    if random.random() < 0.5:
        rate *= np.maximum(profile(random, n, season) + random.uniform(0, 1), 0)
    if random.random() < 0.4:
        rate *= states(random, n, 2, log_uniform(random, 10, 150))
    total = np.cumsum(random.poisson(rate * log_uniform(random, 0.3, 100)).astype(np.float64))
    if random.random() < 0.4:
        total = total % (total[-1] / random.uniform(2, 8) + 1)
    return total


def road(random: Random, n: int, season: int) -> FloatArray:
    """Draw the speed on a road, or how full it is: free flow, jams by the hour or by accident."""
    rush = np.maximum(profile(random, n, season) - random.uniform(0.2, 1.2), 0)
    crash = decaying(events(random, n, 0.5 / season), log_uniform(random, 2, 20))
    jam = np.clip(
        random.uniform(0.2, 0.6) * rush * (1 + 0.3 * wander(random, n, 0.8)) + crash, 0, 0.9
    )
    scatter = random.uniform(0.01, 0.06) * (1 + 4 * jam)
    speed = (1 - jam) * (1 + scatter * wander(random, n, random.uniform(0, 0.7)))
    if random.random() < 0.5:
        return np.round(speed * random.uniform(50, 120))
    return jam + scatter * np.abs(random.normal(size=n)) + random.uniform(0, 0.1)


def ride(random: Random, n: int, season: int) -> FloatArray:
    """Draw one of three for a rider or a vehicle: effort with times of zero, speed, or height."""
    effort = np.maximum(
        levels(random, n, 5, log_uniform(random, 10, 120))
        + random.uniform(0.5, 2)
        + random.uniform(0.1, 0.5) * wander(random, n, random.uniform(0.3, 0.95)),
        0,
    )
    kind = random.integers(3)
    if kind == 0:
        return np.round(effort * (1 + 0.2 * random.normal(size=n)) * random.uniform(20, 150))
    speed = decaying(effort, log_uniform(random, 3, 40))
    if kind == 1:
        return speed * (1 + 0.02 * random.normal(size=n)) + smooth(random, n, 60)
    slope = wander(random, n, lasting(random, 20, 200))
    return np.cumsum(slope * speed / (speed.mean() + 1e-6))


def price(random: Random, n: int, season: int) -> FloatArray:
    """Draw a price: its logarithm is a random walk with jumps, whose step size wanders.

    In some streams the logarithm returns to its mean.
    """
    volatility = np.exp(random.uniform(0, 1) * wander(random, n, lasting(random, 10, 300)))
    steps = volatility * random.standard_t(random.uniform(3, 10), n)
    steps += events(random, n, random.uniform(0, 0.005)) * random.normal(0, 8, n)
    pulled = random.random() < 0.3
    log = decaying(steps, log_uniform(random, 20, 500)) if pulled else np.cumsum(steps)
    size = log_uniform(random, 0.0005, 0.02)
    return np.exp(np.clip(size * log, -5, 5)) + size * random.choice([0, 0.3]) * random.normal(
        size=n
    )


def wear(random: Random, n: int, season: int) -> FloatArray:
    """Draw a machine that wears: its offset and its noise grow until a repair resets them."""
    age = (beats(random, n, log_uniform(random, 100, 800), 0.4) % 1) ** random.uniform(0.7, 3)
    noise = wander(random, n, random.uniform(0, 0.9)) * (0.1 + age * random.uniform(0, 2))
    return random.uniform(0, 4) * age + noise + log_uniform(random, 0.01, 0.1) * walk(random, n)


MACHINES: dict[str, tuple[Family, bool]] = {
    "thermostat": (thermostat, False),
    "server": (server, True),
    "traffic bytes": (traffic_bytes, True),
    "latency": (latency, True),
    "household": (household, True),
    "meter": (meter, True),
    "duty": (duty, True),
    "machine": (machine, False),
    "vibration": (vibration, False),
    "tank": (tank, False),
    "counter": (counter, True),
    "road": (road, True),
    "ride": (ride, False),
    "price": (price, False),
    "wear": (wear, False),
}
"""Function of each kind of process by its name, and whether the process has a season."""
