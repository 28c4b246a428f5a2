"""Write libraries of the tests' bundles, and find the tools that judge them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgefold.export.native.generator import NativeSource
from edgefold.export.native.packages.layout import CLibrary, library_of
from edgefold.runtime.bundle.manifest import Manifest
from tests.export.native.c_streams import NAME, stubbed_files

ROOT = Path(__file__).parents[4]
TOOLS = ROOT / ".libraries" / "bin"
"""Where .ci/run installs the group `libraries` of pyproject.toml, next to the main environment."""
STUBS = Path(__file__).parent / "stubs"


def tool(name: str) -> str:
    """The path of a program of the ecosystems; the test is skipped where it is missing."""
    found = shutil.which(name, path=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip(
            f"{name} is not installed: python -m venv .libraries && .libraries/bin/pip install "
            "--group libraries, as .ci/run does"
        )
    return found


def python_of(name: str) -> str:
    """The Python of the environment in which a program of the ecosystems is installed."""
    folder = Path(tool(name)).parent
    return str(next(folder / word for word in ("python", "python3") if (folder / word).exists()))


def run(*command: object, folder: Path | None = None) -> str:
    """Run a command that must succeed; returns what it printed."""
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def stubbed_library(manifest: Manifest, more: Mapping[str, str] | None = None) -> CLibrary:
    """A library whose C is quick to write: the graphs' functions do nothing."""
    files = stubbed_files(manifest)
    header, source = files[f"edgefold_{NAME}.h"], files[f"edgefold_{NAME}.c"]
    native = NativeSource(NAME, header, source, "\n", {}, 1000, 64, 64, 2000, 2500)
    return library_of(manifest, native, more)


def write(files: Mapping[str, str], folder: Path) -> Path:
    """Write files by their paths into a folder, and return it."""
    for name, text in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder
