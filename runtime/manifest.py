"""The bundle's manifest: the only truth about tensors. Export writes it, the runtime reads it.

It names, for every graph, each input and output and where it comes from or goes to, so that nobody
counts positions. It holds no code and nothing is unpickled. Reading verifies the schema, the
manifest's own hash and every file's; it does not open a graph.

Where a graph's tensor comes from or goes to (`role`):

    points.x  points.y                the caller's points, scaled: (B*U, X) and (B*U, Y), the rows
                                      of one stream after those of another
    points.mask                       (B, U), 1 for real rows
    targets.x                         the caller's query inputs, scaled: (B*M, X)
    state                             input: the current state; output: the next one
    memory                            what refresh writes and query reads
    prediction                        what query gives back, scaled: (B*M, Y)
    check                             one finite number per stream, unless the step's arithmetic
                                      was not finite, in which case the step is not committed
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from edgefold.runtime.errors import BundleError
from edgefold.runtime.hashing import sha256, sha256_of

SCHEMA = 1
FILE_NAME = "manifest.json"
ROLES = (
    "points.x",
    "points.y",
    "points.mask",
    "targets.x",
    "state",
    "memory",
    "prediction",
    "check",
)
STEPS = ("condition", "update", "consolidate", "refresh", "query")
DTYPES = ("float16", "float32", "float64", "int32", "int64", "uint8", "bool")
PREDICTIONS = ("mean", "std")
PLANNED = tuple(
    f"{part}_bytes" for part in ("weights", "state", "memory", "io", "activations", "total")
)
PARSE_ERRORS = (
    *(AssertionError, AttributeError, KeyError, TypeError, ValueError),
    *(OverflowError, RecursionError),
)
"""What reading a form raises that another program, or an accident, wrote."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A graph's input or output.

    Attributes:
        name: The tensor's name inside the graph.
        role: One of `ROLES`.
        of: The state, memory or prediction tensor that it stands for; the name itself otherwise.
        shape: Fixed; streams (B) leading.
        dtype: numpy's name of the element type.
    """

    name: str
    role: str
    of: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    def to_json(self) -> dict[str, Any]:
        """The manifest's form."""
        return {
            "name": self.name,
            "role": self.role,
            "of": self.of,
            "shape": list(self.shape),
            "dtype": self.dtype,
        }


@dataclass(frozen=True, slots=True)
class Graph:
    """One step of the model: a file, its hash, and what goes in and out.

    Attributes:
        step: condition, update, consolidate, refresh or query: what the graph does.
        width: Points (condition, update) or targets (query) in one call; 0 for the others.
    """

    name: str
    step: str
    width: int
    file: str
    sha256: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    def to_json(self) -> dict[str, Any]:
        """The manifest's form."""
        return {
            "step": self.step,
            "width": self.width,
            "file": self.file,
            "sha256": self.sha256,
            "inputs": [tensor.to_json() for tensor in self.inputs],
            "outputs": [tensor.to_json() for tensor in self.outputs],
        }


@dataclass(frozen=True, slots=True)
class StateTensor:
    """A tensor of the state (with its initial value) or of the memory (initial is None)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    initial: float | None

    def to_json(self) -> dict[str, Any]:
        """The manifest's form."""
        form = {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}
        return form if self.initial is None else {**form, "initial": self.initial}


