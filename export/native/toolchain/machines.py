"""Describe machines for which a firmware is compiled and on which, if qemu has them, it runs.

The fixed files of `firmware/` start a machine, print by semihosting and count instructions. Nothing
here runs a compiler or an emulator: commands are given as lists.

Instructions are counted by the machine's own counter under `qemu -icount shift=0`, where an
instruction takes 1 ns: SysTick on a Cortex-M (in steps of 40 instructions at 25 MHz, 50 at 20 MHz,
31.25 at 32 MHz), `minstret` on RISC-V (exactly). These are instructions, not cycles of a board.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from edgefold.export.native.toolchain.compilers import FLAGS, LEVELS
from edgefold.export.native.toolchain.targets import TARGETS, Target

FIXED = Path(__file__).parents[1] / "firmware"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic")
BARE = ("-nostartfiles", "-Wl,--gc-sections", "-T", "sections.ld")
CORTEX_M = ("machine.h", "machine_cortex_m.c", "semihosting.h", "start.h", "sections.ld")
RISCV = ("machine.h", "machine_riscv32.c", "semihosting.h", "start.h", "sections.ld")


@dataclass(frozen=True, slots=True)
class FirmwareMachine:
    """Describes a machine for which a firmware is linked.

    Attributes:
        name: Name of the machine in qemu, or name of the microcontroller.
        target: Processor and compiler of the machine.
        files: Names of the files in `firmware/` that start the machine.
        flags: Flags of the linker.
        emulator: Command that runs the linked file, whose name follows it; empty for real parts.
    """

    name: str
    target: Target
    files: tuple[str, ...]
    flags: tuple[str, ...]
    emulator: tuple[str, ...] = ()

    def compile_command(self, sources: Iterable[str], output: str) -> list[str]:
        """Return the command that links the .c files among `sources`, run in their folder."""
        c_files = sorted(name for name in sources if name.endswith(".c"))
        flags = (*FLAGS, *LEVELS["gcc"], *WARNINGS, *self.target.flags, *self.flags)
        return [self.target.compiler, *flags, *c_files, "-lm", "-o", output]

    def sources(self) -> dict[str, str]:
        """Return the texts of the machine's files by their names."""
        return {name: (FIXED / name).read_text(encoding="utf-8") for name in self.files}

    def run_command(self, program: str) -> list[str]:
        """Return the command that runs a linked file under emulation; its exit code is main's."""
        return [*self.emulator, program]


def _qemu(system: str, machine: str) -> tuple[str, ...]:
    return (
        *(f"qemu-system-{system}", "-machine", machine, "-nographic", "-monitor", "none"),
        *("-serial", "none", "-semihosting-config", "enable=on,target=native"),
        *("-icount", "shift=0", *(("-bios", "none") if system == "riscv32" else ()), "-kernel"),
    )


def _mps(board: str, processor: str, name: str = "", tick_ns: float = 40) -> FirmwareMachine:
    memory = f"memory_{board.replace('-', '_')}.ld"
    flags = (f"-DMACHINE_TICK_NS={tick_ns}", "-T", memory, *BARE)
    qemu = _qemu("arm", board)
    return FirmwareMachine(name or board, TARGETS[processor], (*CORTEX_M, memory), flags, qemu)


def _part(name: str, processor: str) -> FirmwareMachine:
    memory = f"memory_{name}.ld"
    return FirmwareMachine(name, TARGETS[processor], (*CORTEX_M, memory), ("-T", memory, *BARE))


VIRT = "memory_riscv32_virt.ld"
EMULATED = (
    _mps("mps2-an386", "cortex-m4"),
    _mps("mps2-an500", "cortex-m7"),
    _mps("mps2-an505", "cortex-m33", tick_ns=50),
    # A Cortex-M3 runs the code of a Cortex-M0+ as well, and counts its instructions.
    _mps("mps2-an385", "cortex-m0plus", "mps2-an385 as M0+"),
    _mps("mps3-an547", "cortex-m55", tick_ns=31.25),
    FirmwareMachine(
        "riscv32 virt",
        TARGETS["riscv32"],
        (*RISCV, VIRT),
        ("-T", VIRT, *BARE),
        _qemu("riscv32", "virt"),
    ),
    FirmwareMachine(
        "aarch64 Linux",
        TARGETS["aarch64-linux-gnu"],
        ("machine.h", "machine_linux.c"),
        ("-static",),
        ("qemu-aarch64-static",),
    ),
)
"""Machines that qemu emulates: Cortex-M4F, M7, M33, M0+ and M55 with Helium, a 32-bit RISC-V, and a
process on a 64-bit Arm Linux with NEON. M0+ and RISC-V have software floats."""
PARTS = (
    _part("rp2040", "cortex-m0plus"),
    _part("rp2350", "cortex-m33"),
    _part("nrf52840", "cortex-m4"),
    _part("stm32h743", "cortex-m7"),
)
"""Microcontrollers for which a firmware is linked, with the flash and RAM of their profiles
(devices/boards); the ESP32-S3 is not among them, as Debian has no compiler for it."""
