"""What `edgefold build` can compile for: the compiler's name, its flags, and Debian's package."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of processor that code is compiled for on another machine.

    Attributes:
        compiler: The cross-compiler's program.
        flags: Which instructions it may use; they come after those of every build (`compilers`).
        packages: Debian's and Ubuntu's packages of the compiler and its C library.
        architecture: Of a Linux target, as in `platform.machine()`; "" for a microcontroller, which
            takes a static library instead of a shared one.
    """

    name: str
    compiler: str
    flags: tuple[str, ...]
    packages: str
    architecture: str = ""

    @property
    def is_linux(self) -> bool:
        """Whether shared libraries and programs are compiled."""
        return bool(self.architecture)

    @property
    def is_native(self) -> bool:
        """Whether this machine's own compilers compile for it, because it is of the same kind."""
        return self.architecture == os.uname().machine


_X86 = ("x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu", "x86_64")
_WIDE = "-mprefer-vector-width=512"  # where there are such registers, the products use them
_ARM = ("arm-none-eabi-gcc", "gcc-arm-none-eabi libnewlib-arm-none-eabi")
_SMALL = ("-ffunction-sections", "-fdata-sections")
"""On a microcontroller flash is scarce; the linker leaves out functions that nobody calls."""
_M = (*_SMALL, "-mthumb", "-mfloat-abi=hard")

TARGETS = {
    target.name: target
    for target in (
        Target(
            "aarch64-linux-gnu",
            "aarch64-linux-gnu-gcc",
            ("-march=armv8-a",),
            "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
            "aarch64",
        ),
        Target(
            "arm-linux-gnueabihf",
            "arm-linux-gnueabihf-gcc",
            ("-march=armv7-a+neon-vfpv4", "-mfloat-abi=hard"),
            "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross",
            "armv7l",
        ),
        *(
            Target(f"x86-64-{level}", _X86[0], (f"-march=x86-64-{level}", _WIDE), *_X86[1:])
            for level in ("v2", "v3", "v4")
        ),
        Target(
            "cortex-m0plus",
            _ARM[0],
            (*_SMALL, "-mthumb", "-mfloat-abi=soft", "-mcpu=cortex-m0plus"),
            _ARM[1],
        ),
        Target("cortex-m4", _ARM[0], (*_M, "-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16"), _ARM[1]),
        # Parts of the M7 and M33 may compute float64 as well; not all do.
        Target("cortex-m7", _ARM[0], (*_M, "-mcpu=cortex-m7", "-mfpu=fpv5-sp-d16"), _ARM[1]),
        Target("cortex-m33", _ARM[0], (*_M, "-mcpu=cortex-m33", "-mfpu=fpv5-sp-d16"), _ARM[1]),
        Target(
            "riscv32",
            "riscv64-unknown-elf-gcc",
            (*_SMALL, "-march=rv32imc", "-mabi=ilp32", "--specs=picolibc.specs"),
            "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
        ),
    )
}
