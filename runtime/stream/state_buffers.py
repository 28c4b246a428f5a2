"""Allocate the state's buffers, and bind the steps to them.

Each state tensor has two buffers, called its sides 0 and 1: a step reads one and writes the other.
Tensors that are always written together form a group, and one bit per group says which side is
current. Every step is bound at open to every combination of sides that it can meet. A commit makes
a step's result the state: it replaces one tuple by one assignment, so that an interrupt between any
two lines finds all of the commit or nothing:

    at = Commit(sides ^ step.flip, n_points + 1, ...)

A ring, a tensor that holds the last rows, has one buffer: a step computes one new row in a separate
buffer, and after the commit that row is written to its place in the ring: over the oldest row, or
for each stream where the step's output `slots` says. The commit names the rings whose row must
still be written. That happens at once, or after an interrupt or an error when the state is read
next: until another step runs, the row and its slots are there, and writing a row twice changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import Backend, BoundStep, DeviceBuffer
from edgefold.runtime.bundle.manifest import SEED, Graph, Manifest, StateTensor, WeightPlace
from edgefold.runtime.bundle.manifest_rules import writers
from edgefold.runtime.errors import ValueRefusedError
from edgefold.runtime.stream.provenance import NO_PIECES, Origin, Provenance


class RingRow(NamedTuple):
    """Says where the new row that a step computes must be written into a ring.

    A ring is a state tensor that holds a stream's last rows.

    Attributes:
        ring: The ring's name.
        slots: The step's output with the row's index in the ring for each stream, (B,); None if the
            row is written after the one before.
    """

    ring: str
    slots: Array | None


class Commit(NamedTuple):
    """Holds the values that a commit changes; it is always replaced as a whole.

    Attributes:
        sides: An integer whose bit g says which of two buffers is current for the tensors of group
            g, which are always written together.
        n_points: The number of points in the state.
        n_recent: The number of points since the step `consolidate` last ran.
        rows: The new rows of rings that were committed and perhaps not yet written into the rings.
        first: The row of the first waiting point in `ChunkBuffer`.
        n_waiting: The number of points in `ChunkBuffer` that are not yet in the state.
        origin: The pieces that state which rows the state has learned, as of some earlier commit.
    """

    sides: int
    n_points: int
    n_recent: int
    rows: tuple[RingRow, ...] = ()
    first: int = 0
    n_waiting: int = 0
    origin: Origin = NO_PIECES

    @property
    def n_taken(self) -> int:
        """Return the number of points that the stream has taken, waiting ones too."""
        return self.n_points + self.n_waiting


class KeptState(NamedTuple):
    """Holds a state outside of a stream's buffers, as a snapshot or a slot keeps it.

    Attributes:
        tensors: The tensors of the state, by name.
        n_points: The number of points in it.
        n_recent: The number of points in it since the step `consolidate` last ran.
        stated: The pieces that state which rows it has learned.
    """

    tensors: Mapping[str, Array]
    n_points: int
    n_recent: int
    stated: Provenance = NO_PIECES.stated


class StateBuffers:
    """Holds two buffers for each state tensor, and one for each ring and each tensor of the cache.

    A ring is a tensor that holds a stream's last rows; the cache holds the tensors that the step
    `refresh` computes from the state and `query` reads. Every change of the state, also by `load`,
    is written to the buffers that are not current, and committed by replacing `at`: a change that
    fails on the way leaves the state as it was.

    Attributes:
        at: The last commit.
        rows: For each ring, the buffer to which steps write its new row.
        not_finite: The names of tensors that hold infinity or NaN already before the first point.
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
        """Return the number of a tensor's current buffer, 0 or 1; see `Commit.sides`."""
        return sides >> self.group_of[name] & 1

    def settled(self) -> Commit:
        """Write committed new rows into their rings, if that was not done; return the last commit.

        Raises:
            BackendError: A row could not be written; the next call tries again.
        """
        at = self.at
        if at.rows and self._settled is not at:
            for name, slots in at.rows:
                axis, length = self._rings[name]
                ring, row = self.pairs[name][0], self.rows[name]
                if slots is None:
                    ring.write_row(row, axis, (at.n_points - 1) % length)
                elif slots.size == 1:
                    ring.write_row(row, axis, slots.item())
                else:
                    for stream, slot in enumerate(slots.tolist()):
                        ring.write_row(row, axis, slot, stream)
            self._settled = at
        return at

    def read(self) -> dict[str, Array]:
        """Return copies of the current state's tensors, by name."""
        sides = self.settled().sides
        return {name: pair[self.side(name, sides)].read() for name, pair in self.pairs.items()}

    def reset(self, seeds: Array | None = None) -> None:
        """Return to the state before the first point.

        Args:
            seeds: The seed of each stream, (B,), kept for later resets; None keeps the last ones.
        """
        if seeds is not None:
            self._initial = {**self._initial, SEED: seeds}
        self.load(KeptState(self._initial, 0, 0))

    def load(self, state: KeptState) -> None:
        """Replace the state; names, shapes and types of the tensors must be right.

        Waiting points are dropped.
        """
        last, sides = self.at, self.at.sides
        before = {name: self.pairs[name][0].read() for name in self._rings}
        try:
            for name, pair in self.pairs.items():
                pair[1 - self.side(name, sides)].write(state.tensors[name])
            n, origin = state.n_points, Origin(state.stated, state.n_points)
            self.at = Commit(sides ^ self._all, n, state.n_recent, origin=origin)
        except BaseException:
            if self.at is last:  # an interrupt may come after the commit
                for name, rows in before.items():
                    self.pairs[name][0].write(rows)
            raise

    def release(self) -> None:
        """Drop the references to all buffers, so that a closed stream holds no memory."""
        self.pairs.clear()
        self.rows.clear()
        self.cache.clear()

    @property
    def n_bytes(self) -> int:
        """Return how many bytes all buffers of the state and the cache take together."""
        buffers = [*self.rows.values(), *self.cache.values()]
        for name, pair in self.pairs.items():
            buffers += pair[:1] if name in self._rings else pair
        return sum(buffer.nbytes for buffer in buffers)


