"""Measure a stream at its own rate: predict, learn, then sleep until the next arrival (row).

    rate 1                                                               rate 2
    ─ idle ─ A ─ idle ─ B ─ idle ─ B ─ idle ─ A ─ idle ─ A ─ ... ─ idle ─ A ─ idle ─ ...
             └ a block of paced arrivals; blocks take turns, A B B A A B B A, so that drifts of
               temperature and load meet both backends alike

Without a power sensor the idle windows are left out. Where there is one, a thread reads it in idle
and paced windows alike, so its cost cancels in the energy; but a processor that is woken for it
sleeps less deeply than with the stream only. Clocks are read once a second at most, after
an arrival that left time for it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from edgefold.devices.machine.jetson import PowerMode
from edgefold.devices.machine.machine import read_machine
from edgefold.devices.machine.validity import Validity, ValidityWatch
from edgefold.devices.power.energy import EnergyMeter
from edgefold.devices.power.probe import Candidate
from edgefold.devices.profile.calls import ProfilePoints, TimedCall, calls_of
from edgefold.devices.profile.crossing import Crossing
from edgefold.devices.profile.energy import SPARE, Driver
from edgefold.devices.profile.latency import MIN_FOR_P99
from edgefold.devices.profile.paced_energy import PacedRun, combine, compare_power, open_meter
from edgefold.devices.profile.pacing import ClockSamples, Pacer
from edgefold.devices.profile.profile import is_on_gpu
from edgefold.runtime import EngineOptions, Stream
from edgefold.runtime.backends.base import Contender
from edgefold.runtime.errors import BackendError, MeterError
from edgefold.runtime.record_fields import (
    BackendReport,
    Celsius,
    Hertz,
    Seconds,
    as_json,
)

if TYPE_CHECKING:
    from edgefold.devices import EnergyFigure

SECONDS = 60.0  # time of each backend at each rate,
MAX_SECONDS = 300.0  # or as many as MIN_FOR_P99 arrivals take, but not more than this
N_BLOCKS = 4  # blocks of each backend at each rate
IDLE_SHARE = 0.5  # time of an idle window over that of a block
SETTLE_S = 1.0  # arrivals before each block: governors look at the load every 10 to 100 ms
CLOCKS_EVERY_S = 1.0
ROOM_SHARE = 0.2  # share of the period that must be left before clocks are read
WARM_UP = 50  # arrivals without a pause, once
SPARE_S = 10.0  # of arrivals beyond those asked for, which a meter may add around its windows


@dataclass(frozen=True, slots=True)
class PacedOptions:
    """Holds the backends to measure, the rates of arrivals, and the time for each of them.

    Attributes:
        rates_hz: The rates, in arrivals a second.
        backends: The backends, whose blocks of arrivals are measured in turn.
        seconds: Seconds for each backend at each rate; None chooses them by `seconds_at`.
        replay: Path of a recording that replaces the sensor; None reads a sensor.
    """

    rates_hz: tuple[float, ...]
    backends: tuple[Contender, ...]
    seconds: float | None = None
    replay: str | None = None

    def seconds_at(self, rate_hz: float) -> float:
        """Return for how many seconds each backend is measured at a rate."""
        if self.seconds is not None:
            return self.seconds
        return min(MAX_SECONDS, max(SECONDS, MIN_FOR_P99 / rate_hz))


@dataclass(frozen=True, slots=True)
class GovernorState:
    """Describes what sets the clocks at one moment; null where the machine does not show it."""

    cpu_governor: Annotated[str | None, "Governor of the first core."]
    gpu_governor: Annotated[str | None, "Governor of the GPU."]
    power_mode: PowerMode
    temperature_celsius: Annotated[Celsius | None, "The hottest zone."]


@dataclass(frozen=True, slots=True)
class Governors:
    """Describes what set the clocks before the measurement and after it."""

    before: GovernorState
    after: Annotated[GovernorState, "Rules of the clocks after."]


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedRecord:
    """Holds the measurement of a stream at its own rate, asleep between arrivals (`--paced`)."""

    what: Annotated[
        str, "What an arrival does: row (a query with its refresh, then an update) or step."
    ]
    rates_hz: Annotated[tuple[Annotated[Hertz, "A rate."], ...], "Rates."]
    seconds: Annotated[Seconds | None, "--paced-seconds; null where they were chosen by rate."]
    interrupted: Annotated[bool, "Whether Ctrl-C ended it."]
    sensor: Annotated[str | None, "Name of the power sensor."] = None
    kind: Annotated[str | None, "Kind of the sensor."] = None
    rails: Annotated[list[Annotated[str, "Name of a rail."]] | None, "Rails that it sums."] = None
    scope: Annotated[str | None, "What it covers."] = None
    reason: Annotated[str | None, "Why there is no power."] = None
    replay: Annotated[str | None, "A recording that replaced the sensor."] = None
    backends: Annotated[dict[str, BackendReport], "What ran, by the label of the runs."]
    governor: Governors
    validity: Annotated[Validity, "Whether a block was disturbed."]
    runs: Annotated[list[PacedRun], "One backend at one rate, in the order measured."]
    crossings: Annotated[list[Crossing], "Which of two backends needs less power at which rates."]
    refused: Annotated[
        dict[str, Annotated[str, "Why."]], "Backends that did not open, with the reason."
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Holds the access to time, sensors and the machine's files; tests pass simulated ones.

    Attributes:
        driver: The clock, the sleep and what runs the sampler.
        cpu_s: Returns the processor time of this process, in seconds.
        probe: Finds the sensors; None looks for those of this machine.
        root: Folder that holds /proc and /sys.
    """

    driver: Driver = field(default_factory=Driver)
    cpu_s: Callable[[], float] = time.process_time
    probe: Callable[[], list[Candidate]] | None = None
    root: Path = Path("/")


