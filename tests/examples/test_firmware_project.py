"""The example firmware: compiled for its board, and run on this machine with a flash in a file."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from edgefold.export.native.generator import NativeSource, generate
from edgefold.export.native.toolchain.machines import FIXED, PARTS, WARNINGS
from tests.export.native.toolchain.machine_tools import linked, require

PROJECT = Path(__file__).parents[2] / "examples" / "firmware"
PORTABLE = ("board.h", "main.c", "storage.c", "storage.h")
HOST_BOARD = r"""
#include "board.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* argv: the file of the flash, readings until it ends, pages until the power is cut, and the page
   of the flash in which a bit is worn out, or -1. */
static unsigned char flash[2 * BOARD_SLOT_BYTES];
static const char *path;
static long readings, pages, worn;
static uint64_t seconds;

__attribute__((constructor)) static void arguments(int argc, char **argv)
{
    path = argv[argc - 4];
    readings = atol(argv[argc - 3]);
    pages = atol(argv[argc - 2]);
    worn = atol(argv[argc - 1]);
    memset(flash, 0xFF, sizeof flash);
    FILE *file = fopen(path, "rb");
    if (file && fread(flash, 1, sizeof flash, file) != sizeof flash)
        exit(2);
}

static void end(int code)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(flash, 1, sizeof flash, file) != sizeof flash || fclose(file))
        exit(2);
    exit(code);
}

void board_begin(void) {}
uint64_t board_seconds(void) { return seconds; }
void board_sleep(uint64_t until) { seconds = until; }
void board_print(const char *line) { puts(line); }
const unsigned char *board_flash(void) { return flash; }

double board_celsius(void)
{
    if (readings-- == 0)
        end(0);
    return 25.0;
}

void board_flash_erase(size_t offset, size_t n_bytes)
{
    if (offset % BOARD_SECTOR_BYTES || n_bytes % BOARD_SECTOR_BYTES)
        end(3);
    memset(flash + offset, 0xFF, n_bytes);
}

void board_flash_program(size_t offset, const unsigned char *page)
{
    if (pages-- == 0)
        end(9);
    for (size_t i = 0; i < BOARD_PAGE_BYTES; i++)
        if (offset % BOARD_PAGE_BYTES || flash[offset + i] != 0xFF)
            end(4); /* a page is written once after its sector was erased */
    memcpy(flash + offset, page, BOARD_PAGE_BYTES);
    if ((long)(offset / BOARD_PAGE_BYTES) == worn)
        flash[offset + 2] ^= 1;
}
"""
SDK = {
    "pico/stdlib.h": """
#include <stdbool.h>
#include <stdint.h>
#define PICO_FLASH_SIZE_BYTES (4 * 1024 * 1024)
#define XIP_BASE 0x10000000u
bool stdio_init_all(void);
uint64_t time_us_64(void);
void sleep_ms(uint32_t ms);
""",
    "hardware/adc.h": """
#include <stdbool.h>
#include <stdint.h>
#define ADC_TEMPERATURE_CHANNEL_NUM 4
void adc_init(void);
void adc_set_temp_sensor_enabled(bool enable);
void adc_select_input(unsigned int input);
uint16_t adc_read(void);
""",
    "hardware/flash.h": """
#include <stddef.h>
#include <stdint.h>
void flash_range_erase(uint32_t flash_offs, size_t count);
void flash_range_program(uint32_t flash_offs, const uint8_t *data, size_t count);
""",
    "hardware/sync.h": """
