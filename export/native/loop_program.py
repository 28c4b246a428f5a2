"""Write the loop of `edgefold run` as a C program of one bundle.

    generate(bundle)              edgefold_NAME.h, .c, _data.c     the model
    program_of(manifest, name)    program_sizes.h                  sizes of the program's buffers
                                  edgefold_NAME_program.c          the model as the loop sees it
    loop/*.c, *.h                 the loop, the same for every bundle

All .c files are compiled together. The program takes rows of points, or the inputs of a `step`
model. It computes no features of a series and serves one sensor; only `edgefold run` does more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.export.native.generator import generate
from edgefold.export.native.interface.template import filled, fixed
from edgefold.export.native.licence import licensed
from edgefold.export.native.program.c_words import model_identifier
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import ExportError
from edgefold.runtime.loop.adapters import adapter_for
from edgefold.runtime.loop.output_columns import COLUMN_NAMES, OutputColumns
from edgefold.runtime.predictions import Categorical, GaussianMixture, NextEvent
from edgefold.runtime.rows.row_format import kept_format

LOOP = Path(__file__).parent / "loop"
NUMBER_BYTES = 24
"""Largest number of bytes of a number with 9 digits and the comma before it, which is reserved for
each; the longest is -1.23456789e-308."""


@dataclass(frozen=True, slots=True)
class Told:
    """Describes the columns of the output that report one part of a prediction.

    Attributes:
        name: Name of the column; if there are several, a number follows it.
        place: C expression of a pointer to the numbers.
        n: Number of numbers, and of columns.
        words: Texts that are written instead of the numbers 0, 1, ...; empty to write the numbers.
    """

    name: str
    place: str
    n: int
    words: tuple[str, ...] = ()


def program_sources(bundle: Path, name: str | None = None) -> dict[str, str]:
    """Return all files of a bundle's program by name.

    Args:
        bundle: Folder of the bundle.
        name: A C identifier for its struct and functions; the model's name by default.

    Raises:
        BundleError: The bundle is damaged.
        ExportError: A program cannot serve the bundle, or an operator is not covered.
    """
    manifest = load_manifest(bundle)
    require_rows_of_points(manifest)
    source = generate(bundle, name)
    return {**source.files, **licensed({**loop_files(), **program_of(manifest, source.name)})}


def loop_files() -> dict[str, str]:
    """Return the files that are the same in every program, by name."""
    loop = {path.name: path.read_text() for path in sorted(LOOP.glob("*.[ch]"))}
    digest = f"#include <stdint.h>\n#include <string.h>\n\n{fixed('sha256.c')}"
    return {**loop, "sha256.h": digest}


def require_rows_of_points(manifest: Manifest) -> None:
    """Raise ExportError for a bundle that only `edgefold run` in Python can serve."""
    task, why = manifest.task, ""
    if task.get("name") == "series":
        why = (
            "the features of its series are computed in Python, and the program takes rows of "
            "points alone. Export a model that computes its features in its graphs"
        )
    elif task.get("rows") == "events":
        why = "its rows are events, whose times and marks are read in Python"
    elif manifest.n_streams != 1:
        why = (
            f"it has {manifest.n_streams} streams, and a row is of one. Export it with --streams 1"
        )
    elif not manifest.n_inputs and manifest.is_filter:
        why = "its rows have no columns"
    elif not (kept_format(task, {}).delimiter or ",").isascii():
        why = "its rows have a delimiter that is not ASCII"
    if why:
        raise ExportError(
            f"no program is written for {manifest.path}: {why}; or use `edgefold run`."
        )


def program_of(manifest: Manifest, name: str) -> dict[str, str]:
    """Return the texts of the C files that describe the bundle to the loop, by file name.

    Args:
        manifest: The bundle's manifest, which `require_rows_of_points` has accepted.
        name: Name of the generated model, a C identifier.
    """
    columns = OutputColumns(manifest, adapter_for(manifest), 4.0)
    parts = _told(manifest)
    n_outputs = 0 if manifest.is_filter else manifest.n_outputs
    numbers = sum(part.n for part in parts) + columns.n_errors + 2
    words = sum(2 * max(map(len, _bytes_of(part.words))) for part in parts if part.words)
    names = len(",".join(columns.names)) + sum(part.n * len(part.name) for part in parts)
    sizes = {
        "INPUTS": manifest.n_inputs,
        "OUTPUTS": n_outputs,
        "ERRORS": columns.n_errors,
        "TOLD_BYTES": max(NUMBER_BYTES * numbers + words, names) + 64,
    }
    settings = _settings(manifest, name, parts, columns)
    return {
        "program_sizes.h": filled("program_sizes.h", sizes),
        f"edgefold_{name}_program.c": filled("program_model.c", settings),
    }


def _settings(
    manifest: Manifest, name: str, parts: list[Told], columns: OutputColumns
) -> dict[str, Any]:
    """Return the values for the template program_model.c, by the word that each replaces.

    `parts` are the columns that report a prediction, `columns` describes all columns of the output.
    """
    tensors = _tensors(manifest)
    kind, format = manifest.prediction, kept_format(manifest.task, {})
    center = kind.center(tensors) if columns.has_errors else None
    deviation = kind.deviation(tensors) if columns.has_band else None
    return {
        "name": name,
        "NAME": name.upper(),
        "model_name": _text(str(manifest.model.get("name", "model"))),
        "version": _text(manifest.versions.get("edgefold", "")),
        "keeps": _text(manifest.keeps),
        "is_filter": str(manifest.is_filter).lower(),
        "delimiter": ord(format.delimiter or "\0"),
        "decimal": format.decimal,
        "missing": _text(",".join(format.missing)) if format.missing else "NULL",
        "n_inputs": manifest.n_inputs,
        "n_errors": columns.n_errors,
        "words": "".join(_words(index, part.words) for index, part in enumerate(parts)),
        "told": ",\n".join(_row(index, part) for index, part in enumerate(parts)),
        "center": _place(center, tensors, "center"),
        "deviation": _place(deviation, tensors, "deviation"),
        "computed": _computed(manifest),
        "filter": manifest.is_filter,
        "seed": manifest.takes_seed,
        "room": manifest.room is not None,
        "computes": isinstance(kind, (Categorical, NextEvent)),
        "mixes": isinstance(kind, GaussianMixture),
    }


def _tensors(manifest: Manifest) -> dict[str, Any]:
    """Return an array of zeros for each tensor of a prediction, by the tensor's name.

    Reported numbers are taken from them as views, whose place in C `_place` then finds.
    """
    return {tensor.name: np.zeros(tensor.shape) for tensor in manifest.prediction_tensors}


def _told(manifest: Manifest) -> list[Told]:
    tensors, kind = _tensors(manifest), manifest.prediction
    words = adapter_for(manifest).words
    parts = []
    for name, array in kind.told(tensors).items():
        place = _place(array, tensors, _COMPUTED.get(name, name))
        column = COLUMN_NAMES.get(name, name)
        parts.append(Told(column, place, array.size, tuple(words.get(name, ()))))
    return parts


_COMPUTED = {
    "class": "&chosen",
    "next_mark": "&chosen",
    "probability": "&probability",
    "next_mark_probability": "&probability",
    "mean": "center",
    "std": "deviation",
}
"""C names of the variables that hold numbers computed from a prediction's tensors."""