def measure_bundle(
    path: str,
    options: PacedOptions,
    engine: EngineOptions,
    progress: Callable[[str], None],
    expect_hash: str | None = None,
) -> dict[str, Any]:
    """Open a bundle on each backend, measure all of them, and return `PacedRecord` as plain JSON.

    A backend that does not open is listed in `refused`, by its label, and the others are measured.
    The label of "auto" names the backend that it opened.

    Args:
        path: Folder of the bundle.
        options: Backends, rates and times.
        engine: How the engines of a GPU are built and kept.
        progress: Called with a line of text at each stage.
        expect_hash: SHA-256 that the bundle must have; None accepts any.

    Raises:
        BundleError: The bundle does not open.
        BackendError: No backend opens.
    """
    refused: dict[str, str] = {}
    with ExitStack() as opened:
        streams: dict[str, Stream] = {}
        for contender in options.backends:
            progress(f"opening {contender.label}")
            try:
                stream = Stream.open(
                    path,
                    contender.backend,
                    contender.threads,
                    engine=engine,
                    expect_hash=expect_hash,
                )
            except BackendError as error:
                refused[contender.label] = str(error)
                continue
            if contender.backend == "auto":
                contender = replace(contender, backend=stream.backend_report["name"])
            streams[contender.label] = opened.enter_context(stream)
        if not streams:
            raise BackendError("; ".join(refused.values()))
        calls = {label: _arrival(stream) for label, stream in streams.items()}
        reports = {label: stream.backend_report for label, stream in streams.items()}
        record = measure_paced(calls, reports, options, progress)
    return record | {"refused": refused}


def _arrival(stream: Stream) -> TimedCall:
    """Return the call that one arrival makes, after it was run `WARM_UP` times."""
    calls = calls_of(stream, ProfilePoints(stream.manifest), 1, 1)
    call = next(call for call in calls if call.name in ("row", "step"))
    for _ in range(WARM_UP):
        call.before()
        call.run()
    return call


