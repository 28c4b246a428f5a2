"""Read a bundle's manifest, verify the bundle's files, and add a checksum to a new manifest.

Reading checks the schema, the manifest's own SHA-256, every number and name that the runtime relies
on later (`edgefold.runtime.bundle.manifest_rules`) and every file's hash, in this order. It does
not open a graph.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from edgefold.runtime.bundle.manifest import (
    FILE_NAME,
    ROLES,
    Graph,
    Manifest,
    Scaling,
    StateTensor,
    Tensor,
    WeightPlace,
)
from edgefold.runtime.bundle.manifest_rules import require_sound
from edgefold.runtime.bundle.onnx_file import MOST_BYTES as MOST_GRAPH_BYTES
from edgefold.runtime.errors import BundleError, DataError
from edgefold.runtime.hashing import sha256, sha256_of
from edgefold.runtime.plain_files import open_plain
from edgefold.runtime.predictions import KINDS, PredictionTensor

SCHEMA = 2
LONG = 500  # characters of an error that names what it found
PARSE_ERRORS = (
    *(AssertionError, AttributeError, KeyError, TypeError, ValueError),
    *(OverflowError, RecursionError),
)
"""Lists the exceptions that reading damaged JSON can raise."""
MOST_BYTES = 8_000_000
"""A manifest with more bytes than this is refused; in memory it takes 20 times as much.

Our largest has 0.02 MB; 300,000 columns would take 8 MB.
"""


def with_checksum(form: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest's JSON with the SHA-256 of all its other fields in the field "sha256".

    `load_manifest` refuses a manifest whose "sha256" does not fit.
    """
    content = {name: value for name, value in form.items() if name != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return {**content, "sha256": sha256(text.encode()).hexdigest()}


def load_manifest(bundle: str | Path, verify: bool = True) -> Manifest:
    """Read a bundle's manifest, and check it and the bundle's files.

    Args:
        bundle: The bundle's folder.
        verify: Whether to compare the size and hash of every file with the manifest.

    Raises:
        BundleError: A file is missing, damaged, changed, or of another schema.
    """
    folder = Path(bundle)
    path = folder / FILE_NAME
    try:
        with open_plain(path) as file:
            raw = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise BundleError(
            f"{folder} is not a bundle: {FILE_NAME} is missing. Make one with `edgefold export RUN "
            "--out BUNDLE`; the words sensors and gp-tiny stand for those that are shipped."
        ) from None
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}.") from error
    if len(raw) > MOST_BYTES:
        raise BundleError(f"{path} is larger than {MOST_BYTES // 10**6} MB; export it again.")
    try:
        form = json.loads(raw)
        schema = form["schema"]
        sealed = with_checksum(form)["sha256"]
    except PARSE_ERRORS as error:
        _refuse(path, error)
    if type(schema) is not int or schema != SCHEMA:
        newer = type(schema) is int and schema > SCHEMA
        remedy = "upgrade edgefold here" if newer else "export it again"
        shown = schema if type(schema) is int and abs(schema) < 10**9 else "of another kind"
        raise BundleError(
            f"{path} has schema {shown}, this version of edgefold reads {SCHEMA}; {remedy}."
        )
    if form.get("sha256") != sealed:
        raise BundleError(
            f"{path} was changed: its content does not match the SHA-256 in it; "
            "copy or export the bundle again."
        )
    try:
        manifest = _parse(form, folder, sha256(raw).hexdigest())
        require_sound(manifest)
    except (*PARSE_ERRORS, DataError) as error:
        _refuse(path, error)
    if verify:
        require_hashes(manifest)
    return manifest


def _parse(form: dict[str, Any], folder: Path, bundle_hash: str) -> Manifest:
    """Convert a manifest's JSON to a `Manifest`, without checking what it says.

    Args:
        form: The JSON.
        folder: The bundle's folder.
        bundle_hash: SHA-256 of the manifest's file.

    Raises:
        What `PARSE_ERRORS` lists: The JSON is damaged.
    """

    def tensor(entry: dict[str, Any]) -> Tensor:
        if entry["role"] not in ROLES:
            raise ValueError(f"unknown role {entry['role']!r} of {entry['name']}")
        shape = tuple(entry["shape"])
        return Tensor(entry["name"], entry["role"], entry["of"], shape, entry["dtype"])

    def graph(name: str, entry: dict[str, Any]) -> Graph:
        inputs, outputs = (tuple(map(tensor, entry[side])) for side in ("inputs", "outputs"))
        step, width, file = entry["step"], entry["width"], entry["file"]
        return Graph(name, step, width, file, entry["sha256"], inputs, outputs, entry["precision"])

    def state_tensor(entry: dict[str, Any]) -> StateTensor:
        initial = entry.get("initial")
        initial = WeightPlace(**initial) if isinstance(initial, dict) else initial
        shape = tuple(entry["shape"])
        ring, slot = entry.get("ring"), entry.get("slot")
        return StateTensor(entry["name"], shape, entry["dtype"], initial, ring, slot)

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
        capacity=form.get("capacity", 0),
        when_full=form.get("when_full", "refuse"),
        state=tuple(state_tensor(entry) for entry in form["state"]),
        cache=tuple(state_tensor(entry) for entry in form["cache"]),
        graphs={name: graph(name, entry) for name, entry in form["graphs"].items()},
        weights=form["weights"],
        golden=form["golden"],
        memory_plan=form["memory_plan"],
        precision=form["precision"],
        versions=form["versions"],
        resumes=tuple(form.get("resumes", ())),
    )


def _refuse(path: Path, error: Exception) -> NoReturn:
    reason = str(error) if len(str(error)) < LONG else f"{str(error)[:LONG]} …"
    raise BundleError(
        f"{path} is damaged ({type(error).__name__}: {reason}); copy or export the bundle again."
    ) from error


def require_hashes(manifest: Manifest) -> None:
    """Raise BundleError if a file of the bundle has another size or hash than the manifest says."""
    files = [(g.file, g.sha256, range(MOST_GRAPH_BYTES)) for g in manifest.graphs.values()]
    for entry in (manifest.weights, manifest.golden):
        n_bytes = entry["n_bytes"]
        files.append((entry["file"], entry["sha256"], range(n_bytes, n_bytes + 1)))
    for name, expected, sizes in files:
        path = manifest.path / name
        try:
            size = path.stat().st_size
            if size not in sizes:
                reason = f"it has {size} bytes, not {sizes.start} to {sizes.stop - 1}"
                raise BundleError(f"{path} was changed: {reason}; copy or export the bundle again.")
            digest = sha256_of(path)
        except FileNotFoundError:
            raise BundleError(
                f"{path} is missing though the manifest lists it; copy the whole bundle again."
            ) from None
        except OSError as error:
            raise BundleError(f"{path} cannot be read: {error.strerror}.") from error
        if digest != expected:
            raise BundleError(
                f"{path} was changed: its SHA-256 is {digest[:12]}…, the manifest says "
                f"{expected[:12]}…; copy or export the bundle again."
            )
