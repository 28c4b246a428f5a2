"""Keep the states of several named sensors that share one stream, and exchange them.

    first sensor      its state is the stream's; it gets a slot when a second one comes
    several           each has a slot; a row makes its sensor's state the present one

A slot is memory for one state. Slots are reserved at the start, or grow with the number of sensors.
The caller keeps everything else of a sensor, and gives it to a snapshot together with the state.

A row of a sensor may change the state by several steps of the model, and what the caller keeps. An
error or Ctrl-C may end the call between any two lines. So `learn` notes first what it is about to
do, and the note stays until all is done. `settle`, with which every call begins, reads it:

    the model has learned all slots of the row  -> the caller's changes are made (again)
    some of them                                -> the state is put back
    none                                        -> nothing happened
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError, SnapshotError
from edgefold.runtime.kept_arrays import as_part, part_of
from edgefold.runtime.rows.csv_fields import plain
from edgefold.runtime.stream.provenance import Piece, Provenance
from edgefold.runtime.stream.snapshot import STREAMS
from edgefold.runtime.stream.state_slots import StateSlots

if TYPE_CHECKING:
    from edgefold.runtime.predictions import Prediction
    from edgefold.runtime.stream.stream import Stream

MOST_SENSORS = 10_000
"""The largest number of sensors that share one stream; if there are more, a column that is taken
for names probably holds no names."""
LISTED = 8


class Keeper(Protocol):
    """Keeps the data of one sensor that a snapshot holds in addition to the sensor's state."""

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of this sensor by name; their shapes are equal for all sensors."""

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the arrays that `arrays` returned; raise SnapshotError if they are damaged."""