#include <stdint.h>
uint32_t save_and_disable_interrupts(void);
void restore_interrupts(uint32_t status);
""",
}
"""Declarations of the Pico SDK 2.0, which is not installed here."""


@pytest.fixture(scope="module")
def model(bundles: Path) -> NativeSource:
    """A bundle of one input and one output under the name that the project uses."""
    return generate(bundles / "scaled", "cmanp")


@pytest.fixture(scope="module")
def program(model: NativeSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with a board of this machine, as a program."""
    require("gcc")
    folder = tmp_path_factory.mktemp("host")
    sources = {**model.files, "board.c": HOST_BOARD}
    sources |= {name: (PROJECT / name).read_text() for name in PORTABLE}
    for name, text in sources.items():
        (folder / name).write_text(text)
    files = sorted(name for name in sources if name.endswith(".c"))
    command = ["gcc", "-std=gnu99", "-O1", *WARNINGS, "-Werror", *files, "-lm", "-o", "firmware"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "firmware"


def run(
    program: Path, flash: Path, readings: int, pages: int = 10**6, worn: int = -1
) -> tuple[int, list[str]]:
    command = [str(program), str(flash), *map(str, (readings, pages, worn))]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


@pytest.mark.long
def test_it_predicts_learns_saves_and_goes_on_where_it_was_saved(
    program: Path, tmp_path: Path
) -> None:
    flash = tmp_path / "flash"
    code, lines = run(program, flash, 130)
    assert code == 0
    assert lines[0] == "starts without a snapshot (status 6)"
    assert sum(line.startswith("predicted ") for line in lines) == 130
    code, lines = run(program, flash, 1)
    assert (code, lines[0]) == (0, "continues after 120 readings")


@pytest.mark.parametrize("pages", [0, 1, 30])
def test_a_power_cut_while_it_saves_leaves_the_snapshot_before(
    pages: int, program: Path, tmp_path: Path
) -> None:
    flash = tmp_path / "flash"
    assert run(program, flash, 60 + 60)[0] == 0  # a snapshot of 60, and one of 120 readings
    assert run(program, flash, 60, pages)[0] == 9
    code, lines = run(program, flash, 1)
    assert (code, lines[0]) == (0, "continues after 120 readings")


def test_a_damaged_snapshot_is_refused_and_the_one_before_is_taken(
    program: Path, tmp_path: Path
) -> None:
    flash = tmp_path / "flash"
    assert run(program, flash, 121)[0] == 0
    content = bytearray(flash.read_bytes())
    content[32768 + 256 + 2000] ^= 1  # in the second slot, behind its header
    flash.write_bytes(content)
    assert run(program, flash, 1)[1][0] == "continues after 60 readings"


@pytest.mark.parametrize("newest", [0, 1])
def test_a_save_never_erases_the_only_good_snapshot(
    newest: int, program: Path, tmp_path: Path
) -> None:
    flash = tmp_path / "flash"
    n_saved = 120 + 60 * (1 - newest)  # two or three snapshots: the last is in slot 1 or in slot 0
    assert run(program, flash, n_saved + 1)[0] == 0
    content = bytearray(flash.read_bytes())
    content[newest * 32768 + 256 + 2000] ^= 1  # its header is whole, its body is not
    flash.write_bytes(content)
    good = f"continues after {n_saved - 60} readings"
    code, lines = run(program, flash, 61, pages=10)  # the power is cut in its next save
    assert (code, lines[0]) == (9, good)
    assert run(program, flash, 1)[1][0] == good


@pytest.mark.parametrize("page", [0, 1, 9], ids=["header", "first", "inner"])
def test_a_page_that_the_flash_does_not_keep_makes_the_save_fail(
    page: int, program: Path, tmp_path: Path
) -> None:
    flash = tmp_path / "flash"
    code, lines = run(program, flash, 121, worn=32768 // 256 + page)  # of the second slot
    assert code == 0
    assert lines.count("the snapshot was not written; the one before is kept") == 1
    assert run(program, flash, 1)[1][0] == "continues after 60 readings"
    code, lines = run(program, flash, 61)  # it goes on with the slot that failed
    assert "the snapshot was not written; the one before is kept" not in lines
    assert run(program, flash, 1)[1][0] == "continues after 120 readings"


def test_the_stack_of_the_project_has_room_for_a_load() -> None:
    told = re.search(r"PICO_STACK_SIZE=(0x\w+)", (PROJECT / "CMakeLists.txt").read_text())
    assert told is not None and int(told[1], 16) >= 4096  # some 1.5 kB, and snprintf on top


@pytest.mark.long
def test_it_links_for_its_board_without_a_warning(model: NativeSource, tmp_path: Path) -> None:
    part = next(part for part in PARTS if part.name == "rp2350")
    require(part.target.compiler)
    files = [name for name in part.files if name != "machine_cortex_m.c"]
    sources = {**model.files, **{name: (FIXED / name).read_text() for name in files}}
    sources |= {name: (PROJECT / name).read_text() for name in (*PORTABLE, "board_pico.c")}
    for name, text in SDK.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"#pragma once\n{text}")
    # Compiled, not linked: the SDK's functions and the C library's input and output are not here.
    only = dataclasses.replace(part, flags=("-I.", "-r", "-nostdlib", "-Wno-unused-parameter"))
    assert linked(only, sources, tmp_path).is_file()
