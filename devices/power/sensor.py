"""The two kinds of sensors: of power at a moment, and of accumulated energy."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


class Sensor(Protocol):
    """The part that power and energy sensors share."""

    @property
    def name(self) -> str:
        """Name of the meter, for the report."""

    @property
    def rails(self) -> tuple[str, ...]:
        """Names of the rails or domains that are summed."""

    @property
    def scope(self) -> str:
        """A sentence on what the sum covers and what it leaves out."""

    @property
    def period_s(self) -> float:
        """Time between two renewals of the value."""


@runtime_checkable
class PowerSensor(Sensor, Protocol):
    """A sensor of the present power."""

    @property
    def step_w(self) -> float | None:
        """Smallest difference that it can show; None where the driver does not tell."""

    def read_w(self) -> float:
        """Return watts, which may be negative near zero; raises MeterError when unreadable."""


@runtime_checkable
class EnergySensor(Sensor, Protocol):
    """A counter of energy, which misses nothing between two reads."""

    @property
    def step_j(self) -> float:
        """Smallest difference that it can show."""

    @property
    def max_gap_s(self) -> float:
        """Longest pause between two reads after which the sum is still certain."""

    def read_j(self) -> float:
        """Return joules since the sensor was opened; raises MeterError when unreadable."""
