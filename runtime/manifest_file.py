"""Read a bundle's manifest, verify it against its files, and seal a new one.

Reading checks the schema, the manifest's own SHA-256, every file's, and every figure that the
runtime relies on later. It does not open a graph. Schema 1 is read for one more release.
"""

from __future__ import annotations

import json
import math
from pathlib import Path, PurePath
from typing import Any

from edgefold.runtime.errors import BundleError
from edgefold.runtime.hashing import sha256, sha256_of
from edgefold.runtime.manifest import (
    DTYPES,
    FILE_NAME,
    PLANNED,
    ROLES,
    STEPS,
    Graph,
    Manifest,
    Place,
    Scaling,
    StateTensor,
    Tensor,
)
from edgefold.runtime.predictions import KINDS, UNSCALE, PredictionTensor

SCHEMA = 2
PARSE_ERRORS = (
    *(AssertionError, AttributeError, KeyError, TypeError, ValueError),
    *(OverflowError, RecursionError),
)
"""Exceptions that damaged JSON can cause."""


def with_checksum(form: dict[str, Any]) -> dict[str, Any]:
    """A manifest with the SHA-256 of everything else in it, which a reader demands."""
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
    if type(schema) is not int or schema not in (1, SCHEMA):
        newer = type(schema) is int and schema > SCHEMA
        remedy = "upgrade edgefold here" if newer else "export it again"
        raise BundleError(
            f"{path} has schema {schema}, this version of edgefold reads {SCHEMA}; {remedy}."
        )
    if "sha256" not in form:
        raise BundleError(
            f"{path} has no SHA-256 of its content, as older versions wrote it; export it again."
        )
    if form["sha256"] != with_checksum(form)["sha256"]:
        raise BundleError(
            f"{path} was changed: its content does not match the SHA-256 in it; "
            "copy or export the bundle again."
        )
    try:
        manifest = _parse(_upgraded(form) if schema == 1 else form, folder, sha256(raw).hexdigest())
        _require_sound(manifest)
    except PARSE_ERRORS as error:
        raise BundleError(
            f"{path} is damaged ({type(error).__name__}: {error}); copy or export the bundle again."
        ) from error
    if verify:
        _verify(manifest)
    return manifest


def _upgraded(form: dict[str, Any]) -> dict[str, Any]:
    """A manifest of schema 1 as schema 2 would have it."""
    roles = {"memory": "cache", "check": "finite"}
    name = form.get("precision", {}).get("name", "float32")
    graphs = {}
    for key, graph in form["graphs"].items():
        tensors = {
            side: [{**t, "role": roles.get(t["role"], t["role"])} for t in graph[side]]
            for side in ("inputs", "outputs")
        }
        narrow = graph["step"] in ("refresh", "query")
        graphs[key] = {**graph, **tensors, "precision": name if narrow else "float32"}
    plan = {**form["memory_plan"], "cache_bytes": form["memory_plan"]["memory_bytes"]}
    kind, n_outputs = KINDS[form["prediction"]](), len(form["points"]["y"]["shift"])
    tensors_of_kind = [tensor.to_json() for tensor in kind.tensors(n_outputs)]
    return {
        **form,
        "prediction": {"kind": kind.name, "settings": {}, "tensors": tensors_of_kind},
        "precision": form.get("precision", {"name": "float32"}),
        "cache": form["memory"],
        "graphs": graphs,
        "memory_plan": plan,
    }


def _parse(form: dict[str, Any], folder: Path, bundle_hash: str) -> Manifest:
    def tensor(entry: dict[str, Any]) -> Tensor:
        if entry["role"] not in ROLES:
            raise ValueError(f"unknown role {entry['role']!r} of {entry['name']}")
        shape = tuple(entry["shape"])
        return Tensor(entry["name"], entry["role"], entry["of"], shape, entry["dtype"])

    def graph(name: str, entry: dict[str, Any]) -> Graph:
        inputs, outputs = (tuple(map(tensor, entry[side])) for side in ("inputs", "outputs"))
        step, width, file = entry["step"], entry["width"], entry["file"]
        return Graph(name, step, width, file, entry["sha256"], inputs, outputs, entry["precision"])

    def kept(entry: dict[str, Any]) -> StateTensor:
        initial = entry.get("initial")
        initial = Place(**initial) if isinstance(initial, dict) else initial
        shape = tuple(entry["shape"])
        return StateTensor(entry["name"], shape, entry["dtype"], initial, entry.get("ring"))

    def scaling(entry: dict[str, Any]) -> Scaling:
        shift, scale = (tuple(float(v) for v in entry[key]) for key in ("shift", "scale"))
        return Scaling(shift, scale)

    prediction = form["prediction"]
    return Manifest(
        path=folder,
        bundle_hash=bundle_hash,
        model=form["model"],
        task=form["task"],
        n_streams=form["n_streams"],
        scaling_x=scaling(form["points"]["x"]),
        scaling_y=scaling(form["points"]["y"]),
        prediction=KINDS[prediction["kind"]](**prediction["settings"]),
        prediction_tensors=tuple(
            PredictionTensor(t["name"], tuple(t["shape"]), t["unscale"], t["dtype"])
            for t in prediction["tensors"]
        ),
        consolidate_every=form["consolidate_every"],
        state=tuple(kept(entry) for entry in form["state"]),
        cache=tuple(kept(entry) for entry in form["cache"]),
        graphs={name: graph(name, entry) for name, entry in form["graphs"].items()},
        weights=form["weights"],
        golden=form["golden"],
        memory_plan=form["memory_plan"],
        precision=form["precision"],
        versions=form["versions"],
    )


