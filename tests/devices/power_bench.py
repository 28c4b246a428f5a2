"""A machine of known power whose clock moves only when told: what meters are held against."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from edgefold.devices.power.energy import EnergyMeter, Window
from edgefold.devices.power.sampler import Sampler
from edgefold.devices.power.sensor import EnergySensor, PowerSensor


@dataclass
class Load:
    """Power that repeats every `period_s`, given by its integral over one period."""

    period_s: float
    power_w: Callable[[float], float]
    energy_j: Callable[[float], float]

    def at(self, time_s: float) -> float:
        return self.power_w(time_s % self.period_s)

    def until(self, time_s: float) -> float:
        n, rest_s = divmod(time_s, self.period_s)
        return n * self.energy_j(self.period_s) + self.energy_j(rest_s)


def constant(power_w: float) -> Load:
    return Load(1.0, lambda t: power_w, lambda t: power_w * t)


def square(period_s: float, high_w: float) -> Load:
    """On for the first half."""
    half_s = period_s / 2
    return Load(
        period_s, lambda t: high_w if t < half_s else 0.0, lambda t: high_w * min(t, half_s)
    )


def ramp(period_s: float, high_w: float) -> Load:
    """From 0 to high_w, then from the start."""
    return Load(
        period_s, lambda t: high_w * t / period_s, lambda t: high_w * t * t / (2 * period_s)
    )


def spikes(period_s: float, width_s: float, high_w: float) -> Load:
    """Short ones, over before the next sample of a slower sensor."""
    return Load(
        period_s, lambda t: high_w if t < width_s else 0.0, lambda t: high_w * min(t, width_s)
    )


class Bench:
    """Idle power all the time, a load while working; `publish` shows both to the sensor's files."""

    def __init__(self, load: Load, idle_w: float = 5.0, drift_w_per_s: float = 0.0) -> None:
        self.load, self.idle_w, self.drift_w_per_s = load, idle_w, drift_w_per_s
        self.now_s = 100.0
        self.energy_j = 0.0
        self.load_j = 0.0
        self.worked_s = 0.0
        self.working = False
        self.sampler: Sampler | None = None
        self.publish: Callable[[], None] = lambda: None
        self.background: Callable[[float], float] = lambda duration_s: 0.0
        self.history: list[tuple[float, float]] = []  # power at each sample
        self.ledger: list[tuple[float, float]] = [(self.now_s, 0.0)]  # energy of the load so far

    def clock(self) -> float:
        return self.now_s

    @property
    def power_w(self) -> float:
        """At this moment, the background's noise apart."""
        idle_w = self.idle_w + self.drift_w_per_s * (self.now_s - 100.0)
        return idle_w + (self.load.at(self.worked_s) if self.working else 0.0)

    def _move(self, duration_s: float) -> None:
        middle_s = self.now_s - 100.0 + duration_s / 2
        self.energy_j += (self.idle_w + self.drift_w_per_s * middle_s) * duration_s
        self.energy_j += self.background(duration_s) * duration_s
        if self.working:
            loaded_j = self.load.until(self.worked_s + duration_s) - self.load.until(self.worked_s)
            self.energy_j += loaded_j
            self.load_j += loaded_j
            self.worked_s += duration_s
        self.now_s += duration_s
        self.ledger.append((self.now_s, self.load_j))

    def load_between(self, start_s: float, end_s: float) -> float:
        """What the load really used, in J."""
        times_s, energy_j = np.array(self.ledger).T
        start_j, end_j = np.interp([start_s, end_s], times_s, energy_j)
        return float(end_j - start_j)

    def true_j(self, windows: Sequence[Window]) -> float:
        """What one call in these windows really used."""
        used_j = sum(self.load_between(w.start_s, w.end_s) for w in windows if w.n_calls)
        return used_j / sum(w.n_calls for w in windows)

    def wait(self, duration_s: float) -> None:
        """Let time pass; samples are taken when they are due."""
        end_s = self.now_s + duration_s
        while self.sampler is not None and self.sampler.due_s <= end_s:
            self._move(max(0.0, self.sampler.due_s - self.now_s))
            self.sampler.sample()
            self.history.append((self.now_s, self.power_w))
        self._move(end_s - self.now_s)

    def sleep(self, duration_s: float) -> None:
        self.working = False
        self.wait(duration_s)

    def call(self, duration_s: float) -> Callable[[], None]:
        """A step that takes this long and draws the load's power."""

        def step() -> None:
            self.working = True
            self.wait(duration_s)

        return step

    @contextmanager
    def sampling(self, sampler: Sampler) -> Iterator[None]:
        """Stands for the thread."""
        self.sampler = sampler
        yield
        self.sampler = None

    def meter(
        self, sensor: PowerSensor | EnergySensor, period_s: float | None = None
    ) -> EnergyMeter:
        meter = EnergyMeter(sensor, self.clock, period_s)
        self.sampler = meter.sampler
        read = meter.sampler.read

        def publish_and_read() -> float:  # files are written when they are about to be read
            self.publish()
            return read()

        meter.sampler.read = publish_and_read
        return meter


class SyntheticPower:
    """A power sensor on a bench: noise with a memory, and a step."""

    name, rails, scope = "a synthetic sensor", ("all",), "the bench"

    def __init__(
        self,
        bench: Bench,
        seed: int = 0,
        noise_w: float = 0.0,
        memory_s: float = 0.0,
        step_w: float | None = None,
        period_s: float = 0.02,
    ) -> None:
        self._bench, self._random = bench, np.random.default_rng(seed)
        self._noise_w, self._memory_s = noise_w, memory_s
        self._state, self._last_s = float(self._random.normal()), bench.now_s
        self.step_w, self.period_s = step_w, period_s

    def read_w(self) -> float:
        kept = 0.0
        if self._memory_s:
            kept = math.exp((self._last_s - self._bench.now_s) / self._memory_s)
        self._last_s = self._bench.now_s
        self._state = kept * self._state + math.sqrt(1 - kept**2) * float(self._random.normal())
        power_w = self._bench.power_w + self._noise_w * self._state
        return round(power_w / self.step_w) * self.step_w if self.step_w else power_w


class SyntheticCounter:
    """An energy counter on a bench, renewed every period and rounded down to its step."""

    name, rails, scope = "a synthetic counter", ("all",), "the bench"
    max_gap_s = 60.0

    def __init__(self, bench: Bench, step_j: float = 1e-4, period_s: float = 1e-3) -> None:
        self._bench, self.step_j, self.period_s = bench, step_j, period_s

    def read_j(self) -> float:
        age_s = self._bench.now_s % self.period_s
        shown_j = self._bench.energy_j - age_s * self._bench.power_w
        return math.floor(shown_j / self.step_j) * self.step_j
