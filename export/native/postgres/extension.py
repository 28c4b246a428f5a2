"""Lay out generated C as an extension of PostgreSQL: an aggregate whose result is a state.

    C files by name ─────────────────┐
    words (columns, sizes, scaling)  ├──> src/, Makefile, NAME.control, NAME--1.0.sql, README.md
    templates/ ──────────────────────┘

PostgreSQL asks of an aggregate that may run in parallel what a model with a graph `merge` has: a
state that takes rows, and a function that joins two states. NAME in a path is replaced by the
extension's name, which is the model's.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.export.native.interface.interface_steps import scaled_function
from edgefold.export.native.interface.stream_struct import StreamStruct
from edgefold.export.native.interface.template import filled_text
from edgefold.export.native.packages.layout import AngleTemplate, plain_title
from edgefold.export.native.program.c_words import c_identifier
from edgefold.export.native.toolchain.compilers import FLAGS, LEVELS
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import ExportError

if TYPE_CHECKING:
    from edgefold.export.native.generator import NativeSource

FOLDER = Path(__file__).parent / "templates"
PLACE = "src"
MOST_ARGUMENTS = 100
"""FUNC_MAX_ARGS of PostgreSQL: arguments of a function; a transition function's first is the
state."""
MOST_SHOWN = 8
"""Columns that the README names one by one; of more it shows arrays."""
MOST_NAME = 63 - len("_deserialize")
"""Longest name of an extension. PostgreSQL cuts names after 63 bytes, and the longest one here is
that of the function that ends so."""
NUMBER = "double precision"


def extension_files(manifest: Manifest, native: NativeSource) -> dict[str, str]:
    """Return all files of an extension by their paths, with `/` between folders.

    Args:
        manifest: The bundle's manifest.
        native: The generated C.

    Raises:
        ExportError: The bundle has no states that merge, or its name is no name for an extension.
    """
    _require_fit(manifest, native.name)
    words = _words(manifest, native)
    files = {f"{PLACE}/{name}": text for name, text in native.files.items()}
    for path in sorted(FOLDER.rglob("*")):
        if path.is_file():
            place = path.relative_to(FOLDER).as_posix().replace("NAME", native.name)
            files[place] = filled_text(path.read_text(encoding="utf-8"), words, AngleTemplate)
    return files


def _require_fit(m: Manifest, name: str) -> None:
    """Refuse a bundle that gives no aggregate; ExportError says why."""
    if m.is_filter or not m.of_step("merge"):
        kind = "filters: it has no points to collect" if m.is_filter else "has no graph `merge`"
        raise ExportError(
            f"{m.path} {kind}, and an aggregate of PostgreSQL needs states that merge; "
            "docs/models.md lists the models that have them. A bundle that was exported before "
            "there were such graphs gets one when it is exported again."
        )
    if m.n_streams > 1:
        raise ExportError(
            f"{m.path} serves {m.n_streams} streams at once, and an aggregate one for each group; "
            "export it with --streams 1."
        )
    if not re.fullmatch(rf"[a-z_]\w{{0,{MOST_NAME - 1}}}", name, re.ASCII):
        raise ExportError(
            f"{name} is no name for an extension of PostgreSQL, which begins with a letter and has "
            f"{MOST_NAME} characters at most; choose another --name."
        )


def _words(m: Manifest, native: NativeSource) -> dict[str, Any]:
    """Return the words of the templates."""
    roles = {tensor.role for graph in m.graphs.values() for tensor in graph.inputs}
    takes_x, takes_y = bool(roles & {"points.x", "targets.x"}), "points.y" in roles
    scaled = [scaled_function("x", m.scaling_x)] * takes_x
    scaled += [scaled_function("y", m.scaling_y)] * takes_y
    library = f"edgefold_{native.name}"
    numbers = 8 * m.chunk * (max(m.n_inputs, 1) + max(m.n_outputs, 1))
    return {
        "name": native.name,
        "NAME": library.upper(),
        "library": library,
        "bundle": m.bundle_hash,
        "comment": f"states of the streaming model {plain_title(str(m.model.get('name', '')))}",
        "flags": " ".join((*FLAGS, *LEVELS["gcc"])),
        "limit": f"{m.prediction.largest_input:g}",
        "room": "2^62" if m.room is None else m.room,
        "seeds": ", NULL" * m.takes_seed,
        "scaled": "\n".join(scaled),
        "takes_x": takes_x,
        "takes_y": takes_y,
        "x": bool(m.n_inputs),
        "chunk": m.chunk,
        "state_bytes": 8 + numbers + native.struct_bytes,
        **_sql_words(m),
        **_prediction_words(m, library),
    }


def _columns(axis: str, n: int) -> list[str]:
    """Return the names of n columns: x, or x1 and those that follow."""
    return [axis] if n == 1 else [f"{axis}{i + 1}" for i in range(n)]


def _sql_words(m: Manifest) -> dict[str, Any]:
    """Return lists of arguments as SQL has them."""
    x, y = _columns("x", m.n_inputs), _columns("y", m.n_outputs)
    arrays = ["x"] * bool(x) + ["y"] * bool(y)
    scalars = 1 + len(x) + len(y) <= MOST_ARGUMENTS
    array, wide = f"{NUMBER}[]", len(x) + len(y) > MOST_SHOWN
    shown = arrays if wide else [*x, *y]
    return {
        "scalars": scalars,
        "asks_scalars": 1 + len(x) <= MOST_ARGUMENTS,
        "scalars_named": ", ".join(f"{column} {NUMBER}" for column in (*x, *y)),
        "scalar_types": ", ".join([NUMBER] * len([*x, *y])),
        "arrays_named": ", ".join(f"{axis} {array}" for axis in arrays),
        "array_types": ", ".join([array] * len(arrays)),
        "columns": ", ".join(shown),
        "table_columns": ", ".join(f"{column} {array if wide else NUMBER}" for column in shown),
        "example_inputs": ", ARRAY[...]" * bool(x) if wide else ", 0.5" * len(x),
        "query_scalar_types": ", ".join(["bytea", *([NUMBER] * len(x))]),
    }


def _prediction_words(m: Manifest, library: str) -> dict[str, Any]:
    """Return the words of a query: its arguments in SQL, and how C fills its columns."""
    members = StreamStruct(m, library).predictions
    sizes = {name: member.size // m.targets for name, member in members.items()}
    columns = [
        f'OUT "{c_identifier(name)}" {NUMBER}{"[]" * (size > 1)}' for name, size in sizes.items()
    ]
    x = [f"{column} {NUMBER}" for column in _columns("x", m.n_inputs)]
    lines = [
        f"    values[{i}] = predicted(stream->{members[name].name}, {size});"
        for i, (name, size) in enumerate(sizes.items())
    ]
    return {
        "n_predicted": len(sizes),
        "most_numbers": max(sizes.values()),
        "predictions": "\n".join(lines),
        "predicted": ", ".join(c_identifier(name) for name in sizes),
        "query_scalars": ", ".join(["state bytea", *x, *columns]),
        "query_array": ", ".join(["state bytea", f"x {NUMBER}[]", *columns]),
    }
