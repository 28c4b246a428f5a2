"""A machine of known power whose clock moves only when told: what meters are held against."""

from __future__ import annotations

import math
from bisect import bisect_right
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
        self.background_w = 0.0  # at this moment
        self.times_s = [self.now_s]
        self.loads_j = [0.0]  # energy of the load until then
        self.totals_j = [0.0]  # energy of everything

    def clock(self) -> float:
        return self.now_s

    @property
    def power_w(self) -> float:
        """At this moment, the background's noise apart."""
        idle_w = self.idle_w + self.drift_w_per_s * (self.now_s - 100.0)
        return idle_w + (self.load.at(self.worked_s) if self.working else 0.0)

    def move(self, duration_s: float) -> None:
        """Let time pass without a sample."""
        middle_s = self.now_s - 100.0 + duration_s / 2
        self.energy_j += (self.idle_w + self.drift_w_per_s * middle_s) * duration_s
        self.background_w = self.background(duration_s)
        self.energy_j += self.background_w * duration_s
        if self.working:
            loaded_j = self.load.until(self.worked_s + duration_s) - self.load.until(self.worked_s)
            self.energy_j += loaded_j
            self.load_j += loaded_j
            self.worked_s += duration_s
        self.now_s += duration_s
        self.times_s.append(self.now_s)
        self.loads_j.append(self.load_j)
        self.totals_j.append(self.energy_j)

    def load_between(self, start_s: float, end_s: float) -> float:
        """What the load really used, in J."""
        start_j, end_j = np.interp([start_s, end_s], self.times_s, self.loads_j)
        return float(end_j - start_j)

    def mean_w(self, start_s: float, end_s: float) -> float:
        """Mean power between two moments; before the bench's first one it was idle."""
        start_j, end_j = (self._total_until(time_s) for time_s in (start_s, end_s))
        return (end_j - start_j) / (end_s - start_s)

    def _total_until(self, time_s: float) -> float:
        right = bisect_right(self.times_s, time_s)
        if right == 0:
            return self.idle_w * (time_s - self.times_s[0])
        if right == len(self.times_s):
            return self.totals_j[-1]
        (before_s, after_s), (low_j, high_j) = (
            series[right - 1 : right + 1] for series in (self.times_s, self.totals_j)
        )
        return low_j + (high_j - low_j) * (time_s - before_s) / (after_s - before_s)

    def true_j(self, windows: Sequence[Window]) -> float:
        """What one call in these windows really used."""
        used_j = sum(self.load_between(w.start_s, w.end_s) for w in windows if w.n_calls)
        return used_j / sum(w.n_calls for w in windows)

    def wait(self, duration_s: float) -> None:
        """Let time pass; samples are taken when they are due."""
        end_s = self.now_s + duration_s
        while self.sampler is not None and self.sampler.due_s <= end_s:
            self.move(max(0.0, self.sampler.due_s - self.now_s))
            self.sampler.sample()
            self.history.append((self.now_s, self.power_w))
        self.move(max(0.0, end_s - self.now_s))

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
    memory_s = 0.0

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


class AveragedPower:
    """A sensor that keeps the mean power of one stretch until that of the next one is finished.

    Args:
        length_s: Of the averages; 0 shows power as it is.
        stated_s: What it says of their length; None for the truth.
        n_waits: Averages for which a read waits, the last n_waits - 1 of them of a rail each.
    """

    name, rails, scope = "an averaging sensor", ("all",), "the bench"

    def __init__(
        self,
        bench: Bench,
        length_s: float,
        seed: Sequence[int] = (0,),
        noise_w: float = 0.0,
        step_w: float | None = None,
        stated_s: float | None = None,
        n_waits: int = 0,
    ) -> None:
        self._bench, self._length_s, self._random = bench, length_s, np.random.default_rng(seed)
        self._noise_w, self._n_waits, self.step_w = noise_w, n_waits, step_w
        self._first_s = bench.now_s - length_s * float(self._random.random())
        self._kept: tuple[int, float] = (-1, 0.0)
        self.period_s = max(0.02, 1.25 * n_waits * length_s)
        of_read_s = length_s * (n_waits + 1) / 2 if n_waits else length_s
        self.memory_s = of_read_s if stated_s is None else stated_s

    def read_w(self) -> float:
        if not self._length_s:
            return self._show(self._bench.power_w + self._bench.background_w)
        if not self._n_waits:
            return self._mean_w()
        means_w = []
        for _ in range(self._n_waits):
            n_finished = math.floor((self._bench.now_s - self._first_s) / self._length_s)
            next_s = self._first_s + (n_finished + 1) * self._length_s
            self._bench.move(next_s - self._bench.now_s + 1e-6)
            means_w.append(self._mean_w())
        return sum(means_w[1:]) / (self._n_waits - 1)  # rails of equal power; first the voltage

    def _mean_w(self) -> float:
        n = math.floor((self._bench.now_s - self._first_s) / self._length_s)
        if n != self._kept[0]:
            end_s = self._first_s + n * self._length_s
            self._kept = n, self._show(self._bench.mean_w(end_s - self._length_s, end_s))
        return self._kept[1]

    def _show(self, power_w: float) -> float:
        power_w += self._noise_w * float(self._random.normal())
        return round(power_w / self.step_w) * self.step_w if self.step_w else power_w


class Wander:
    """Power of everything else on the machine: noise with a memory."""

    def __init__(self, seed: Sequence[int], noises: Sequence[tuple[float, float]]) -> None:
        self._random = np.random.default_rng(seed)
        self._noises = noises  # deviation in W and memory in s of each
        self._states = [float(self._random.normal()) for _ in noises]

    def __call__(self, duration_s: float) -> float:
        for n, (_, memory_s) in enumerate(self._noises):
            kept = math.exp(-duration_s / memory_s)
            self._states[n] *= kept
            self._states[n] += math.sqrt(1 - kept**2) * float(self._random.normal())
        return sum(w * state for (w, _), state in zip(self._noises, self._states, strict=True))


class SyntheticCounter:
    """An energy counter on a bench, renewed every period and rounded down to its step."""

    name, rails, scope = "a synthetic counter", ("all",), "the bench"
    max_gap_s = 60.0

    def __init__(self, bench: Bench, step_j: float = 1e-4, period_s: float = 1e-3) -> None:
        self._bench, self.step_j, self.period_s = bench, step_j, period_s
        self.memory_s = period_s

    def read_j(self) -> float:
        age_s = self._bench.now_s % self.period_s
        shown_j = self._bench.energy_j - age_s * self._bench.power_w
        return math.floor(shown_j / self.step_j) * self.step_j
