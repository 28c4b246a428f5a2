"""Compile C files to WebAssembly by zig, whose C library has all that the generated C needs.

    files ──-c──> objects ──wasm-ld──> NAME.wasm     which imports nothing

A module without imports can do nothing but compute: it has no files, no clock and no network.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from edgefold.export.native.toolchain import zig
from edgefold.export.native.toolchain.compilers import (
    FLAGS,
    LEVELS,
    MATHEMATICS,
    Compiler,
    compile_objects,
    run_compiler,
)
from edgefold.runtime.errors import BackendError, Remedy

TARGET = ("-target", "wasm32-wasi", "-msimd128")
"""Flags of zig. Every browser since 2021 (Safari: 2023), and node from version 16 on, knows vectors
of 128 bits."""
LINK = ("-mexec-model=reactor", "-s", "-Wl,--export=__heap_base", "-Wl,-z,stack-size=1048576")
MAGIC = b"\0asm\1\0\0\0"
IMPORTS = 2
"""The number of the section of a module that lists its imports."""


def find_wasm_compiler(extra: Sequence[str] = ()) -> Compiler:
    """Find zig: the program on the PATH, else pip's package.

    Args:
        extra: Flags that follow all others.

    Raises:
        BackendError: There is no zig, or it does not answer.
    """
    for command in zig.zig_commands():
        if program := shutil.which(command[0]):
            version = run_compiler([program, *command[1:-1], "version"]).strip()
            flags = (*FLAGS, *LEVELS["zig"], *TARGET, *extra)
            return Compiler(command, f"zig {version}", flags)
    raise BackendError(
        f"WebAssembly is compiled by zig, which is not installed; `{zig.INSTALL}` installs it.",
        Remedy("a compiler of WebAssembly", zig.INSTALL),
    )


def compile_module(
    files: Mapping[str, str], functions: Iterable[str], compiler: Compiler, folder: Path
) -> bytes:
    """Compile a module of WebAssembly that exports functions, its memory and `__heap_base`.

    Args:
        files: The C files, by name.
        functions: The names of the exported functions.
        compiler: The compiler that `find_wasm_compiler` found.
        folder: An existing folder for the files, the objects and the module.

    Raises:
        BackendError: The compiler failed, or the module needs a function of its surroundings.
        OSError: The folder cannot be written.
    """
    objects = compile_objects(files, compiler, folder, ())
    out = folder / "module.wasm"
    exports = [f"-Wl,--export={name}" for name in functions]
    words = [*LINK, *exports, *map(str, objects), MATHEMATICS, "-o", str(out)]
    run_compiler([*compiler.command, *compiler.flags, *words])
    module = out.read_bytes()
    if IMPORTS in sections(module):
        raise BackendError("the C calls functions that WebAssembly does not have, such as files.")
    return module


def sections(module: bytes) -> list[int]:
    """Return the numbers of the sections of a module of WebAssembly, in their order."""
    assert module.startswith(MAGIC), "the linker writes modules"
    found, at = [], len(MAGIC)
    while at < len(module):
        found.append(module[at])
        size = shift = 0
        while True:
            at += 1
            size |= (module[at] & 0x7F) << shift
            shift += 7
            if module[at] < 0x80:
                break
        at += 1 + size
    return found
