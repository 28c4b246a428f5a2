"""Hold the content of a bundle's manifest, which describes all tensors by name.

The manifest states for every graph each input and output, and where it comes from or goes to. It
holds no code and no pickled objects. `edgefold.runtime.bundle.manifest_file` reads the file.

A tensor's role says where it comes from or goes to. B streams, U points, M targets, X and Y columns
of x and y:

    points.x  points.y                the caller's points, scaled: the bytes of (B, U, X), (B, U, Y)
    points.mask                       (B, U), true for real rows
    targets.x                         the caller's query inputs, scaled: the bytes of (B, M, X)
    targets.mask                      (B, M), true for real targets; only for joint predictions
    state                             input: the current state; output: the next one
    other                             the state that `merge` joins with the current one
    row                               output: the new row of a state tensor that is a ring
    slot                              output: (B,), int64, where the rows of some rings go
    cache                             tensors that refresh writes and query reads
    prediction                        result of query or step, scaled: (B, M, *shape)
    finite                            (B,), a finite number unless the step's arithmetic gave NaN or
                                      infinity; the results of such a step are thrown away

"Scaled" numbers are raw numbers after `Scaling`. A ring is a state tensor that holds the last rows
of a stream: a step returns one new row, which replaces the oldest one.
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
    *("state", "other", "row", "slot", "cache", "prediction", "finite"),
)
WRITTEN = ("state", "row", "slot")
"""Lists the roles of those outputs of a step that become part of the state."""
STEPS = ("condition", "update", "consolidate", "merge", "refresh", "query", "step")
DTYPES = (
    *("float16", "float32", "float64", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)
WHEN_FULL = ("refuse", "overwrite", "reservoir")
"""Lists the rules for a new point when the state is full.

The point is refused with an error; it replaces the oldest point; or it replaces a random point, so
that the state holds every point of the stream with the same probability (reservoir sampling).
"""
SEED = "seed"
"""A state tensor with this name holds the seed of random numbers, which a stream's user sets."""
PLANNED = tuple(
    f"{part}_bytes" for part in ("weights", "state", "cache", "io", "activations", "total")
)


