"""Hold the content of a bundle's manifest, by which tensors are found: nobody counts positions.

It names, for every graph, each input and output and where it comes from or goes to. It holds no
code and nothing is unpickled. `edgefold.runtime.bundle.manifest_file` reads and writes the file.

Where a graph's tensor comes from or goes to (`role`); B streams, U points, M targets:

    points.x  points.y                the caller's points, scaled: the bytes of (B, U, X), (B, U, Y)
    points.mask                       (B, U), true for real rows
    targets.x                         the caller's query inputs, scaled: the bytes of (B, M, X)
    targets.mask                      (B, M), true for real targets; only for joint predictions
    state                             input: the current state; output: the next one
    row                               output: the new row of a state tensor that is a ring
    slot                              output: (B,), int64, where the rows of some rings go
    cache                             tensors that refresh writes and query reads
    prediction                        result of query or step, scaled: (B, M, *shape)
    finite                            (B,), a finite number unless the step's arithmetic was not
                                      finite; such a step is not committed
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.predictions.base import PredictionKind, PredictionTensor

FILE_NAME = "manifest.json"
ROLES = (
    *("points.x", "points.y", "points.mask", "targets.x", "targets.mask"),
    *("state", "row", "slot", "cache", "prediction", "finite"),
)
WRITTEN = ("state", "row", "slot")
"""Roles of a step's outputs that become part of the state."""
STEPS = ("condition", "update", "consolidate", "refresh", "query", "step")
DTYPES = (
    *("float16", "float32", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)
WHEN_FULL = ("refuse", "overwrite", "reservoir")
"""Rules for a new point when the state is full: the point is refused with an error; it replaces the
oldest point; or it replaces a random one, with the probability by which the state holds every point
of the stream equally often (reservoir sampling)."""
SEED = "seed"
"""Name of the state tensor that the user of a stream sets: the seed of its random numbers."""
PLANNED = tuple(
    f"{part}_bytes" for part in ("weights", "state", "cache", "io", "activations", "total")
)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A graph's input or output.

    Attributes:
        name: The tensor's name inside the graph.
        role: One of `ROLES`.
        of: The state, cache or prediction tensor that it stands for, or the name by which rings
            ask for their slot; the name itself otherwise.
        shape: Fixed lengths; streams (B) lead.
        dtype: numpy's name of the element type.
    """

    name: str
    role: str
    of: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "shape": list(self.shape)}


@dataclass(frozen=True, slots=True)
class Graph:
    """One step of the model: a file, its hash, its inputs and outputs.

    Attributes:
        step: One of `STEPS`.
        width: Number of points (condition, update, step) or targets (query) of one call; 0 for
            other steps.
        precision: Element type of its products: "float32", "float16" or "int8".
    """

    name: str
    step: str
    width: int
    file: str
    sha256: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    precision: str = "float32"

    def with_role(self, role: str) -> list[Tensor]:
        """Return the inputs and outputs of a role, in order."""
        return [tensor for tensor in (*self.inputs, *self.outputs) if tensor.role == role]


@dataclass(frozen=True, slots=True)
class WeightPlace:
    """The place of an array in the weight file, in bytes."""

    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class StateTensor:
    """A tensor of the state or of the cache.

    Attributes:
        initial: First value of a state tensor: one number for all elements, or the place of an
            array; None for the cache.
        ring: Axis of the rows, of which a step writes one at a time; None for other tensors.
        slot: Name of the output that says where a ring's row goes; None where each row follows
            the one before.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    initial: float | WeightPlace | None = None
    ring: int | None = None
    slot: str | None = None

    def to_json(self) -> dict[str, Any]:
        form = {**asdict(self), "shape": list(self.shape)}
        return {name: value for name, value in form.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Scaling:
    """The scaling of raw numbers: scaled = (raw - shift) / scale, one pair per column."""

    shift: tuple[float, ...]
    scale: tuple[float, ...]

    def to_raw(self, scaled: Array, unscale: str = "affine") -> Array:
        """Return scaled numbers (..., columns) to raw units; `unscale` is one of `UNSCALE`."""
        if unscale == "none" or not scaled.shape[-1]:
            return scaled
        scale, shift = self.of(unscale)
        return np.asarray(scaled * scale + shift)

    def of(self, unscale: str) -> tuple[FloatArray, FloatArray]:
        """Return the factor and the summand, each (columns,), that make scaled numbers raw."""
        scale = np.array(self.scale)
        if unscale == "log-density":
            return np.ones_like(scale), -np.log(scale)
        return scale, np.array(self.shift) if unscale == "affine" else np.zeros_like(scale)

    @property
    def is_identity(self) -> bool:
        """Whether raw and scaled numbers are the same."""
        return not any(self.shift) and all(s == 1 for s in self.scale)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything the runtime knows of a bundle.

    Attributes:
        model: The model's name, summary and n_parameters, and facts of its source.
        consolidate_every: Number of points after which `consolidate` runs; 0 without such a step.
        capacity: Number of points that the state holds; 0 where any number fits.
        when_full: The rule for a new point when the state is full, one of `WHEN_FULL`.
        prediction: The kind of prediction.
        prediction_tensors: Its tensors, and how each returns to raw units.
        memory_plan: Predicted bytes, as export counted them.
        precision: "name" ("float32", "float16", "int8") and its cost as export measured it.
        bundle_hash: SHA-256 of the manifest file, which holds the hashes of all others.
    """

    path: Path
    bundle_hash: str
    model: dict[str, Any]
    task: dict[str, Any]
    n_streams: int
    scaling_x: Scaling
    scaling_y: Scaling
    prediction: PredictionKind
    prediction_tensors: tuple[PredictionTensor, ...]
    consolidate_every: int
    capacity: int
    when_full: str
    state: tuple[StateTensor, ...]
    cache: tuple[StateTensor, ...]
    graphs: dict[str, Graph]
    weights: dict[str, Any]
    golden: dict[str, Any]
    memory_plan: dict[str, Any]
    precision: dict[str, Any]
    versions: dict[str, str]

    @property
    def n_inputs(self) -> int:
        """Number of columns of x (X); may be 0."""
        return len(self.scaling_x.shift)

    @property
    def n_outputs(self) -> int:
        """Number of columns of y (Y), and of predictions in units of y; may be 0."""
        return len(self.scaling_y.shift)

    def of_step(self, step: str) -> list[Graph]:
        """Return all graphs of a step, narrowest first; none if the model has no such step."""
        return sorted((g for g in self.graphs.values() if g.step == step), key=lambda g: g.width)

    @property
    def is_filter(self) -> bool:
        """Whether the model takes an input and answers at once, instead of update and query."""
        return bool(self.of_step("step"))

    @property
    def chunk(self) -> int:
        """The most points that one call of the model learns."""
        return max((graph.width for graph in self.of_step("condition")), default=1)

    @property
    def targets(self) -> int:
        """The most targets that one query takes."""
        return max((graph.width for graph in self.of_step("query")), default=1)

    @property
    def room(self) -> int | None:
        """Number of points that a stream takes before it refuses more; None if it never does."""
        return self.capacity if self.capacity and self.when_full == "refuse" else None

    @property
    def with_less_room(self) -> str:
        """Advice how to export a smaller buffer of points; "" where the state holds no points."""
        text = f"export with room for fewer points (--set capacity=N, now {self.capacity})"
        return text * bool(self.capacity)

    @property
    def keeps(self) -> str:
        """Sentence about points beyond the capacity; "" where any number fits."""
        then = {
            "refuse": "then refuses",
            "overwrite": "then overwrites the oldest",
            "reservoir": "then keeps a random sample of all",
        }
        return f"keeps at most {self.capacity} points; {then[self.when_full]}" * bool(self.capacity)

    @property
    def takes_seed(self) -> bool:
        """Whether the model computes random numbers from a seed that the user may set."""
        seeds = [t for t in self.state if t.name == SEED]
        outputs = {t.of for g in self.graphs.values() for t in g.outputs if t.role == "state"}
        form = [(t.shape, t.dtype) for t in seeds]
        return SEED not in outputs and form == [((self.n_streams,), "int64")]

    @property
    def learns_from(self) -> list[Graph]:
        """The graphs that take points, the one for single points first."""
        return [g for step in ("update", "step", "condition") for g in self.of_step(step)]


def n_that_fit(room: int | None, n: int) -> int:
    """Return how many of n points fit into a state with this room: min(n, room); None fits all."""
    return n if room is None else min(n, room)
