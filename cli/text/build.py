"""Write as text the results of `edgefold build`: sizes, times, the check, the next steps."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.cli.text.numbers import format_bytes, format_time
from edgefold.export.native.toolchain.compilers import Compiler, source_command
from edgefold.export.native.toolchain.elf_sizes import ElfSizes
from edgefold.export.native.toolchain.targets import machine_flags
from edgefold.runtime.backends.native.library_store import Library
from edgefold.runtime.bundle.manifest import Manifest

SIZE = re.compile(r"^#define EDGEFOLD_\w+?_(RAM|ARENA|STATE|FLASH)_BYTES \(?(\d+)", re.MULTILINE)
"""Matches sizes in the header, where RAM is a sum, `(212784 + EDGEFOLD_NAME_ARENA_BYTES)`."""
SENSOR_SIZE = re.compile(r"^ \*     [\w ]+? +(\d+) bytes (for each sensor|once)", re.MULTILINE)
"""Matches sizes of the engine of sensors in the header, on processors of 32 bits."""
SIZES = {
    "RAM": "RAM of one stream: state, points, predictions, work space",
    "STATE": "  of which state and cache",
    "ARENA": "  of which work space",
}


def title(bundle: str, compiler: Compiler) -> str:
    """Return a line that names the bundle, the compiler and the processor."""
    target = compiler.target.name if compiler.target else "this machine's processor"
    return f"{bundle}   C by {compiler.title} for {target}\n"


def shorter_seasons(whole: Manifest, shorter: Manifest) -> str:
    """Return a line that compares the rings of a bundle with those of one for shorter seasons."""
    before, after = (
        sum(math.prod(t.shape) * np.dtype(t.dtype).itemsize for t in m.state if t.ring is not None)
        for m in (whole, shorter)
    )
    longest = shorter.model["settings"]["longest"]
    if before == after:
        return f"seasons  of at most {longest:,} slots, as without --longest-season"
    return (
        f"seasons  of at most {longest:,} slots: rings of {format_bytes(after)} instead of "
        f"{format_bytes(before)}"
    )


def sizes(
    files: Mapping[str, str], compiled: ElfSizes, seconds: float, is_firmware: bool = False
) -> str:
    """Return lines on RAM (from the header among `files`), constants, code and compile time.

    Firmware for a sensor has the engine around the model's stream, so its sizes are those.
    """
    header = next(text for name, text in files.items() if name.startswith("edgefold_"))
    # Of two sizes of the arena the first one holds: the C is compiled with snapshots.
    header_sizes = {name: int(n) for name, n in reversed(SIZE.findall(header))}
    header_sizes["RAM"] += header_sizes["ARENA"]
    lines = [f"  {_size(header_sizes[name]):>10}  {what}" for name, what in SIZES.items()]
    if is_firmware and (engine := dict(map(reversed, SENSOR_SIZE.findall(header)))):
        own, shared = (_size(int(engine[each])) for each in ("for each sensor", "once"))
        lines = [
            f"  {own:>10}  RAM of each sensor",
            f"  {shared:>10}  RAM that all sensors share; the stack comes on top",
        ]
    lines += [
        f"  {_size(compiled.constants):>10}  constants, may stay in flash: "
        f"{_size(header_sizes['FLASH'])} of the model, and tables of the code",
        f"  {_size(compiled.code):>10}  code",
        f"  {format_time(seconds):>10}  to compile\n",
    ]
    return "\n".join(lines)


def _size(n_bytes: int) -> str:
    """Write a size as `format_bytes` does; in bytes below 1 kB, as for a small filter's state."""
    return format_bytes(n_bytes) if n_bytes >= 1000 else f"{n_bytes} bytes"


def proof(result: Mapping[str, Any]) -> str:
    """Return lines on a replay of the golden stream: time of each step, and largest error."""
    worst, tolerance = result["proof"]["worst"], result["proof"]["tolerance"]
    error = "not finite" if worst is None else f"{worst:.1e}"
    lines = [f"  {format_time(s):>10}  {name}" for name, s in result["step_s"].items()]
    return "\n".join(
        [
            *lines,
            "",
            f"proved   golden stream on this processor: largest error {error}, "
            f"tolerance {tolerance:.0e}"
            if result["passed"]
            else f"FAILED   golden stream on this processor: largest error {error}, "
            f"tolerance {tolerance:.0e}",
        ]
    )


def failed(facts: Mapping[str, str]) -> str:
    """Return the message on a library whose answers are wrong, with what to try."""
    return (
        f"nothing was kept: what {facts['compiler']} made ({facts['flags'] or 'flags not known'}) "
        "does not compute what was trained. Leave out --flags, try another --compiler, or report "
        "it."
    )


def next_steps(bundle: str, product: Path, compiler: Compiler) -> str:
    """Return lines on what the user does next with a library for another processor."""
    assert compiler.target is not None
    if compiler.target.is_linux:
        return (
            f"\nnext     copy {product.name} and the bundle to the board, and run there\n"
            f"         edgefold build {Path(bundle).name} --library {product.name}"
        )
    flags = machine_flags(compiler.flags)
    lines = [
        f"\nnext     add {product.name} and its header to the project,",
        f"         compile the project with: {' '.join(flags)}",
        "         and link with -lm",
    ]
    if "-mfloat-abi=hard" in flags:
        lines.append(
            "         (the Pico SDK has another float ABI: --flags=-mfloat-abi=softfp, or --source)"
        )
    return "\n".join(lines)


def source_steps(folder: Path, files: Iterable[str], program: bool) -> str:
    """Return lines with the command by which the user compiles the written sources."""
    command = source_command(files, program)
    then = "" if program else ", with your processor's flags, and link with -lm"
    return f"\nnext     compile in {folder}{then}:\n         {command}"


def package_steps(folder: Path) -> str:
    """Return a line that says where the use of a written package is explained."""
    return f"\nnext     {folder / 'README.md'} says how it is used"


def listing(libraries: Iterable[Library]) -> str:
    """Return lines on each library of a bundle: processor, size, errors, times, file."""
    lines = []
    for library in libraries:
        facts, key = library.facts, library.key
        worst = facts["proof"]["worst"]
        lines += [
            f"{key.model or 'an unnamed processor'} ({key.architecture})",
            f"  {format_bytes(facts['n_bytes'])}, generator {facts['generator']}, "
            f"{facts['compiler']} {facts['flags']}".rstrip(),
            f"  golden stream: largest error {worst:.1e}, tolerance "
            f"{facts['proof']['tolerance']:.0e}",
            "  steps: "
            + ", ".join(f"{name} {format_time(s)}" for name, s in facts["step_s"].items()),
            f"  {library.path}",
            *([f"  not used: {library.reason}"] if library.reason else []),
        ]
    return "\n".join(lines)