def seeds_of(manifest: Manifest, seed: int | Sequence[int]) -> Array:
    """Return the seed of each stream, (B,).

    Args:
        manifest: The bundle's manifest.
        seed: One seed for all streams, or one for each.

    Raises:
        ValueRefusedError: The bundle takes no seed, or the seeds are not whole numbers from 0 to
            2**63 - 1, or not as many as there are streams.
    """
    if not manifest.takes_seed:
        raise ValueRefusedError(
            f"{manifest.path} takes no seed: its model computes no random numbers. Leave it out."
        )
    n, given = manifest.n_streams, np.array(seed)
    sound = given.dtype.kind == "i" and given.shape in ((), (n,)) and given.min() >= 0
    if not sound:
        several = "" if n == 1 else f", or {n} of them, one for each stream"
        raise ValueRefusedError(
            f"the seed is {seed!r}; give a whole number from 0 to 2**63 - 1{several}."
        )
    return np.broadcast_to(given, n).astype(np.int64)


def initial_value(manifest: Manifest, tensor: StateTensor) -> Array:
    """Return a state tensor's value before the first point; it broadcasts to the tensor's shape."""
    initial, dtype = tensor.initial, np.dtype(tensor.dtype)
    if not isinstance(initial, WeightPlace):
        return np.full((), initial or 0, dtype)
    path, count = manifest.path / manifest.weights["file"], initial.n_bytes // dtype.itemsize
    return np.fromfile(path, dtype, count, offset=initial.offset).reshape(tensor.shape)


def _row_of(ring: StateTensor) -> StateTensor:
    shape = tuple(1 if axis == ring.ring else n for axis, n in enumerate(ring.shape))
    return StateTensor(f"{ring.name}_row", shape, ring.dtype)


def _groups(manifest: Manifest) -> dict[str, int]:
    """Return each state tensor's group number, equal for tensors that the same graphs write."""
    numbers: dict[frozenset[str], int] = {}
    written = writers(manifest)
    return {name: numbers.setdefault(by, len(numbers)) for name, by in written.items()}


class _BoundSteps(dict[int, BoundStep]):
    """Holds a graph's bindings by the current sides; binds where one is missing.

    A binding that is made while the state holds points may run the graph once: on the current
    buffers, from which it reads, and on the other ones, which hold nothing.
    """

    def __init__(self, bind: Callable[[int], BoundStep]):
        super().__init__()
        self._bind = bind

    def __missing__(self, sides: int) -> BoundStep:
        self[sides] = bound = self._bind(sides)
        return bound


