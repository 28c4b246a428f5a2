"""List the targets of `edgefold build`: for each the compiler, its flags and Debian's packages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

_WIDE = "-mprefer-vector-width=512"  # where there are such registers, the products use them


@dataclass(frozen=True, slots=True)
class Target:
    """Describes a kind of processor for which another machine compiles code.

    Attributes:
        name: Name of the target, as `--target` takes it.
        compiler: Program of the cross-compiler.
        flags: Flags that say which instructions are allowed; they follow those of every build
            (`compilers`).
        packages: Debian's and Ubuntu's packages of the compiler and its C library.
        architecture: Name of a Linux target's processor, as in `platform.machine()`; "" for a
            microcontroller, which takes a static library instead of a shared one.
        zig_processor: zig's name of a Linux target's processor, if it is not the default of its
            architecture.
    """

    name: str
    compiler: str
    flags: tuple[str, ...]
    packages: str
    architecture: str = ""
    zig_processor: str = ""

    @property
    def wide(self) -> tuple[str, ...]:
        """Return those of the flags that set the width of vectors; every compiler knows them."""
        return tuple(flag for flag in self.flags if flag == _WIDE)

    @property
    def is_linux(self) -> bool:
        """Return whether the target runs Linux, so that it takes shared libraries and programs."""
        return bool(self.architecture)

    @property
    def is_native(self) -> bool:
        """Return whether this machine is of the target's kind, so that its compilers suffice."""
        return self.architecture == os.uname().machine

    @property
    def triple(self) -> str:
        """Return clang's name of the target, such as "aarch64-linux-gnu", from the name of its gcc.

        For RISC-V of 32 bits, whose gcc is named after 64 bits, it names 32 bits.
        """
        return self.compiler.removesuffix("-gcc").replace("riscv64", "riscv32")


def machine_flags(flags: Iterable[str]) -> tuple[str, ...]:
    """Return those of `flags` that begin with -m: they choose processor and float ABI.

    If an option is given twice, the last one is returned. All objects of a firmware need the same
    of these flags, or the linker refuses them.
    """
    return tuple({f.partition("=")[0]: f for f in flags if f.startswith("-m")}.values())


_X86 = ("x86_64-linux-gnu-gcc", "gcc-x86-64-linux-gnu", "x86_64")
_ARM = ("arm-none-eabi-gcc", "gcc-arm-none-eabi libnewlib-arm-none-eabi")
_SMALL = ("-ffunction-sections", "-fdata-sections")
"""Flags that let the linker leave out functions that nobody calls: microcontrollers have little
flash."""


def _cortex_m(core: str, *floats: str) -> Target:
    flags = (*_SMALL, "-mthumb", f"-mcpu=cortex-{core}", *floats)
    return Target(f"cortex-{core}", _ARM[0], flags, _ARM[1])


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
            ("-march=armv7-a", "-mfpu=neon-vfpv4", "-mfloat-abi=hard"),
            "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross",
            "armv7l",
        ),
        *(
            Target(
                f"x86-64-{level}",
                _X86[0],
                (f"-march=x86-64-{level}", _WIDE),
                *_X86[1:],
                zig_processor=f"x86_64_{level}",
            )
            for level in ("v2", "v3", "v4")
        ),
        _cortex_m("m0plus", "-mfloat-abi=soft"),
        _cortex_m("m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
        # Parts of the M7 and M33 may compute float64 as well; not all do.
        _cortex_m("m7", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"),
        _cortex_m("m33", "-mfloat-abi=hard", "-mfpu=fpv5-sp-d16"),
        # The compiler takes the FPU from the core: one with vectors of Helium, also of floats.
        _cortex_m("m55", "-mfloat-abi=hard"),
        Target(
            "riscv32",
            "riscv64-unknown-elf-gcc",
            (*_SMALL, "-march=rv32imc", "-mabi=ilp32", "--specs=picolibc.specs"),
            "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
        ),
    )
}
