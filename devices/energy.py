"""Energy of a stretch of work above the machine's idle power, in joules.

    measure_idle()          start()   poll()   poll()   stop()
    ──┬───────────────────────┬─────────┬────────┬────────┬──> time
      │<- nothing runs ------>│<--------- window --------->│
                               energy = counter(stop) - counter(start) - idle_power * duration

A window shorter than `MIN_PERIODS` of the sensor's periods, or with fewer than `MIN_STEPS` of its
steps in it, is refused: its figure would be the sensor's rounding. Net energy may come out negative
near idle; it is returned as it is, because clamping would bias a mean. Nothing here estimates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from edgefold.devices.errors import MeterError

MIN_PERIODS = 100  # an edge of the window falls anywhere in a period: at most 2 % of the window
MIN_STEPS = 100


class EnergySensor(Protocol):
    """A source of accumulated energy; a sensor of power integrates its own samples."""

    @property
    def name(self) -> str:
        """What is read, for the report."""

    @property
    def period_s(self) -> float:
        """How often the hardware renews the value."""

    @property
    def step_j(self) -> float:
        """The smallest difference that it can show."""

    @property
    def max_gap_s(self) -> float:
        """The longest pause between two reads after which the sum is still certain."""

    def read_j(self) -> float:
        """Joules since the sensor was opened; raises MeterError when unreadable."""


@dataclass(frozen=True, slots=True)
class EnergyWindow:
    """What one window used."""

    total_j: float
    idle_power_w: float
    duration_s: float

    @property
    def net_j(self) -> float:
        """Above idle."""
        return self.total_j - self.idle_power_w * self.duration_s


class EnergyMeter:
    """Integrates one sensor over windows.

    Args:
        sensor: Where energy is read.
        clock: Seconds that never run backwards, such as time.monotonic.
    """

    def __init__(self, sensor: EnergySensor, clock: Callable[[], float]) -> None:
        self._sensor = sensor
        self._clock = clock
        self._idle_power_w: float | None = None
        self._start: tuple[float, float] | None = None
        self._last_s = 0.0

    @property
    def sensor(self) -> EnergySensor:
        """The sensor in use."""
        return self._sensor

    def measure_idle(self, sleep: Callable[[float], None], duration_s: float) -> float:
        """Mean power in watts while the caller's machine does nothing but `sleep`.

        Raises:
            MeterError: duration_s is too short for the sensor.
        """
        self._idle_power_w = None
        self._begin()
        end_s = self._last_s + duration_s
        while (left_s := end_s - self._clock()) > 0:
            sleep(min(left_s, self._sensor.max_gap_s / 2))
            self.poll()
        total_j, lasted_s = self._end()
        self._idle_power_w = total_j / lasted_s
        return self._idle_power_w

    def start(self) -> None:
        """Open a window; `measure_idle` comes first."""
        if self._idle_power_w is None:
            raise MeterError("The idle power is not known; call measure_idle() before start().")
        self._begin()

    def poll(self) -> None:
        """Read in passing, so that no wrap of the counter is missed: at least every `max_gap_s`.

        Raises:
            MeterError: The pause since the last read was too long to be certain of the sum.
        """
        self._read()

    def stop(self) -> EnergyWindow:
        """Close the window.

        Raises:
            MeterError: The window is too short for the sensor's period or step, was never opened,
                or was left unpolled for too long.
        """
        total_j, duration_s = self._end()
        assert self._idle_power_w is not None  # start() saw to it
        return EnergyWindow(total_j, self._idle_power_w, duration_s)

    def _begin(self) -> None:
        self._last_s = self._clock()
        self._start = (self._last_s, self._sensor.read_j())

    def _read(self) -> float:
        now_s = self._clock()
        gap_s, self._last_s = now_s - self._last_s, now_s
        if gap_s > self._sensor.max_gap_s:
            self._start = None
            raise MeterError(
                f"{self._sensor.name} was not read for {gap_s:.0f} s and may have wrapped more "
                f"than once; poll at least every {self._sensor.max_gap_s:.0f} s."
            )
        return self._sensor.read_j()

    def _end(self) -> tuple[float, float]:
        if self._start is None:
            raise MeterError("No window is open; call start() first.")
        (start_s, start_j), end_j = self._start, self._read()
        self._start = None
        total_j, duration_s = end_j - start_j, self._last_s - start_s
        sensor = self._sensor
        if duration_s < MIN_PERIODS * sensor.period_s:
            raise MeterError(
                f"A window of {duration_s:.3g} s is too short for {sensor.name}, which is renewed "
                f"every {sensor.period_s:.3g} s; measure for {MIN_PERIODS * sensor.period_s:.3g} s "
                "or more."
            )
        if total_j < MIN_STEPS * sensor.step_j:
            raise MeterError(
                f"{sensor.name} moved by {total_j:.3g} J in {duration_s:.3g} s, fewer than "
                f"{MIN_STEPS} of its steps of {sensor.step_j:.3g} J; it is too coarse for this "
                "window, or the machine does not feed it."
            )
        return total_j, duration_s
