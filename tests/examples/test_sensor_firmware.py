"""The example firmware of a sensor: it survives a power cut at every write, and runs in qemu."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from edgefold.export.native.generator import NativeSource, generate
from edgefold.export.native.toolchain.machines import FIXED, WARNINGS
from edgefold.export.shorter_seasons import shorten_seasons
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.native.toolchain.machine_tools import require
from tests.made_once import made_once

PROJECT = Path(__file__).parents[2] / "examples" / "firmware-sensor"
README = (PROJECT / "README.md").read_text()
PORTABLE = ("adc.h", "board.h", "main.c", "storage.c", "storage.h")
FIRST, STEP = 1_700_006_400, 3600
CUT = 9
"""Exit code of the host's board when the power is cut."""
HOST_BOARD = r"""
#include "board.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "adc.h"

/* argv: the file of the flash, rows until it ends, erases and pages until the power is cut, and how
   many bytes of the write in which it is cut still reach the flash. */
static unsigned char flash[2 * N_SENSORS * BOARD_SLOT_BYTES];
static const char *path;
static long rows, writes, torn;

__attribute__((constructor)) static void arguments(int argc, char **argv)
{
    path = argv[argc - 4];
    rows = atol(argv[argc - 3]);
    writes = atol(argv[argc - 2]);
    torn = atol(argv[argc - 1]);
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
void board_print(const char *line) { puts(line); }
const unsigned char *board_flash(void) { return flash; }

int board_wait_for_row(double newest, double *time, double *value)
{
    if (rows-- == 0)
        end(0);
    *time = isnan(newest) ? ADC_FIRST : newest + ADC_STEP;
    *value = adc_value(*time);
    return 1;
}

static void write_flash(size_t offset, const unsigned char *bytes, size_t n)
{
    const int is_cut = writes-- == 0;
    for (size_t i = 0; i < (is_cut && (size_t)torn < n ? (size_t)torn : n); i++)
        flash[offset + i] = bytes ? bytes[i] : 0xFF;
    if (is_cut)
        end(9);
}

void board_flash_erase(size_t offset)
{
    if (offset % BOARD_SECTOR_BYTES)
        end(3);
    write_flash(offset, NULL, BOARD_SECTOR_BYTES);
}

void board_flash_program(size_t offset, const unsigned char *page)
{
    for (size_t i = 0; i < BOARD_PAGE_BYTES; i++)
        if (offset % BOARD_PAGE_BYTES || flash[offset + i] != 0xFF)
            end(4); /* a page is written once after its sector was erased */
    write_flash(offset, page, BOARD_PAGE_BYTES);
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> NativeSource:
    """The general model as the project's Makefile has it written."""
    bundle = tmp_path_factory.mktemp("short") / "bundle"
    shorten_seasons(shipped_bundle(), 168, bundle)
    return generate(bundle, "sensors")


