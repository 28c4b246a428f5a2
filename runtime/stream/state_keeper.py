"""Reset, save, restore, exchange and merge the state of a stream, and state what it has learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Graph, Manifest
from edgefold.runtime.errors import BundleError, SnapshotError
from edgefold.runtime.stream.call_guard import OneCaller, one_call
from edgefold.runtime.stream.point_updates import ChunkBuffer, refuse_overflow, require_finite
from edgefold.runtime.stream.provenance import (
    PROVENANCE,
    RESERVED,
    Origin,
    Piece,
    Provenance,
    as_array,
    read_provenances,
    require_known,
)
from edgefold.runtime.stream.snapshot import (
    MOST_POINTS,
    SnapshotRecord,
    path_of,
    read_snapshot,
    write_snapshot,
)
from edgefold.runtime.stream.state_buffers import KeptState, StateBuffers, Step, seeds_of

if TYPE_CHECKING:
    from edgefold.runtime.stream.state_slots import StateSlots


class StateKeeper(OneCaller):
    """Resets, saves, restores, exchanges and merges states: a base class of `Stream`.

    Attributes:
        manifest: The bundle's manifest.
    """

    manifest: Manifest
    _state: StateBuffers
    _source: str | None
    _chunks: ChunkBuffer | None

    def _opened(self, graph: Graph) -> Step:
        """Return the step of a graph; the first call of one that `opens_late` opens it."""
        raise NotImplementedError

    def _kept(self) -> KeptState:
        """Return a copy of the state; no points wait."""
        tensors, at = self._state.read(), self._state.at
        return KeptState(tensors, at.n_points, at.n_recent, self.provenance)

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

    @property
    def provenance(self) -> Provenance:
        """Return the pieces that state which rows the stream has learned, buffered ones too.

        Points of `n_points` that no piece counts are of unknown rows.
        """
        at = self._state.at
        return at.origin.now(at.n_taken, self._source)

    @one_call
    def learned(self, piece: Piece) -> None:
        """State which rows the points are that the stream has just learned.

        Call it after `update`: if the program is interrupted between the two, the points are of
        unknown rows, so that a merge that may count them twice is refused. A stream that was opened
        with `source` states its points itself.

        Args:
            piece: The rows; no more of their points than the stream has of unknown rows.

        Raises:
            OverlapError: A row of the piece has been stated before.
            SnapshotError: The piece counts more points than the stream has of unknown rows.
        """
        state = self._state
        at = state.settled()
        stated = self.provenance.state(piece, at.n_taken)
        state.at = at._replace(rows=(), origin=Origin(stated, at.n_taken))

    @one_call
    def save(
        self, path: str | Path, extra: Mapping[str, Array] | None = None, durable: bool = True
    ) -> None:
        """Learn waiting points and write a snapshot of the state to a file, atomically.

        Args:
            path: The file; an older one is replaced only when the new snapshot is whole and on
                disk.
            extra: The caller's own arrays by name, which are saved in the same file and returned by
                `restore`; a name that begins with "edgefold." is reserved.
            durable: Whether the file is forced to the disk, which takes milliseconds. Without it a
                power cut soon after may lose the file: it suits whoever writes thousands of files,
                can write them again, and calls `os.sync` at the end.

        Raises:
            SnapshotError: The file system refused, the state is not finite, or `extra` is larger
                than 1 GiB or has a reserved name; an older snapshot is intact.
            BackendError, StepRefusedError: The state could not be updated or read.
        """
        extra = dict(extra or {})
        if reserved := [name for name in extra if name.startswith(RESERVED)]:
            raise SnapshotError(f"an extra array is called {reserved[0]!r}; choose another name.")
        self._learn_waiting()
        state = self._kept()
        record = SnapshotRecord(self.manifest.bundle_hash, state.n_points, state.n_recent)
        if state.stated.pieces:
            extra[PROVENANCE] = as_array([state.stated.to_form()])
        write_snapshot(path_of(path), record, state.tensors, extra, self._state.not_finite, durable)

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
        state, extra = self._read(path)
        self._state.load(state)
        return extra

    def _read(self, path: str | Path) -> tuple[KeptState, dict[str, Array]]:
        """Read the state of a snapshot, and the caller's arrays."""
        record, state, extra = read_snapshot(path_of(path), self.manifest, self._state.not_finite)
        array, stated = extra.pop(PROVENANCE, None), Provenance()
        if array is not None:
            (stated,) = read_provenances(array, [record.n_points])
        return KeptState(state, record.n_points, record.n_recent, stated), extra

    @one_call
    def merge(self, path: str | Path, disjoint: bool = False) -> dict[str, Array]:
        """Learn what the stream of a snapshot has learned, and return the arrays `extra` of `save`.

        The state knows the points of both streams afterwards, as if one had learned them all; those
        of each stream of a batch join those of the same stream. The two must have no point in
        common, since it would count twice: see `provenance`.

        Args:
            path: The snapshot.
            disjoint: Whether the caller knows that the points of unknown rows in one state are not
                in the other. They stay unknown.

        Raises:
            OverlapError: The two have a row in common, or points of unknown rows without
                `disjoint`.
            SnapshotError: The file is missing, damaged, of another bundle, or not finite.
            CapacityError: There is no `room` for the points of both.
            BundleError: The bundle has no graph `merge`, because its model's states do not join.
            BackendError, StepRefusedError: The step failed. After any error the state is as before.
        """
        self._require_merge()
        state, extra = self._read(path)
        self._join(state, disjoint)
        return extra

    @one_call
    def merge_slot(self, slots: StateSlots, index: int, disjoint: bool = False) -> None:
        """Learn what the state in a slot has learned, as `merge` does of a snapshot.

        Args:
            slots: Memory for several states (slots), made for the same bundle.
            index: The number of the slot, from 0 on.
            disjoint: As in `merge`.

        Raises:
            SnapshotError: The slots belong to another bundle, or no slot has this number.
            OverlapError, BundleError, CapacityError, BackendError, StepRefusedError: As in `merge`.
        """
        self._require_merge()
        self._join(slots.read(index, self.manifest.bundle_hash), disjoint)

    def _require_merge(self) -> None:
        if not self.manifest.of_step("merge"):
            raise BundleError(
                f"{self.manifest.path} has no graph merge, so that two of its states do not join: "
                "learn the points of one in the other. docs/models.md lists the models that merge; "
                "one of those that was exported by an older version must be exported again."
            )

    def _join(self, other: KeptState, disjoint: bool) -> None:
        """Run the step `merge` on another state, and commit its result."""
        state, manifest = self._state, self.manifest
        at, own, n_points = state.settled(), self.provenance, other.n_points
        if not disjoint:
            require_known(own, at.n_taken, other.stated, n_points)
        origin = Origin(own.join(other.stated), at.n_taken + n_points)
        if manifest.room is not None and at.n_taken + n_points > manifest.room:
            refuse_overflow(manifest, at.n_taken, n_points)
        if at.n_points + n_points >= MOST_POINTS:
            raise SnapshotError(
                f"both states together count {at.n_points + n_points} points, and a stream counts "
                f"at most {MOST_POINTS - 1}; the state is as before."
            )
        step = self._opened(manifest.of_step("merge")[0])
        for name, array in step.others.items():
            np.copyto(array, other.tensors[name])
        step.run(at.sides)
        require_finite(step)
        recent = 0 if manifest.consolidate_every else at.n_recent + other.n_recent
        state.at = at._replace(
            sides=at.sides ^ step.flip,
            n_points=at.n_points + n_points,
            n_recent=recent,
            rows=(),
            origin=origin,
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
        slots.keep(index, self.manifest.bundle_hash, self._kept())

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
        self._state.load(slots.read(index, self.manifest.bundle_hash))

    @one_call
    def state(self) -> dict[str, Array]:
        """Learn waiting points and return copies of the state's tensors by name, for tests."""
        self._learn_waiting()
        return self._state.read()
