"""Write a firmware that replays a bundle's recorded golden stream, on a board or in qemu.

The golden stream holds the points and predictions that were recorded at export. The files are:

edgefold_NAME.h .c _data.c    the bundle as C, written by `generate`
golden.h                      its golden stream, and the bundle's functions under fixed names
golden_replay.c .h            main(): learns, predicts, compares, counts instructions, saves, loads
replay_parts.h                what it shares with the replay of sensors
machine_*.c, *.ld             code and memory layout of the machine (`machines.py`)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from edgefold.export.native.generator import generate
from edgefold.export.native.licence import licensed
from edgefold.export.native.toolchain.machines import FIXED, FirmwareMachine
from edgefold.runtime.arrays import Array
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.checking.golden import Golden
from edgefold.runtime.errors import ExportError
from edgefold.runtime.predictions.base import PredictionTensor

PARTS = "replay_parts.h"
"""The file of what all replays of recorded streams do alike."""
REPLAY = ("golden_replay.c", "golden_replay.h", PARTS)


def replay_sources(
    bundle: Path, machine: FirmwareMachine, name: str | None = None
) -> dict[str, str]:
    """Return all files of a firmware that replays the bundle's golden stream, by their names.

    Raises:
        ExportError: The generator does not cover the bundle, or it serves several streams.
        BundleError: The bundle or its golden stream is damaged.
    """
    manifest = load_manifest(bundle)
    if manifest.n_streams != 1:
        raise ExportError(
            f"{bundle} serves {manifest.n_streams} streams side by side; the firmware replays one. "
            "Export it with --streams 1."
        )
    native = generate(bundle, name)
    golden = golden_header(manifest, Golden.load(manifest), native.name)
    replay = {file: (FIXED / file).read_text(encoding="utf-8") for file in REPLAY}
    around = licensed({"golden.h": golden, **replay, **machine.sources()})
    return {**native.files, **around}


def golden_header(manifest: Manifest, golden: Golden, name: str) -> str:
    """Return the text of golden.h: arrays of the golden stream, and C functions `golden_*`.

    The functions call `edgefold_NAME_*` of the bundle, where NAME is `name`.
    """
    sizes = {
        "INPUTS": manifest.n_inputs,
        "OUTPUTS": golden.y.shape[2],
        "CONDITION": golden.n_condition,
        "MOMENTS": len(golden.moments),
        "TARGETS": 1 if manifest.is_filter else golden.targets.shape[1],
        "WIDEST": manifest.targets,
    }
    arrays = {"x": golden.x, "y": golden.y, "targets": golden.targets}
    tensors = []
    for tensor in manifest.prediction_tensors:
        expected = golden.predictions[tensor.name]
        c_name = re.sub(r"\W", "_", tensor.name, flags=re.ASCII)
        arrays |= {c_name: expected, f"{c_name}_unit": _units(manifest, tensor, expected)}
        size = int(np.prod(tensor.shape, dtype=int))
        tensors.append(
            f'    {{"{tensor.name}", golden_stream.prediction_{tensor.name}, golden_{tensor.name}, '
            f"golden_{tensor.name}_unit, {size}}},"
        )
    lines = [
        f"/* The golden stream of bundle {manifest.bundle_hash},",
        "   as it was recorded at export, in raw units. Written by edgefold; do not edit. */",
        f'#include "edgefold_{name}.h"',
        '#include "golden_replay.h"',
        "",
        *(f"#define GOLDEN_{size} {n}" for size, n in sizes.items()),
        f"#define GOLDEN_SNAPSHOT_BYTES EDGEFOLD_{name.upper()}_SNAPSHOT_BYTES",
        f'#define GOLDEN_LEARN "{"step" if manifest.is_filter else "update"}"',
        "",
        f"static const double golden_tolerance = {golden.tolerance!r};",
        _c_array("size_t", "moments", golden.moments),
        *(_c_array("double", each, array) for each, array in arrays.items()),
        f"static struct edgefold_{name} golden_stream;",
        "static const struct golden_tensor golden_tensors[] = {",
        *tensors,
        "};",
        "",
        *_calls(manifest, name),
    ]
    return "\n".join(lines)


def _units(manifest: Manifest, tensor: PredictionTensor, expected: Array) -> Array:
    """Return the numbers that divide a tensor's errors, (J, *shape), at the J recorded moments.

    They are scales of y; for a tensor without units, the largest number in `expected` at the
    moment, if it exceeds 1. `expected` holds the tensor's recorded numbers, (J, B, M, *shape).
    """
    shape = (len(expected), *tensor.shape)
    if tensor.unscale == "none":
        largest = np.abs(expected.astype(float)).max(axis=tuple(range(1, expected.ndim)))
        unit = np.maximum(1.0, largest).reshape(-1, *(1 for _ in tensor.shape))
    else:
        unit = manifest.scaling_y.of(tensor.unscale)[0]
    return np.broadcast_to(unit, shape)


def _c_array(kind: str, name: str, array: Array) -> str:
    flat = array.ravel().astype(int if kind == "size_t" else float).tolist()
    numbers = [repr(number) for number in flat] or ["0"]  # C has no empty array
    rows = (", ".join(numbers[i : i + 8]) for i in range(0, len(numbers), 8))
    body = ",\n    ".join(rows)
    return f"static const {kind} golden_{name}[] = {{\n    {body},\n}};"


def _calls(manifest: Manifest, name: str) -> list[str]:
    """Return the C lines of `golden_learn`, `golden_query` and others, which the replay calls.

    Each calls the bundle's function for this, or returns EDGEFOLD_OK if the bundle has none.
    """
    start, ok, void = f"return edgefold_{name}_", "return EDGEFOLD_OK;", "(void)"
    points, point = "size_t n, const double *x", "const double *x, const double *y"
    if manifest.is_filter:
        bodies: Mapping[str, tuple[str, str]] = {
            "learn": (point, f"{void}y;\n    {start}step(&golden_stream, x);"),
            "condition": (f"{points}, const double *y", f"{void}n, {void}x, {void}y;\n    {ok}"),
            "query": (points, f"{void}n, {void}x;\n    {ok}"),
        }
    else:
        bodies = {
            "learn": (point, f"{start}update(&golden_stream, x, y);"),
            "condition": (
                f"{points}, const double *y",
                f"{start}condition(&golden_stream, n, x, y);",
            ),
            "query": (points, f"{start}query(&golden_stream, n, x);"),
        }
    snapshots = {
        "save": (
            "edgefold_write *write, void *to",
            f"{start}save(&golden_stream, write, to, NULL, 0);",
        ),
        "load": ("edgefold_read *read", f"{start}load(&golden_stream, read, NULL, NULL, 0);"),
    }
    refresh = f"{start}refresh(&golden_stream);" if manifest.of_step("refresh") else ok
    lines = [
        "static void golden_begin(void)",
        "{",
        f"    edgefold_{name}_init(&golden_stream{', NULL' * manifest.takes_seed});",
        "}",
        "",
    ]
    for call, (arguments, body) in {**bodies, "refresh": ("void", refresh), **snapshots}.items():
        lines += [f"static enum edgefold_status golden_{call}({arguments})", "{", f"    {body}"]
        lines += ["}", ""]
    return lines
