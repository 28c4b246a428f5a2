"""Hold the states of several sensors that share one stream, in memory that is allocated once.

    sensor a's row ──> take the state of b into its slot ──> put the state of a ──> query, update

So a bundle of one stream serves many sensors in turn: its graphs, weights and buffers exist once,
and each sensor adds one copy of the state. `edgefold.runtime.stream.stream.Stream` does the
copying.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.stream.snapshot import MOST_POINTS
from edgefold.runtime.stream.state_buffers import initial_value

POINTS = ("n_points", "n_recent")


class StateSlots:
    """Fixed memory for n states of one bundle; each begins as the state before the first point.

    Args:
        manifest: The bundle's manifest.
        n: Number of slots, from 1 on.

    Attributes:
        bundle_hash: Hash of the bundle whose states these are.
        n_points: Number of points in each state, (n,).
        n_recent: Number of points of each since its last consolidation, (n,).
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

    def state(self, index: int) -> dict[str, Array]:
        """Return a slot's tensors: views, which the next `keep` overwrites."""
        return {name: tensors[index] for name, tensors in self._tensors.items()}

    def read(self, index: int, bundle_hash: str) -> tuple[dict[str, Array], int, int]:
        """Return a slot's tensors, `n_points` and `n_recent`, for a stream of a bundle.

        Raises:
            SnapshotError: The slots are of another bundle, or there is no slot of this number.
        """
        self._require(index, bundle_hash)
        return self.state(index), int(self.n_points[index]), int(self.n_recent[index])

    def keep(
        self,
        index: int,
        bundle_hash: str,
        state: Mapping[str, Array],
        n_points: int,
        n_recent: int,
    ) -> None:
        """Copy a state into a slot; an interrupt leaves the slot unchanged. Raises as `read`."""
        self._require(index, bundle_hash)
        values: list[tuple[Array, Any]] = [
            *((tensors, state[name]) for name, tensors in self._tensors.items()),
            (self.n_points, n_points),
            (self.n_recent, n_recent),
        ]
        before = [tensors[index].copy() for tensors, _ in values]
        try:
            for tensors, value in values:
                tensors[index] = value
        except BaseException:
            for (tensors, _), value in zip(values, before, strict=True):
                tensors[index] = value
            raise

    def _require(self, index: int, bundle_hash: str) -> None:
        if bundle_hash != self.bundle_hash:
            raise SnapshotError("these slots hold states of another bundle; make new ones.")
        n = len(self.n_points)
        if not 0 <= index < n:
            raise SnapshotError(f"slot {index} was asked for, and there are {n}: 0 to {n - 1}.")

    def arrays(self, n: int) -> dict[str, Array]:
        """Return views of the first n slots by name, for a snapshot."""
        states = {f"state.{name}": tensors[:n] for name, tensors in self._tensors.items()}
        return {**states, **{name: getattr(self, name)[:n] for name in POINTS}}

    def load(self, arrays: Mapping[str, Any], n: int) -> None:
        """Take over the arrays that `arrays` returned for n slots; a refusal changes nothing.

        Raises:
            SnapshotError: Arrays are missing, of another shape or type, or hold impossible values:
                infinity where no state begins with it, or counts that no stream can have.
        """
        places = self.arrays(n)
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
        for name, place in places.items():
            np.copyto(place, arrays[name])


def _is_finite(array: Array) -> bool:
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())