@dataclass(frozen=True, slots=True)
class Scaling:
    """How raw numbers become the model's: scaled = (raw - shift) / scale, one pair per column."""

    shift: tuple[float, ...]
    scale: tuple[float, ...]

    @property
    def is_identity(self) -> bool:
        """Whether raw and scaled numbers are the same."""
        return not any(self.shift) and all(s == 1 for s in self.scale)


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything the runtime knows of a bundle.

    Attributes:
        consolidate_every: Points after which the recent sums move into the compensated base; 0 if
            the model needs no such step.
        prediction_kind: "gaussian": tensors mean and std.
        memory_plan: Predicted bytes, as export counted them.
        precision: "name" ("float32", "float16", "int8") and what export measured of its cost.
        bundle_hash: SHA-256 of the manifest file, which holds the hashes of all others.
    """

    path: Path
    bundle_hash: str
    model: dict[str, Any]
    task: dict[str, Any]
    n_streams: int
    n_inputs: int
    n_outputs: int
    scaling_x: Scaling
    scaling_y: Scaling
    prediction_kind: str
    consolidate_every: int
    state: tuple[StateTensor, ...]
    memory: tuple[StateTensor, ...]
    graphs: dict[str, Graph]
    weights: dict[str, Any]
    golden: dict[str, Any]
    memory_plan: dict[str, Any]
    precision: dict[str, Any]
    versions: dict[str, str]

    def widest(self, step: str) -> Graph:
        """The graph of a step that takes the most points or targets at once."""
        return max(self.of_step(step), key=lambda graph: graph.width)

    def of_step(self, step: str) -> list[Graph]:
        """All graphs of a step, narrowest first."""
        found = sorted((g for g in self.graphs.values() if g.step == step), key=lambda g: g.width)
        if not found:
            raise BundleError(f"{self.path} has no graph for {step}; export the bundle again.")
        return found

    @property
    def chunk(self) -> int:
        """Points folded at once by `condition`."""
        return self.widest("condition").width

    @property
    def targets(self) -> int:
        """Targets that one query takes."""
        return self.widest("query").width


def seal(form: dict[str, Any]) -> dict[str, Any]:
    """A manifest's form with the SHA-256 of everything else in it, as a reader demands it."""
    content = {name: value for name, value in form.items() if name != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return {**content, "sha256": sha256(text.encode()).hexdigest()}


def load_manifest(bundle: str | Path, verify: bool = True) -> Manifest:
    """Read a bundle's manifest and, unless told not to, compare every file with its hash.

    Raises:
        BundleError: Anything missing, damaged, changed, or of another schema.
    """
    folder = Path(bundle)
    path = folder / FILE_NAME
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise BundleError(
            f"{folder} is not a bundle: {FILE_NAME} is missing. "
            "Make one with `edgefold export RUN --out BUNDLE`."
        ) from None
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}.") from error
    try:
        form = json.loads(raw)
        schema = form["schema"]
    except PARSE_ERRORS as error:
        raise BundleError(
            f"{path} is damaged ({error}); copy or export the bundle again."
        ) from error
    if schema != SCHEMA:
        newer = type(schema) is int and schema > SCHEMA
        cure = "upgrade edgefold here" if newer else "export it again"
        raise BundleError(
            f"{path} has schema {schema}, this version of edgefold reads {SCHEMA}; {cure}."
        )
    if "sha256" not in form:
        raise BundleError(
            f"{path} has no SHA-256 of its content, as older versions wrote it; export it again."
        )
    if form["sha256"] != seal(form)["sha256"]:
        raise BundleError(
            f"{path} was changed: its content does not match the SHA-256 in it; "
            "copy or export the bundle again."
        )
    try:
        manifest = _parse(form, folder, sha256(raw).hexdigest())
        _require_sound(manifest)
    except PARSE_ERRORS as error:
        raise BundleError(
            f"{path} is damaged ({type(error).__name__}: {error}); copy or export the bundle again."
        ) from error
    if verify:
        _verify(manifest)
    return manifest


def _parse(form: dict[str, Any], folder: Path, bundle_hash: str) -> Manifest:
    def tensor(entry: dict[str, Any]) -> Tensor:
        if entry["role"] not in ROLES:
            raise ValueError(f"unknown role {entry['role']!r} of {entry['name']}")
        return Tensor(
            entry["name"], entry["role"], entry["of"], tuple(entry["shape"]), entry["dtype"]
        )

    def graph(name: str, entry: dict[str, Any]) -> Graph:
        return Graph(
            name,
            entry["step"],
            entry["width"],
            entry["file"],
            entry["sha256"],
            tuple(tensor(t) for t in entry["inputs"]),
            tuple(tensor(t) for t in entry["outputs"]),
        )

    def kept(entry: dict[str, Any]) -> StateTensor:
        return StateTensor(
            entry["name"], tuple(entry["shape"]), entry["dtype"], entry.get("initial")
        )

    def scaling(entry: dict[str, Any]) -> Scaling:
        return Scaling(
            tuple(float(v) for v in entry["shift"]), tuple(float(v) for v in entry["scale"])
        )

    points = form["points"]
    return Manifest(
        path=folder,
        bundle_hash=bundle_hash,
        model=form["model"],
        task=form["task"],
        n_streams=form["n_streams"],
        n_inputs=len(points["x"]["shift"]),
        n_outputs=len(points["y"]["shift"]),
        scaling_x=scaling(points["x"]),
        scaling_y=scaling(points["y"]),
        prediction_kind=form["prediction"],
        consolidate_every=form["consolidate_every"],
        state=tuple(kept(entry) for entry in form["state"]),
        memory=tuple(kept(entry) for entry in form["memory"]),
        graphs={name: graph(name, entry) for name, entry in form["graphs"].items()},
        weights=form["weights"],
        golden=form["golden"],
        memory_plan=form["memory_plan"],
        precision=form.get("precision", {"name": "float32"}),
        versions=form["versions"],
    )


