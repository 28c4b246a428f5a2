"""Learn points: run a step on them and commit its result, or leave the state unchanged.

points ──> one by one ─────────────────────────────────> [step] ──> commit
└──> the buffer of chunks, where they may wait ──>
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import CapacityError, StepRefusedError
from edgefold.runtime.stream.points import PointBuffers
from edgefold.runtime.stream.state_buffers import Commit, StateBuffers, Step

FEW = 4
"""The largest remainder of points that is learned one by one: a padded chunk would take longer."""
_new = tuple.__new__  # makes a `Commit` in a third of the time, which every update pays
Points = Sequence[tuple[PointBuffers, Array]]
"""Pairs of the buffers that scale points for a step, and an array of points (B, n, columns)."""


class Learner:
    """Runs steps on points and commits each run as a whole: its result becomes the state.

    Args:
        state: The state that the steps change.
        one: The step that learns one point.
        consolidate: The step that brings sums in the state into an accurate form, or None.
        every: The number of points between two runs of `consolidate`.
    """

    def __init__(self, state: StateBuffers, one: Step, consolidate: Step | None, every: int):
        self._state, self._one = state, one
        self._consolidate, self._every = consolidate, every

    def run(self, step: Step) -> Commit:
        """Run a step on the points in its buffers, and return the `Commit` from which it started.

        A `Commit` records which buffers hold the state. If the step `consolidate` is due, it runs
        first and is committed: it changes neither predictions nor the number of points.

        Raises:
            BackendError, StepRefusedError: A step failed; nothing of it is committed.
        """
        state, consolidate = self._state, self._consolidate
        at = state.at
        if at.rows:
            state.settled()
        if consolidate is not None and at.n_recent >= self._every:
            consolidate.run(at.sides)
            require_finite(consolidate)
            # Not `_replace`: CPython would keep a tuple of each call, up to 2,000 of them.
            sides, n_points, _, _, first, n_waiting, origin = at
            sides ^= consolidate.flip
            at = state.at = Commit(sides, n_points, 0, (), first, n_waiting, origin)
        step.run(at.sides)
        require_finite(step)
        if step.slots:
            require_slots(step)
        return at

    def commit(self, at: Commit, step: Step, n: int) -> None:
        """Make the result of a step that ran on n points the state.

        Args:
            at: The record of the state from which the step started, as `run` returned it.
            step: The step.
            n: The number of points.
        """
        sides, n_points, n_recent, _, first, n_waiting, origin = at
        rows = step.rows
        self._state.at = _new(
            Commit, (sides ^ step.flip, n_points + n, n_recent + n, rows, first, n_waiting, origin)
        )
        if rows:
            self._state.settled()

    def learn(self, step: Step, n: int) -> None:
        """Run a step on the n points in its buffers, and commit its result."""
        self.commit(self.run(step), step, n)

    def learn_each(self, points: Points, n: int) -> None:
        """Learn n points one by one."""
        for row in range(n):
            for buffers, rows in points:
                buffers.into(self._one.inputs[buffers.role], rows[:, row : row + 1])
            self.learn(self._one, 1)


class ChunkBuffer:
    """Collects points in the input buffer of the step that learns a chunk of them at once.

    The stream's `Commit`, the record of which buffers hold the state, also counts the points that
    wait here. After a step has learned points, one assignment replaces the record by one with the
    new state and a lower count, so that no point can be lost or learned twice.

    Args:
        state: The state that the steps change.
        learner: The object that runs the steps.
        chunk: The step that learns many points.
        one: The step that learns one point.
    """

    def __init__(self, state: StateBuffers, learner: Learner, chunk: Step, one: Step):
        self._state, self._learner = state, learner
        self._chunk, self._one = chunk, one
        self._roles = [role for role in ("points.x", "points.y") if role in chunk.inputs]

    def learn(self, points: Points, n: int) -> None:
        """Learn n points now, chunk by chunk; no other points may wait."""
        done = 0
        while done < n:
            count = min(n - done, self._chunk.width)
            self._place(points, n, done, count, 0)
            if count <= FEW:
                for row in range(count):
                    self._pass_on(row)
                    self._learner.learn(self._one, 1)
            else:
                self._show(count)
                self._learner.learn(self._chunk, count)
            done += count

    def keep(self, points: Points, n: int) -> None:
        """Put n points into the buffer, where they wait; learn each chunk that becomes full."""
        state, width, done = self._state, self._chunk.width, 0
        while done < n:
            sides, n_points, n_recent, rows, first, n_waiting, origin = state.at
            end = first + n_waiting
            count = min(n - done, width - end)
            self._place(points, n, done, count, end)
            state.at = _new(
                Commit, (sides, n_points, n_recent, rows, first, n_waiting + count, origin)
            )
            done += count
            if end + count == width:
                self.flush()

    def flush(self) -> None:
        """Learn all waiting points; after an error, points that are not learned yet still wait."""
        at = self._state.at
        if not at.n_waiting:
            return
        if at.n_waiting <= FEW or at.first:  # after an error the first ones may be learned already
            while self._state.at.n_waiting:
                self._pass_on(self._state.at.first)
                self._learn_waiting(self._one, 1)
        else:
            self._show(at.n_waiting)
            self._learn_waiting(self._chunk, at.n_waiting)

    def _learn_waiting(self, step: Step, n: int) -> None:
        at = self._learner.run(step)
        left = at.n_waiting - n
        self._learner.commit(
            at._replace(first=at.first + n if left else 0, n_waiting=left), step, n
        )

    def _place(self, points: Points, n: int, start: int, count: int, row: int) -> None:
        """Scale `count` of n points, from point `start` on, into the buffer's rows from `row`."""
        for buffers, values in points:
            part = values if count == n else values[:, start : start + count]
            buffers.into(self._chunk.inputs[buffers.role][:, row : row + count], part)

    def _pass_on(self, row: int) -> None:
        """Copy one row of the buffer into the buffers of the step that learns one point."""
        for role in self._roles:
            self._one.inputs[role][:] = self._chunk.inputs[role][:, row : row + 1]

    def _show(self, count: int) -> None:
        """Set the step's mask so that it learns the first `count` rows and ignores the others."""
        mask = self._chunk.inputs["points.mask"]
        mask.fill(0)
        mask[:, :count] = 1


