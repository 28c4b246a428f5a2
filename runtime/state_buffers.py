"""The state's buffers, and the steps bound to them.

Each state tensor has two buffers: a step reads one and writes the other. Tensors that are always
written together form a group, and one bit per group says which side is current. Every step is bound
at open to every combination of sides that it can meet. All that a commit changes is one tuple, so
that a commit is one assignment, and an interrupt between any two lines finds all of it or nothing:

    at = Commit(sides ^ step.flip, n_points + 1, ...)

A ring has one buffer: a step gives one new row beside it, and after the commit that row is written
in its place. The commit names the rings of which this is due. It is done at once, or after an
interrupt or an error by whoever reads the state next: until another step runs, the row is there,
and to write it twice is to write it once.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import Backend, BoundStep, DeviceBuffer
from edgefold.runtime.manifest import Graph, Manifest, Place, StateTensor
from edgefold.runtime.manifest_rules import writers


class Commit(NamedTuple):
    """Everything that a commit changes; replaced as a whole, never in part.

    Attributes:
        sides: Bit g tells which buffer of group g is current.
        n_points: Points in the state.
        n_recent: Of these, the points since the last consolidation.
        rings: The rings whose newest row was committed and perhaps not yet written to its place.
        first: Of the waiting points, the first one's row in the buffer of chunks.
        n_waiting: Points in the buffer of chunks that are not yet in the state.
    """

    sides: int
    n_points: int
    n_recent: int
    rings: tuple[str, ...] = ()
    first: int = 0
    n_waiting: int = 0


class StateBuffers:
    """Two buffers for each state tensor, one for each ring and each tensor of the cache.

    Every change of the state goes to the other side and is committed by replacing `at`, also that
    of `load`: one that fails on the way leaves the state as it was.

    Attributes:
        at: The last commit.
        rows: For each ring, the buffer that steps write its new row to.
        not_finite: Tensors that hold infinity or NaN before the first point already.
    """

    def __init__(self, manifest: Manifest, backend: Backend):
        self._initial = {tensor.name: initial_value(manifest, tensor) for tensor in manifest.state}
        self.not_finite = {n for n, value in self._initial.items() if not np.isfinite(value).all()}
        self.pairs: dict[str, tuple[DeviceBuffer, DeviceBuffer]] = {}
        self.rows: dict[str, DeviceBuffer] = {}
        self._rings: dict[str, tuple[int, int]] = {}  # axis, length
        for tensor in manifest.state:
            first = backend.allocate_device(tensor)
            if tensor.ring is None:
                self.pairs[tensor.name] = (first, backend.allocate_device(tensor))
            else:
                self.pairs[tensor.name] = (first, first)
                self.rows[tensor.name] = backend.allocate_device(_row_of(tensor))
                self._rings[tensor.name] = (tensor.ring, tensor.shape[tensor.ring])
        self.cache = {tensor.name: backend.allocate_device(tensor) for tensor in manifest.cache}
        self.group_of = _groups(manifest)
        self._all = sum({1 << group for group in self.group_of.values()})
        self.at = Commit(0, 0, 0)
        self._settled = self.at  # the commit whose rows are in their places

    def side(self, name: str, sides: int) -> int:
        """Which of a tensor's two buffers is current, given all sides."""
        return sides >> self.group_of[name] & 1

    def settled(self) -> Commit:
        """Write the rows that are due; returns the last commit.

        Raises:
            BackendError: A row could not be written; the next call tries again.
        """
        at = self.at
        if at.rings and self._settled is not at:
            for name in at.rings:
                axis, length = self._rings[name]
                self.pairs[name][0].write_row(self.rows[name], axis, (at.n_points - 1) % length)
            self._settled = at
        return at

    def read(self) -> dict[str, Array]:
        """Copies of the current state."""
        sides = self.settled().sides
        return {name: pair[self.side(name, sides)].read() for name, pair in self.pairs.items()}

    def reset(self) -> None:
        """Return to the state that has seen nothing."""
        self.load(self._initial, 0, 0)

    def load(self, state: Mapping[str, Array], n_points: int, n_recent: int) -> None:
        """Take over a state; names, shapes and dtypes were compared by the caller.

        No point waits any more.
        """
        last, sides = self.at, self.at.sides
        before = {name: self.pairs[name][0].read() for name in self._rings}
        try:
            for name, pair in self.pairs.items():
                pair[1 - self.side(name, sides)].write(state[name])
            self.at = Commit(sides ^ self._all, n_points, n_recent)
        except BaseException:
            if self.at is last:  # an interrupt may come after the commit
                for name, rows in before.items():
                    self.pairs[name][0].write(rows)
            raise

    def release(self) -> None:
        """Let go of every buffer; a closed stream that somebody still holds keeps none."""
        self.pairs.clear()
        self.rows.clear()
        self.cache.clear()

    @property
    def n_bytes(self) -> int:
        """Bytes of all state and cache buffers."""
        buffers = [*self.rows.values(), *self.cache.values()]
        for name, pair in self.pairs.items():
            buffers += pair[:1] if name in self._rings else pair
        return sum(buffer.nbytes for buffer in buffers)