def _require(sound: bool, what: str) -> None:
    if not sound:
        raise ValueError(what)


def _require_sound(m: Manifest) -> None:
    """Check what the runtime relies on without looking again.

    Raises:
        ValueError, TypeError, KeyError: Something is not as this version writes it.
    """
    for name in ("model", "task", "memory_plan", "precision", "versions", "weights", "golden"):
        _require(isinstance(getattr(m, name), dict), f"{name} is not an object")
    _require(_is_count(m.n_streams, 1), f"n_streams is {m.n_streams!r}")
    _require(_is_count(m.consolidate_every, 0), f"consolidate_every is {m.consolidate_every!r}")
    _require(isinstance(m.precision["name"], str), f"precision is {m.precision['name']!r}")
    for name in PLANNED:
        _require(_is_count(m.memory_plan[name], 0), f"memory_plan.{name} is not a number of bytes")
    for name, scaling in (("x", m.scaling_x), ("y", m.scaling_y)):
        shift, scale = scaling.shift, scaling.scale
        _require(len(shift) == len(scale), f"points.{name} has no shift for each scale")
        _require(all(map(math.isfinite, shift + scale)), f"points.{name} is not finite")
        _require(min(scale, default=1) > 0, f"points.{name}.scale is not positive")
    for kept in (*m.state, *m.cache):
        _require_state_tensor(kept, int(m.weights["n_bytes"]))
    for told in m.prediction_tensors:
        _require_array(told.name, told.shape, told.dtype)
        _require(told.unscale in UNSCALE, f"{told.name} returns to raw units by {told.unscale!r}")
        outputs = told.unscale == "none" or told.shape[-1:] == (m.n_outputs,)
        _require(outputs, f"{told.name} has shape {told.shape} for {m.n_outputs} outputs")
    _require_graphs(m)
    for file in (*(g.file for g in m.graphs.values()), m.weights["file"], m.golden["file"]):
        _require(PurePath(file).name == file, f"{file!r} is not a plain file name")


def _require_state_tensor(kept: StateTensor, n_stored: int) -> None:
    _require_array(kept.name, kept.shape, kept.dtype)
    initial = kept.initial
    if isinstance(initial, Place):
        place = (initial.offset, initial.n_bytes)
        stored = all(_is_count(number, 0) for number in place) and sum(place) <= n_stored
        _require(stored, f"{kept.name} starts from {place}, beyond the weight file")
    else:
        _require(initial is None or math.isfinite(initial), f"{kept.name} starts at {initial}")
    if kept.ring is not None:
        axes = range(1, len(kept.shape))
        _require(kept.ring in axes, f"{kept.name} is a ring along axis {kept.ring!r}")


def _require_graphs(m: Manifest) -> None:
    steps = {graph.step for graph in m.graphs.values()}
    _require("step" in steps or {"update", "query"} <= steps, f"the graphs are only {steps}")
    known: dict[str, dict[str, Any]] = {
        "state": {t.name: (t.shape, t.dtype) for t in m.state if t.ring is None},
        "row": {t.name: (_row_shape(t), t.dtype) for t in m.state if t.ring is not None},
        "cache": {t.name: (t.shape, t.dtype) for t in m.cache},
        "prediction": {t.name: None for t in m.prediction_tensors},
    }
    rings = {t.name: (t.shape, t.dtype) for t in m.state if t.ring is not None}
    for graph in m.graphs.values():
        _require(graph.step in STEPS, f"graph {graph.name} has the unknown step {graph.step!r}")
        takes_rows = graph.step not in ("consolidate", "refresh")
        wide = _is_count(graph.width, int(takes_rows))
        _require(wide, f"graph {graph.name} is {graph.width!r} wide")
        for tensor in (*graph.inputs, *graph.outputs):
            _require_array(tensor.name, tensor.shape, tensor.dtype)
            names = known.get(tensor.role, {tensor.name: None})
            if tensor.role == "state" and tensor in graph.inputs:
                names = {**names, **rings}
            _require(tensor.of in names, f"{graph.name}: {tensor.name} is of {tensor.of!r}")
            same = names[tensor.of] in (None, (tensor.shape, tensor.dtype))
            _require(same, f"{graph.name}: {tensor.name} has another shape than {tensor.of}")


def _row_shape(ring: StateTensor) -> tuple[int, ...]:
    return tuple(1 if axis == ring.ring else length for axis, length in enumerate(ring.shape))


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