@dataclass(frozen=True, slots=True)
class Tensor:
    """Describes an input or output of a graph.

    Attributes:
        name: The tensor's name inside the graph.
        role: Where the tensor comes from or goes to: one of `ROLES`, such as "state" or "points.x".
        of: Name of the state, cache or prediction tensor whose values this tensor carries; for the
            role "slot" the name in `StateTensor.slot`. For roles that belong to no such tensor, as
            "points.x", it is the tensor's own name or the role's last word.
        shape: The fixed length of each axis; the first axis is that of streams (B).
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
    """Describes one ONNX graph of a bundle, which does one step of the model.

    Attributes:
        name: The graph's name, by which the manifest lists it.
        step: The step that the graph does, one of `STEPS`, such as "update" or "query".
        width: Number of points (condition, update, step) or targets (query) that one call takes; 0
            for other steps.
        file: Name of the graph's file in the bundle's folder.
        sha256: SHA-256 of the file, 64 hexadecimal digits.
        inputs, outputs: The graph's inputs and outputs, in the manifest's order.
        precision: Element type in which products are computed: "float32", "float16" or "int8".
    """

    name: str
    step: str
    width: int
    file: str
    sha256: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    precision: str = "float32"

    @property
    def opens_late(self) -> bool:
        """Return whether the graph is opened when it first runs, and not with the bundle.

        Most streams never merge, so that the graph would take memory for nothing.
        """
        return self.step == "merge"

    def with_role(self, role: str) -> list[Tensor]:
        """Return the inputs and outputs that have a role, one of `ROLES`; inputs come first."""
        return [tensor for tensor in (*self.inputs, *self.outputs) if tensor.role == role]


@dataclass(frozen=True, slots=True)
class WeightPlace:
    """States where an array lies in the weight file: offset and length in bytes."""

    offset: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class StateTensor:
    """Describes a tensor of the state or of the cache.

    Attributes:
        name: The tensor's name.
        shape: The fixed length of each axis; the first axis is that of streams (B).
        dtype: numpy's name of the element type.
        initial: First value of a state tensor: one number for all elements, or the place of an
            array in the weight file; None for the cache.
        ring: Number of the axis along which the rows lie, if the tensor is a ring: it keeps the
            last rows of a stream, and a step writes one of them. None for other tensors.
        slot: Name in `Tensor.of` of the graph's output that says at which index a ring's new row is
            written; None where each row is written after the one before.
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
    """Holds how raw numbers are scaled for the model: scaled = (raw - shift) / scale.

    Attributes:
        shift: The number that is subtracted, for each column.
        scale: The positive number by which is divided, for each column.
    """

    shift: tuple[float, ...]
    scale: tuple[float, ...]

    def to_raw(self, scaled: Array, unscale: str = "affine") -> Array:
        """Convert scaled numbers (..., columns) back to raw units.

        Args:
            scaled: The scaled numbers.
            unscale: The way back to raw units, one of `UNSCALE`: "affine" for values; "scale" for
                deviations, which are only multiplied; "log-density" for log densities, from which
                log(scale) is subtracted; "none" to change nothing.
        """
        if unscale == "none" or not scaled.shape[-1]:
            return scaled
        scale, shift = self.of(unscale)
        return np.asarray(scaled * scale + shift)

    def of(self, unscale: str) -> tuple[FloatArray, FloatArray]:
        """Return factor and summand, each (columns,), with raw = scaled * factor + summand.

        Args:
            unscale: The way back to raw units: "affine", "scale" or "log-density"; see `UNSCALE`.
        """
        scale = np.array(self.scale)
        if unscale == "log-density":
            return np.ones_like(scale), -np.log(scale)
        return scale, np.array(self.shift) if unscale == "affine" else np.zeros_like(scale)

    @property
    def is_identity(self) -> bool:
        """Return whether the scaling changes nothing: raw and scaled numbers are the same."""
        return not any(self.shift) and all(s == 1 for s in self.scale)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Holds everything that the runtime knows of a bundle.

    Attributes:
        path: The bundle's folder.
        bundle_hash: SHA-256 of the manifest's file, which holds the hashes of all other files.
        model: The model's name, summary and n_parameters, and facts about its source.
        task: The name and settings of the task for which the model was made.
        n_streams: Number of streams (B) that one step serves together.
        scaling_x, scaling_y: The scalings of the points' x and y.
        prediction: The kind of prediction.
        prediction_tensors: The prediction's tensors, and how each is converted to raw units.
        consolidate_every: Number of points after which the step `consolidate` runs, which keeps
            sums in the state accurate; 0 without such a step.
        capacity: Number of points that the state holds; 0 where any number fits.
        when_full: The rule for a new point when the state is full, one of `WHEN_FULL`.
        state, cache: The tensors of the state and of the cache.
        graphs: The graphs by name.
        weights, golden: Name, size and SHA-256 of the weight file and of the golden stream's file.
        memory_plan: Bytes of memory as export counted them, by part, such as "state_bytes".
        precision: "name" ("float32", "float16", "int8") and its cost as export measured it.
        versions: Versions of the software that exported the bundle, by name.
        resumes: Hashes of earlier bundles whose snapshots this one resumes.
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
    resumes: tuple[str, ...] = ()

    @property
    def n_inputs(self) -> int:
        """Return the number of columns of x (X), which may be 0."""
        return len(self.scaling_x.shift)

    @property
    def n_outputs(self) -> int:
        """Return the number of columns of y (Y), which may be 0.

        Predictions in units of y have as many columns.
        """
        return len(self.scaling_y.shift)

    def of_step(self, step: str) -> list[Graph]:
        """Return all graphs that do a step, one of `STEPS`, sorted by width.

        The list is empty if the model has no such step.
        """
        return sorted((g for g in self.graphs.values() if g.step == step), key=lambda g: g.width)

    @property
    def is_filter(self) -> bool:
        """Return whether the model is a filter, which takes an input and answers at once.

        Other models learn points by `update` and predict by `query`.
        """
        return bool(self.of_step("step"))

    @property
    def chunk(self) -> int:
        """Return the largest number of points that one call of the model learns."""
        return max((graph.width for graph in self.of_step("condition")), default=1)

    @property
    def targets(self) -> int:
        """Return the largest number of targets at which one query predicts."""
        return max((graph.width for graph in self.of_step("query")), default=1)

    @property
    def room(self) -> int | None:
        """Return how many points a stream takes before it refuses more; None if it never does."""
        return self.capacity if self.capacity and self.when_full == "refuse" else None

    @property
    def with_less_room(self) -> str:
        """Return advice, for error messages, how to export a smaller buffer of points.

        It is "" where the state holds no points.
        """
        text = f"export with room for fewer points (--set capacity=N, now {self.capacity})"
        return text * bool(self.capacity)

    @property
    def keeps(self) -> str:
        """Return words that say what happens to points beyond the capacity.

        They are "" where any number of points fits.
        """
        then = {
            "refuse": "then refuses",
            "overwrite": "then overwrites the oldest",
            "reservoir": "then keeps a random sample of all",
        }
        return f"keeps at most {self.capacity} points; {then[self.when_full]}" * bool(self.capacity)

    @property
    def takes_seed(self) -> bool:
        """Return whether the model computes random numbers from a seed that the user may set."""
        seeds = [t for t in self.state if t.name == SEED]
        outputs = {t.of for g in self.graphs.values() for t in g.outputs if t.role == "state"}
        form = [(t.shape, t.dtype) for t in seeds]
        return SEED not in outputs and form == [((self.n_streams,), "int64")]

    @property
    def learns_from(self) -> list[Graph]:
        """Return the graphs that take points; those that take one point at a time come first."""
        return [g for step in ("update", "step", "condition") for g in self.of_step(step)]


def n_that_fit(room: int | None, n: int) -> int:
    """Return how many of n points fit into a state: min(n, room), or n if room is None."""
    return n if room is None else min(n, room)
