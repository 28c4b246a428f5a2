"""Lay windows of idleness and work over one sensor's samples and measure the energy of a call.

    calls     ─ idle ──────────────────────┬─ work ──────────────────────────┬─ idle ───────
              lead │     window     │ tail │ lead │       window      │ tail │ lead │
    readings            │     window     │               │       window      │
                        └─ later by one `memory_s`

A reading is a mean over `memory_s` and is kept as long, so it shows power that is one `memory_s`
old on average and two at most. The readings of a window are therefore taken one `memory_s` later
than its calls, and calls (or idleness) go on before and after the window for as long as its
readings look back and forward: no reading of a window has seen anything else. What calls used just
outside of a window stands for what they used just inside.

Idle power is measured before and after each stretch of work; more rounds make the figure more
certain (`figure` has the formula and its errors). Windows too short for the sensor are refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from edgefold.devices.power import statistics
from edgefold.devices.power.figure import Cut, EnergyFigure, compute_figure, cut_trace
from edgefold.devices.power.sampler import Sampler, Trace
from edgefold.devices.power.sensor import EnergySensor, PowerSensor
from edgefold.runtime.errors import MeterError

MIN_WINDOW_S = 1.0  # governors and other processes have a memory of some tenths of a second
MIN_SAMPLES = 4  # of an idle window; windows of work have twice as many, of memories as well
MIN_MEMORIES = 8
MIN_READ = 3  # samples of a window, whatever was missed
MIN_STEPS = 100  # of a counter: its rounding is then under 1 %
MAX_MISSED = 0.25  # of a window's samples of power; a counter loses nothing between two reads
SETTLE_S = 0.3  # regulators and clocks come to rest before a window opens
MIN_BLOCK_S = 1e-3  # calls between two looks at the clock


@dataclass(frozen=True, slots=True)
class Window:
    """Describes a stretch of time in which the machine was idle (no calls) or worked.

    Attributes:
        start_s, end_s: Both ends, by the meter's clock.
        n_calls: Calls between both ends; 0 for idleness.
        memory_s: Seconds by which the sensor lags: the window's readings are those from
            start_s + memory_s to end_s + memory_s.
    """

    start_s: float
    end_s: float
    n_calls: int
    memory_s: float


class EnergyMeter:
    """Measures windows of idleness and work with one sensor.

    The caller runs `sampler` meanwhile: in a `SamplerThread`, or on a test's simulated clock.

    Args:
        sensor: Sensor from which power or energy is read.
        clock: Returns seconds that never run backwards, such as time.monotonic.
        period_s: Seconds between samples; None for the shortest that serves the sensor.

    Attributes:
        memory_s: Length of the sensor's averages in seconds: as the sensor states, or longer where
            `learn_memory` saw readings that are renewed less often.
    """

    def __init__(
        self,
        sensor: PowerSensor | EnergySensor,
        clock: Callable[[], float],
        period_s: float | None = None,
    ) -> None:
        self.sampler = Sampler(sensor, clock, period_s)
        self.windows: list[Window] = []
        self.memory_s = sensor.memory_s
        self._clock = clock

    @property
    def sensor(self) -> PowerSensor | EnergySensor:
        """Return the sensor in use."""
        return self.sampler.sensor

    @property
    def min_idle_s(self) -> float:
        """Return how many seconds the shortest idle window lasts that is not refused."""
        return max(MIN_WINDOW_S, MIN_SAMPLES * self.sampler.period_s, MIN_MEMORIES * self.memory_s)

    @property
    def min_work_s(self) -> float:
        """Return how many seconds the shortest window of work lasts that is not refused."""
        return max(
            MIN_WINDOW_S, 2 * MIN_SAMPLES * self.sampler.period_s, 2 * MIN_MEMORIES * self.memory_s
        )

    @property
    def margin_s(self) -> float:
        """Return how many seconds of the same load run before and after a window, in sum."""
        return SETTLE_S + 2 * self.memory_s

    def idle(self, sleep: Callable[[float], None], duration_s: float) -> None:
        """Measure one idle window of `duration_s` seconds, in which this process only sleeps."""
        sleep(SETTLE_S + self.memory_s)
        start_s = self._mark()
        sleep(duration_s)
        window = Window(start_s, self._clock(), 0, self.memory_s)
        # In one go: waking up again and again is not idleness.
        self._close(window, partial(sleep, max(self.memory_s, MIN_BLOCK_S)))

    def work(self, step: Callable[[], object], duration_s: float) -> None:
        """Measure one window of work of `duration_s` seconds, calling `step` again and again."""
        block = 1

        def run() -> None:
            for _ in range(block):
                step()

        settled_s = self._clock() + SETTLE_S + self.memory_s
        while (before_s := self._clock()) < settled_s:
            run()
            if self._clock() - before_s < MIN_BLOCK_S:
                block *= 2
        n_calls = 0
        start_s = self._mark()
        while self._clock() < start_s + duration_s:
            run()
            n_calls += block
        self._close(Window(start_s, self._clock(), n_calls, self.memory_s), run)

    def _mark(self) -> float:
        """Return the time now; read a counter first, but not power, which may delay the work."""
        if self.sampler.counts:
            self.sampler.sample()
        return self._clock()

    def _close(self, window: Window, go_on: Callable[[], None]) -> None:
        """Add a window, and call `go_on` until the readings that belong to the window are taken."""
        self.windows.append(window)
        while self._clock() < window.end_s + window.memory_s:
            go_on()
        self._mark()

    def learn_memory(self) -> bool:
        """Lengthen `memory_s`, the age that a reading may have, if readings are renewed less often.

        Then the windows so far may contain power from before they began: drop them, return True.

        Raises:
            MeterError: The sensor failed meanwhile.
        """
        trace = self.sampler.trace()
        measured_s = statistics.renewal_s(trace.times_s, trace.readings)
        is_older = statistics.is_older(measured_s, self.memory_s, self.sampler.period_s)
        if measured_s is None or not is_older:
            return False
        self.memory_s = measured_s
        self.windows.clear()
        return True

    def figure(self, first: int = 0) -> EnergyFigure:
        """Return the energy of one call over the windows from `first` on: idle, work, idle, ...

        Raises:
            MeterError: The sensor failed meanwhile or never changed, or a window is too short for
                it.
        """
        windows = self.windows[first:]
        if len(windows) < 3 or len(windows) % 2 == 0 or any(w.n_calls for w in windows[::2]):
            raise MeterError(
                "Energy needs windows of idle(), work(), idle() in turn, idle ones at both ends."
            )
        trace = self.sampler.trace()
        cuts = [self._cut(trace, window) for window in windows]
        self._require_change(cuts)
        n_calls, memory_s = sum(w.n_calls for w in windows), min(w.memory_s for w in windows)
        return compute_figure(self.sampler, cuts[::2], cuts[1::2], n_calls, memory_s)

    def _cut(self, trace: Trace, window: Window) -> Cut:
        sampler, name = self.sampler, self.sensor.name
        duration_s = window.end_s - window.start_s
        least_s = self.min_work_s if window.n_calls else self.min_idle_s
        if duration_s < least_s:
            raise MeterError(
                f"A window of {duration_s:.3g} s is too short for {name} (read every "
                f"{sampler.period_s:.3g} s, averages of {self.memory_s:.3g} s); measure for "
                f"{least_s:.3g} s or more."
            )
        start_s, end_s = (at + window.memory_s for at in (window.start_s, window.end_s))
        n_read = int(((trace.times_s >= start_s) & (trace.times_s < end_s)).sum())
        most = math.inf if sampler.counts else MAX_MISSED * duration_s / sampler.period_s
        if n_read >= MIN_READ:
            cut = cut_trace(trace, start_s, end_s, sampler.counts)
            if cut.n_missed <= most:
                self._require_signal(cut)
                return cut
        raise MeterError(
            f"{name} was read {n_read} times in {duration_s:.3g} s and not every "
            f"{sampler.period_s:.3g} s: the machine was too busy. Leave a processor free, or "
            "measure again."
        )

    def _require_signal(self, cut: Cut) -> None:
        sensor = self.sensor
        if isinstance(sensor, EnergySensor):
            if cut.total_j < MIN_STEPS * sensor.step_j:
                raise MeterError(
                    f"{sensor.name} moved by {cut.total_j:.3g} J in {cut.duration_s:.3g} s, fewer "
                    f"than {MIN_STEPS} of its steps of {sensor.step_j:.3g} J; it is too coarse "
                    "for this window, or not connected on this machine."
                )
        elif not cut.readings.any():
            raise MeterError(
                f"{sensor.name} read 0 W throughout; it is not connected on this machine."
            )

    def _require_change(self, cuts: list[Cut]) -> None:
        """Refuse power readings that never changed: the load is too small or the sensor hangs."""
        first_w = cuts[0].readings[0]
        if not self.sampler.counts and all((cut.readings == first_w).all() for cut in cuts):
            raise MeterError(
                f"{self.sensor.name} read {first_w:.4g} W throughout, also during work: it stands "
                "still or is too coarse. Measure longer steps, or with another meter."
            )
