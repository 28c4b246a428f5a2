"""Points that wait in the chunk graph's input buffer until they are learned together."""

from __future__ import annotations

from collections.abc import Callable

from edgefold.runtime.arrays import Array
from edgefold.runtime.points import PointBuffers
from edgefold.runtime.state_buffers import Step

FEW = 4
"""A remainder of up to this many points is learned one by one: a padded chunk would take longer."""


class ChunkBuffer:
    """Fills the buffer of the graph `condition`, and learns it a chunk at a time.

    Args:
        chunk: The step that learns many points.
        one: The step that learns one.
        learn: Runs a step on so many points and commits it.

    Attributes:
        n_points: Points in the buffer.
    """

    def __init__(self, chunk: Step, one: Step, learn: Callable[[Step, int], None]):
        self._chunk, self._one, self._learn = chunk, one, learn
        self._roles = [role for role in ("points.x", "points.y") if role in chunk.inputs]
        self.n_points = 0

    def clear(self) -> None:
        """Forget what waits."""
        self.n_points = 0

    def add(self, given: list[tuple[PointBuffers, Array]], n: int, keep: bool) -> None:
        """Take n points of each given array, (B, n, columns), and learn every full chunk.

        Args:
            given: Arrays and what scales them into the buffer.
            n: Points of each.
            keep: Whether a remainder may wait; else it is learned, or after an error forgotten.
        """
        done = 0
        while done < n:
            start = self.n_points
            stop = min(start + n - done, self._chunk.width)
            for buffers, values in given:
                rows = values if stop - start == n else values[:, done : done + stop - start]
                buffers.into(self._chunk.inputs[buffers.role][:, start:stop], rows)
            self.n_points = stop
            done += stop - start
            if stop == self._chunk.width:
                self.flush(keep)
        if not keep:
            self.flush(keep)

    def flush(self, keep: bool) -> None:
        """Learn what waits; see `add`."""
        n = self.n_points
        if not n:
            return
        try:
            if n <= FEW:
                self._learn_singly()
            else:
                mask = self._chunk.inputs["points.mask"]
                mask.fill(0)
                mask[:, :n] = 1
                self._learn(self._chunk, n)
                self.n_points = 0
        finally:
            if not keep:
                self.n_points = 0

    def _learn_singly(self) -> None:
        while self.n_points:
            for role in self._roles:
                self._one.inputs[role][:] = self._chunk.inputs[role][:, :1]
            self._learn(self._one, 1)
            self.n_points -= 1
            for role in self._roles:
                rows = self._chunk.inputs[role]
                rows[:, : self.n_points] = rows[:, 1 : self.n_points + 1]