def initial_value(manifest: Manifest, tensor: StateTensor) -> Array:
    """What a state tensor holds before the first point; it broadcasts to the tensor's shape."""
    initial, dtype = tensor.initial, np.dtype(tensor.dtype)
    if not isinstance(initial, Place):
        return np.full((), initial or 0, dtype)
    path, count = manifest.path / manifest.weights["file"], initial.n_bytes // dtype.itemsize
    return np.fromfile(path, dtype, count, offset=initial.offset).reshape(tensor.shape)


def _row_of(ring: StateTensor) -> StateTensor:
    shape = tuple(1 if axis == ring.ring else n for axis, n in enumerate(ring.shape))
    return StateTensor(f"{ring.name}_row", shape, ring.dtype)


def _groups(manifest: Manifest) -> dict[str, int]:
    """Number the sets of state tensors that are written by the same graphs."""
    numbers: dict[frozenset[str], int] = {}
    written = writers(manifest)
    return {name: numbers.setdefault(by, len(numbers)) for name, by in written.items()}


class Step:
    """One graph, its own input and output buffers, and its binding for every combination of sides.

    Attributes:
        inputs: The graph's buffers for points or targets, by role, each (B, width, columns); a
            mask is (B, width).
        outputs: Its buffers for predictions, by prediction tensor, each (B, width, *shape).
        finite: One number per stream, finite if the step's arithmetic was; None if it has none.
        flip: Bits of the groups that the step writes.
        rings: Names of the rings of which it gives a row.
    """

    def __init__(self, graph: Graph, backend: Backend, state: StateBuffers, manifest: Manifest):
        self.graph = graph
        self.width = graph.width
        self.inputs: dict[str, Array] = {}
        self.outputs: dict[str, Array] = {}
        self.finite: Array | None = None
        staged = backend.allocate_host(graph)
        lead = (manifest.n_streams, graph.width)  # a graph may take the rows of all streams as one
        shapes = {told.name: told.shape for told in manifest.prediction_tensors}
        for tensor in graph.inputs:
            if tensor.role in ("points.mask", "targets.mask"):
                self.inputs[tensor.role] = staged[tensor.name]
            elif tensor.role in ("points.x", "points.y", "targets.x"):
                self.inputs[tensor.role] = staged[tensor.name].reshape(*lead, -1)
        for tensor in graph.outputs:
            if tensor.role == "prediction":
                self.outputs[tensor.of] = staged[tensor.name].reshape(*lead, *shapes[tensor.of])
            elif tensor.role == "finite":
                self.finite = staged[tensor.name]
        self.rings = tuple(t.of for t in graph.outputs if t.role == "row")
        self.n_bytes = sum(a.nbytes for a in (*self.inputs.values(), *self.outputs.values()))
        kept = [t for t in (*graph.inputs, *graph.outputs) if t.role == "state"]
        touched = {state.group_of[t.of] for t in kept}
        self._touched = sum(1 << group for group in touched)
        written = {state.group_of[t.of] for t in graph.outputs if t.role == "state"}
        self.flip = sum(1 << group for group in written)
        self._bound: dict[int, BoundStep] = {}
        for chosen in product(*((0, 1 << group) for group in sorted(touched))):
            sides = sum(chosen)
            self._bound[sides] = backend.bind(graph, _placed(graph, state, sides))

    def run(self, sides: int) -> None:
        """Compute the outputs from the current side of the state; nothing is committed."""
        self._bound[sides & self._touched]()

    def release(self) -> None:
        """Let go of bindings and buffers."""
        self._bound.clear()
        self.inputs.clear()
        self.outputs.clear()
        self.finite = None


def _placed(graph: Graph, state: StateBuffers, sides: int) -> dict[str, DeviceBuffer]:
    """Device buffers by tensor name: state inputs on the current side, outputs on the other."""
    placed = {}
    for turn, tensors in enumerate((graph.inputs, graph.outputs)):
        for t in tensors:
            if t.role == "state":
                placed[t.name] = state.pairs[t.of][state.side(t.of, sides) ^ turn]
            elif t.role == "row":
                placed[t.name] = state.rows[t.of]
            elif t.role == "cache":
                placed[t.name] = state.cache[t.of]
    return placed