class Step:
    """Runs one graph, with its own input and output buffers, on the state's current buffers.

    Attributes:
        inputs: The graph's buffers for points or targets by role, such as "points.x", each
            (B, rows that one run takes, columns); a mask, as "points.mask", has no columns.
        others: The graph's buffers for the state that the step `merge` joins, by state tensor.
        rows_of_one: The first row of each buffer in `inputs` that has columns, (columns,), by role;
            only of one stream.
        outputs: The buffers for predictions, by prediction tensor, each (B, width, *shape).
        finite: An output with one number per stream, finite if the step's arithmetic was; None if
            the graph has no such output.
        flip: The bits of `Commit.sides` that the step's commit inverts.
        rows: The new rows that the step computes for rings, tensors of a stream's last rows.
        slots: For each ring in which the step chooses the new row's index: the output with the
            indices, (B,), the ring's number of rows, and the ring's name.
    """

    def __init__(self, graph: Graph, backend: Backend, state: StateBuffers, manifest: Manifest):
        """Allocate the graph's inputs and outputs, and bind it, unless it `opens_late`."""
        self.graph = graph
        self.width = graph.width
        self.inputs: dict[str, Array] = {}
        self.others: dict[str, Array] = {}
        self.rows_of_one: dict[str, Array] = {}
        self.outputs: dict[str, Array] = {}
        self.finite: Array | None = None
        staged = backend.allocate_host(graph)
        lead = (manifest.n_streams, graph.width)  # a graph may take the rows of all streams as one
        shapes = {tensor.name: tensor.shape for tensor in manifest.prediction_tensors}
        for tensor in graph.inputs:
            if tensor.role in ("points.mask", "targets.mask"):
                self.inputs[tensor.role] = staged[tensor.name]
            elif tensor.role == "other":
                self.others[tensor.of] = staged[tensor.name]
            elif tensor.role in ("points.x", "points.y", "targets.x"):
                self.inputs[tensor.role] = rows = staged[tensor.name].reshape(*lead, -1)
                if manifest.n_streams == 1:
                    self.rows_of_one[tensor.role] = rows[0, 0]
        for tensor in graph.outputs:
            if tensor.role == "prediction":
                self.outputs[tensor.of] = staged[tensor.name].reshape(*lead, *shapes[tensor.of])
            elif tensor.role == "finite":
                self.finite = staged[tensor.name]
        places = {t.of: staged[t.name] for t in graph.outputs if t.role == "slot"}
        rings = {tensor.name: tensor for tensor in manifest.state if tensor.ring is not None}
        own_rings = [rings[t.of] for t in graph.outputs if t.role == "row"]
        self.rows = tuple(RingRow(ring.name, places.get(ring.slot or "")) for ring in own_rings)
        self.slots = [
            (places[ring.slot], ring.shape[ring.ring], ring.name)
            for ring in own_rings
            if ring.ring is not None and ring.slot is not None
        ]
        arrays = (self.inputs, self.others, self.outputs)
        self.n_bytes = sum(array.nbytes for own in arrays for array in own.values())
        tensors = [t for t in (*graph.inputs, *graph.outputs) if t.role == "state"]
        groups = {state.group_of[t.of] for t in tensors}
        self._mask = sum(1 << group for group in groups)
        output_groups = {state.group_of[t.of] for t in graph.outputs if t.role == "state"}
        self.flip = sum(1 << group for group in output_groups)

        def bind(sides: int) -> BoundStep:
            return backend.bind(graph, _buffers_of(graph, state, sides))

        self._bound = _BoundSteps(bind)
        if not graph.opens_late:
            for bits in product(*((0, 1 << group) for group in sorted(groups))):
                self._bound[sum(bits)]  # binds it

    def put(self, role: str, row: list[float]) -> None:
        """Write one row of scaled numbers to the first row of the inputs of a role, of one stream.

        An empty row writes nothing.
        """
        if row:
            target = self.rows_of_one[role]
            for column, number in enumerate(row):
                target[column] = number

    def run(self, sides: int) -> None:
        """Compute the outputs and commit nothing; `sides` says which buffers to read (`Commit`)."""
        self._bound[sides & self._mask]()

    def release(self) -> None:
        """Drop the references to bindings and buffers, so that their memory can be freed."""
        self._bound.clear()
        self.inputs.clear()
        self.others.clear()
        self.rows_of_one.clear()
        self.outputs.clear()
        self.finite, self.rows, self.slots = None, (), []


def _buffers_of(graph: Graph, state: StateBuffers, sides: int) -> dict[str, DeviceBuffer]:
    """Return by name the buffers to which a graph's state, row and cache tensors are bound.

    The graph reads the state's current buffers, as `sides` says (see `Commit`), and writes the
    other ones.
    """
    buffers = {}
    for turn, tensors in enumerate((graph.inputs, graph.outputs)):
        for t in tensors:
            if t.role == "state":
                buffers[t.name] = state.pairs[t.of][state.side(t.of, sides) ^ turn]
            elif t.role == "row":
                buffers[t.name] = state.rows[t.of]
            elif t.role == "cache":
                buffers[t.name] = state.cache[t.of]
    return buffers
