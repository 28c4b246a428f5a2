from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.devices.machine.memory_limits import require_memory_limits
from edgefold.devices.memory.cgroup import FIRMWARE, UPDATE
from edgefold.runtime.errors import MeterError
from tests.recorded_boards import jetson_orin_nano, raspberry_pi_4, raspberry_pi_5, write

HEAD = "#subsys_name\thierarchy\tnum_cgroups\tenabled\n"


def test_the_controllers_of_v2_tell_also_where_the_old_table_leaves_memory_out(
    tmp_path: Path,
) -> None:
    root = jetson_orin_nano(tmp_path)
    assert "memory" not in (root / "proc/cgroups").read_text()
    assert require_memory_limits(root) == "cgroup v2"


def test_the_old_table_tells_where_v2_is_not_mounted(tmp_path: Path) -> None:
    write(tmp_path, {"proc/cgroups": f"{HEAD}cpu\t3\t5\t1\nmemory\t8\t88\t1\n"})
    assert require_memory_limits(tmp_path) == "cgroup v1"


@pytest.mark.parametrize(
    ("board", "remedy"),
    [(raspberry_pi_5, FIRMWARE), (raspberry_pi_4, UPDATE)],  # not asked for yet; asked in vain
)
def test_a_raspberry_pi_without_the_controller_is_told_its_remedy(
    board: object, remedy: object, tmp_path: Path
) -> None:
    assert callable(board)
    with pytest.raises(MeterError) as caught:
        require_memory_limits(board(tmp_path))
    assert caught.value.remedy == remedy


def test_a_controller_that_is_switched_off_enforces_nothing(tmp_path: Path) -> None:
    write(tmp_path, {"proc/cgroups": f"{HEAD}memory\t0\t1\t0\n"})
    with pytest.raises(MeterError) as caught:
        require_memory_limits(tmp_path)
    assert caught.value.remedy is None  # no command is known for another machine


def test_a_machine_that_shows_neither_file_is_not_called_unlimited(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="neither"):
        require_memory_limits(tmp_path)
