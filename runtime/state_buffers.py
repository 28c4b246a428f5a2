"""The state's buffers, and the steps bound to them.

Each state tensor has two buffers: a step reads one and writes the other. Tensors that are always
written together form a group, and one bit per group says which side is current. Every step is bound
at open to every combination of sides that it can meet, so that a commit is one integer operation:

    sides ^= step.flip

A ring has one buffer: a step gives one new row, and the commit writes that row in its place. A
reader must therefore expect the oldest row until the commit, and the newest after it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import Backend, BoundStep, DeviceBuffer
from edgefold.runtime.errors import StepRefusedError
from edgefold.runtime.manifest import Graph, Manifest, Place, StateTensor
from edgefold.runtime.manifest_rules import writers


class StateBuffers:
    """Two buffers for each state tensor, one for each ring and each tensor of the cache.

    Every change of the state goes to the other side and is committed by turning `sides`, also that
    of `reset` and `load`: one that fails on the way leaves the state as it was.

    Attributes:
        sides: Bit g tells which buffer of group g is current.
        rows: For each ring, the buffer that steps write its new row to.
    """

    def __init__(self, manifest: Manifest, backend: Backend):
        self._initial = {tensor.name: initial_value(manifest, tensor) for tensor in manifest.state}
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
        self.sides = 0

    def side(self, name: str, sides: int) -> int:
        """Which of a tensor's two buffers is current, given all sides."""
        return sides >> self.group_of[name] & 1

    def read(self) -> dict[str, Array]:
        """Copies of the current state."""
        return {name: pair[self.side(name, self.sides)].read() for name, pair in self.pairs.items()}

    def reset(self) -> None:
        """Return to the state that has seen nothing."""
        self.load(self._initial)

    def load(self, state: Mapping[str, Array]) -> None:
        """Take over a state; names, shapes and dtypes were compared by the caller."""
        before = {name: self.pairs[name][0].read() for name in self._rings}
        try:
            for name, pair in self.pairs.items():
                pair[1 - self.side(name, self.sides)].write(state[name])
        except BaseException:
            for name, rows in before.items():
                self.pairs[name][0].write(rows)
            raise
        self.sides ^= self._all

    def write_rows(self, names: tuple[str, ...], position: int) -> None:
        """Write the new row of some rings in the place of the oldest one."""
        for name in names:
            axis, length = self._rings[name]
            self.pairs[name][0].write_row(self.rows[name], axis, position % length)

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
        inputs: The graph's buffers for points or targets, by role, each (B, width, columns); the
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
            if tensor.role == "points.mask":
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

    def require_finite(self) -> None:
        """Refuse what the last run gave, if its arithmetic was not finite.

        Raises:
            StepRefusedError: It was not; nothing must be committed.
        """
        finite = self.finite
        if finite is None:
            return
        sound = math.isfinite(finite.item()) if finite.size == 1 else np.isfinite(finite).all()
        if not sound:
            raise StepRefusedError(
                f"{self.graph.name} gave a non-finite result and was not committed; the state is "
                "as before. Check the values just given and the bundle with `edgefold check`."
            )

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
