"""Sensors on emulated boards decide as on this machine, in the memory that the project allows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.native.recorded_sensors import host_library, recorded, rows_of
from benchmarks.native.sensor_firmware import COMPARED, INSTRUCTIONS
from edgefold.export.native.generator import NativeSource, generate
from edgefold.export.native.sensors.sensor_replay import RecordedRow, sensor_replay_sources
from edgefold.export.native.toolchain.machines import EMULATED, FirmwareMachine
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.export.native.toolchain.machine_tools import emulated, linked, require
from tests.native_builds import compiler_or_skip

DATA = Path(__file__).parents[4] / "data"
MACHINES = [machine for machine in EMULATED if not machine.target.is_linux]
SAME_BITS = "-DEDGEFOLD_SAME_BITS"
N_ROWS = {"cortex-m0plus": 12, "riscv32": 12}
"""Rows of each series; software floats take forty times as long."""


@pytest.fixture(scope="module")
def native() -> NativeSource:
    return generate(shipped_bundle(), "sensors")


@pytest.fixture(scope="module")
def series(
    native: NativeSource, tmp_path_factory: pytest.TempPathFactory
) -> list[list[RecordedRow]]:
    """Rows of two series with the answers of the engine here."""
    compiler_or_skip()
    library = host_library(native, tmp_path_factory.mktemp("host") / "library", SAME_BITS)
    names = ("air_temperature_hourly", "sea_surface_monthly")
    return [recorded(library, rows_of(DATA / f"{name}.csv", 120)) for name in names]


@pytest.mark.long
@pytest.mark.parametrize("flags", [(), (SAME_BITS,)], ids=["default", "same bits"])
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_a_replay_on_an_emulated_board_decides_as_this_machine(
    machine: FirmwareMachine,
    flags: tuple[str, ...],
    native: NativeSource,
    series: list[list[RecordedRow]],
    tmp_path: Path,
) -> None:
    require(machine.target.compiler, machine.emulator[0])
    rows = [one[: N_ROWS.get(machine.target.name, len(one))] for one in series]
    sources = sensor_replay_sources(native, machine, rows)
    code, printed = emulated(machine, linked(machine, sources, tmp_path, *flags))
    assert code == 0, printed
    assert printed.splitlines()[-1] == "PASS: 0 decisions differ"
    found = re.search(COMPARED, printed, re.MULTILINE)
    assert found is not None and int(found[1]) > 0
    # By default float32 sums have another order, which shows while the model adapts fast. The same
    # bits in float32 leave the C library's exp and log in double, off by one place in 1e16.
    assert int(found[2]) < (1 if flags else 0.05 * 1e9)
    counts = {name: int(mean) for name, mean, _, _ in re.findall(INSTRUCTIONS, printed)}
    assert counts["rows"] > 100_000
    sizes = {name: int(n) for name, n in re.findall(r"^(\w+): (\d+) bytes", printed, re.MULTILINE)}
    assert sizes["sensor"] + sizes["shared"] + sizes["stack"] < 190_000  # docs/microcontroller.md
    assert sizes["snapshot"] > 100_000
    stated = re.findall(r"^ \*     .*?(\d+) bytes (?:for each|once)", native.header, re.MULTILINE)
    assert [sizes["sensor"], sizes["shared"]] == [int(n) for n in stated]


@pytest.mark.long
def test_a_decision_that_differs_fails_the_replay(
    native: NativeSource, series: list[list[RecordedRow]], tmp_path: Path
) -> None:
    machine = MACHINES[0]
    require(machine.target.compiler, machine.emulator[0])
    rows = [row._replace(alarm=1 - row.alarm) if at == 5 else row
            for at, row in enumerate(series[0][:10])]  # fmt: skip
    sources = sensor_replay_sources(native, machine, [rows])
    code, printed = emulated(machine, linked(machine, sources, tmp_path))
    assert code == 1
    assert printed.splitlines()[-1] == "FAIL: 1 decisions differ"
