"""Read a bundle's manifest, verify it against its files, and seal a new one.

Reading checks the schema, the manifest's own SHA-256, every figure that the runtime relies on later
(`edgefold.runtime.bundle.manifest_rules`) and every file's hash, in this order. It does not open a
graph.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from edgefold.runtime.bundle.manifest import FILE_NAME, Manifest
from edgefold.runtime.bundle.manifest_form import parse
from edgefold.runtime.bundle.manifest_rules import require_sound
from edgefold.runtime.bundle.onnx_file import MOST_BYTES as MOST_GRAPH_BYTES
from edgefold.runtime.errors import BundleError, DataError
from edgefold.runtime.hashing import sha256, sha256_of
from edgefold.runtime.plain_files import open_plain

SCHEMA = 2
LONG = 500  # characters of an error that names what it found
PARSE_ERRORS = (
    *(AssertionError, AttributeError, KeyError, TypeError, ValueError),
    *(OverflowError, RecursionError),
)
"""Exceptions that damaged JSON can cause."""
MOST_BYTES = 8_000_000
"""Of a manifest, whose numbers take 20 times as much in memory. Our largest has 0.02 MB; 300,000
columns would be 8 MB."""


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
        with open_plain(path) as file:
            raw = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise BundleError(
            f"{folder} is not a bundle: {FILE_NAME} is missing. "
            "Make one with `edgefold export RUN --out BUNDLE`."
        ) from None
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}.") from error
    if len(raw) > MOST_BYTES:
        raise BundleError(f"{path} is larger than {MOST_BYTES // 10**6} MB; export it again.")
    try:
        form = json.loads(raw)
        schema = form["schema"]
        sealed = form.get("sha256") and with_checksum(form)["sha256"]
    except PARSE_ERRORS as error:
        _refuse(path, error)
    if type(schema) is not int or schema != SCHEMA:
        newer = type(schema) is int and schema > SCHEMA
        remedy = "upgrade edgefold here" if newer else "export it again"
        told = schema if type(schema) is int and abs(schema) < 10**9 else "of another kind"
        raise BundleError(
            f"{path} has schema {told}, this version of edgefold reads {SCHEMA}; {remedy}."
        )
    if "sha256" not in form:
        raise BundleError(
            f"{path} has no SHA-256 of its content, as older versions wrote it; export it again."
        )
    if form["sha256"] != sealed:
        raise BundleError(
            f"{path} was changed: its content does not match the SHA-256 in it; "
            "copy or export the bundle again."
        )
    try:
        manifest = parse(form, folder, sha256(raw).hexdigest())
        require_sound(manifest)
    except (*PARSE_ERRORS, DataError) as error:
        _refuse(path, error)
    if verify:
        _verify(manifest)
    return manifest


def _refuse(path: Path, error: Exception) -> NoReturn:
    what = str(error) if len(str(error)) < LONG else f"{str(error)[:LONG]} …"
    raise BundleError(
        f"{path} is damaged ({type(error).__name__}: {what}); copy or export the bundle again."
    ) from error


def _verify(manifest: Manifest) -> None:
    """Compare every file with its size and its hash."""
    files = [(g.file, g.sha256, range(MOST_GRAPH_BYTES)) for g in manifest.graphs.values()]
    for entry in (manifest.weights, manifest.golden):
        n_bytes = entry["n_bytes"]
        files.append((entry["file"], entry["sha256"], range(n_bytes, n_bytes + 1)))
    for name, expected, sizes in files:
        path = manifest.path / name
        try:
            size = path.stat().st_size
            if size not in sizes:
                told = f"it has {size} bytes, not {sizes.start} to {sizes.stop - 1}"
                raise BundleError(f"{path} was changed: {told}; copy or export the bundle again.")
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
