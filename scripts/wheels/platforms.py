"""List the platforms of Edgefold's wheels, and compile the libraries of shipped bundles for them.

A library for Linux needs no C library: `freestanding.c` has the functions that the generated code
calls. So one file serves glibc and musl, any version of either, and one wheel has the tags of
both. On macOS a library must link the system's.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FREESTANDING = Path(__file__).with_name("freestanding.c")
FLAGS = (
    *("-std=c99", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC"),
    *("-g0", "-DEDGEFOLD_LIBRARY", "-DEDGEFOLD_WITHOUT_SNAPSHOTS", "-DEDGEFOLD_WITHOUT_SENSORS"),
    *("-fno-stack-protector", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables"),
)
"""Flags of every library. Snapshots and the rules of sensors are Python's work, and their C would
need more functions."""
ALONE = ("-nostdlib", "-Wl,-z,defs", "-Wl,-z,noexecstack", "-Wl,--build-id=none")
"""Flags that link a library for Linux, which may leave no name undefined."""


@dataclass(frozen=True, slots=True)
class Level:
    """Describes a kind of processor for which a library is compiled.

    Attributes:
        name: Its name in reports and file names.
        flags: zig's flags of the processor.
        needs: Abilities in /proc/cpuinfo that it needs; "a|b" is one of two.
    """

    name: str
    flags: tuple[str, ...]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Platform:
    """Describes a platform: one wheel.

    Attributes:
        name: Its name in messages.
        tags: Platform tags of the wheel.
        target: zig's name of the target.
        architectures: Names that `platform.machine()` returns there. A kernel of 64 bits says
            aarch64 to a Python of 32 bits, too.
        levels: Kinds of processor, the best one first.
        link: Further flags of the linker.
        tested: Whether a machine or an emulator of this kind has run the libraries.
    """

    name: str
    tags: tuple[str, ...]
    target: str
    architectures: tuple[str, ...]
    levels: tuple[Level, ...]
    link: tuple[str, ...] = ()
    tested: bool = True

    @property
    def is_linux(self) -> bool:
        """Return whether its libraries are ELF files without a C library."""
        return "linux" in self.target


def _linux_tags(architecture: str, *glibc: str) -> tuple[str, ...]:
    return (*(f"{each}_{architecture}" for each in glibc), f"musllinux_1_2_{architecture}")


V2 = ("cx16", "lahf_lm", "pni", "popcnt", "sse4_1", "sse4_2", "ssse3")
V3 = (*V2, "abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave")
V4 = (*V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
"""Linux's names of what the levels of the x86-64 psABI need; LZCNT is "abm", SSE3 "pni"."""
OLD = ("manylinux_2_17", "manylinux2014")
PLATFORMS = (
    Platform(
        "linux-x86_64",
        _linux_tags("x86_64", *OLD),
        "x86_64-linux-musl",
        ("x86_64",),
        (
            Level("x86-64-v4", ("-mcpu=x86_64_v4", "-mprefer-vector-width=512"), V4),
            Level("x86-64-v3", ("-mcpu=x86_64_v3",), V3),
            Level("x86-64-v2", ("-mcpu=x86_64_v2",), V2),
        ),
    ),
    Platform(
        "linux-aarch64",
        _linux_tags("aarch64", *OLD),
        "aarch64-linux-musl",
        ("aarch64",),
        (Level("armv8-a", ("-mcpu=generic",)),),
    ),
    Platform(
        "linux-armv7l",
        _linux_tags("armv7l", *OLD),
        "arm-linux-musleabihf",
        ("armv7l", "armv8l", "aarch64"),
        (
            # Vectors of NEON: the kernel of 64 bits calls them asimd.
            Level("armv7-neon", ("-mcpu=generic+v7a+vfp3+neon",), ("neon|asimd",)),
            Level("armv7-vfpv3", ("-mcpu=generic+v7a+vfp3d16",)),
        ),
        # Integers of 64 bits: the compiler's own functions, of which only those in use stay.
        ("-rtlib=compiler-rt", "-Wl,--gc-sections"),
    ),
    Platform(
        "linux-riscv64",
        _linux_tags("riscv64", "manylinux_2_31"),
        "riscv64-linux-musl",
        ("riscv64",),
        (Level("rv64gc", ("-mcpu=generic_rv64+m+a+f+d+c",)),),
    ),
    Platform(
        "macos-arm64",
        ("macosx_11_0_arm64",),
        "aarch64-macos.11.0",
        ("arm64",),
        (Level("apple-m1", ("-mcpu=apple_m1",)),),
        tested=False,
    ),
)


def compile_level(
    files: Mapping[str, str], level: Level, platform: Platform, zig: Sequence[str], folder: Path
) -> bytes:
    """Compile the C files of a bundle for a kind of processor.

    Args:
        files: The generated files by name.
        level: The kind of processor.
        platform: Its platform.
        zig: Command of zig's C compiler.
        folder: An empty folder for the files, in which the compiler runs, so that no path of this
            machine gets into a library.

    Returns:
        The library's bytes.

    Raises:
        subprocess.CalledProcessError: The compiler failed; it has printed why.
    """
    for name, text in files.items():
        (folder / name).write_text(text)
    names = sorted(name for name in files if name.endswith(".c"))
    if platform.is_linux:
        (folder / FREESTANDING.name).write_bytes(FREESTANDING.read_bytes())
        names.append(FREESTANDING.name)
    target = ("-target", platform.target, *level.flags)

    def run(*words: str) -> None:
        subprocess.run([*zig, *target, *words], cwd=folder, check=True, env=os.environ)

    objects = [name.replace(".c", ".o") for name in names]
    for name, out in zip(names, objects, strict=True):
        # The optimiser needs minutes for megabytes of constants, and changes nothing.
        last: tuple[str, ...] = ("-O0",) if name.endswith("_data.c") else ()
        last = ("-ffreestanding", "-fno-builtin") if name == FREESTANDING.name else last
        run(*FLAGS, *last, "-c", name, "-o", out)
    link = (*ALONE, *platform.link, "-Wl,-soname,edgefold.so") if platform.is_linux else ()
    run("-shared", "-s", *link, *objects, "-o", "edgefold.so")
    return (folder / "edgefold.so").read_bytes()