def measure_paced(
    calls: Mapping[str, TimedCall],
    reports: Mapping[str, Mapping[str, Any]],
    options: PacedOptions,
    progress: Callable[[str], None],
    surroundings: Surroundings | None = None,
) -> dict[str, Any]:
    """Measure the backends' calls in turn at each rate; Ctrl-C ends this and keeps the results.

    Args:
        calls: The call that an arrival makes on each backend, by the backend's label.
        reports: The report of each backend about itself, by the same labels.
        options: Rates and times; the field `backends` is not used.
        progress: Called with a line at each block.
        surroundings: Access to time, sensors and files; None for those of this machine.

    Returns:
        `PacedRecord` as plain JSON; `refused` is empty.
    """
    world = surroundings or Surroundings()
    on_gpu = {label: is_on_gpu(report) for label, report in reports.items()}
    meter, sensor = open_meter(options.replay, any(on_gpu.values()), world.driver, world.probe)
    runs: list[_Run] = []
    before, interrupted = _governor(world.root), False
    turns = _Turns(calls, options, meter, world, progress)
    try:
        with world.driver.sampling(meter.sampler) if meter else nullcontext():
            for rate_hz in options.rates_hz:
                turns.measure(rate_hz, runs)
    except KeyboardInterrupt:
        interrupted = True
    paced_runs = [run.record() for run in runs if run.pacer.n]
    record: dict[str, Any] = as_json(
        PacedRecord(
            what=next(iter(calls.values())).name,
            rates_hz=options.rates_hz,
            seconds=options.seconds,
            interrupted=interrupted,
            **sensor,
            replay=options.replay,
            backends={label: dict(report) for label, report in reports.items()},
            governor=Governors(before, _governor(world.root)),
            validity=turns.watch.validity(any(on_gpu.values())),
            runs=paced_runs,
            crossings=[
                compare_power(a, b, paced_runs, on_gpu, sensor) for a, b in combinations(calls, 2)
            ],
        )
    )
    return record


def _governor(root: Path) -> GovernorState:
    machine = read_machine(root)
    return GovernorState(
        machine.frequency_governor,
        machine.gpu_clock.governor if machine.gpu_clock else None,
        machine.power_mode,
        machine.temperature_celsius,
    )


class _Run:
    """Collects the measurements of one backend at one rate over all its blocks."""

    def __init__(self, label: str, rate_hz: float, pacer: Pacer, clocks: ClockSamples):
        self.label, self.rate_hz, self.pacer, self.clocks = label, rate_hz, pacer, clocks
        self.figures: list[EnergyFigure] = []
        self.reason: str | None = None
        self.n_blocks, self.duration_s, self.cpu_s = 0, 0.0, 0.0

    def record(self) -> PacedRun:
        """Return everything that was measured in this run, for the record."""
        return PacedRun(
            rate_hz=self.rate_hz,
            backend=self.label,
            duration_s=self.duration_s,
            n_blocks=self.n_blocks,
            cpu_share=self.cpu_s / self.duration_s if self.duration_s > 0 else None,
            latency=self.pacer.latency(),
            clocks=self.clocks.counts(),
            energy=combine(self.figures),
            energy_reason=self.reason,
        )


