"""Golden streams on emulated boards: the whole C of a bundle, built by a cross compiler."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from edgefold.export.native.firmware_project import replay_sources
from edgefold.export.native.toolchain.machines import EMULATED, PARTS, FirmwareMachine
from edgefold.runtime.errors import ExportError
from tests.export.native.toolchain.machine_tools import emulated, linked, require

M4 = dataclasses.replace(EMULATED[0], flags=(*EMULATED[0].flags, "-O0"))  # compiles sooner
OF_TABLES = r"instructions of (.+): (\d+) on average, (\d+) at most, of (\d+) calls"


@pytest.mark.one_case
@pytest.mark.parametrize("machine", EMULATED, ids=lambda machine: machine.name)
def test_the_golden_stream_of_a_bundle_in_raw_units_is_replayed_within_its_tolerance(
    machine: FirmwareMachine, bundles: Path, tmp_path: Path
) -> None:
    require(machine.target.compiler, machine.emulator[0])
    sources = replay_sources(bundles / "scaled", machine, "scaled")
    if machine.target.name in ("cortex-m0plus", "riscv32"):  # software floats take forty times
        whole = "#define GOLDEN_MOMENTS 14"
        assert whole in sources["golden.h"]  # the fourth is the one after condition
        sources["golden.h"] = sources["golden.h"].replace(whole, "#define GOLDEN_MOMENTS 5")
    program = linked(machine, sources, tmp_path)
    code, printed = emulated(machine, program)
    assert code == 0, printed
    assert printed.splitlines()[-1].startswith("PASS: largest error ")
    if not machine.target.is_linux:  # a process on Linux counts no instructions
        counts = {name: int(n) for name, n, _, _ in re.findall(OF_TABLES, printed)}
        assert counts["refresh"] > counts["update"] > 10_000
        assert counts["query of several targets"] > counts["query of one target"] > 10_000
        steps, most = map(int, re.findall(r"^stack.*: (\d+) bytes", printed, re.MULTILINE))
        assert 300 < steps < most < 1800  # docs/native.md tells 2 kB; a load takes most


@pytest.mark.long
def test_a_wrong_prediction_fails_the_replay_and_tells_the_error(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    require(M4.target.compiler, M4.emulator[0])
    sources = replay_sources(tiny_bundle, M4, "tiny")
    start = "static const double golden_mean[] = {\n    "
    assert start in sources["golden.h"]
    sources["golden.h"] = sources["golden.h"].replace(start, f"{start}0.25 + ")
    code, printed = emulated(M4, linked(M4, sources, tmp_path))
    assert code == 1
    assert re.search(r"FAIL: largest error 2\.50\de-1 of 1\.000e-4", printed)


@pytest.mark.long
def test_a_call_that_is_refused_fails_the_replay_and_is_named(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    require(M4.target.compiler, M4.emulator[0])
    sources = replay_sources(tiny_bundle, M4, "tiny")
    first = r"(static const double golden_y\[\] = \{\n    )[^,]+"
    sources["golden.h"] = re.sub(first, r"\g<1>1e300", sources["golden.h"])
    code, printed = emulated(M4, linked(M4, sources, tmp_path))
    assert code == 1
    assert "update was refused: status " in printed


@pytest.mark.long
def test_a_snapshot_that_is_another_after_a_load_fails_the_replay(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    require(M4.target.compiler, M4.emulator[0])
    sources = replay_sources(tiny_bundle, M4, "tiny")
    call = "return edgefold_tiny_load(&golden_stream, read, NULL, NULL, 0);"
    assert call in sources["golden.h"]
    forgets = f"{call.replace('return', '(void)')} golden_begin(); return EDGEFOLD_OK;"
    sources["golden.h"] = sources["golden.h"].replace(call, forgets)
    code, printed = emulated(M4, linked(M4, sources, tmp_path))
    assert code == 1
    assert "the snapshot was not the same again" in printed


def test_a_bundle_of_several_streams_is_refused(bundles: Path) -> None:
    with pytest.raises(ExportError, match="serves 3 streams"):
        replay_sources(bundles / "streams", M4)


@pytest.mark.long
def test_a_replay_with_software_floats_links_for_a_part_without_a_warning(
    tiny_bundle: Path, tmp_path: Path
) -> None:
    part = next(part for part in PARTS if part.name == "rp2040")
    require(part.target.compiler)
    assert linked(part, replay_sources(tiny_bundle, part, "tiny"), tmp_path).is_file()