class _Begun(NamedTuple):
    """Notes a change of the stream's state that has begun.

    Attributes:
        name: The name of the sensor, whose state is the stream's.
        number: The number of its slot.
        n_before: The number of points in the state before the change.
        n_after: The number of points after it.
        finish: Function that makes the caller's changes, and may be called twice.
    """

    name: str
    number: int
    n_before: int
    n_after: int
    finish: Callable[[], None]


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
        self._present: int | None = None  # the stream's state; None if all states are in slots
        self._begun: _Begun | None = None
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
    def n_points(self) -> int:
        """Return how many points the present state has learned."""
        return self.stream.n_points

    @property
    def n_bytes(self) -> int:
        """Return how many bytes the memory for the sensors' states takes; 0 before it is needed."""
        if self._slots is None:
            return 0
        return sum(array.nbytes for array in self._slots.arrays(self.most).values())

    def number_of(self, name: str) -> int | None:
        """Return the number of a name, from 0 on; None for one that has not come."""
        return self._numbers.get(name)

    def begin_fresh(self) -> None:
        """Let the first sensor begin with a fresh state, although the stream has learned points."""
        self._slots_for(1)

    def turn_to(self, name: str) -> int:
        """Make the state of a sensor, known or new, the stream's state; return the name's number.

        Raises:
            DataError: The name is new, and as many names as may come have come already.
            BackendError: The states could not be exchanged; the stream's state is kept.
        """
        self._numbers[name] = number = self._show(name)
        return number

    def _show(self, name: str) -> int:
        """Do what `turn_to` does, but leave a new name unknown; return its future number."""
        self.settle()
        number = self._numbers.get(name, self.n)
        if number == self._present:
            return number
        if number == self.most:
            raise DataError(self._limit.format(n=number, names=listed(self.names)))
        if number > 0 or self._slots is not None:
            slots = self._slots_for(number + 1)
            if self._present is not None:
                self.stream.take(slots, self._present)
                self._present = None
            self.stream.put(slots, number)
        self._present = number
        return number

    def learn(
        self,
        name: str,
        x: FloatArray,
        prepare: Callable[[int, Prediction], None],
        finish: Callable[[], None],
    ) -> None:
        """Run the model once for each slot of a sensor's row: for all of them or for none.

        After an interrupt too, either the state has learned every slot, `finish` was called and the
        name is known, or nothing has changed.

        Args:
            name: The sensor's name, known or new.
            x: The model's inputs (n, X), one for each slot.
            prepare: Function that gets the number of each slot, from 0 on, and its prediction
                before the slot is learned; it computes what `finish` needs and changes nothing.
            finish: Function that makes the caller's changes; if it was interrupted, it is called
                again.

        Raises:
            DataError: The name is new, and as many names as may come have come already.
            BackendError, StepRefusedError: A step failed; nothing has changed.
        """
        number, stream = self._show(name), self.stream
        if len(x) > 1:
            self._hold()
        n_points = stream.n_points
        self._begun = _Begun(name, number, n_points, n_points + len(x), finish)
        try:
            for slot in range(len(x)):
                stream.step_with(x[slot : slot + 1], partial(prepare, slot))
        finally:
            self.settle()

    def present(self) -> dict[str, Array]:
        """Return the tensors of the present state; the next row of its sensor overwrites them."""
        self.settle()
        self._hold()
        assert self._present is not None and self._slots is not None
        return self._slots.state(self._present)

    def n_points_of(self, number: int) -> int:
        """Return how many points the state of a sensor has learned, by the sensor's number."""
        slots = self._slots_of(number)
        return self.stream.n_points if slots is None else int(slots.n_points[number])

    def provenance_of(self, number: int) -> Provenance:
        """Return the pieces of the state of a sensor, by the sensor's number."""
        slots = self._slots_of(number)
        return self.stream.provenance if slots is None else slots.provenance(number)

    def learned(self, number: int, piece: Piece) -> None:
        """State which rows points of a sensor's state are, as `Stream.learned` does."""
        slots = self._slots_of(number)
        if slots is None:
            self.stream.learned(piece)
        else:
            slots.learned(number, piece)

    def _slots_of(self, number: int) -> StateSlots | None:
        """Return the slots that hold a sensor's state; None if it is the stream's state."""
        self.settle()
        return None if number == self._present else self._slots

    def settle(self) -> None:
        """End what an interrupted call has begun: finish it, or put the state back."""
        begun = self._begun
        if begun is None:
            return
        n_points = self.stream.n_points
        if n_points == begun.n_after:
            begun.finish()
            self._numbers[begun.name] = begun.number
        elif n_points != begun.n_before:
            assert self._slots is not None
            self.stream.put(self._slots, begun.number)
        self._begun = None

    def _hold(self) -> None:
        """Copy the stream's state into its sensor's slot."""
        if self._present is not None:
            self.stream.take(self._slots_for(self._present + 1), self._present)

    def _slots_for(self, n: int) -> StateSlots:
        """Return slots for n or more states; if new ones must be made, they keep all states."""
        slots = self._slots
        n_before = 0 if slots is None else len(slots.n_points)
        if slots is None or n > n_before:
            size = min(max(n, n_before + n_before // 4), self.most)
            more = StateSlots(self.stream.manifest, size)
            if slots is not None:
                more.load(slots.arrays(n_before), n_before)
            self._slots = slots = more
        return slots

    def arrays(self, keepers: Sequence[Keeper]) -> dict[str, Array]:
        """Return the arrays that a snapshot must keep of all n sensors, stacked along a first axis.

        Args:
            keepers: For each name, in the order of `names`, the object that holds further data of
                this sensor.
        """
        self.settle()
        self._hold()
        n = self.n
        stacked = self._slots_for(max(n, 1)).arrays(n)
        for number, keeper in enumerate(keepers[:n]):  # one by one: all copies at once are large
            for name, array in keeper.arrays().items():
                if number == 0:
                    stacked[name] = np.empty((n, *array.shape), array.dtype)
                stacked[name][number] = array
        return as_part(stacked, STREAMS)

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
        own = part_of(arrays, STREAMS)
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
