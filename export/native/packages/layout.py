"""Lay out generated C as a library, in the folders and with the files that an ecosystem expects.

    C files by name ──────┐
    words (name, sizes)   ├──> src/, a manifest, an example, a README by their paths
    templates/KIND/ ──────┘

The folder of a kind holds its files where they lie in the library; NAME in a path is replaced by
the library's name. `<<word>>` in a file is replaced by the value of the word, and lines between
`@if word` and `@end` are kept if it is true. All .c and .h files lie in src/, whatever they are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from edgefold.export.native.interface.template import filled_text
from edgefold.export.native.licence import version_words
from edgefold.export.native.program.c_words import c_identifier
from edgefold.export.native.sensors.sensor_bundle import is_of_sensors
from edgefold.export.native.toolchain.compilers import FLAGS, LEVELS
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import ExportError

if TYPE_CHECKING:
    from edgefold.export.native.generator import NativeSource

FOLDER = Path(__file__).parent / "templates"
KINDS = tuple(sorted(path.name for path in FOLDER.iterdir() if path.is_dir()))
"""The ecosystems: Arduino, CMake, ESP-IDF, PlatformIO and Zephyr."""
PLACE = "src"
MOST_NAME = 63
"""Longest name of a library of Arduino."""
FUNCTION = re.compile(r"^[a-z][\w ]*?[ *](edgefold_\w+)\(", re.MULTILINE)
STRUCT = re.compile(r"^(?:struct|enum) (edgefold_\w+) \{", re.MULTILINE)
CONSTANT = re.compile(r"^(?:#define (?=\w+ \S)|    )(EDGEFOLD_\w+)", re.MULTILINE)


class AngleTemplate(Template):
    """Replaces <<word>>; `$` and `@` have meanings of their own in the files of build systems."""

    pattern = r"<<(?P<named>\w+)>>|(?P<escaped>(?!))|(?P<braced>(?!))|(?P<invalid>(?!))"  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class CLibrary:
    """Describes C files that become a library.

    Attributes:
        name: Name of the library, of its header and of the struct, such as "edgefold_sensors".
        files: Texts of the .c and .h files by name.
        words: Values of the words of the templates, but for those of `files`.
    """

    name: str
    files: Mapping[str, str]
    words: Mapping[str, object]


def library_of(
    manifest: Manifest, native: NativeSource, more: Mapping[str, str] | None = None
) -> CLibrary:
    """Return a bundle's C as a library.

    Args:
        manifest: The bundle's manifest.
        native: The generated C.
        more: Texts of further .c and .h files by name.

    Raises:
        ExportError: The name of the model is too long for a library.
    """
    name = f"edgefold_{native.name}"
    if len(name) > MOST_NAME:
        raise ExportError(f"{name} is too long for a library; choose a shorter --name.")
    version = version_words()
    ram_bytes = native.struct_bytes + native.loading_bytes
    kib = {"ram_kib": ram_bytes, "flash_kib": native.flash_bytes}
    title = plain_title(str(manifest.model.get("name", native.name)))
    words = {
        "library": name,
        "NAME": name.upper(),
        "version": f"{version['major']}.{version['minor']}.{version['patch']}",
        "sentence": f"The streaming model {title} as C, which learns row by row",
        "paragraph": f"It takes {ram_bytes:,} bytes of RAM, {native.flash_bytes:,} bytes of "
        "constants, and no heap.",
        "flags": " ".join((*FLAGS[1:], *LEVELS["gcc"])),
        "flags_json": json.dumps([*FLAGS[1:], *LEVELS["gcc"]]),
        **{word: -(-n_bytes // 1024) for word, n_bytes in kib.items()},
        **_example_words(manifest, name),
    }
    return CLibrary(name, {**native.files, **(more or {})}, words)


def plain_title(text: str) -> str:
    """Return a text without the characters that mean something in a manifest of any kind."""
    return re.sub(r"[^\w .,()+-]", "", text, flags=re.ASCII).strip()[:60]


def _example_words(manifest: Manifest, name: str) -> dict[str, object]:
    """Return what the example of a library needs to know of its model."""
    is_sensor = is_of_sensors(manifest)
    first = c_identifier(manifest.prediction_tensors[0].name)
    init = f"{name}_init(&stream{', NULL' * manifest.takes_seed})"
    n_x = manifest.n_streams * manifest.n_inputs
    n_y = manifest.n_streams * manifest.n_outputs
    return {
        "sensor": is_sensor,
        "filter": manifest.is_filter,
        "n_x": n_x,
        "n_y": n_y,
        "x": "x" if n_x else "NULL",
        "y": "y" if n_y else "NULL",
        "first": first,
        "n_rows": 128 if is_sensor else 48,
        "stack_bytes": 6144 if is_sensor else 4096,
        "snapshots_kb": 20 if is_sensor else 8,
        "what_it_does": "Predicts each row, then learns it, and prints the prediction"
        + (" and alarms." if is_sensor else "."),
        "init": f"{name}_start(&stream, 1e-4)" if is_sensor else init,
    }


def package_files(kind: str, library: CLibrary, mark: str = "") -> dict[str, str]:
    """Return all files of a library by their paths, with `/` between folders.

    Args:
        kind: One of `KINDS`.
        library: The C files and the words that describe them.
        mark: Sentence for files that have no comments, as JSON.
    """
    headers = sorted(name for name in library.files if name.endswith(".h"))
    sources = sorted(name for name in library.files if name.endswith(".c"))
    words = {
        **library.words,
        "mark": mark,
        "source_lines": _lines(sources),
        "header_lines": _lines(headers),
        "keywords": _keywords(library.files[name] for name in headers),
    }
    words["turn"] = _filled("turn.c", words)
    words["sketch"] = _filled("sketch.cpp", words).rstrip()
    files = {f"{PLACE}/{name}": text for name, text in library.files.items()}
    for path in sorted((FOLDER / kind).rglob("*")):
        if path.is_file():
            place = path.relative_to(FOLDER / kind).as_posix().replace("NAME", library.name)
            files[place] = _filled(path.relative_to(FOLDER), words)
    return files


def _filled(template: str | Path, words: Mapping[str, object]) -> str:
    return filled_text((FOLDER / template).read_text(encoding="utf-8"), words, AngleTemplate)


def _lines(names: list[str]) -> str:
    return "\n".join(f"    {PLACE}/{name}" for name in names)


def _keywords(headers: Iterable[str]) -> str:
    """Return the lines by which the Arduino IDE colours what headers declare."""
    text = "\n".join(headers)
    kinds = {"KEYWORD1": STRUCT, "KEYWORD2": FUNCTION, "LITERAL1": CONSTANT}
    return "\n".join(
        f"{name}\t{kind}"
        for kind, pattern in kinds.items()
        for name in sorted(set(pattern.findall(text)))
    )
