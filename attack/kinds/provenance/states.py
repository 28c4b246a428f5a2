"""The states of a history: provenances by themselves, or states of a stream in slots."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from attack.subjects import ROOT
from edgefold.runtime import Piece, Provenance, StateSlots, Stream
from edgefold.runtime.stream.provenance import (
    Origin,
    as_array,
    read_provenances,
    require_known,
)

BUNDLE = ROOT / "runtime/shipped_bundles/gp_tiny"


class States(Protocol):
    """Holds several states by their numbers, and the states that were saved.

    Attributes:
        source: The name of the source of all points that are learned; None if it is unknown.
    """

    source: str | None

    def learn(self, index: int, n: int) -> None:
        """Learn n points."""

    def learned(self, index: int, piece: Piece) -> None:
        """State which rows points are that were learned."""

    def merge(self, index: int, other: int, from_slot: bool, disjoint: bool) -> None:
        """Merge another state, or a saved one, into a state."""

    def save(self, index: int, place: int) -> None:
        """Save a state in one of the places."""

    def restore(self, index: int, place: int) -> None:
        """Replace a state by a saved one."""

    def reset(self, index: int) -> None:
        """Begin a state again."""

    def read(self, index: int) -> tuple[int, Provenance]:
        """Return the number of points of a state, and its pieces."""


class PlainStates:
    """Holds provenances without a stream; a saved one is the bytes that a snapshot holds."""

    def __init__(self, n: int, source: str | None):
        self.source = source
        self._states = [(0, Provenance())] * n
        self._saved: dict[int, tuple[int, bytes]] = {}

    def learn(self, index: int, n: int) -> None:
        n_points, stated = self._states[index]
        now = Origin(stated, n_points).now(n_points + n, self.source)
        self._states[index] = n_points + n, now

    def learned(self, index: int, piece: Piece) -> None:
        n_points, stated = self._states[index]
        self._states[index] = n_points, stated.state(piece, n_points)

    def merge(self, index: int, other: int, from_slot: bool, disjoint: bool) -> None:
        (n_own, own), (n_more, more) = (
            self._states[index],
            self._states[other] if from_slot else self._read(other),
        )
        if not disjoint:
            require_known(own, n_own, more, n_more)
        joined = own.join(more)
        assert joined == more.join(own) == Provenance(reversed((*own.pieces, *more.pieces)))
        self._states[index] = n_own + n_more, joined

    def save(self, index: int, place: int) -> None:
        n_points, stated = self._states[index]
        self._saved[place] = n_points, as_array([stated.to_form()]).tobytes()

    def restore(self, index: int, place: int) -> None:
        self._states[index] = self._read(place)

    def _read(self, place: int) -> tuple[int, Provenance]:
        n_points, text = self._saved[place]
        (stated,) = read_provenances(np.frombuffer(text, np.uint8), [n_points])
        return n_points, stated

    def reset(self, index: int) -> None:
        self._states[index] = 0, Provenance()

    def read(self, index: int) -> tuple[int, Provenance]:
        return self._states[index]


class StreamStates:
    """Holds states of the shipped bundle gp-tiny in slots, and exchanges them with one stream.

    Args:
        scratch: The folder of the snapshots.
        n: The number of states.
        buffered, source: As in `Stream.open`.
    """

    def __init__(self, scratch: Path, n: int, buffered: bool, source: str | None):
        self.source, self._scratch = source, scratch
        self._stream = Stream.open(BUNDLE, "onnxruntime", buffered=buffered, source=source)
        self._n, self._random = n, np.random.default_rng(0)

    def begin(self) -> None:
        """Begin all states again."""
        self._stream.reset()
        self._slots = StateSlots(self._stream.manifest, self._n)

    def learn(self, index: int, n: int) -> None:
        manifest, stream = self._stream.manifest, self._present(index)
        for part in (n // 2, n - n // 2):
            x = self._random.uniform(-1, 1, (part, manifest.n_inputs))
            stream.update(x, self._random.normal(size=(part, manifest.n_outputs)))
        stream.take(self._slots, index)

    def learned(self, index: int, piece: Piece) -> None:
        if self._random.random() < 0.5:
            self._slots.learned(index, piece)
        else:
            self._present(index).learned(piece)
            self._stream.take(self._slots, index)

    def merge(self, index: int, other: int, from_slot: bool, disjoint: bool) -> None:
        stream = self._present(index)
        if from_slot:
            stream.merge_slot(self._slots, other, disjoint)
        else:
            stream.merge(self._path(other), disjoint)
        stream.take(self._slots, index)

    def save(self, index: int, place: int) -> None:
        self._present(index).save(self._path(place))

    def restore(self, index: int, place: int) -> None:
        self._stream.restore(self._path(place))
        self._stream.take(self._slots, index)

    def reset(self, index: int) -> None:
        self._stream.reset()
        self._stream.take(self._slots, index)

    def read(self, index: int) -> tuple[int, Provenance]:
        stream = self._present(index)
        return stream.n_points, stream.provenance

    def _present(self, index: int) -> Stream:
        self._stream.put(self._slots, index)
        return self._stream

    def _path(self, place: int) -> Path:
        return self._scratch / f"state-{place}.npz"
