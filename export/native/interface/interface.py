"""Write the generated C around the graph functions: the struct, the API, the snapshots.

The C does what `edgefold.runtime.stream.stream.Stream` does. State tensors exist twice: a step
reads one side and writes the other, and one assignment commits it. Rows of rings are written after
the commit, consolidations run when they are due, and the cache is refreshed only if it is stale.
Text that is the same for all bundles lies in the folder `c`; this module writes the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgefold.export.native.interface.graph_function import GraphFunction
from edgefold.export.native.interface.interface_steps import library, step_words
from edgefold.export.native.interface.snapshot_size import snapshot_bytes
from edgefold.export.native.interface.state_text import ring_places, state_words
from edgefold.export.native.interface.stream_struct import StreamStruct
from edgefold.export.native.interface.template import filled, fixed
from edgefold.export.native.licence import version_words
from edgefold.export.native.program.c_words import C_TYPES, c_identifier
from edgefold.export.native.sensors.engine import engine_of
from edgefold.export.native.sensors.sensor_bundle import is_of_sensors
from edgefold.runtime.bundle.manifest import Manifest, WeightPlace
from edgefold.runtime.errors import ExportError
from edgefold.runtime.stream.point_updates import FEW

ALIGNMENT = 64
SNAPSHOT_FILES = ("sha256.c", "npz_write.c", "npz_read.c", "snapshot.c")
NOT_USED = (("x", "points.x"), ("y", "points.y"), ("targets", "targets.x"))


def interface_of(
    manifest: Manifest, name: str, functions: Sequence[GraphFunction], weight_bytes: int
) -> tuple[str, str]:
    """Write the header and the C source around the graph functions of a bundle.

    Args:
        manifest: The bundle's manifest.
        name: Name of the model, an identifier of C.
        functions: The C function of each graph.
        weight_bytes: Number of bytes of the constants of all graph functions.

    Returns:
        The text of edgefold_NAME.h, and the text after the graph functions in edgefold_NAME.c.

    Raises:
        ExportError: The bundle has something that the C interface does not cover.
    """
    struct = StreamStruct(manifest, f"edgefold_{name}")
    by_name = {function.graph.name: function for function in functions}
    words = {**_facts(manifest, name), **_sizes(struct, functions, weight_bytes)}
    words |= version_words()
    words |= step_words(struct, by_name) | state_words(struct)
    engine = engine_of(struct, words)
    words |= {"engine": engine.header, "scratch": engine.scratch}
    header = filled("stream.h", {**words, "members": struct.text, "memory": struct.memory_text})
    types = sorted({t.dtype for t in manifest.prediction_tensors})
    tells = [filled("tell.c", {**words, "dtype": d, "type": C_TYPES[d]}) for d in types]
    parts = [
        filled("stream.c", {**words, "tells": "".join(tells)}),
        "#ifndef EDGEFOLD_WITHOUT_SNAPSHOTS\n",
        *map(fixed, SNAPSHOT_FILES),
        filled("keep.c", words),
        "#endif\n",
        library(struct, by_name, words),
        engine.source,
    ]
    return header, "\n".join(parts)


def _facts(m: Manifest, name: str) -> dict[str, object]:
    """Return facts of a bundle, such as `n_inputs`, by the word that each replaces in templates.

    ExportError is raised for a bundle without state, or if other graphs than the learning one write
    its rings.
    """
    roles = {t.role for g in m.graphs.values() for t in g.inputs}
    rings = [t for t in m.state if t.ring is not None]
    rows = {t.of for t in m.learns_from[0].with_role("row")}
    if not m.state or (rings and (m.of_step("condition") or rows != {t.name for t in rings})):
        raise ExportError(
            f"{m.path} cannot become C: a state must be there, and its rings must all be written "
            "by the one graph that learns."
        )
    stream = f"edgefold_{name}"
    init = f"void {stream}_init(struct {stream} *stream{', const int64_t *seeds' * m.takes_seed})"
    seeds = " Each stream computes its\n * random numbers of its seed, 0 to 2**63 - 1; NULL is 0."
    title = f"{m.model.get('name', name)}: {m.model.get('summary', name)}".replace("*/", "* /")
    return {
        "stream": stream,
        "NAME": stream.upper(),
        "title": title,
        "bundle": m.bundle_hash,
        "resumes": "".join(f'    "{digest}",\n' for digest in m.resumes),
        "init": init,
        "init_call": f"{stream}_init(&stream{', NULL' * m.takes_seed})",
        "first": c_identifier(m.prediction_tensors[0].name),
        "seed_text": seeds * m.takes_seed,
        "streams": m.n_streams,
        "for_streams": "" if m.n_streams == 1 else ", stream after stream",
        "n_inputs": m.n_inputs,
        "n_outputs": m.n_outputs,
        "every": m.consolidate_every,
        "few": FEW,
        "limit": f"{m.prediction.largest_input:g}",
        "number": _number_type(m),
        "one": "step" if m.is_filter else "update",
        "filter": m.is_filter,
        "condition": bool(m.of_step("condition")),
        "consolidate": bool(m.consolidate_every and m.of_step("consolidate")),
        "merge": bool(m.of_step("merge")),
        "refresh": bool(m.of_step("refresh")),
        "rings": bool(rings),
        "settle_query": bool(rings and not m.of_step("refresh")),
        "room": m.room is not None,
        "room_n": m.room or 0,
        "chunk": m.chunk,
        "targets_n": m.targets,
        "filter_n": int(m.is_filter),
        "takes_seed": int(m.takes_seed),
        "sensors": is_of_sensors(m),
        "linkage": "static " * is_of_sensors(m),
        "x": "points.x" in roles,
        "y": "points.y" in roles,
        "targets": "targets.x" in roles,
        "takes": bool(roles & {"points.x", "points.y", "targets.x"}),
        "finite": any(g.with_role("finite") for g in m.graphs.values()),
        "full": ", EDGEFOLD_FULL" * (m.room is not None),
        "bad_slot": ", EDGEFOLD_BAD_SLOT" * any(t.slot is not None for t in rings),
        **{f"none_{w}": "" if r in roles else " that is not looked at" for w, r in NOT_USED},
    }


def _number_type(m: Manifest) -> str:
    """Return the C type of points, targets and outputs `finite`, float or double.

    ExportError is raised for other or several types, and for predictions in float16.
    """
    roles = ("points.x", "points.y", "targets.x", "finite")
    dtypes = {t.dtype for g in m.graphs.values() for role in roles for t in g.with_role(role)}
    predicted = {t.dtype for t in m.prediction_tensors}
    if len(dtypes) > 1 or not dtypes <= {"float32", "float64"} or "float16" in predicted:
        raise ExportError(
            f"{m.path} takes {', '.join(sorted(dtypes))} and gives {', '.join(sorted(predicted))}; "
            "C takes float32 or float64 alone, and gives no float16."
        )
    return C_TYPES[dtypes.pop()] if dtypes else "float"


def arena_sizes(struct: StreamStruct, functions: Sequence[GraphFunction]) -> tuple[int, int]:
    """Return the bytes of the arena: in which steps compute, and if snapshots can be loaded too.

    The loading of a snapshot keeps the rings there until it has judged everything.
    """
    arena = max(ALIGNMENT, *(function.arena_bytes for function in functions))
    return arena, max(arena, *(end for _, end in ring_places(struct).values()), 0)


def flash_bytes(m: Manifest, weight_bytes: int) -> int:
    """Return the bytes of all constants of a bundle: weights, scaling, the state's first values."""
    tables = sum(16 * len(s.shift) for s in (m.scaling_x, m.scaling_y) if not s.is_identity)
    stored = {t.initial for t in m.state if isinstance(t.initial, WeightPlace)}
    return weight_bytes + tables + sum(place.n_bytes for place in stored)


def _sizes(
    struct: StreamStruct, functions: Sequence[GraphFunction], weight_bytes: int
) -> dict[str, object]:
    """Return sizes in bytes, such as that of the struct, by the header template's word for each."""
    m = struct.manifest
    members = (*struct.state.values(), *struct.rows.values(), *struct.cache.values())
    arena, load = arena_sizes(struct, functions)
    return {
        "arena_bytes": arena,
        "waits": bool(ring_places(struct)),
        "load_bytes": load,
        "state_bytes": sum(member.n_bytes for member in members),
        "struct_bytes": struct.n_bytes,
        "snapshot_bytes": snapshot_bytes(m),
        "weight_bytes": weight_bytes,
        "flash_bytes": flash_bytes(m, weight_bytes),
    }
