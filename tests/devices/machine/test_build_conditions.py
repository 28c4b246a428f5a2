from __future__ import annotations

import json
from pathlib import Path

from edgefold.devices.machine.build_conditions import read_build_conditions
from tests.recorded_boards import jetson_orin_nano, raspberry_pi_5, write


def test_a_jetson_tells_its_mode_and_what_its_clocks_may_do(tmp_path: Path) -> None:
    found = read_build_conditions(jetson_orin_nano(tmp_path))
    assert found == {
        "power_mode": "15W",
        "gpu_min_hz": 306e6,
        "gpu_max_hz": 612e6,
        "cpu_max_hz": 1510.4e6,
        "memory_hz": 2133e6,
    }
    assert json.loads(json.dumps(found)) == found


def test_a_mode_without_a_name_is_told_by_its_number(tmp_path: Path) -> None:
    write(tmp_path, {"var/lib/nvpmodel/status": "pmode:0002\n"})
    assert read_build_conditions(tmp_path) == {"power_mode": "2"}


def test_what_a_machine_does_not_show_is_left_out(tmp_path: Path) -> None:
    assert read_build_conditions(raspberry_pi_5(tmp_path)) == {"cpu_max_hz": 2400e6}
    assert read_build_conditions(tmp_path / "nothing") == {}