class _Turns:
    """Measures the backends in blocks of arrivals that take turns, one rate after the other."""

    def __init__(
        self,
        calls: Mapping[str, TimedCall],
        options: PacedOptions,
        meter: EnergyMeter | None,
        world: Surroundings,
        progress: Callable[[str], None],
    ):
        self._calls, self._options, self._meter = calls, options, meter
        self._world, self._progress = world, progress
        self._clocks_s = -math.inf
        self.watch = ValidityWatch(world.root)

    def measure(self, rate_hz: float, runs: list[_Run]) -> None:
        """Append a run for each backend to `runs`, then measure at one rate and fill the runs."""
        seconds, driver = self._options.seconds_at(rate_hz), self._world.driver
        least_s = self._meter.min_work_s * SPARE if self._meter else 0.0
        n_blocks = max(1, min(N_BLOCKS, int(seconds / max(least_s, 2 / rate_hz))))
        block_s = seconds / n_blocks
        n_noted = math.ceil((seconds + n_blocks * SPARE_S) * rate_hz) + n_blocks
        at_rate = {
            label: _Run(
                label,
                rate_hz,
                Pacer(call, 1 / rate_hz, n_noted, driver.clock, driver.sleep),
                ClockSamples(self._world.root),
            )
            for label, call in self._calls.items()
        }
        idle_s = self._idle_s(block_s)
        if self._meter and not self._meter.windows:
            self._progress(f"measuring idle power for {idle_s:.0f} s")
            self._meter.idle(driver.sleep, idle_s)
            with suppress(MeterError):  # the first figure reports it
                if self._meter.learn_memory():  # its averages are longer than it says: once more
                    return self.measure(rate_hz, runs)
        runs += at_rate.values()
        for label, blocks in groupby(_order(list(self._calls), n_blocks)):
            run, first = at_rate[label], len(self._meter.windows) - 1 if self._meter else 0
            try:
                for _ in blocks:
                    self._progress(
                        f"{rate_hz:g} Hz, {label}: block {run.n_blocks + 1} of {n_blocks}, "
                        f"{block_s:.0f} s"
                    )
                    with self.watch.block(f"{rate_hz:g} Hz, {label}"):
                        self._block(run, block_s)
                    if self._meter:
                        self._progress(f"measuring idle power for {idle_s:.0f} s")
                        self._meter.idle(driver.sleep, idle_s)
            finally:
                self._add_figure(run, first)

    def _idle_s(self, block_s: float) -> float:
        least_s = self._meter.min_idle_s * SPARE if self._meter else 0.0
        return max(least_s, IDLE_SHARE * block_s)

    def _add_figure(self, run: _Run, first: int) -> None:
        """Add to `run` the energy of the meter's windows from `first` on, or why it has none."""
        if self._meter is None:
            return
        windows = self._meter.windows
        if (len(windows) - first) % 2 == 0:  # interrupted
            windows.pop()
        if len(windows) - first < 3:
            return
        try:
            run.figures.append(self._meter.figure(first))
        except MeterError as error:
            run.reason = str(error)

    def _block(self, run: _Run, block_s: float) -> None:
        clock, pacer = self._world.driver.clock, run.pacer
        pacer.begin()
        settled_s = clock() + SETTLE_S
        while clock() < settled_s:
            pacer.arrive()

        def arrive() -> None:
            pacer.arrive()
            now_s = clock()
            if (
                now_s >= self._clocks_s + CLOCKS_EVERY_S
                and pacer.room_s(now_s) > ROOM_SHARE / run.rate_hz
            ):
                self._clocks_s = now_s
                run.clocks.sample()

        with self._noted(run):
            if self._meter:
                self._meter.work(arrive, block_s)
            else:
                end_s = clock() + block_s
                while clock() < end_s:
                    arrive()
        run.n_blocks += 1

    @contextmanager
    def _noted(self, run: _Run) -> Iterator[None]:
        """Note arrivals of `run` in this block; then add its time and processor time to `run`."""
        world = self._world
        start_s, start_cpu_s = world.driver.clock(), world.cpu_s()
        run.pacer.is_noting = True
        try:
            yield
        finally:
            run.pacer.is_noting = False
            run.duration_s += world.driver.clock() - start_s
            run.cpu_s += world.cpu_s() - start_cpu_s


def _order(labels: Sequence[str], n_blocks: int) -> list[str]:
    """Return the labels in the order A B, B A, ...: a steady drift then meets backends alike."""
    return [
        label
        for n in range(n_blocks)
        for label in (labels if n % 2 == 0 else list(reversed(labels)))
    ]
