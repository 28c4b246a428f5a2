"""Describe the two kinds of sensors: of power, and of accumulated energy.

A value has an age. A sensor that averages returns the mean power of a stretch of time, and keeps
that mean until the next one is finished; how often it is worth reading is another question.

    power     ▁▁▁▁▁▁▁▁██████████████████████▁▁▁▁▁▁▁▁▁▁
    averages  ├───1───┼───2───┼───3───┼───4───┼───5───┤      each `memory_s` long
    value     │       │ mean 1│ mean 2│ mean 3│ mean 4│
    reads       x x x x x x x x x x x x x x x x x x x x      every `period_s`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


class RailSensor(Protocol):
    """Describes the properties that power and energy sensors share."""

    @property
    def name(self) -> str:
        """Return the name of the meter, for the report."""

    @property
    def rails(self) -> tuple[str, ...]:
        """Return the names of the rails or domains that are summed."""

    @property
    def scope(self) -> str:
        """Return words on which parts of the machine the rails cover, and which they leave out."""

    @property
    def period_s(self) -> float:
        """Return the shortest time in s between two reads that is useful, or that a read takes."""

    @property
    def memory_s(self) -> float:
        """Return the length in s of the sensor's averages; of a counter, the time between renewals.

        A value shows nothing that is more than two of these lengths old; 0 is a fresh value.
        """


@runtime_checkable
class PowerSensor(RailSensor, Protocol):
    """Describes a sensor of the present power."""

    @property
    def step_w(self) -> float | None:
        """Return the smallest difference in W that is shown; None where no driver states it."""

    def read_w(self) -> float:
        """Return the power in W, maybe negative near zero; raises MeterError when unreadable."""


@runtime_checkable
class ManyRails(Protocol):
    """Describes a sensor that reports which of its rails have never changed their reading."""

    @property
    def still_rails(self) -> tuple[str, ...]:
        """Return the names of the rails whose reading has never changed."""


class RailWatch:
    """Keeps which rails have changed their reading since the first one."""

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._moved: set[str] = set()

    def see(self, readings: Mapping[str, float]) -> None:
        """Compare readings, by the rail's name, with the first ones; note which rails changed."""
        for rail, reading in readings.items():
            if self._first.setdefault(rail, reading) != reading:
                self._moved.add(rail)

    @property
    def still(self) -> tuple[str, ...]:
        """Return the names of the rails whose reading has never changed."""
        return tuple(rail for rail in self._first if rail not in self._moved)


@runtime_checkable
class EnergySensor(RailSensor, Protocol):
    """Describes a counter of energy, which misses nothing between two reads."""

    @property
    def step_j(self) -> float:
        """Return the smallest difference that the counter can show, in J."""

    @property
    def max_gap_s(self) -> float:
        """Return the longest pause in s between two reads after which the sum is still certain."""

    def read_j(self) -> float:
        """Return the joules used since the sensor was opened; raises MeterError when unreadable."""
