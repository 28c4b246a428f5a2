"""A board in virtual time with two backends of known power: what a paced profile is held against.

Power is idle power, plus a backend's power while it works, plus what the backend keeps awake for a
while after each arrival (a GPU that is not gated at once), plus noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edgefold.devices.power.probe import Candidate
from edgefold.devices.power.sampler import Sampler
from edgefold.devices.profile.calls import TimedCall
from edgefold.devices.profile.energy import Driver
from edgefold.devices.profile.paced import Surroundings


@dataclass
class Device:
    """A backend's cost: `work_w` for `work_s` an arrival, `awake_w` until `awake_s` after it."""

    work_s: float
    work_w: float
    awake_s: float = 0.0
    awake_w: float = 0.0

    def power_w(self, rate_hz: float) -> float:
        """Above idle, at a rate that it keeps up with."""
        awake = min(1.0, rate_hz * (self.work_s + self.awake_s))
        return rate_hz * self.work_s * self.work_w + awake * self.awake_w


@dataclass
class PacedBench:
    """The board; its counter of energy is exact up to its step and its noise.

    Attributes:
        oversleep_s: How much later than asked a sleep ends.
        noise_w: Deviation of the power over a second.
    """

    devices: dict[str, Device]
    idle_w: float = 4.0
    noise_w: float = 0.0
    seed: int = 0
    oversleep_s: float = 0.0
    drift_w_per_s: float = 0.0
    root: Path = Path("/nonexistent")
    now_s: float = 50.0
    energy_j: float = 0.0
    worked_s: float = 0.0
    active: Device | None = None
    awake: tuple[float, float] = (0.0, 0.0)  # until when, and how many watts
    sampler: Sampler | None = None
    log: list[tuple[str, float]] = field(default_factory=list)
    interrupt_at_s: float = float("inf")

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def clock(self) -> float:
        return self.now_s

    def _move(self, duration_s: float) -> None:
        until_s, awake_w = self.awake
        awake_s = min(max(0.0, until_s - self.now_s), duration_s)
        idle_w = self.idle_w + self.drift_w_per_s * (self.now_s - 50.0 + duration_s / 2)
        self.energy_j += awake_w * awake_s
        if self.noise_w and duration_s > 0:  # a gamma process: it never takes energy back
            variance = self.noise_w**2 / idle_w
            self.energy_j += self._random.gamma(idle_w * duration_s / variance, variance)
        else:
            self.energy_j += idle_w * duration_s
        if self.active is not None:
            self.energy_j += self.active.work_w * duration_s
            self.worked_s += duration_s
        self.now_s += duration_s

    def wait(self, duration_s: float) -> None:
        """Let time pass; samples are taken when they are due."""
        end_s = self.now_s + duration_s
        while self.sampler is not None and self.sampler.due_s <= end_s:
            self._move(max(0.0, self.sampler.due_s - self.now_s))
            self.sampler.sample()
        self._move(max(0.0, end_s - self.now_s))
        if self.now_s > self.interrupt_at_s:
            self.interrupt_at_s = float("inf")
            raise KeyboardInterrupt

    def sleep(self, duration_s: float) -> None:
        self.wait(duration_s + self.oversleep_s)

    def call(self, label: str, name: str = "row") -> TimedCall:
        device = self.devices[label]

        def run() -> None:
            self.log.append((label, self.now_s))
            self.awake = (self.now_s + device.work_s + device.awake_s, device.awake_w)
            self.active = device
            self.wait(device.work_s)
            self.active = None

        return TimedCall(name, "an arrival", run, 1)

    @contextmanager
    def sampling(self, sampler: Sampler) -> Iterator[None]:
        self.sampler = sampler
        try:
            yield
        finally:
            self.sampler = None

    def surroundings(self, sensor: object | None = None) -> Surroundings:
        """Time and the sensor of this bench: None for its own counter."""
        candidate = Candidate("a counter", sensor or Counter(self))  # type: ignore[arg-type]
        driver = Driver(self.clock, self.sleep, self.sampling)
        return Surroundings(driver, lambda: self.worked_s, lambda: [candidate], self.root)


class Counter:
    """The bench's counter of energy."""

    name, rails, scope = "a virtual counter", ("all",), "the bench"
    step_j, period_s, memory_s, max_gap_s = 1e-4, 1e-3, 0.0, 60.0

    def __init__(self, bench: PacedBench):
        self._bench = bench

    def read_j(self) -> float:
        return round(self._bench.energy_j / self.step_j) * self.step_j