def require_finite(step: Step) -> None:
    """Raise StepRefusedError for a step whose arithmetic was not finite."""
    finite = step.finite
    if finite is None:
        return
    sound = math.isfinite(finite.item()) if finite.size == 1 else np.isfinite(finite).all()
    if not sound:
        raise StepRefusedError(
            f"{step.graph.name} gave a non-finite result and was not committed; the state is "
            "as before. Check the values just given, the snapshot that was restored, if any, and "
            "the bundle with `edgefold check`."
        )


def require_slots(step: Step) -> None:
    """Raise StepRefusedError if a step would write a row to an index outside of a state tensor."""
    for slots, n_slots, name in step.slots:
        if slots.size == 1:  # one stream: an eighth of the time of the reductions
            sound = 0 <= slots.item() < n_slots
        else:
            sound = slots.min() >= 0 and slots.max() < n_slots
        if not sound:
            raise StepRefusedError(
                f"{step.graph.name} chose slots {slots.tolist()} for the ring {name}, which has "
                f"{n_slots}, and was not committed; the state is as before. Check the snapshot "
                "that was restored, if any, and the bundle with `edgefold check`."
            )


def refuse_overflow(manifest: Manifest, n_points: int, n: int) -> NoReturn:
    """Raise the CapacityError of a state that holds `n_points` and has no room for n more."""
    left = manifest.capacity - n_points
    raise CapacityError(
        f"{n} more points were given, and the state has room for {left}: it holds at most "
        f"{manifest.capacity} points and refuses more. Nothing was learned. Give {left} at most, "
        "begin again with reset(), or export the model with a larger capacity or with when_full "
        "set to overwrite or reservoir."
    )
