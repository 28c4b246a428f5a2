"""The state's double buffers, and the steps bound to them.

Each state tensor has two buffers: a step reads one and writes the other. Tensors that are always
written together form a group, and one bit per group says which side is current. Every step is bound
at open to every combination of sides that it can meet, so that a commit is one integer operation:

    sides ^= step.flip
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import Backend, BoundStep, DeviceBuffer
from edgefold.runtime.manifest import Graph, Manifest


class StateBuffers:
    """Two buffers for each state tensor, one for each memory tensor.

    Every change of the state goes to the other side and is committed by turning `sides`, also that
    of `reset` and `load`: one that fails on the way leaves the state as it was.

    Attributes:
        sides: Bit g tells which buffer of group g is current.
    """

    def __init__(self, manifest: Manifest, backend: Backend):
        self._initial = {
            tensor.name: np.full((), tensor.initial or 0.0, tensor.dtype)
            for tensor in manifest.state
        }
        self.pairs: dict[str, tuple[DeviceBuffer, DeviceBuffer]] = {
            tensor.name: (backend.allocate_device(tensor), backend.allocate_device(tensor))
            for tensor in manifest.state
        }
        self.memory = {tensor.name: backend.allocate_device(tensor) for tensor in manifest.memory}
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
        """Back to the state that has seen nothing."""
        self.load(self._initial)

    def load(self, state: Mapping[str, Array]) -> None:
        """Take over a state; names, shapes and dtypes were compared by the caller."""
        for name, pair in self.pairs.items():
            pair[1 - self.side(name, self.sides)].write(state[name])
        self.sides ^= self._all

    def release(self) -> None:
        """Let go of every buffer; a closed stream that somebody still holds keeps none."""
        self.pairs.clear()
        self.memory.clear()

    @property
    def n_bytes(self) -> int:
        """Bytes of all state and memory buffers."""
        pairs = sum(2 * first.nbytes for first, _ in self.pairs.values())
        return pairs + sum(array.nbytes for array in self.memory.values())


def _groups(manifest: Manifest) -> dict[str, int]:
    """Number the sets of state tensors that are written by the same graphs."""
    writers = {
        kept.name: frozenset(
            graph.name
            for graph in manifest.graphs.values()
            for tensor in graph.outputs
            if tensor.role == "state" and tensor.of == kept.name
        )
        for kept in manifest.state
    }
    numbers: dict[frozenset[str], int] = {}
    return {name: numbers.setdefault(by, len(numbers)) for name, by in writers.items()}


class Step:
    """One graph, its own input and output buffers, and its binding for every combination of sides.

    Attributes:
        inputs: The graph's buffers for points or targets, by role, each (B, width, columns); the
            mask is (B, width).
        outputs: Its buffers for predictions, by prediction tensor, each (B, width, Y).
        check: One number per stream, finite if the step's arithmetic was; None if it has none.
        flip: Bits of the groups that the step writes.
    """

    def __init__(self, graph: Graph, backend: Backend, state: StateBuffers, n_streams: int):
        self.graph = graph
        self.width = graph.width
        self.inputs: dict[str, Array] = {}
        self.outputs: dict[str, Array] = {}
        self.check: Array | None = None
        fixed: dict[str, DeviceBuffer] = {}
        staged = backend.allocate_host(graph)
        touched: set[int] = set()
        self.flip = 0
        for tensor in (*graph.inputs, *graph.outputs):
            if tensor.role == "state":
                touched.add(state.group_of[tensor.of])
            elif tensor.role == "memory":
                fixed[tensor.name] = state.memory[tensor.of]
        by_stream = (n_streams, graph.width, -1)  # graphs take the rows of all streams as one
        for tensor in graph.inputs:
            if tensor.role == "points.mask":
                self.inputs[tensor.role] = staged[tensor.name]
            elif tensor.role in ("points.x", "points.y", "targets.x"):
                self.inputs[tensor.role] = staged[tensor.name].reshape(by_stream)
        for tensor in graph.outputs:
            if tensor.role == "prediction":
                self.outputs[tensor.of] = staged[tensor.name].reshape(by_stream)
            elif tensor.role == "check":
                self.check = staged[tensor.name]
            elif tensor.role == "state":
                self.flip |= 1 << state.group_of[tensor.of]
        self.n_bytes = sum(a.nbytes for a in (*self.inputs.values(), *self.outputs.values()))
        self._touched = sum(1 << group for group in touched)
        self._bound: dict[int, BoundStep] = {}
        for chosen in product(*((0, 1 << group) for group in sorted(touched))):
            sides = sum(chosen)
            self._bound[sides] = backend.bind(graph, {**fixed, **_placed(graph, state, sides)})

    def run(self, sides: int) -> None:
        """Compute the outputs from the current side of the state; nothing is committed."""
        self._bound[sides & self._touched]()

    def release(self) -> None:
        """Let go of bindings and buffers."""
        self._bound.clear()
        self.inputs.clear()
        self.outputs.clear()
        self.check = None


def _placed(graph: Graph, state: StateBuffers, sides: int) -> dict[str, DeviceBuffer]:
    """State buffers by tensor name: inputs on the current side, outputs on the other."""
    placed = {
        t.name: state.pairs[t.of][state.side(t.of, sides)]
        for t in graph.inputs
        if t.role == "state"
    }
    placed |= {
        t.name: state.pairs[t.of][1 - state.side(t.of, sides)]
        for t in graph.outputs
        if t.role == "state"
    }
    return placed
