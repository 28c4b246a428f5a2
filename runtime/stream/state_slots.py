"""Hold the states of several sensors that share one stream, in memory that is allocated once.

    sensor a's row ──> take the state of b into its slot ──> put the state of a ──> query, update

So a bundle of one stream serves many sensors, one row after the other: its graphs, weights and
buffers exist once, and each sensor adds one copy of the state. The methods `take` and `put` of
`edgefold.runtime.stream.stream.Stream` do the copying.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.stream.provenance import (
    NO_PIECES,
    Piece,
    Provenance,
    as_array,
    read_provenances,
)
from edgefold.runtime.stream.snapshot import MOST_POINTS
from edgefold.runtime.stream.state_buffers import KeptState, initial_value

POINTS = ("n_points", "n_recent")
PIECES = "pieces"
"""The array of this name, among those of all slots, states which rows they have learned."""


class StateSlots:
    """Holds n states of one bundle, each in its slot, which begins as the state without points.

    Args:
        manifest: The bundle's manifest.
        n: The number of slots, at least 1.

    Attributes:
        bundle_hash: The hash of the bundle to which the states belong.
        n_points: The number of points in each state, (n,).
        n_recent: The number of points in each state since the step `consolidate` last ran, (n,).
    """

    def __init__(self, manifest: Manifest, n: int):
        self.bundle_hash = manifest.bundle_hash
        self._tensors = {
            tensor.name: np.empty((n, *tensor.shape), tensor.dtype) for tensor in manifest.state
        }
        self._not_finite = set()  # tensors that hold infinity or NaN before the first point
        for tensor in manifest.state:
            self._tensors[tensor.name][:] = value = initial_value(manifest, tensor)
            if not _is_finite(value):
                self._not_finite.add(f"state.{tensor.name}")
        self.n_points, self.n_recent = np.zeros((2, n), np.int64)
        self._stated = [NO_PIECES.stated] * n

    def state(self, index: int) -> dict[str, Array]:
        """Return views of a slot's tensors by name; the slot's next `keep` overwrites them."""
        return {name: tensors[index] for name, tensors in self._tensors.items()}

    def read(self, index: int, bundle_hash: str) -> KeptState:
        """Return a slot's state, with views of its tensors.

        Args:
            index: The number of the slot, from 0 on.
            bundle_hash: The hash of the bundle of the stream that will get the state.

        Raises:
            SnapshotError: The slots belong to another bundle, or no slot has this number.
        """
        self._require(index, bundle_hash)
        counts = int(self.n_points[index]), int(self.n_recent[index])
        return KeptState(self.state(index), *counts, self._stated[index])

    def keep(self, index: int, bundle_hash: str, state: KeptState) -> None:
        """Copy a state into a slot; an interrupt leaves the slot unchanged.

        Args:
            index: The number of the slot, from 0 on.
            bundle_hash: The hash of the bundle to which the state belongs.
            state: The state.

        Raises:
            SnapshotError: The slots belong to another bundle, or no slot has this number.
        """
        self._require(index, bundle_hash)
        values: list[tuple[Array, Any]] = [
            *((tensors, state.tensors[name]) for name, tensors in self._tensors.items()),
            (self.n_points, state.n_points),
            (self.n_recent, state.n_recent),
        ]
        before = [tensors[index].copy() for tensors, _ in values]
        stated = self._stated[index]
        try:
            for tensors, value in values:
                tensors[index] = value
            self._stated[index] = state.stated
        except BaseException:
            for (tensors, _), value in zip(values, before, strict=True):
                tensors[index] = value
            self._stated[index] = stated
            raise

    def provenance(self, index: int) -> Provenance:
        """Return the pieces that state which rows a slot's state has learned."""
        return self._stated[index]

    def learned(self, index: int, piece: Piece) -> None:
        """State which rows points of a slot's state are, as `Stream.learned` does.

        Args:
            index: The number of the slot, from 0 on.
            piece: The rows; no more of their points than the state has of unknown rows.

        Raises:
            OverlapError: A row of the piece has been stated before.
            SnapshotError: The piece counts more points than the state has of unknown rows.
        """
        self._stated[index] = self._stated[index].state(piece, int(self.n_points[index]))

    def _require(self, index: int, bundle_hash: str) -> None:
        if bundle_hash != self.bundle_hash:
            raise SnapshotError("these slots hold states of another bundle; make new ones.")
        n = len(self.n_points)
        if not 0 <= index < n:
            raise SnapshotError(f"slot {index} was asked for, and there are {n}: 0 to {n - 1}.")

    def arrays(self, n: int) -> dict[str, Array]:
        """Return what a snapshot must keep of the first n slots, by name.

        These are views of all tensors and counts, and the pieces as text, if there are any.
        """
        stated = [each.to_form() for each in self._stated[:n]]
        pieces = {PIECES: as_array(stated)} if any(stated) else {}
        return {**self._places(n), **pieces}

    def _places(self, n: int) -> dict[str, Array]:
        """Return views of all tensors and counts of the first n slots, by name."""
        states = {f"state.{name}": tensors[:n] for name, tensors in self._tensors.items()}
        return {**states, **{name: getattr(self, name)[:n] for name in POINTS}}

    def load(self, arrays: Mapping[str, Any], n: int) -> None:
        """Copy the arrays that `arrays` returned for n slots into the first n; or change nothing.

        Raises:
            SnapshotError: Arrays are missing, have another shape or type, or hold impossible
                values: infinity where no state begins with it, counts that no stream can have, or
                pieces of more points than a state counts.
        """
        places = self._places(n)
        for name, place in places.items():
            array = arrays.get(name)
            if array is None or (array.shape, array.dtype) != (place.shape, place.dtype):
                raise SnapshotError(
                    f"the snapshot's {name} of {n} streams is missing or of another shape than "
                    f"{place.shape} {place.dtype}; use an older copy, or start without it."
                )
            if name not in POINTS and name not in self._not_finite and not _is_finite(array):
                raise SnapshotError(
                    f"the snapshot's {name} of {n} streams holds values that no state can have; "
                    "use an older copy, or start without it."
                )
        n_points, n_recent = (arrays[name] for name in POINTS)
        ordered = (n_recent >= 0) & (n_recent <= n_points) & (n_points < MOST_POINTS)
        if not ordered.all():
            raise SnapshotError(
                f"the snapshot's counts of points of {n} streams are such that no stream can have "
                "them; use an older copy, or start without it."
            )
        pieces = arrays.get(PIECES)
        stated = [NO_PIECES.stated] * n
        if pieces is not None:
            stated = read_provenances(pieces, n_points.tolist())
        for name, place in places.items():
            np.copyto(place, arrays[name])
        self._stated[:n] = stated


def _is_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