def _require_sound(manifest: Manifest) -> None:
    """What the runtime relies on without looking again.

    Raises:
        ValueError, TypeError, KeyError: Something is not as this version writes it.
    """

    def require(sound: bool, what: str) -> None:
        if not sound:
            raise ValueError(what)

    m = manifest
    for name in ("model", "task", "memory_plan", "precision", "versions", "weights", "golden"):
        require(isinstance(getattr(m, name), dict), f"{name} is no object")
    require(_is_count(m.n_streams, 1), f"n_streams is {m.n_streams!r}")
    require(_is_count(m.consolidate_every, 0), f"consolidate_every is {m.consolidate_every!r}")
    require(m.prediction_kind == "gaussian", f"prediction is {m.prediction_kind!r}")
    require(isinstance(m.precision["name"], str), f"precision is {m.precision['name']!r}")
    for name in PLANNED:
        require(_is_count(m.memory_plan[name], 0), f"memory_plan.{name} is no number of bytes")
    for name, scaling in (("x", m.scaling_x), ("y", m.scaling_y)):
        shift, scale = scaling.shift, scaling.scale
        require(0 < len(shift) == len(scale), f"points.{name} has no shift for each scale")
        require(all(map(math.isfinite, shift + scale)), f"points.{name} is not finite")
        require(min(scale) > 0, f"points.{name}.scale is not positive")
    for kept in (*m.state, *m.memory):
        _require_array(kept.name, kept.shape, kept.dtype)
        initial = kept.initial
        require(initial is None or math.isfinite(initial), f"{kept.name} starts at {initial}")
    known: dict[str, dict[str, StateTensor | None]] = {
        "state": {t.name: t for t in m.state},
        "memory": {t.name: t for t in m.memory},
        "prediction": dict.fromkeys(PREDICTIONS),
    }
    for graph in m.graphs.values():
        require(graph.step in STEPS, f"graph {graph.name} has the unknown step {graph.step!r}")
        folds = graph.step not in ("consolidate", "refresh")
        require(_is_count(graph.width, int(folds)), f"graph {graph.name} is {graph.width!r} wide")
        for tensor in (*graph.inputs, *graph.outputs):
            _require_array(tensor.name, tensor.shape, tensor.dtype)
            names = known.get(tensor.role, {tensor.name: None})
            require(tensor.of in names, f"{graph.name}: {tensor.name} is of unknown {tensor.of!r}")
            one = names[tensor.of]
            if one is not None and (one.shape, one.dtype) != (tensor.shape, tensor.dtype):
                raise ValueError(f"{graph.name}: {tensor.name} has another shape than {one.name}")
    for file in (*(g.file for g in m.graphs.values()), m.weights["file"], m.golden["file"]):
        require(PurePath(file).name == file, f"{file!r} is no plain file name")


def _is_count(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < 1 << 62


def _require_array(name: str, shape: tuple[int, ...], dtype: str) -> None:
    if not all(_is_count(length, 1) for length in shape) or dtype not in DTYPES:
        raise ValueError(f"{name} has shape {list(shape)} and type {dtype!r}")


def _verify(manifest: Manifest) -> None:
    files = [(g.file, g.sha256) for g in manifest.graphs.values()]
    files += [(entry["file"], entry["sha256"]) for entry in (manifest.weights, manifest.golden)]
    for name, expected in files:
        path = manifest.path / name
        try:
            found = sha256_of(path)
        except FileNotFoundError:
            raise BundleError(
                f"{path} is missing though the manifest lists it; copy the whole bundle again."
            ) from None
        except OSError as error:
            raise BundleError(f"{path} cannot be read: {error.strerror}.") from error
        if found != expected:
            raise BundleError(
                f"{path} was changed: its SHA-256 is {found[:12]}…, the manifest says "
                f"{expected[:12]}…; copy or export the bundle again."
            )
