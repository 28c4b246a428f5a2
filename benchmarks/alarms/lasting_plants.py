"""Made-up plants with faults that last, and the oracle that knows everything about them.

A plant is an AR(1), x = phi * x of the row before + e, with or without a daily course, which the
oracle knows. e is normal or Laplace, of deviation 1. From some row on a fault begins:

    drift, leak     the shift of the values grows by some scales a row (a scale is the mean absolute
                    change from row to row)
    quiet, noisy    e is multiplied by a factor
    rhythm          phi is smaller by a half

The oracle is the best sequential test there is for a change at an unknown row (Page 1954, Lorden
1971): the largest log likelihood ratio over all rows at which the fault, whose law it knows, may
have begun. Its alarms are excursions of this statistic above zero that reach a height h, which
simulated plants without a fault reach in the stated share of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from edgefold.runtime.arrays import FloatArray

Random = np.random.Generator
PHIS, LAWS = (0.5, 0.8, 0.9, 0.97), ("normal", "laplace")
N_DAY, COURSE = 48, 3.0
"""Rows of a day, and the size of a daily course in deviations of x."""
N_WARM = 200
N_STARTS = 400
"""Rows back from the newest at which the oracle lets a drift begin."""
N_PARALLEL, N_CLEAN = 200, 2000
"""Plants, and rows of each, from which the oracle's heights are learned."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Describes a fault: its kind, drift, size or phi, and by how much."""

    kind: str
    by: float


FAULTS = {
    "drift of 0.2": Fault("drift", 0.2),
    "drift of 0.5": Fault("drift", 0.5),
    "drift of 1": Fault("drift", 1.0),
    "leak of 0.05": Fault("drift", 0.05),
    "quiet, x 0.3": Fault("size", 0.3),
    "noisy, x 3": Fault("size", 3.0),
    "rhythm, phi - 0.5": Fault("phi", -0.5),
}


@dataclass(frozen=True, slots=True)
class Plant:
    """Describes a plant: phi, the law of e, and whether it has a daily course."""

    phi: float
    law: str
    has_course: bool

    def noise(self, random: Random, *shape: int) -> FloatArray:
        """Draw e of deviation 1."""
        if self.law == "normal":
            return random.normal(size=shape)
        return random.laplace(scale=math.sqrt(0.5), size=shape)

    def log_density(self, e: FloatArray) -> FloatArray:
        """Return the log density of e but for a constant."""
        return -0.5 * e * e if self.law == "normal" else -math.sqrt(2.0) * np.abs(e)

    @property
    def scale(self) -> float:
        """Return the mean absolute change from row to row, as of a normal x."""
        return math.sqrt(2.0 / (1.0 + self.phi)) * math.sqrt(2.0 / math.pi)

    def follow(self, e: FloatArray, before: FloatArray | float, phi: float) -> FloatArray:
        """Return x of each row (..., n) from e (..., n) and x of the row before."""
        x = np.empty_like(e)
        for row in range(e.shape[-1]):
            before = x[..., row] = phi * before + e[..., row]
        return x

    def healthy(self, random: Random, n: int) -> FloatArray:
        """Draw x of n rows without a fault, and without the daily course."""
        return self.follow(self.noise(random, n + N_WARM), 0.0, self.phi)[N_WARM:]

    def faulty(self, fault: Fault, random: Random, before: float, n: int) -> FloatArray:
        """Draw x of n rows with a fault from the first on, after a row with x = `before`."""
        e = self.noise(random, n)
        if fault.kind == "drift":
            shift = fault.by * self.scale * np.arange(1, n + 1)
            return self.follow(e, before, self.phi) + shift
        if fault.kind == "size":
            return self.follow(fault.by * e, before, self.phi)
        return self.follow(e, before, self.phi + fault.by)

    def course(self, n: int) -> FloatArray:
        """Return the daily course of n rows; zeros without one."""
        size = COURSE / math.sqrt(1.0 - self.phi**2) if self.has_course else 0.0
        return size * np.sin(2.0 * math.pi * np.arange(n) / N_DAY)


def plants() -> list[Plant]:
    """Return one plant of each kind."""
    return [Plant(phi, law, has) for phi in PHIS for law in LAWS for has in (False, True)]


def oracle(plant: Plant, fault: Fault, x: FloatArray) -> FloatArray:
    """Return the oracle's statistic of each row but the first, (B, n - 1), from x (B, n)."""
    before = x[:, :-1]
    e = x[:, 1:] - plant.phi * before
    none = plant.log_density(e)
    if fault.kind == "drift":
        rows = np.arange(1, N_STARTS + 1)
        mean = fault.by * plant.scale * (rows - plant.phi * (rows - 1))
        sums, best = np.zeros((len(x), N_STARTS)), np.empty_like(e)
        for row in range(e.shape[1]):
            sums[:, 1:] = sums[:, :-1]  # a column is a number of rows since the beginning
            sums[:, 0] = 0.0
            sums += plant.log_density(e[:, row, None] - mean) - none[:, row, None]
            best[:, row] = sums[:, : row + 1].max(1)
        return np.maximum(best, 0.0)
    if fault.kind == "size":
        ratio = plant.log_density(e / fault.by) - math.log(fault.by) - none
    else:
        ratio = plant.log_density(e - fault.by * before) - none
    total = np.cumsum(ratio, 1)
    lowest = np.minimum.accumulate(np.minimum(total, 0.0), 1)
    return total - lowest


def tops(statistic: FloatArray) -> FloatArray:
    """Return the largest value of each excursion above zero, over all streams (B, n)."""
    found = list[float]()
    for of_stream in statistic:
        parts = np.split(of_stream, np.flatnonzero(of_stream <= 0.0))
        found += [float(part.max()) for part in parts if len(part) > 1 or part.max(initial=0.0) > 0]
    return np.array(found)


def height(plant: Plant, fault: Fault, rate: float, random: Random) -> float:
    """Return the height that excursions of the oracle reach in a share `rate` of healthy rows."""
    e = plant.noise(random, N_PARALLEL, N_CLEAN + N_WARM)
    statistic = oracle(plant, fault, plant.follow(e, 0.0, plant.phi)[:, N_WARM:])
    highest = np.sort(tops(statistic))[::-1]
    place = max(round(rate * statistic.size), 1)
    return float(highest[place - 1])
