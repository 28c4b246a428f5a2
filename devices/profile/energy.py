"""Measure the energy of a stream's steps, in rounds, until the figure is certain enough.

    idle ─ update ─ idle ─ update ─ ... ─ idle ─ query ─ idle ─ ...
         round 1     |  round 2: as long as the first one's error asks for
                     └─ enough? then on to the next step

A thread samples the sensor during work and idleness alike, so that the cost of sampling is in both
and cancels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from edgefold.devices.power.energy import EnergyMeter
from edgefold.devices.power.figure import EnergyFigure
from edgefold.devices.power.meters.replay import Replay
from edgefold.devices.power.probe import Candidate, choose_sensor
from edgefold.devices.power.sampler import Sampler, SamplerThread
from edgefold.runtime.errors import MeterError
from edgefold.runtime.record_fields import MISSING, Seconds, ShareOfOne, Watts, as_json

WORK_S = 5.0  # work of the first round
WORK_MEMORIES = 20  # sensor averages in the first round's work: its ends then hide 2 %
MAX_WORK_S = 30.0  # work of any round: idle power is taken as even between two idle windows
MAX_EXCESS = 1e3  # error over its target, at most: larger squares overflow, and MAX_WORK_S holds
IDLE_SHARE = 0.6  # time of idleness over that of work in the same round
SPARE = 1.01  # factor on the shortest window, so that none falls short by a rounding
N_POINTS = 600  # points of the power over time, at most

Step = Callable[[], object]


@dataclass(frozen=True, slots=True)
class TriedSensor:
    """Describes one kind of power sensor that was tried, and whether it opened."""

    kind: Annotated[str, "Its name."]
    opened: Annotated[bool, "Whether it opened."]
    reason: Annotated[str | None, "Why it did not."]


@dataclass(frozen=True, slots=True)
class CallEnergy(EnergyFigure):
    """Holds the energy that one call takes above the idle power, and how certain it is."""

    relative_error_: Annotated[
        ShareOfOne | None, "Standard error over energy; null for an energy of 0."
    ]
    target_met: Annotated[bool, "Whether the error is within --energy-error."]
    measured_for_s: Annotated[Seconds, "Time that was spent on it."]


@dataclass(frozen=True, slots=True)
class PowerWindow:
    """Describes one stretch of time in which either one step ran again and again, or nothing."""

    what: Annotated[str, "`idle`, or the step."]
    start_s: Annotated[Seconds, "Start."]
    end_s: Annotated[Seconds, "End."]


@dataclass(frozen=True, slots=True)
class PowerSamples:
    """Holds the power over the time of the measurement, and the times of steps and idleness."""

    time_s: Annotated[list[Annotated[Seconds, "A time."]], "Middle of each sample, from the start."]
    power_w: Annotated[list[Annotated[Watts, "Power."]], "Mean power of each sample."]
    windows: Annotated[list[PowerWindow], "What was done when."]


@dataclass(slots=True, kw_only=True)
class MeasuredEnergy:
    """Holds the energy of each step in the field of its name, or the reason why there is none."""

    sensor: Annotated[str | None, "Name of the sensor; null without one."] = None
    replay: Annotated[
        str | None, "A recording that replaced the sensor: then nothing here is a measurement."
    ]
    target: Annotated[ShareOfOne, "Standard error over energy that was asked for."]
    limit_s: Annotated[Seconds, "Time that was allowed."]
    reason: Annotated[str | None, "Why a figure is missing."] = None
    candidates: Annotated[list[TriedSensor], "Every kind of sensor that was tried."] = field(
        default_factory=list
    )
    steps: Annotated[
        list[Annotated[str, "Name of a step."]], "Names of the steps that were to be measured."
    ]
    update: CallEnergy | None = MISSING
    step: CallEnergy | None = MISSING
    query: CallEnergy | None = MISSING
    rails: Annotated[list[Annotated[str, "Name of a rail."]], "Rails that it sums."] = MISSING
    scope: Annotated[str, "What it covers, in words."] = MISSING
    samples: PowerSamples = MISSING


@dataclass(frozen=True, slots=True)
class EnergyOptions:
    """Holds how certain the measured energy must be, and how long its measurement may take.

    Attributes:
        target: Standard error over energy at which the measurement of a step ends.
        limit_s: Seconds that the measurements of all steps may take together.
        replay: Path of a recording that replaces the sensor; None reads a sensor.
    """

    target: float = 0.05
    limit_s: float = 120.0
    replay: str | None = None


@dataclass(frozen=True, slots=True)
class Driver:
    """Holds the clock and the sleep (both in seconds), and the context in which a sampler runs."""

    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    sampling: Callable[[Sampler], AbstractContextManager[object]] = SamplerThread


def measure_energy(
    steps: Mapping[str, Step],
    options: EnergyOptions,
    progress: Callable[[str], None],
    probe: Callable[[], list[Candidate]],
    driver: Driver | None = None,
) -> dict[str, Any]:
    """Measure the energy of each step; return `MeasuredEnergy` as JSON, with the reason for gaps.

    Args:
        steps: The functions to measure, by their names.
        options: How certain the energy must be, and how long the measurement may take.
        progress: Called with a line at each stage.
        probe: Finds the sensors, where no recording replaces them.
        driver: Clock, sleep and sampler; None for the real ones.
    """
    driver = driver or Driver()
    record = MeasuredEnergy(
        replay=options.replay,
        target=options.target,
        limit_s=options.limit_s,
        steps=list(steps),
    )
    for name in steps:
        setattr(record, name, None)
    try:
        candidates = find_candidates(options.replay, driver, probe)
        record.candidates = [
            TriedSensor(c.kind, c.sensor is not None, c.reason) for c in candidates
        ]
        meter = EnergyMeter(choose_sensor(candidates), driver.clock)
        sensor = meter.sensor
        record.sensor, record.rails, record.scope = sensor.name, list(sensor.rails), sensor.scope
        _measure_steps(record, steps, meter, driver, progress)
    except MeterError as error:
        record.reason = str(error)
    form: dict[str, Any] = as_json(record)
    return form


def find_candidates(
    replay: str | None, driver: Driver, probe: Callable[[], list[Candidate]]
) -> list[Candidate]:
    """Return the recording as the only sensor; without a recording, the sensors that `probe` finds.

    Raises:
        MeterError: The recording cannot be read.
    """
    if replay is None:
        return probe()
    return [Candidate("replay", Replay(Path(replay), driver.clock))]


def _measure_steps(
    record: MeasuredEnergy,
    steps: Mapping[str, Step],
    meter: EnergyMeter,
    driver: Driver,
    progress: Callable[[str], None],
) -> None:
    """Measure each step, put its energy into the record, and after the last step all samples."""
    owners: list[str] = []
    with driver.sampling(meter.sampler):
        for n_left, (name, step) in zip(range(len(steps), 0, -1), steps.items(), strict=True):
            used_s = driver.clock() - meter.sampler.start_s
            rounds = _Rounds(meter, driver, record.target, (record.limit_s - used_s) / n_left)
            figure = rounds.measure(name, step, progress)
            setattr(record, name, _call_energy(figure, record.target, rounds.seconds))
            owners += [name] * (len(meter.windows) - len(owners))
    record.samples = _samples(meter, owners)


class _Rounds:
    """Measures one step in rounds of work and idleness, until its energy is certain enough."""

    def __init__(self, meter: EnergyMeter, driver: Driver, target: float, limit_s: float) -> None:
        self._meter, self._driver = meter, driver
        self._target, self._limit_s = target, limit_s
        self._start_s = driver.clock()

    @property
    def seconds(self) -> float:
        """Return the time spent on the step so far, in seconds."""
        return self._driver.clock() - self._start_s

    def measure(self, name: str, step: Step, progress: Callable[[str], None]) -> EnergyFigure:
        """Measure rounds of a step until its error reaches the target or its time the limit.

        Raises:
            MeterError: The limit has no room for one round, or the sensor failed.
        """
        meter = self._meter
        is_first = not meter.windows
        work_s, idle_s = self._plan(name, 2 if is_first else 1)
        if is_first:
            self._idle(idle_s, progress)
            if meter.learn_memory():
                progress(f"{meter.sensor.name} shows means of {meter.memory_s:.2g} s: once more")
                work_s, idle_s = self._plan(name, 2)
                self._idle(idle_s, progress)
        first = len(meter.windows) - 1
        while True:
            progress(f"measuring the energy of {name} for {work_s:.0f} s")
            meter.work(step, work_s)
            self._idle(idle_s, progress)
            figure = meter.figure(first)
            left_s = self._limit_s - self.seconds - 2 * meter.margin_s
            least_work_s, least_idle_s = self._least_s
            if figure.relative_error <= self._target or left_s < least_work_s + least_idle_s:
                return figure
            excess = min(figure.relative_error / self._target, MAX_EXCESS)
            wanted_s = max(figure.duration_s * (excess**2 - 1), WORK_S)
            room_s = min(left_s / (1 + IDLE_SHARE), left_s - least_idle_s)
            work_s = max(least_work_s, min(wanted_s, MAX_WORK_S, room_s))
            idle_s = max(least_idle_s, min(IDLE_SHARE * work_s, left_s - work_s))

    @property
    def _least_s(self) -> tuple[float, float]:
        """Return the lengths of the shortest windows of work and of idleness, in seconds."""
        return self._meter.min_work_s * SPARE, self._meter.min_idle_s * SPARE

    def _idle(self, idle_s: float, progress: Callable[[str], None]) -> None:
        progress(f"measuring idle power for {idle_s:.0f} s")
        self._meter.idle(self._driver.sleep, idle_s)

    def _plan(self, name: str, n_idle: int) -> tuple[float, float]:
        """Return how many seconds the windows of work and of idleness of a first round last.

        Args:
            name: Name of the step, for the error if too little time is left.
            n_idle: Number of idle windows that the time that is left must hold.
        """
        meter = self._meter
        least_work_s, least_idle_s = self._least_s
        left_s, margin_s = self._limit_s - self.seconds, (n_idle + 1) * meter.margin_s
        needed_s = least_work_s + n_idle * least_idle_s + margin_s
        if left_s < needed_s:
            raise MeterError(
                f"{left_s:.3g} s of --energy-seconds are left for {name}, too few: with "
                f"{meter.sensor.name} (read every {meter.sampler.period_s:.3g} s, averages of "
                f"{meter.memory_s:.3g} s) it takes {needed_s:.3g} s; allow as much for each step."
            )
        room_s = left_s - margin_s
        wanted_s = max(WORK_S, WORK_MEMORIES * meter.memory_s)
        work_s = min(wanted_s, room_s / (1 + n_idle * IDLE_SHARE), room_s - n_idle * least_idle_s)
        work_s = max(least_work_s, work_s)
        return work_s, max(least_idle_s, min(IDLE_SHARE * work_s, (room_s - work_s) / n_idle))


def _call_energy(figure: EnergyFigure, target: float, seconds: float) -> CallEnergy:
    return CallEnergy(
        **asdict(figure),
        relative_error_=figure.relative_error if figure.energy_j else None,
        target_met=figure.relative_error <= target,
        measured_for_s=seconds,
    )


def _samples(meter: EnergyMeter, owners: list[str]) -> PowerSamples:
    """Return the power over time as up to `N_POINTS` means, and all windows; the start is 0 s.

    Args:
        meter: The meter, after its last window.
        owners: For each window of the meter, the name of the step that was being measured.
    """
    trace, start_s = meter.sampler.trace(), meter.sampler.start_s
    n = min(N_POINTS, len(trace.times_s) - 1)
    at = np.unique(np.linspace(0, len(trace.times_s) - 1, n + 1).astype(int))
    power_w = np.diff(trace.energy_j[at]) / np.diff(trace.times_s[at])
    middle_s = (trace.times_s[at][1:] + trace.times_s[at][:-1]) / 2 - start_s
    return PowerSamples(
        [round(float(t), 4) for t in middle_s],
        [round(float(p), 6) for p in power_w],
        [
            PowerWindow(
                owner if window.n_calls else "idle",
                round(window.start_s - start_s, 4),
                round(window.end_s - start_s, 4),
            )
            for owner, window in zip(owners, meter.windows, strict=True)
        ],
    )
