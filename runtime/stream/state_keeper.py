"""Reset, save, restore, exchange and merge the state of a stream as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import BundleError, SnapshotError
from edgefold.runtime.stream.call_guard import OneCaller, one_call
from edgefold.runtime.stream.point_updates import ChunkBuffer, refuse_overflow, require_finite
from edgefold.runtime.stream.snapshot import (
    MOST_POINTS,
    SnapshotRecord,
    path_of,
    read_snapshot,
    write_snapshot,
)
from edgefold.runtime.stream.state_buffers import StateBuffers, Step, seeds_of

if TYPE_CHECKING:
    from edgefold.runtime.stream.state_slots import StateSlots


class StateKeeper(OneCaller):
    """Resets, saves, restores, exchanges and merges states: a base class of `Stream`.

    Attributes:
        manifest: The bundle's manifest.
    """

    manifest: Manifest
    _state: StateBuffers
    _chunks: ChunkBuffer | None
    _merge: Step | None

    def _learn_waiting(self) -> None:
        if self._chunks is not None:
            self._chunks.flush()

    @one_call
    def reset(self, seed: int | Sequence[int] | None = None) -> None:
        """Forget all points, including those that wait in a buffer.

        Args:
            seed: The seed of the model's random numbers, as in `Stream.open`; None keeps the last
                seed.

        Raises:
            ValueRefusedError: The bundle takes no seed, or not this one; nothing changed.
        """
        self._state.reset(None if seed is None else seeds_of(self.manifest, seed))

    @one_call
    def save(self, path: str | Path, extra: Mapping[str, Array] | None = None) -> None:
        """Learn waiting points and write a snapshot of the state to a file, atomically.

        Args:
            path: The file; an older one is replaced only when the new snapshot is whole and on
                disk.
            extra: The caller's own arrays by name, which are saved in the same file and returned by
                `restore`.

        Raises:
            SnapshotError: The file system refused, the state is not finite, or `extra` is larger
                than 1 GiB; an older snapshot is intact.
            BackendError, StepRefusedError: The state could not be updated or read.
        """
        self._learn_waiting()
        state = self._state
        tensors, at = state.read(), state.at
        record = SnapshotRecord(self.manifest.bundle_hash, at.n_points, at.n_recent)
        write_snapshot(path_of(path), record, tensors, extra or {}, state.not_finite)

    @one_call
    def restore(self, path: str | Path) -> dict[str, Array]:
        """Replace the state by that of a snapshot, and return the arrays `extra` of `save`.

        A file that is damaged, or that no stream of this bundle can have written, is refused. If
        somebody changed the numbers and the checksum, the change is not noticed; if the numbers
        are absurd, the next call raises StepRefusedError.

        Raises:
            SnapshotError: The file is missing, damaged, of another bundle, or not finite; the
                state does not change.
            BackendError: The new state could not be written; the state does not change.
        """
        buffers = self._state
        record, state, extra = read_snapshot(path_of(path), self.manifest, buffers.not_finite)
        buffers.load(state, record.n_points, record.n_recent)
        return extra

    @one_call
    def merge(self, path: str | Path) -> dict[str, Array]:
        """Learn what the stream of a snapshot has learned, and return the arrays `extra` of `save`.

        The state knows the points of both streams afterwards, as if one had learned them all; those
        of each stream of a batch join those of the same stream. The two must have no point in
        common: it would count twice.

        Raises:
            SnapshotError: The file is missing, damaged, of another bundle, or not finite.
            CapacityError: There is no `room` for the points of both.
            BundleError: The bundle has no graph `merge`, because its model's states do not join.
            BackendError, StepRefusedError: The step failed. After any error the state is as before.
        """
        self._require_merge()
        record, state, extra = read_snapshot(path_of(path), self.manifest, self._state.not_finite)
        self._join(state, record.n_points, record.n_recent)
        return extra

    @one_call
    def merge_slot(self, slots: StateSlots, index: int) -> None:
        """Learn what the state in a slot has learned, as `merge` does of a snapshot.

        Args:
            slots: Memory for several states (slots), made for the same bundle.
            index: The number of the slot, from 0 on.

        Raises:
            SnapshotError: The slots belong to another bundle, or no slot has this number.
            BundleError, CapacityError, BackendError, StepRefusedError: As in `merge`.
        """
        self._require_merge()
        self._join(*slots.read(index, self.manifest.bundle_hash))

    def _require_merge(self) -> None:
        if self._merge is None:
            raise BundleError(
                f"{self.manifest.path} has no graph merge, so that two of its states do not join: "
                "learn the points of one in the other. docs/models.md lists the models that merge; "
                "one of those that was exported by an older version must be exported again."
            )

    def _join(self, other: Mapping[str, Array], n_points: int, n_recent: int) -> None:
        """Run the step `merge` on another state, and commit its result."""
        step, state, manifest = self._merge, self._state, self.manifest
        assert step is not None
        at = state.settled()
        if manifest.room is not None and at.n_points + at.n_waiting + n_points > manifest.room:
            refuse_overflow(manifest, at.n_points + at.n_waiting, n_points)
        if at.n_points + n_points >= MOST_POINTS:
            raise SnapshotError(
                f"both states together count {at.n_points + n_points} points, and a stream counts "
                f"at most {MOST_POINTS - 1}; the state is as before."
            )
        for name, array in step.others.items():
            np.copyto(array, other[name])
        step.run(at.sides)
        require_finite(step)
        recent = 0 if manifest.consolidate_every else at.n_recent + n_recent
        state.at = at._replace(
            sides=at.sides ^ step.flip, n_points=at.n_points + n_points, n_recent=recent, rows=()
        )

    @one_call
    def take(self, slots: StateSlots, index: int) -> None:
        """Learn waiting points and copy the state into a slot; on an error the slot is unchanged.

        Args:
            slots: Memory for several states (slots), made for the same bundle.
            index: The number of the slot, from 0 on.

        Raises:
            SnapshotError: The slots belong to another bundle, or no slot has this number.
            BackendError, StepRefusedError: The state could not be updated or read.
        """
        self._learn_waiting()
        tensors, at = self._state.read(), self._state.at
        slots.keep(index, self.manifest.bundle_hash, tensors, at.n_points, at.n_recent)

    @one_call
    def put(self, slots: StateSlots, index: int) -> None:
        """Replace the state by the one in a slot; on an error the state does not change.

        Args:
            slots: Memory for several states (slots), made for the same bundle.
            index: The number of the slot, from 0 on.

        Raises:
            SnapshotError: The slots belong to another bundle, or no slot has this number.
            BackendError: The state could not be written.
        """
        self._state.load(*slots.read(index, self.manifest.bundle_hash))

    @one_call
    def state(self) -> dict[str, Array]:
        """Learn waiting points and return copies of the state's tensors by name, for tests."""
        self._learn_waiting()
        return self._state.read()
