"""Compare the tensors that two backends, A and B, computed, and record where they differ most.

A difference is relative to the tensor's scale: the largest magnitude that the tensor had on A so
far, without fill values. Predictions are compared in scaled units, as `edgefold check` does.

A state tensor NAME_rest holds the rounding remainders of sums, so that the sums stay accurate. Two
sound backends round differently, so the scale of these remainders is that of the sums (the tensor
with the same beginning and shape). In addition the remainders must be about as large on B as on A:
a compiler that reorders the arithmetic makes them vanish.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgefold.runtime.arrays import Array
from edgefold.runtime.backends.base import DeviceBuffer
from edgefold.runtime.bundle.manifest import Graph, Manifest, Tensor

FILL = 1e20  # a larger number stands for infinity, as the peak of no points does
REST_RATIO = 4.0  # between sound backends the sizes of rounding remainders differ by some percent
MIN_RESTS = 64  # numbers: the size of a few rounding errors means nothing


@dataclass(frozen=True, slots=True)
class Parting:
    """Describes the element of a tensor in which the results of A and B differ most.

    Attributes:
        n_points: Number of points that the stream had received, the current one included.
        graph, tensor: The graph that ran, and the state, cache or prediction tensor it wrote.
        index: Index of the element in the tensor.
        a, b: Values of the element on the two backends.
        difference: |a - b| divided by the largest magnitude that the tensor (for remainders: their
            sums) had on A so far; not divided for predictions; infinite if only one is NaN.
    """

    n_points: int
    graph: str
    tensor: str
    index: tuple[int, ...]
    a: float
    b: float
    difference: float


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """Summarises how one output of one graph differed between A and B during a pass.

    Attributes:
        graph: The graph's name.
        tensor, role: Name and role of the tensor that the graph wrote.
        n_runs: Number of runs of the graph that were compared.
        largest: The largest difference; None before the first run.
        first: The first difference beyond the bound; None if there is none.
        rest_ratio: The root mean square of rounding remainders (a state tensor NAME_rest) on B,
            divided by that on A; None for other tensors and for fewer than `MIN_RESTS` numbers.
    """

    graph: str
    tensor: str
    role: str
    n_runs: int = 0
    largest: Parting | None = None
    first: Parting | None = None
    rest_ratio: float | None = None

    @property
    def rest_is_lost(self) -> bool:
        """Return whether B's remainders are over `REST_RATIO` times larger or smaller than A's."""
        ratio = self.rest_ratio
        return ratio is not None and not 1 / REST_RATIO <= ratio <= REST_RATIO


@dataclass(frozen=True, slots=True)
class Pass:
    """Holds the results of one pass, in which A and B run the same stream once.

    Attributes:
        tensors: Differences of every output of every graph that ran, in the order of first runs.
        first: The first difference beyond the bound; None if there is none.
        refused: The reason why B refused a step that A had run, which ends the pass; None if B
            refused none.
    """

    tensors: tuple[TensorDifference, ...]
    first: Parting | None
    refused: str | None = None

    @property
    def passed(self) -> bool:
        """Return whether all differences were within the bound, and B refused and lost nothing.

        B lost something if a sum's rounding remainders are far smaller or larger than on A.
        """
        lost = any(tensor.rest_is_lost for tensor in self.tensors)
        return self.first is None and self.refused is None and not lost


class PassTally:
    """Collects the differences between A and B during one pass over a stream.

    Args:
        manifest: The bundle's manifest.
        bound: The largest relative difference that passes.
        is_alone: Whether B computes each graph from A's inputs instead of its own state and cache.

    Attributes:
        n_points: Number of points that the streams have received; the caller sets it.
    """

    def __init__(self, manifest: Manifest, bound: float, is_alone: bool):
        self._bound, self._is_alone = bound, is_alone
        self._sums_of = _rests(manifest)
        self._kept: deque[tuple[dict[str, Array], dict[str, Array]]] = deque()
        self._sizes: dict[str, float] = {}
        # Of remainders, by graph and tensor: how many, sums of squares on A and B.
        self._squares: dict[tuple[str, str], Array] = {}
        self._tensors: dict[tuple[str, str], TensorDifference] = {}
        self._first: Parting | None = None
        self.n_points = 0

    def keep(self, read: Mapping[str, DeviceBuffer], outputs: dict[str, Array]) -> None:
        """Keep what a graph wrote on A, and what it read if B is to compute from the same inputs.

        Args:
            read: Buffers of the state and cache tensors that the graph read, by tensor name.
            outputs: Copies of the graph's outputs, by their names in the graph.
        """
        inputs = {name: buffer.read() for name, buffer in read.items()} if self._is_alone else {}
        self._kept.append((inputs, outputs))

    def feed(self, read: Mapping[str, DeviceBuffer]) -> None:
        """Overwrite the state and cache that a graph reads on B with what it read on A.

        Args:
            read: Buffers of B's tensors by tensor name; they stay as they are unless B is to
                compute from A's inputs.
        """
        for name, values in self._kept[0][0].items():
            read[name].write(values)

    def compare(self, graph: Graph, outputs: dict[str, Array]) -> None:
        """Compare the outputs of a graph's run on B with those of the same run on A.

        Args:
            graph: The graph that ran.
            outputs: Copies of the outputs on B, by their names in the graph.
        """
        _, expected = self._kept.popleft()
        for tensor in graph.outputs:  # first the sizes: remainders are scaled by that of their sums
            size = _size(expected[tensor.name])
            self._sizes[tensor.of] = max(size, self._sizes.get(tensor.of, 0.0))
        for tensor in graph.outputs:
            a, b = expected[tensor.name], outputs[tensor.name]
            if tensor.of in self._sums_of:
                more = np.array([np.count_nonzero(a), _square(a), _square(b)])
                key = (graph.name, tensor.of)
                self._squares[key] = self._squares.get(key, 0.0) + more
            self._note(graph, tensor, self._parting(graph, tensor, a, b))

    def _parting(self, graph: Graph, tensor: Tensor, a: Array, b: Array) -> Parting:
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        if tensor.role == "finite":  # any finite number says the same
            a, b = np.isfinite(a).astype(float), np.isfinite(b).astype(float)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore", over="ignore"):
            gaps = np.where(same, 0.0, np.abs(a - b) / self._scale(tensor, b))
        gaps[np.isnan(gaps)] = np.inf
        place = np.unravel_index(int(gaps.argmax()), gaps.shape)
        index = tuple(int(n) for n in place)
        return Parting(
            self.n_points,
            graph.name,
            tensor.of,
            index,
            float(a[index]),
            float(b[index]),
            float(gaps[index]),
        )

    def _scale(self, tensor: Tensor, b: Array) -> float:
        if tensor.role in ("prediction", "finite"):
            return 1.0
        return self._sizes[self._sums_of.get(tensor.of, tensor.of)] or _size(b) or 1.0

    def _note(self, graph: Graph, tensor: Tensor, parting: Parting) -> None:
        key = (graph.name, tensor.of)
        known = self._tensors.get(key, TensorDifference(graph.name, tensor.of, tensor.role))
        is_beyond = not parting.difference <= self._bound
        if is_beyond and self._first is None:
            self._first = parting
        larger = known.largest is None or parting.difference > known.largest.difference
        self._tensors[key] = replace(
            known,
            n_runs=known.n_runs + 1,
            largest=parting if larger else known.largest,
            first=known.first or (parting if is_beyond else None),
        )

    def result(self, refused: str | None) -> Pass:
        """Return the results of the whole pass.

        Args:
            refused: The reason why B refused a step; None if it refused none.
        """
        tensors = (
            replace(tensor, rest_ratio=self._rest_ratio(tensor.graph, tensor.tensor))
            for tensor in self._tensors.values()
        )
        return Pass(tuple(tensors), self._first, refused)

    def _rest_ratio(self, graph: str, name: str) -> float | None:
        n, a, b = self._squares.get((graph, name), (0, 0.0, 0.0))
        return float(np.sqrt(b / a)) if n >= MIN_RESTS else None


def _rests(manifest: Manifest) -> dict[str, str]:
    """Map the name of each tensor of rounding remainders, NAME_rest, to that of its sums."""
    sums_of = {}
    for rest in manifest.state:
        start, _, end = rest.name.rpartition("_")
        if end != "rest":
            continue
        for sums in manifest.state:
            if sums is not rest and sums.shape == rest.shape and sums.name.startswith(start):
                sums_of[rest.name] = sums.name
    return sums_of


def _size(values: Array) -> float:
    """Return the largest absolute value of an array; NaN, and values from 1e20 on, do not count."""
    sizes = np.abs(np.asarray(values, np.float64))
    return float(sizes.max(initial=0.0, where=sizes < FILL))


def _square(values: Array) -> float:
    flat = np.asarray(values, np.float64).ravel()
    return float(flat @ flat)
