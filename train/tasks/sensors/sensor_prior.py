"""Draw made-up sensors: streams like those of machines, buildings, rivers, roads and bodies.

    family      the process that the sensor measures: of nature, of machines, or from a formula
    mixture     sometimes the sum of two of them, or first one and then the other
    artefacts   what a sensor adds: noise, spikes, shifts, steps, floors, repeats, gaps
    unit        an offset, a scale, a sign
    season      given to the model: the true one, none, a wrong one, or the true one late

A general model of sensor streams is trained on them (`edgefold.train.tasks.sensors.sensors`).
Everything is drawn from one numpy generator, so that a seed names a corpus.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.train.tasks.sensors.sensor_artefacts import BEFORE, digitised, measured_slots
from edgefold.train.tasks.sensors.sensor_formulas import FORMULAS
from edgefold.train.tasks.sensors.sensor_machines import MACHINES
from edgefold.train.tasks.sensors.sensor_nature import NATURE
from edgefold.train.tasks.sensors.sensor_processes import (
    DAYS_OF_A_WEEK,
    Family,
    Random,
    log_uniform,
    standard,
    states,
)

FAMILIES: dict[str, tuple[Family, bool]] = {**FORMULAS, **NATURE, **MACHINES}
"""Function of each family of processes by its name, and whether the process has a season."""
WEIGHTS = {"kernels": 4.0, "causes": 3.0, "autoregressive": 2.0, "seasonal": 2.0}
"""Relative probabilities with which families are drawn; families that are not listed have 1."""
SEASONS = (7, 12, 24, 24, 24, 48, 48, 52, 60, 96, 96, 144, 168, 288, 288, 365)
"""Lengths of seasons in slots: the days of a week, the months or weeks of a year, the hours of a
day and so on."""
MIXED = 0.1
"""Probability that two families make a stream."""
TOLD, WEEKLY, LATE = 0.8, 0.08, 0.25
"""Probabilities that the true season is given to the model; that the week is given in place of it;
that a season is given late."""
CLOCK = 0.3
"""Probability that a random season is given where the true one is not, or where there is none."""
LEAST_SEASONS = 3
"""A season is given to the model only if the stream is longer than this number of seasons."""
VALUE, MEASURED, SEASON, PHASE = range(4)
BOUND = 60.0
"""Largest distance of a value from the mean, in standard deviations; values beyond are clipped."""


@dataclass(frozen=True, slots=True)
class DrawnSensor:
    """Holds one stream of a sensor, whose times are n equal steps (slots).

    Attributes:
        rows: (n, 4), float32, a row a slot. Columns are the value; 1 where it was measured, else 0;
            the length in slots of the season that is given to the model, 0 for none; and the phase
            of the slot in this season, from 0 on.
        family: Name of the kind of process.
    """

    rows: Array
    family: str


def draw_sensor(random: Random, n: int, family: str = "") -> DrawnSensor:
    """Draw a made-up stream of n slots (time steps), of a named or a random kind of process."""
    season = int(random.choice(SEASONS))
    name = family or str(random.choice(_NAMES, p=_SHARES))
    process, is_seasonal = FAMILIES[name]
    values = _sound(process(random, n, season))
    if not family and random.random() < MIXED:
        values = _mixed(random, values, _other(random, n, season))
    return sensor_of(random, values, season if is_seasonal else 0, name)


def sensor_of(random: Random, values: FloatArray, season: int, family: str) -> DrawnSensor:
    """Return a sensor's stream of a process: with faults, rounding, gaps, a unit and a season.

    Args:
        random: Source of random numbers for artefacts, unit and season.
        values: Values of the process, (n,).
        season: Season of the process, in slots; 0 for none.
        family: Name of the kind of process.
    """
    n = len(values)
    clock = season or int(random.choice(SEASONS))
    zero = values.min()
    for probability, artefact in BEFORE:
        if random.random() < probability:
            values = artefact(random, values, clock)
    values = digitised(random, values)
    measured = measured_slots(random, n)
    values = in_a_unit(random, values, zero)
    rows = np.zeros((n, 4), np.float32)
    rows[:, VALUE] = np.where(measured, values, 0)
    rows[:, MEASURED] = measured
    rows[:, SEASON], rows[:, PHASE] = told_season(random, n, season)
    return DrawnSensor(rows, family)


def in_a_unit(random: Random, values: FloatArray, zero: float) -> FloatArray:
    """Give values (n,) a random offset, scale and sign, as another unit would.

    In half of the streams the offset makes `zero`, the lowest value of the process, a true 0.
    """
    values = np.clip(values, -BOUND, BOUND)
    if random.random() < 0.5:
        values = values - zero
    else:
        values = values + random.normal(0, 3) * np.exp(random.normal(0, 1))
    sign = 1 if random.random() < 0.6 else -1
    unit: FloatArray = sign * np.exp(random.normal(0, 3)) * values
    return unit


def told_season(random: Random, n: int, season: int) -> tuple[Array, Array]:
    """Draw the season that a model is given at each of n slots (time steps), and each slot's phase.

    Both are (n,), in slots, and 0 where no season is given. `season` is the true one,
    0 for none; the drawn one may be wrong, or be given only from a later slot on.
    """
    season_length = 0
    if season and random.random() < TOLD:
        season_length = DAYS_OF_A_WEEK * season if random.random() < WEEKLY else season
        season_length = season_length if LEAST_SEASONS * season_length < n else season
    elif random.random() < CLOCK:
        season_length = int(random.choice(SEASONS))
    if not season_length or LEAST_SEASONS * season_length >= n:
        return np.zeros(n), np.zeros(n)
    first = 0
    if random.random() < LATE:
        first = int(random.integers(0, min(6 * season_length, n // 2) + 1))
    slots = np.arange(n)
    length = np.where(slots < first, 0, season_length)
    phase = np.where(slots < first, 0, (slots + random.integers(0, season_length)) % season_length)
    return length, phase


_NAMES = list(FAMILIES)
_SHARES = np.array([WEIGHTS.get(name, 1.0) for name in _NAMES])
_SHARES /= _SHARES.sum()


def _sound(values: FloatArray) -> FloatArray:
    """Shift and scale values to mean 0 and variance 1, make them finite, and clip at `BOUND`."""
    scaled = standard(np.nan_to_num(np.clip(values, -1e9, 1e9)))
    return np.clip(scaled, -BOUND, BOUND)


def _other(random: Random, n: int, season: int) -> FloatArray:
    name = str(random.choice(_NAMES, p=_SHARES))
    return _sound(FAMILIES[name][0](random, n, season))


def _mixed(random: Random, one: FloatArray, other: FloatArray) -> FloatArray:
    """Combine two processes: by their sum, by a product, or by switching between them."""
    kind = random.random()
    if kind < 0.5:
        return standard(one + log_uniform(random, 0.1, 1) * other)
    if kind < 0.7:
        return standard(one * np.exp(0.5 * np.clip(other, -3, 3)))
    now = states(random, len(one), 2, log_uniform(random, 100, 800))
    mixture: FloatArray = np.where(now > 0, one, random.normal() + other)
    return mixture
