"""Define how the checks of the contract run any model (a subject), and run a bundle that way.

Nothing here needs PyTorch, so that bundles are checked where it is not installed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.checking.golden import query_all
from edgefold.runtime.predictions import PredictionKind
from edgefold.runtime.stream.stream import Stream

Arrays = dict[str, Array]

TOLERANCES = {"float32": 2e-5, "float16": 2e-3, "int8": 5e-2}
"""Largest accepted difference of predictions around 1, by precision: sums in another order are
rounded in another way."""


class Subject(ABC):
    """Runs one model, in PyTorch or as a bundle, on one or more streams; all numbers are scaled.

    Attributes:
        name: Name of the way in which the model runs: "PyTorch" or "bundle".
        n_streams, n_inputs, n_outputs: Numbers of streams (B), of inputs (X) and of outputs (Y).
        kind: Kind of the predictions.
        is_filter: Whether the model has `step`, instead of `update` and `query`.
        ordered: Whether the order of points matters.
        has_chunks: Whether the model has its own function for many points at once.
        input_range: Lowest and highest scaled input.
        plausible_inputs: Function that makes scaled inputs (B, n, X) as streams have them from
            numbers that were drawn from this range.
        capacity: Number of points that the state holds; 0 where any number fits.
        when_full: Rule for a point beyond the capacity: "refuse", "overwrite" or "reservoir".
        no_merge: Why two states do not join; "" where they do.
        tolerance: Largest accepted difference of predictions after the same points in another
            order, or in other chunks.
    """

    name: str
    n_streams: int
    n_inputs: int
    n_outputs: int
    kind: PredictionKind
    is_filter: bool
    ordered: bool
    has_chunks: bool
    input_range: tuple[float, float]
    plausible_inputs: Callable[[FloatArray], FloatArray]
    capacity: int
    when_full: str
    no_merge: str
    tolerance: float = TOLERANCES["float32"]

    @property
    def room(self) -> int | None:
        """Return how many points an empty state takes; None if it never refuses one."""
        return self.capacity if self.capacity and self.when_full == "refuse" else None

    @abstractmethod
    def reset(self) -> None:
        """Set the state back to the initial one, before the first point."""

    @abstractmethod
    def update(self, x: Array, y: Array) -> None:
        """Learn n points of each stream: x (B, n, X), y (B, n, Y)."""

    @abstractmethod
    def query(self, x: Array) -> Arrays:
        """Return the predictions at inputs x (B, M, X), as copies by name: each (B, M, *shape)."""

    @abstractmethod
    def step(self, x: Array) -> Arrays:
        """Read one input x (B, X); return the predictions, as copies by name: each (B, *shape)."""

    @abstractmethod
    def state(self) -> Arrays:
        """Return copies of the state's tensors by name."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the state to a file."""

    @abstractmethod
    def restore(self, path: Path) -> None:
        """Read the state from a file that `save` wrote."""

    @abstractmethod
    def merge(self, path: Path) -> None:
        """Learn what the state in a file has learned that `save` wrote."""

    def place(self, method: str) -> str:
        """Return where a method of the model is written, as " (my_model.py:12)"; "" if unknown."""
        return ""


def as_drawn(drawn: FloatArray) -> FloatArray:
    """Return inputs as they were drawn."""
    return drawn


class StreamSubject(Subject):
    """Runs a bundle on any backend.

    Args:
        stream: An open stream of the bundle, which the caller closes.
        ordered: Whether the order of points matters, which a manifest does not say.
        input_range: Lowest and highest scaled input.
        plausible_inputs: Function of the bundle's model (see `StreamingModel`).
    """

    name = "bundle"

    def __init__(
        self,
        stream: Stream,
        ordered: bool = True,
        input_range: tuple[float, float] = (-2.0, 2.0),
        plausible_inputs: Callable[[FloatArray], FloatArray] = as_drawn,
    ):
        manifest = stream.manifest
        self.stream, self.ordered, self.input_range = stream, ordered, input_range
        self.plausible_inputs = plausible_inputs
        self.n_streams = manifest.n_streams
        self.n_inputs, self.n_outputs = manifest.n_inputs, manifest.n_outputs
        self.kind, self.is_filter = manifest.prediction, manifest.is_filter
        self.capacity, self.when_full = manifest.capacity, manifest.when_full
        self.has_chunks = bool(manifest.of_step("condition"))
        self.no_merge = "" if manifest.of_step("merge") else "the bundle has no graph `merge`"
        self.tolerance = TOLERANCES[manifest.precision["name"]]
        self._roles = {tensor.role for graph in manifest.learns_from for tensor in graph.inputs}
        self._unscale = {t.name: t.unscale for t in manifest.prediction_tensors}

    def raw(self, array: Array, role: str) -> Array | None:
        """Return scaled rows (B, ..., columns) in raw units; None if no graph reads the role.

        `role` is "points.x", "points.y" or "targets.x".
        """
        if role not in self._roles:
            return None
        manifest = self.stream.manifest
        scaling = manifest.scaling_y if role == "points.y" else manifest.scaling_x
        raw = scaling.to_raw(array)
        return raw[0] if self.n_streams == 1 else raw

    def _scaled(self, tensors: Mapping[str, Array]) -> Arrays:
        scaling = self.stream.manifest.scaling_y
        arrays = {}
        for name, array in tensors.items():
            arrays[name] = array.copy()
            if self._unscale[name] != "none":
                scale, shift = scaling.of(self._unscale[name])
                arrays[name] = (array - shift) / scale
        return arrays

    def reset(self) -> None:
        self.stream.reset()

    def update(self, x: Array, y: Array) -> None:
        self.stream.update(self.raw(x, "points.x"), self.raw(y, "points.y"))

    def query(self, x: Array) -> Arrays:
        return self._scaled(query_all(self.stream, self.stream.manifest.scaling_x.to_raw(x)))

    def step(self, x: Array) -> Arrays:
        tensors = self.stream.step(self.raw(x, "points.x")).tensors
        one = self.n_streams == 1
        return self._scaled({name: a if one else a[:, 0] for name, a in tensors.items()})

    def state(self) -> Arrays:
        return self.stream.state()

    def save(self, path: Path) -> None:
        self.stream.save(path)

    def restore(self, path: Path) -> None:
        self.stream.restore(path)

    def merge(self, path: Path) -> None:
        self.stream.merge(path, disjoint=True)
