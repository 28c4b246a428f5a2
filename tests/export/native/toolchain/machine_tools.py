"""Compile for the machines of `machines.py` and run there, or skip and say what is missing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from edgefold.export.native.toolchain.machines import FirmwareMachine


def require(*programs: str) -> None:
    """Skip the test unless all programs are installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed: apt-get install, as .ci/run does")


def linked(machine: FirmwareMachine, sources: Mapping[str, str], folder: Path, *flags: str) -> Path:
    """Write the sources into the folder and link them without a warning."""
    for name, text in sources.items():
        (folder / name).write_text(text)
    program = folder / "firmware.elf"
    command = [*machine.compile_command(sources, program.name), "-Werror", *flags]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


def emulated(machine: FirmwareMachine, program: Path) -> tuple[int, str]:
    """Run a linked program; returns its exit code and what it printed."""
    command = machine.run_command(str(program))
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr
