"""Join snapshots of loops with several sensors, sensor by sensor, by their names.

A sensor that only one snapshot knows is taken over with its history and its counts. Of one that
both know the states are joined, and the history and the counts are those of the first snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.kept_arrays import as_part, part_of, require_same
from edgefold.runtime.loop.record import DAMAGE, RECORD
from edgefold.runtime.stream.snapshot import STREAMS
from edgefold.runtime.stream.state_slots import StateSlots

if TYPE_CHECKING:
    from edgefold.runtime.arrays import Array
    from edgefold.runtime.stream.provenance import Provenance
    from edgefold.runtime.stream.stream import Stream


class SensorStates:
    """Holds the sensors of one snapshot: their names, counts, states and further arrays.

    Args:
        stream: An open stream of the bundle.
        path: The snapshot.
        extra: The arrays that `Stream.restore` returned of it.

    Attributes:
        names: The names of the sensors, in the order of their first rows.
        states: The state of each sensor, in its slot.

    Raises:
        SnapshotError: The snapshot does not hold what a loop with several sensors writes.
    """

    def __init__(self, stream: Stream, path: Path, extra: dict[str, Array]):
        self._stream = stream
        try:
            self._form: dict[str, Any] = json.loads(extra[RECORD].tobytes())
            self.names: list[str] = list(self._form["names"])
            counts: list[Any] = list(self._form["sensors"])
        except DAMAGE as error:
            raise SnapshotError(
                f"snapshot {path} was not made by `edgefold run` ({error}); use another."
            ) from None
        arrays, n = part_of(extra, STREAMS), len(self.names)
        self.states = StateSlots(stream.manifest, max(n, 1))
        self.states.load(arrays, n)
        own = self.states.arrays(n).keys()
        further = {name: array for name, array in arrays.items() if name not in own}
        if len(counts) != n or any(array.shape[:1] != (n,) for array in further.values()):
            raise SnapshotError(
                f"snapshot {path} holds other arrays than those of its {n} sensors; use another."
            )
        self._further = [{k: a[i] for k, a in further.items()} for i in range(n)]
        self._counts = counts

    @property
    def provenances(self) -> list[Provenance]:
        """Return the pieces of each sensor's state."""
        return [self.states.provenance(number) for number in range(len(self.names))]

    @property
    def n_points(self) -> int:
        """Return the number of points of all sensors together."""
        return int(self.states.n_points[: len(self.names)].sum())

    def join(self, others: Sequence[SensorStates], disjoint: bool) -> None:
        """Learn what the sensors of other snapshots have learned.

        Args:
            others: The sensors of the other snapshots.
            disjoint: As in `Stream.merge`.

        Raises:
            EdgefoldError: Two states do not join; this object is then of no use.
        """
        every = list(dict.fromkeys(name for each in (self, *others) for name in each.names))
        states = StateSlots(self._stream.manifest, max(len(every), 1))
        states.load(self.states.arrays(len(self.names)), len(self.names))
        self.states, stream = states, self._stream
        for other in others:
            for number, name in enumerate(other.names):
                if name not in self.names:
                    if self._further:
                        require_same(other._further[number], self._further[0])
                    stream.put(other.states, number)
                    self.names.append(name)
                    self._further.append(other._further[number])
                    self._counts.append(other._counts[number])
                else:
                    stream.put(states, self.names.index(name))
                    stream.merge_slot(other.states, number, disjoint)
                stream.take(states, self.names.index(name))

    def arrays(self) -> dict[str, Array]:
        """Return the arrays of a snapshot of all sensors, but for those of the input's history."""
        form = {**self._form, "names": self.names, "sensors": self._counts}
        stacked = self.states.arrays(len(self.names))
        for key in self._further[0] if self._further else ():
            stacked[key] = np.stack([each[key] for each in self._further])
        record = np.frombuffer(json.dumps(form).encode(), np.uint8)
        return {RECORD: record, **as_part(stacked, STREAMS)}
