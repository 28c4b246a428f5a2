"""Build the C program of a bundle, or of a stand-in for a model, and run it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.cli.main import main
from edgefold.export.native.interface.template import filled
from edgefold.export.native.loop_program import loop_files, program_sources
from edgefold.export.native.toolchain.compilers import compile_program, find_compiler
from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import BackendError
from edgefold.runtime.stream.provenance import PROVENANCE

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
LARGE = ("ftruncate64", "open64", "pread64")
"""glibc's names of calls for large files."""
WRAPPED = ("write", "fsync", "rename", "ftruncate", "unlink", "open", "main", *LARGE[:2])
KILLS = tuple(f"-Wl,--wrap={name}" for name in WRAPPED)
"""Flags that `kill_at.c` needs."""
FAILS = tuple(
    f"-Wl,--wrap={name}" for name in ("read", "pread", "flock", "fsync", "open", *LARGE[1:])
)
"""Flags that `fail_at.c` needs."""
TRAP = ("-Wl,--wrap=run_loop",)
"""Flags that `malloc_trap.c` needs."""


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    code: int
    errors: str


@dataclass(frozen=True)
class Program:
    """A compiled program."""

    path: Path

    def run(self, *words: object, **settings: Any) -> Ended:
        """Run it; `given` is its standard input, other settings are subprocess's."""
        given = settings.pop("given", b"")
        command = [str(self.path), *map(str, words)]
        done = subprocess.run(command, input=given, capture_output=True, timeout=60, **settings)
        return Ended(done.returncode, done.stderr.decode(errors="replace"))


def exported(example: str, bundle: Path, *words: str) -> Path:
    """Export a model of examples/, FILE:CLASS, or of the registry, untrained."""
    file = f"{ROOT}/examples/{example.replace(':', '.py:')}"
    model = file if ":" in example else example
    sizes = ("--chunk", "4", "--targets", "2", "--parity-steps", "24")
    assert main(["export", model, "--out", str(bundle), *sizes, *words]) == 0
    return bundle


def built(
    files: Mapping[str, str], folder: Path, flags: Sequence[str], also: Sequence[str]
) -> Program:
    """Compile files and further ones of this folder; skips where there is no compiler."""
    try:
        compiler = find_compiler(extra=("-O1", *flags))
    except BackendError as error:
        pytest.skip(str(error))
    folder.mkdir(parents=True, exist_ok=True)
    more = {name: (HERE / name).read_text() for name in also}
    return Program(compile_program({**files, **more}, compiler, folder))


def of_bundle(bundle: Path, folder: Path, flags: Sequence[str] = (), *also: str) -> Program:
    """Compile the program of a bundle."""
    return built(program_sources(bundle), folder, flags, also)


def echoing(folder: Path, flags: Sequence[str] = (), *also: str, **replaced: str) -> Program:
    """Compile the loop around `echo_model.c`; replaced: other texts of files, without ".c"."""
    return built(
        {**echo_files(), **{f"{n}.c": t for n, t in replaced.items()}}, folder, flags, also
    )


def echo_files() -> dict[str, str]:
    sizes = {"INPUTS": 1, "OUTPUTS": 1, "ERRORS": 1, "TOLD_BYTES": 400}
    echo = {"echo_model.c": (HERE / "echo_model.c").read_text()}
    return {**loop_files(), **echo, "program_sizes.h": filled("program_sizes.h", sizes)}


def written(folder: Path) -> list[Path]:
    """Write the files of the echoing program; the sources among them."""
    for name, text in echo_files().items():
        (folder / name).write_text(text)
    return sorted(folder.glob("*.c"))


def kept(snapshot: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """The loop's record and all other arrays of a snapshot.

    The output's name is left out, and which rows were learned, which C does not state.
    """
    with np.load(snapshot) as archive:
        arrays = {name: archive[name] for name in archive.files}
    record = json.loads(arrays.pop("extra.loop").tobytes())
    record["output"].pop("name", None)
    record.pop("row", None)
    arrays.pop(f"extra.{PROVENANCE}", None)
    own = json.loads(arrays.pop("record").tobytes())
    own.pop("sha256")
    return {**record, "own": own}, arrays
