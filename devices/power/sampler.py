"""Sample a sensor on its own clock while the measured work runs.

    slot     0         1         2         3         4
          ───┬────x────┬x────────┬───────x─┬─────────┬──x───> time
               sample    sample        sample  missed

Each period has one sample, for power at a random place within it: with equal distances, work that
repeats every period would be met at the same point each time, and a false mean would look certain.
A counter integrates by itself and is read at equal distances. Samples carry the time at which the
read returned: a read may wait for the sensor, and its value is never newer than that.

`Sampler` takes one sample a call and says when the next is due; `SamplerThread` calls it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from edgefold.devices.power.sensor import EnergySensor, PowerSensor
from edgefold.devices.power.statistics import FloatArray
from edgefold.runtime.errors import MeterError

MIN_PERIOD_S = 0.02  # 50 a second: a read through i2c takes about a millisecond of the processor
MAX_POWER_W = 1e6  # no machine that is meant draws it; a counter that was reset seems to


@dataclass(frozen=True, slots=True)
class Trace:
    """Holds the N samples that were read from a sensor.

    Attributes:
        times_s: Times when the reads of the samples returned, (N,), increasing.
        readings: Values as read, (N,): W of a power sensor, J of a counter.
        energy_j: Energy accumulated until each sample, (N,): a counter's value, or power
            integrated by the trapezoid rule.
        missed_s: Ends of the periods (slots) that passed without a sample.
    """

    times_s: FloatArray
    readings: FloatArray
    energy_j: FloatArray
    missed_s: FloatArray


class Sampler:
    """Takes samples of one sensor, one at each call of `sample`.

    Args:
        sensor: Sensor from which power or energy is read.
        clock: Returns seconds that never run backwards, such as time.monotonic.
        period_s: Seconds between samples; None for the shortest that serves the sensor.

    Attributes:
        counts: Whether the sensor is a counter, which accumulates energy by itself.
        start_s, due_s: Time when the sampler was made, and time when the next sample is due.
        latest_s: Time when the latest sample was taken.
        read: Reads the sensor and returns watts, or joules of a counter.
    """

    def __init__(
        self,
        sensor: PowerSensor | EnergySensor,
        clock: Callable[[], float],
        period_s: float | None = None,
    ) -> None:
        self.sensor = sensor
        self.counts = isinstance(sensor, EnergySensor)
        self.period_s = period_s or max(sensor.period_s, MIN_PERIOD_S)
        self._clock = clock
        self.read, self._max_gap_s = (
            (sensor.read_j, sensor.max_gap_s)
            if isinstance(sensor, EnergySensor)
            else (sensor.read_w, float("inf"))
        )
        self._place = random.Random(0).random
        self.start_s = clock()
        self._slot = -1
        self._times_s: list[float] = []
        self._readings: list[float] = []
        self._missed_s: list[float] = []
        self._failure: MeterError | None = None
        self._lock = threading.Lock()
        self.due_s = self.latest_s = self.start_s

    def sample(self) -> None:
        """Take a sample now. A failure is kept and ends the sampling; `trace` raises it."""
        with self._lock:
            if self._failure is not None:
                return
            try:
                self._next_slot(self._clock())
                reading = self.read()
                self._append(self._clock(), reading)
            except MeterError as error:
                self._failure = error
                self.due_s = float("inf")

    def _next_slot(self, now_s: float) -> None:
        slot = int((now_s - self.start_s) / self.period_s)
        for missed in range(self._slot + 1, slot):
            self._missed_s.append(self.start_s + (missed + 1) * self.period_s)
        self._slot = max(slot, self._slot)
        place = 0.5 if self.counts else self._place()
        self.due_s = self.start_s + (slot + 1 + place) * self.period_s

    def _append(self, now_s: float, reading: float) -> None:
        gap_s = now_s - self._times_s[-1] if self._times_s else 0.0
        self._require_possible(reading, gap_s)
        if self._times_s and gap_s <= 0:  # two at one instant of the clock: the later replaces it
            self._times_s.pop()
            self._readings.pop()
        self._times_s.append(now_s)
        self._readings.append(reading)
        self.latest_s = now_s

    def _require_possible(self, reading: float, gap_s: float) -> None:
        """Raise MeterError for a reading, or a pause before it, that no working sensor shows."""
        name = self.sensor.name
        if gap_s > self._max_gap_s:
            raise MeterError(
                f"{name} was not read for {gap_s:.0f} s and may have wrapped more than once; it "
                f"must be read at least every {self._max_gap_s:.0f} s."
            )
        if not self.counts:
            if not abs(reading) <= MAX_POWER_W:  # also what is not a number
                raise MeterError(f"{name} read {reading:.4g} W, which no machine draws.")
        elif self._readings:
            moved_j = reading - self._readings[-1]
            if not 0 <= moved_j <= MAX_POWER_W * max(gap_s, self.period_s):
                raise MeterError(
                    f"{name} moved by {moved_j:.4g} J in {gap_s:.3g} s, which no machine uses: it "
                    "was reset on the way, or counts wrongly. Measure again."
                )

    def trace(self) -> Trace:
        """Return all samples so far.

        Raises:
            MeterError: The sensor failed meanwhile, so the run has no figure.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            times_s, readings = np.array(self._times_s), np.array(self._readings)
            missed_s = np.array(self._missed_s)
        energy_j = readings
        if not self.counts:
            steps_j = np.diff(times_s) * (readings[1:] + readings[:-1]) / 2
            energy_j = np.concatenate([[0.0], np.cumsum(steps_j)])
        return Trace(times_s, readings, energy_j, missed_s)

    def run(self, wait: Callable[[float], bool]) -> None:
        """Take each sample when it is due, until `wait(seconds)` returns True."""
        while not wait(max(0.0, min(self.due_s - self._clock(), 1.0))):
            if self._clock() >= self.due_s:
                self.sample()


class SamplerThread:
    """Runs a sampler in a thread while the context is open."""

    def __init__(self, sampler: Sampler) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=sampler.run, args=(self._stop.wait,), name="power-sampler", daemon=True
        )

    def __enter__(self) -> SamplerThread:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