def _place(array: Any, tensors: dict[str, Any], computed: str = "") -> str:
    """Return the C pointer to the numbers of `array`, "NULL" if that is None.

    The array is a view of one of `tensors`. Otherwise C code computes the numbers, and the result
    is `computed`, the C expression for them.
    """
    if array is None:
        return "NULL"
    for name, tensor in tensors.items():
        if np.shares_memory(array, tensor) and array.flags.c_contiguous:
            offset = _address(array) - _address(tensor)
            member = f"stream.prediction_{model_identifier(name)}"
            return f"{member} + {offset // tensor.itemsize}" if offset else member
    return computed


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _computed(manifest: Manifest) -> str:
    """Return C statements that compute reported numbers that are in no tensor, such as a class."""
    kind, n_outputs = manifest.prediction, manifest.n_outputs
    if isinstance(kind, GaussianMixture):
        sizes = f"{kind.n_components}, {n_outputs}"
        mean, std = "stream.prediction_mean", "stream.prediction_std"
        return (
            f"mixture_center({mean}, {sizes}, center);\n"
            f"    mixture_deviation({mean}, {std}, {sizes}, center, deviation);"
        )
    if isinstance(kind, Categorical):
        scores, n = "stream.prediction_scores", kind.n_classes
        return (
            f"chosen = (double)largest({scores}, {n});\n"
            f"    probability = class_probability({scores}, {n}, (size_t)chosen);"
        )
    if isinstance(kind, NextEvent):
        marks = "stream.prediction_mark_probabilities"
        return (
            f"chosen = (double)largest({marks}, {kind.n_marks});\n"
            f"    probability = {marks}[(size_t)chosen];"
        )
    return ""


def _row(index: int, part: Told) -> str:
    words = f"words_{index}" if part.words else "NULL"
    return f"    {{{_text(part.name)}, {part.place}, {part.n}, {words}}}"


def _words(index: int, words: Iterable[str]) -> str:
    listed = ", ".join(map(_text, words))
    return f"static const char *const words_{index}[] = {{{listed}}};\n" if listed else ""


def _bytes_of(words: Iterable[str]) -> list[bytes]:
    return [word.encode() for word in words]


def _text(text: str) -> str:
    """Return a text as a C string literal, in UTF-8."""
    signs = (
        chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode()
    )
    return f'"{"".join(signs)}"'
