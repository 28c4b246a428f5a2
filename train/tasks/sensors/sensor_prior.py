"""Made-up sensors: streams like those of machines, buildings, rivers, roads and bodies.

    family      what the sensor measures: processes of nature, of machines, and of formulas
    mixture     sometimes the sum of two of them, or first one and then the other
    artefacts   what a sensor makes of it: noise, spikes, shifts, steps, floors, repeats, gaps
    unit        an offset, a scale, a sign
    season      told to the model: the true one, none, a wrong one, or the true one late

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
"""Each family, and whether it has a season."""
WEIGHTS = {"kernels": 4.0, "causes": 3.0, "autoregressive": 2.0, "seasonal": 2.0}
"""Weights with which families are drawn; the others have 1."""
SEASONS = (7, 12, 24, 24, 24, 48, 48, 52, 60, 96, 96, 144, 168, 288, 288, 365)
"""Slots: days of a week, months, hours, half hours, weeks, quarters and so on."""
MIXED = 0.1
"""Probability that two families make a stream."""
TOLD, WEEKLY, LATE = 0.8, 0.08, 0.25
"""Probabilities that a season is given; that the week replaces it; that it is given late."""
CLOCK = 0.3
"""Probability that a stream without a season, or with another, is given one of the clock."""
LEAST_SEASONS = 3
"""A longer season than this part of a stream is not told."""
VALUE, MEASURED, SEASON, PHASE = range(4)
BOUND = 60.0
"""Standard deviations from the mean that a value is held within."""


@dataclass(frozen=True, slots=True)
class DrawnSensor:
    """One stream.

    Attributes:
        rows: (n, 4), float32: the value, 1 where it was measured, the slots of the season that the
            model is told, 0 for none, and the phase of the slot in it.
        family: Name of its kind.
    """

    rows: Array
    family: str


def draw_sensor(random: Random, n: int, family: str = "") -> DrawnSensor:
    """Draw a stream of n slots, of one family where it is named."""
    season = int(random.choice(SEASONS))
    name = family or str(random.choice(_NAMES, p=_SHARES))
    process, is_seasonal = FAMILIES[name]
    values = _sound(process(random, n, season))
    if not family and random.random() < MIXED:
        values = _mixed(random, values, _other(random, n, season))
    return sensor_of(random, values, season if is_seasonal else 0, name)


def sensor_of(random: Random, values: FloatArray, season: int, family: str) -> DrawnSensor:
    """Return a sensor's record of a process, with the season that the model is given.

    Args:
        random: Draws what the sensor does.
        values: (n,), of the process.
        season: Of the process, in slots; 0 for none.
        family: Name that the stream gets.
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
    """Values with an offset, a scale and a sign; in one stream of two they rest on a true zero."""
    values = np.clip(values, -BOUND, BOUND)
    if random.random() < 0.5:
        values = values - zero
    else:
        values = values + random.normal(0, 3) * np.exp(random.normal(0, 1))
    sign = 1 if random.random() < 0.6 else -1
    unit: FloatArray = sign * np.exp(random.normal(0, 3)) * values
    return unit


def told_season(random: Random, n: int, season: int) -> tuple[Array, Array]:
    """Return the season that a model is given at each slot, and the slot's phase, each (n,)."""
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
    """With variance 1 around 0, and finite: an outlier of a heavy tail is held."""
    scaled = standard(np.nan_to_num(np.clip(values, -1e9, 1e9)))
    return np.clip(scaled, -BOUND, BOUND)


def _other(random: Random, n: int, season: int) -> FloatArray:
    name = str(random.choice(_NAMES, p=_SHARES))
    return _sound(FAMILIES[name][0](random, n, season))


def _mixed(random: Random, one: FloatArray, other: FloatArray) -> FloatArray:
    """The sum of two processes, their product, or each in its turn."""
    kind = random.random()
    if kind < 0.5:
        return standard(one + log_uniform(random, 0.1, 1) * other)
    if kind < 0.7:
        return standard(one * np.exp(0.5 * np.clip(other, -3, 3)))
    now = states(random, len(one), 2, log_uniform(random, 100, 800))
    mixture: FloatArray = np.where(now > 0, one, random.normal() + other)
    return mixture
