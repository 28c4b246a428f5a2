"""Keep the states of several named sensors that share one stream, and exchange them.

    first sensor      its state is the stream's; it gets a slot when a second one comes
    several           each has a slot; a row makes its sensor's state the present one

A slot is memory for one state. Slots are reserved at the start, or grow with the number of sensors.
The caller keeps everything else of a sensor, and gives it to a snapshot together with the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import DataError, SnapshotError
from edgefold.runtime.kept_arrays import as_part, part_of
from edgefold.runtime.rows.csv_fields import plain
from edgefold.runtime.stream.state_slots import StateSlots

if TYPE_CHECKING:
    from edgefold.runtime.stream.stream import Stream

MOST_SENSORS = 10_000
"""The largest number of sensors that share one stream; if there are more, a column that is taken
for names probably holds no names."""
PREFIX = "streams."
"""The prefix that a snapshot puts before the names of the sensors' arrays."""
LISTED = 8


class Keeper(Protocol):
    """Keeps the data of one sensor that a snapshot holds in addition to the sensor's state."""

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of this sensor by name; their shapes are equal for all sensors."""

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; raise SnapshotError if they are damaged."""


class NamedStates:
    """Gives each sensor a slot, memory for its state, and exchanges it with the stream's state.

    Args:
        stream: An open stream that has learned no points.
        most: The largest number of names that may come.
        limit: The message for one name too many, with places for `{n}` and `{names}`.
        are_reserved: Whether memory for all `most` states is allocated now.
    """

    def __init__(self, stream: Stream, most: int, limit: str, are_reserved: bool = False):
        self.stream, self.most, self._limit = stream, most, limit
        self._numbers: dict[str, int] = {}
        self._present: int | None = None
        self._slots: StateSlots | None = None
        if are_reserved:
            self._slots = StateSlots(stream.manifest, most)
            if stream.manifest.takes_seed:
                for number in range(most):  # each begins with the stream's seed
                    stream.take(self._slots, number)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names that have come, in the order of their first rows."""
        return tuple(self._numbers)

    @property
    def n(self) -> int:
        """Return how many names have come."""
        return len(self._numbers)

    @property
    def n_bytes(self) -> int:
        """Return how many bytes the memory for the sensors' states takes; 0 before it is needed."""
        if self._slots is None:
            return 0
        return sum(array.nbytes for array in self._slots.arrays(self.most).values())

    def number_of(self, name: str) -> int | None:
        """Return the number of a name, from 0 on; None for one that has not come."""
        return self._numbers.get(name)

    def turn_to(self, name: str) -> int:
        """Make the state of a sensor, known or new, the stream's state; return the name's number.

        Raises:
            DataError: The name is new, and as many names as may come have come already.
            BackendError: The states could not be exchanged; the stream's state is kept.
        """
        number = self._numbers.get(name)
        if number is not None and number == self._present:
            return number
        if number is None:
            number = len(self._numbers)
            if number == self.most:
                raise DataError(self._limit.format(n=number, names=listed(self.names)))
        if number > 0 or self._slots is not None:
            slots = self._slots_for(number + 1)
            if self._present is not None:
                self.stream.take(slots, self._present)
            self.stream.put(slots, number)
        self._present = self._numbers[name] = number
        return number

    def hold(self) -> None:
        """Copy the stream's state into its sensor's slot, for `put_back` or a snapshot."""
        if self._present is not None:
            self.stream.take(self._slots_for(self._present + 1), self._present)

    def put_back(self) -> None:
        """Replace the stream's state by the copy that `hold` made."""
        assert self._slots is not None and self._present is not None
        self.stream.put(self._slots, self._present)

    def _slots_for(self, n: int) -> StateSlots:
        """Return slots for n or more states; if new ones must be made, they keep all states."""
        slots = self._slots
        n_before = 0 if slots is None else len(slots.n_points)
        if slots is None or n > n_before:
            size = min(max(n, n_before + n_before // 4), self.most)
            self._slots = StateSlots(self.stream.manifest, size)
            if slots is not None:
                self._slots.load(slots.arrays(n_before), n_before)
        assert self._slots is not None
        return self._slots

    def arrays(self, keepers: Sequence[Keeper]) -> dict[str, Array]:
        """Return the arrays that a snapshot must keep of all n sensors, stacked along a first axis.

        Args:
            keepers: For each name, in the order of `names`, the object that holds further data of
                this sensor.
        """
        self.hold()
        n = self.n
        stacked = self._slots_for(max(n, 1)).arrays(n)
        for number, keeper in enumerate(keepers[:n]):  # one by one: all copies at once are large
            for name, array in keeper.arrays().items():
                if number == 0:
                    stacked[name] = np.empty((n, *array.shape), array.dtype)
                stacked[name][number] = array
        return as_part(stacked, PREFIX)

    def load(
        self, arrays: Mapping[str, Array], names: Sequence[str], keepers: Sequence[Keeper]
    ) -> None:
        """Restore the arrays that `arrays` returned; no row may have come before.

        Args:
            arrays: The arrays of the snapshot, which may hold others too.
            names: The sensors' names, in the order of their first rows.
            keepers: For each name, in the same order, the object that gets the sensor's further
                data; more of them are ignored.

        Raises:
            SnapshotError: There are more names than may come, or the arrays do not fit them.
        """
        n = len(names)
        if n > self.most:
            raise SnapshotError(
                f"the snapshot holds {n} streams ({listed(names)}), asked now are "
                f"{self.most}; give --streams {n} or more."
            )
        own = part_of(arrays, PREFIX)
        self._slots_for(max(n, 1)).load(own, n)
        for number, name in enumerate(names):
            keeper = keepers[number]
            wanted = keeper.arrays()
            present = {key for key in wanted if key in own and own[key].shape[:1] == (n,)}
            keeper.load({key: own[key][number] for key in present})
            self._numbers[name] = number


def listed(names: Sequence[str]) -> str:
    """Return the first few names as text for a message; unprintable characters are escaped."""
    shown = ", ".join(plain(name) for name in names[:LISTED])
    return shown + (", ..." if len(names) > LISTED else "")