@pytest.fixture(scope="module")
def program(model: NativeSource, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with a board of this machine, as a program that prints each forecast."""
    require("gcc")

    def make(folder: Path) -> None:
        build(folder, model)

    return made_once(tmp_path_factory, "sensor-firmware", make) / "firmware"


def build(
    folder: Path, model: NativeSource, flags: tuple[str, ...] = (), main: str | None = None
) -> Path:
    """Compile the project with a board of this machine, and perhaps another main.c."""
    sources = {**model.files, "board.c": HOST_BOARD}
    sources |= {name: (PROJECT / name).read_text() for name in PORTABLE}
    if main:
        sources["main.c"] = main
    for name, text in sources.items():
        (folder / name).write_text(text)
    files = sorted(name for name in sources if name.endswith(".c"))
    command = ["gcc", "-std=gnu99", "-O1", *WARNINGS, "-Werror", *flags, *files]
    done = subprocess.run(
        [*command, "-lm", "-o", "firmware"], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "firmware"


def run(
    program: Path, flash: Path, rows: int, writes: int = 10**6, torn: int = 0
) -> tuple[int, list[str]]:
    command = [str(program), str(flash), *map(str, (rows, writes, torn))]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()


def goes_on(n_rows: int) -> str:
    """Return the line that the firmware prints when it starts from a snapshot of n rows."""
    return f"goes on after the row at {FIRST + STEP * (n_rows - 1)}"


def test_it_reports_alarms_saves_and_goes_on(program: Path, tmp_path: Path) -> None:
    code, lines = run(program, tmp_path / "flash", 480)
    assert code == 0
    assert lines[0] == "starts without a snapshot"
    alarms = [line for line in lines if line.startswith("ALARM")]
    assert [line.split(": ")[1].split(",")[0] for line in alarms] == ["stuck", "value"]
    assert alarms[1].startswith(f"ALARM at {FIRST + 350 * STEP}")
    parts = [run(program, tmp_path / "parts", 120) for _ in range(4)]
    assert [lines[0] for _, lines in parts[1:]] == [goes_on(120), goes_on(240), goes_on(360)]
    assert [line for _, told in parts for line in told if line.startswith("ALARM")] == alarms


def n_writes_of_a_save(program: Path, flash: Path, folder: Path) -> int:
    """How many erases and pages the next save needs, found by halving."""
    least, most = 0, 4096
    while least < most:
        middle = (least + most) // 2
        copy = folder / "halving"
        shutil.copy(flash, copy)
        code, _ = run(program, copy, 60, middle)
        least, most = (middle + 1, most) if code == CUT else (least, middle)
    return least


@pytest.mark.long
@pytest.mark.parametrize("n_saves", [1, 2, 3])
def test_a_cut_at_any_write_leaves_one_of_the_two_snapshots(
    n_saves: int, program: Path, tmp_path: Path
) -> None:
    before, flash = tmp_path / "before", tmp_path / "flash"
    assert run(program, before, 60 * n_saves)[0] == 0
    n_writes = n_writes_of_a_save(program, before, tmp_path)
    shutil.copy(before, flash)
    assert run(program, flash, 60)[0] == 0
    later = flash.read_bytes()
    (n_bytes,) = struct.unpack_from("<I", later, 131072 * (n_saves % 2) + 12)
    n_pages = 1 + -(-n_bytes // 256)  # the header's, and those of the snapshot
    assert n_writes == n_pages + -(-n_pages * 256 // 4096)  # and erases of sectors
    parts = (0, 1, 20, 128)
    for at in range(n_writes):  # the header is the last write
        for torn in parts if at == n_writes - 1 else parts[at % 4 :][:1]:
            shutil.copy(before, flash)
            assert run(program, flash, 60, at, torn)[0] == CUT
            is_whole = flash.read_bytes() == later  # a torn header may have all of its bytes
            code, lines = run(program, flash, 60)
            assert (code, lines[0]) == (0, goes_on(60 * (n_saves + is_whole))), (at, torn)
            if not is_whole:  # it has learned what was cut off again, and saved the same
                assert flash.read_bytes() == later, (at, torn)


@pytest.mark.parametrize("at", [3, 5, 9, 13, 17, 21, 256 + 5, 256 + 30_000])
def test_a_bit_that_the_flash_lost_makes_it_take_the_other_snapshot(
    at: int, program: Path, tmp_path: Path
) -> None:
    flash = tmp_path / "flash"
    assert run(program, flash, 120)[0] == 0
    content = bytearray(flash.read_bytes())
    content[131072 + at] ^= 1  # in the second slot: header, or snapshot
    flash.write_bytes(content)
    assert run(program, flash, 1)[1][0] == goes_on(60)
    assert run(program, flash, 60)[1][0] == goes_on(60)  # and writes over the damaged one
    assert run(program, flash, 0)[1][0] == goes_on(120)
    content[256 + 999] ^= 1
    flash.write_bytes(content)  # both are damaged
    assert run(program, flash, 0)[1][0] == "starts without a snapshot"


TWO_SENSORS = r"""
#include <math.h>
#include <stdio.h>
#include "board.h"
#include "storage.h"

static struct edgefold_sensors_sensor sensors[N_SENSORS];

int main(void)
{
    double time, value;
    enum edgefold_status status[N_SENSORS];
    struct edgefold_sensors_row row;
    for (size_t at = 0; at < N_SENSORS; at++) {
        edgefold_sensors_start(&sensors[at], 1e-4);
        status[at] = storage_load(at, &sensors[at]);
        printf("%d %.0f\n", status[at], edgefold_sensors_newest_time(&sensors[at]));
    }
    board_wait_for_row(edgefold_sensors_newest_time(&sensors[0]), &time, &value);
    edgefold_sensors_push(&sensors[0], time, value, 1, &row);
    edgefold_sensors_push(&sensors[1], time + 60.0, value, 1, &row);
    for (int turn = 0; turn < 3; turn++)
        for (size_t at = 0; at < N_SENSORS; at++)
            if (storage_save(at, &sensors[at]) != EDGEFOLD_OK)
                return 5;
    if (storage_load(N_SENSORS, &sensors[0]) != EDGEFOLD_TOO_MANY ||
        storage_save(N_SENSORS, &sensors[0]) != EDGEFOLD_TOO_MANY)
        return 6;
    board_wait_for_row(0.0, &time, &value); /* writes the flash, and ends */
    return 7;
}
"""


def test_two_sensors_keep_their_snapshots_apart(model: NativeSource, tmp_path: Path) -> None:
    require("gcc")
    program = build(tmp_path, model, ("-DN_SENSORS=2",), TWO_SENSORS)
    flash = tmp_path / "flash"
    assert run(program, flash, 1) == (0, ["6 nan"] * 2)
    first = [f"0 {FIRST}", f"0 {FIRST + 60}"]
    assert run(program, flash, 1) == (0, first)
    content = flash.read_bytes()
    slots = [content[at * 131072 :][:131072] for at in range(4)]
    flash.write_bytes(b"".join(slots[at] for at in (2, 3, 0, 1)))  # of the other sensor
    assert run(program, flash, 1) == (0, ["6 nan"] * 2)


def test_the_flash_of_a_slot_holds_the_longest_snapshot(model: NativeSource) -> None:
    found = re.search(r"BOARD_SLOT_BYTES = (\d+)", (PROJECT / "board.h").read_text())
    assert found is not None
    whole = generate(shipped_bundle(), "sensors").header
    for header in (model.header, whole):
        sizes = [int(n) for n in re.findall(r"SNAPSHOT_BYTES (?:\(\w+ \+ )?(\d+)", header)]
        assert sum(sizes) + 256 <= int(found[1])


@pytest.mark.long
def test_the_project_runs_in_qemu_as_it_is_and_goes_on(model: NativeSource, tmp_path: Path) -> None:
    require("make", "arm-none-eabi-gcc", "qemu-system-arm")
    for file in PROJECT.iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "model").mkdir()
    for name, text in model.files.items():
        (tmp_path / "model" / name).write_text(text)
    outputs = re.findall(r"```\n((?:starts|goes).*?)```", README, re.DOTALL)
    assert len(outputs) == 2
    for start, output in zip(("starts without a snapshot", goes_on(480)), outputs, strict=True):
        done = subprocess.run(
            ["make", "-s", "run", f"MACHINE={FIXED}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        printed = done.stdout + done.stderr
        assert "warning" not in printed
        lines = [line for line in printed.splitlines() if not line.startswith("make")]
        assert lines[0] == start
        # A forecast differs in its last digits from compiler to compiler.
        expected = re.compile(r"expected -?\d+")
        assert [expected.sub("", line) for line in lines] == expected.sub("", output).splitlines()
    assert (tmp_path / "flash.bin").stat().st_size == 2 * 131072
