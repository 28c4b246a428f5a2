"""Count the bytes of flash and memory that compiled files take, from their ELF section headers."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

WRITE, ALLOC, EXECUTE = 1, 2, 4  # flags of a section (sh_flags)
NO_BITS = 8  # sh_type of zeroed data, which takes nothing of the file


@dataclass(frozen=True, slots=True)
class ElfSizes:
    """Holds the sizes of compiled files, in bytes.

    Attributes:
        code: Bytes of instructions.
        constants: Bytes of data that is only read; it may stay in flash, as code may.
        variables: Bytes of data that is written, which take memory from the program's start.
    """

    code: int
    constants: int
    variables: int


def sizes_of(paths: Iterable[Path]) -> ElfSizes:
    """Return the sizes of object files, shared libraries or programs together, of 32 or 64 bits.

    Raises:
        ValueError: A file is not an ELF file with little-endian numbers.
        OSError: A file cannot be read.
    """
    total = {"code": 0, "constants": 0, "variables": 0}
    for path in paths:
        data = path.read_bytes()
        if data[:4] != b"\x7fELF" or data[5] != 1:
            raise ValueError(f"{path} is no little-endian ELF file")
        wide = data[4] == 2
        start = struct.unpack_from("<Q" if wide else "<I", data, 40 if wide else 32)[0]
        size, n = struct.unpack_from("<HH", data, 58 if wide else 46)
        for at in range(start, start + size * n, size):
            form, place = ("<QQQQ", 8) if wide else ("<IIII", 8)
            kind = struct.unpack_from("<I", data, at + 4)[0]
            flags, _, _, length = struct.unpack_from(form, data, at + place)
            if not flags & ALLOC:
                continue
            if flags & WRITE or kind == NO_BITS:
                total["variables"] += length
            else:
                total["code" if flags & EXECUTE else "constants"] += length
    return ElfSizes(**total)
