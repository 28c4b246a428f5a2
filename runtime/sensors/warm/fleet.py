"""Lend new sensors the states of their siblings, and a stream that runs them."""

from __future__ import annotations

from collections.abc import Sequence

from edgefold.runtime.predictions import SensorForecast
from edgefold.runtime.sensors.forecasts import require_sensors
from edgefold.runtime.sensors.slots_ahead import SlotsAhead
from edgefold.runtime.sensors.warm.siblings import Sibling, slots_of
from edgefold.runtime.stream.state_slots import StateSlots
from edgefold.runtime.stream.stream import Stream


class Fleet:
    """Holds the siblings of all new sensors.

    Args:
        stream: An open stream of the bundle, which runs nothing else; the fleet's owner closes it.
        siblings: The siblings, at least one.
    """

    def __init__(self, stream: Stream, siblings: Sequence[Sibling]):
        self.stream, self.siblings = stream, siblings
        self.kind: SensorForecast = require_sensors(stream.manifest)
        self._spare: dict[int, StateSlots] = {}

    @property
    def n_bytes(self) -> int:
        """Return how many bytes the siblings of one new sensor take, in memory and in a snapshot.

        A sensor's watches take some more in memory.
        """
        n = len(self.siblings)
        states = sum(array.nbytes for array in self.spare(n).arrays(n).values())
        watch = sum(array.nbytes for array in self.siblings[0].watch.values())
        later = sum(array.nbytes for array in SlotsAhead(self.kind).arrays().values())
        return states + n * (2 * watch + later)

    def begun(self) -> StateSlots:
        """Return new slots with the siblings' states as they were when they were read."""
        return slots_of(self.siblings, self.stream.manifest)

    def empty(self, n: int) -> StateSlots:
        """Return new slots for n states."""
        return StateSlots(self.stream.manifest, n)

    def spare(self, n: int) -> StateSlots:
        """Return slots for n states into which the next row may write."""
        if n not in self._spare:
            self._spare[n] = self.empty(n)
        return self._spare[n]

    def take_back(self, slots: StateSlots) -> None:
        """Let the next row write into these slots, whose states nobody needs any more."""
        self._spare[len(slots.n_points)] = slots
