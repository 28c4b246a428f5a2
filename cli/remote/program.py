"""Read from a static program's header for which processor it is."""

from __future__ import annotations

import struct
from pathlib import Path

from edgefold.runtime.errors import BoardError

MACHINES = {  # numbers of ELF's field e_machine, and the names of `uname -m` that run it
    62: ("x86-64", ("x86_64", "amd64")),
    3: ("32-bit x86", ("x86_64", "amd64", "i686", "i586", "i486", "i386")),
    183: ("aarch64", ("aarch64", "arm64")),
    40: ("32-bit Arm", ("aarch64", "arm64", "armv8l", "armv7l")),
    243: ("RISC-V", ("riscv64", "riscv32")),
}
INTERPRETER = 3  # type of the part that names a dynamic loader


def processors_of(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return a static program's kind of processor in words, and the names under which one runs it.

    Raises:
        OSError: The file cannot be read.
        BoardError: It is not a program of Linux, is not static, or is for another processor.
    """
    with path.open("rb") as file:
        head = file.read(4096)
    if head[:4] != b"\x7fELF" or len(head) < 64 or head[5] != 1:
        raise BoardError(
            f"{path} is not a program of Linux; `edgefold build BUNDLE --program --out DIR` writes "
            "one."
        )
    machine = struct.unpack_from("<H", head, 18)[0]
    if machine not in MACHINES:
        raise BoardError(f"{path} is a program for an unknown processor, ELF's number {machine}.")
    if INTERPRETER in _part_types(head):
        raise BoardError(
            f"{path} is not static: it needs a loader and a C library that the board may not have; "
            "`edgefold build BUNDLE --program` writes a static one."
        )
    return MACHINES[machine]


def _part_types(head: bytes) -> list[int]:
    """Return the types of a program's parts, from its first bytes."""
    is_wide = head[4] == 2
    start = struct.unpack_from("<Q" if is_wide else "<I", head, 32 if is_wide else 28)[0]
    size, n = struct.unpack_from("<HH", head, 54 if is_wide else 42)
    places = [start + index * size for index in range(n)]
    return [struct.unpack_from("<I", head, at)[0] for at in places if at + 4 <= len(head)]
