"""The start of each machine, with a program of a few lines in place of a bundle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgefold.devices.boards.board import load_microcontroller
from edgefold.export.native.toolchain.machines import EMULATED, PARTS, FirmwareMachine
from tests.export.native.toolchain.machine_tools import emulated, linked, require

LOOPS = 1_000_000
PROBE = f"""
#include "machine.h"

static volatile uint32_t zeros[1000];
static volatile uint32_t numbers[3] = {{1, 2, 3}};
static const float half = 0.5f;

static void print_count(uint64_t number)
{{
    char digits[22] = "";
    char *digit = digits + 20;
    *digit = '\\n';
    do {{
        *--digit = (char)('0' + number % 10);
        number /= 10;
    }} while (number);
    machine_print(digit);
}}

static void two_instructions_each(uint32_t n)
{{
#if defined(__arm__)
    __asm__ volatile(".syntax unified\\n1: subs %0, %0, #1\\nbne 1b" : "+l"(n) : : "cc");
#elif defined(__riscv)
    __asm__ volatile("1: addi %0, %0, -1\\nbnez %0, 1b" : "+r"(n));
#else
    (void)n;
#endif
}}

static uint32_t stack_of_1000_bytes(void)
{{
    volatile unsigned char bytes[1000] = {{0}};
    return bytes[999];
}}

int main(void)
{{
    machine_begin();
    for (int i = 0; i < 1000; i++) {{
        if (zeros[i]) {{
            return 4;
        }}
    }}
    volatile float one = half * (float)numbers[1];
    const uint64_t before = machine_instructions();
    two_instructions_each({LOOPS});
    print_count(machine_instructions() - before);
    const uint32_t least = machine_stack_bytes();
    print_count(least);
    print_count(stack_of_1000_bytes() + machine_stack_bytes());
    machine_print("end\\n");
    return one == 1.0f ? 7 : 5;
}}
"""


@pytest.mark.parametrize("machine", EMULATED, ids=lambda machine: machine.name)
def test_a_machine_starts_counts_instructions_and_gives_mains_exit_code(
    machine: FirmwareMachine, tmp_path: Path
) -> None:
    require(machine.target.compiler, machine.emulator[0])
    program = linked(machine, {**machine.sources(), "probe.c": PROBE}, tmp_path)
    code, printed = emulated(machine, program)
    instructions, stack, deeper = map(int, re.findall(r"^\d+$", printed, re.MULTILINE))
    assert (code, printed.splitlines()[-1]) == (7, "end")
    if not machine.target.is_linux:  # a process on Linux counts neither
        # The counter is read once more, and the loop begun: some instructions and a tick.
        assert instructions == pytest.approx(2 * LOOPS, abs=100)
        assert 0 < stack < 500 and 1000 <= deeper < 1500


@pytest.mark.parametrize("machine", PARTS, ids=lambda machine: machine.name)
def test_a_start_links_for_every_part_within_its_flash_and_ram(
    machine: FirmwareMachine, tmp_path: Path
) -> None:
    require(machine.target.compiler)
    assert linked(machine, {**machine.sources(), "probe.c": PROBE}, tmp_path).stat().st_size


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_parts_linker_script_has_the_flash_and_ram_of_its_profile(part: FirmwareMachine) -> None:
    script = part.sources()[f"memory_{part.name}.ld"]
    profile = load_microcontroller(part.name)
    unit = {"K": 2**10, "M": 2**20}
    lengths = {
        name: int(n) * unit[size] - int(less or 0)
        for name, n, size, less in re.findall(
            r"(FLASH|RAM) .*LENGTH = (\d+)([KM])(?: - (\d+))?", script
        )
    }
    boot = 256 if part.name == "rp2040" else 0  # the boot code before the program
    assert lengths["FLASH"] + boot == profile.flash_bytes.value
    assert lengths["RAM"] == profile.ram_bytes.value


def test_a_program_that_is_too_large_for_a_part_is_refused_by_the_linker(tmp_path: Path) -> None:
    machine = next(part for part in PARTS if part.name == "nrf52840")
    require(machine.target.compiler)
    large = PROBE.replace("zeros[1000]", "zeros[64000]")  # 256,000 bytes, and 8 kB of stack
    with pytest.raises(AssertionError, match=r"will not fit in region|overflowed"):
        linked(machine, {**machine.sources(), "probe.c": large}, tmp_path)
