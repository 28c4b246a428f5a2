"""Find zig's C compiler, which pip installs as the package ziglang, and name its targets.

zig brings a C library for every Linux that Edgefold builds for, so that one package of pip is a
compiler for this machine and a cross-compiler. It has no C library of a microcontroller.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

PACKAGE = "ziglang"
INSTALL = f"pip install {PACKAGE}"
GLIBC = {"riscv64": "2.31"}
"""Oldest glibc of the libraries by architecture; `OLDEST` for all others."""
OLDEST = "2.17"
PROCESSORS = {
    "aarch64": ("aarch64", "gnu", "generic"),
    "armv7l": ("arm", "gnueabihf", "generic+v7a+vfp4+neon"),
    "riscv64": ("riscv64", "gnu", "generic_rv64+m+a+f+d+c"),
    "x86_64": ("x86_64", "gnu", "x86_64"),
}
"""zig's words by architecture (`platform.machine()`): processor, ABI, and the default of -mcpu."""


def zig_commands() -> list[tuple[str, ...]]:
    """Return commands of zig's C compiler: the program on the PATH, then pip's package."""
    module = [(sys.executable, "-m", PACKAGE, "cc")] if find_spec(PACKAGE) else []
    return [("zig", "cc"), *module]


def target_flags(architecture: str, processor: str = "") -> tuple[str, ...]:
    """Return the flags that compile for Linux with glibc; see `static_flags`.

    Args:
        architecture: Name as `platform.machine()` returns it, a key of `PROCESSORS`.
        processor: zig's name of the processor; "" for the architecture's default.
    """
    name, abi, default = PROCESSORS[architecture]
    version = GLIBC.get(architecture, OLDEST)
    return ("-target", f"{name}-linux-{abi}.{version}", f"-mcpu={processor or default}")


def static_flags(architecture: str | None) -> tuple[str, ...]:
    """Return the flags of a static program, which follow those of the target.

    zig links only musl statically, never glibc.

    Args:
        architecture: Name of the target's processor; None for this machine's. Another one than
            `PROCESSORS` has gets no flags.
    """
    known = PROCESSORS.get(architecture or os.uname().machine)
    if known is None:
        return ()
    name, abi, _ = known
    return ("-target", f"{name}-linux-{abi.replace('gnu', 'musl')}")
