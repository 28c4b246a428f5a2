from __future__ import annotations

from pathlib import Path

import pytest

from edgefold.devices.memory.cgroup import CgroupMemory
from edgefold.runtime.errors import MeterError
from tests.recorded_boards import group_v2, write

V1_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
V1_GROUPS = "9:name=systemd:/\n4:memory:/jobs/one\n1:cpu:/elsewhere\n0::/\n"
PAGES_OF_V1 = "9223372036854771712\n"  # the largest number of whole pages: no limit


def group_v1(root: Path, limit: str = PAGES_OF_V1, parent: str = PAGES_OF_V1) -> Path:
    top = "sys/fs/cgroup/memory"
    return write(
        root,
        {
            "proc/self/cgroup": V1_GROUPS,
            "proc/self/mountinfo": V1_MOUNTS,
            f"{top}/memory.limit_in_bytes": PAGES_OF_V1,
            f"{top}/jobs/memory.limit_in_bytes": parent,
            f"{top}/jobs/one/memory.usage_in_bytes": "48513024\n",
            f"{top}/jobs/one/memory.max_usage_in_bytes": "79327232\n",
            f"{top}/jobs/one/memory.limit_in_bytes": limit,
        },
    )


def test_version_1_reads_the_group_of_the_memory_controller(tmp_path: Path) -> None:
    meter = CgroupMemory(group_v1(tmp_path))
    assert meter.name == "cgroup v1 /jobs/one"
    assert meter.current_bytes() == 48513024
    assert meter.peak_bytes() == 79327232
    assert meter.limit_bytes() is None


def test_the_tightest_limit_of_the_line_of_groups_holds(tmp_path: Path) -> None:
    assert CgroupMemory(group_v1(tmp_path, "900\n", "700\n")).limit_bytes() == 700
    group_v1(tmp_path, "600\n", "700\n")
    assert CgroupMemory(tmp_path).limit_bytes() == 600


def test_version_2_reads_the_unified_group(tmp_path: Path) -> None:
    root = group_v2(
        tmp_path, memory_current="5000\n", memory_peak="9000\n", memory_max="67108864\n"
    )
    meter = CgroupMemory(root)
    assert meter.name == "cgroup v2 /system.slice/edgefold.service"
    assert (meter.current_bytes(), meter.peak_bytes()) == (5000, 9000)
    assert meter.limit_bytes() == 64 << 20


def test_max_is_no_limit_but_a_slice_above_may_have_one(tmp_path: Path) -> None:
    meter = CgroupMemory(group_v2(tmp_path, memory_current="5000\n", memory_max="max\n"))
    assert meter.limit_bytes() is None
    write(tmp_path, {"sys/fs/cgroup/system.slice/memory.max": "123456\n"})
    assert meter.limit_bytes() == 123456


def test_a_kernel_that_keeps_no_peak_is_told(tmp_path: Path) -> None:
    meter = CgroupMemory(group_v2(tmp_path, memory_current="5000\n", memory_max="max\n"))
    with pytest.raises(MeterError, match=r"memory\.peak is missing: kernels before 5\.19"):
        meter.peak_bytes()


def test_inside_a_container_the_shown_part_of_the_tree_is_cut_off(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/docker/4f5e\n",
            "proc/self/mountinfo": "29 23 0:26 /docker/4f5e /sys/fs/c\\040group ro - cgroup2 c r\n",
            "sys/fs/c group/memory.current": "77\n",
            "sys/fs/c group/memory.max": "1024\n",
        },
    )
    meter = CgroupMemory(tmp_path)
    assert meter.current_bytes() == 77 and meter.limit_bytes() == 1024


def test_a_group_without_the_controller_is_told(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="controller is not enabled for this group"):
        CgroupMemory(group_v2(tmp_path))


def test_the_root_group_is_told(tmp_path: Path) -> None:
    group_v2(tmp_path)
    write(tmp_path, {"proc/self/cgroup": "0::/\n"})
    with pytest.raises(MeterError, match="root group, which is not accounted"):
        CgroupMemory(tmp_path)


def test_a_group_that_is_gone_is_told(tmp_path: Path) -> None:
    group_v2(tmp_path)
    write(tmp_path, {"proc/self/cgroup": "0::/../elsewhere\n"})
    with pytest.raises(MeterError, match=r"elsewhere cannot be seen \(no such file"):
        CgroupMemory(tmp_path)


@pytest.mark.parametrize(
    ("groups", "mounts", "words"),
    [
        ("1:cpu:/\n", V1_MOUNTS, "names no group with a memory controller"),
        ("0::/a\n", "25 1 0:1 / /proc rw - proc proc rw\n", "shows no cgroup v2 mount"),
    ],
)
def test_a_machine_without_groups_is_told(
    groups: str, mounts: str, words: str, tmp_path: Path
) -> None:
    write(tmp_path, {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts})
    with pytest.raises(MeterError, match=words):
        CgroupMemory(tmp_path)


def test_no_proc_at_all_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match=r"proc/self/cgroup cannot be read .*no such"):
        CgroupMemory(tmp_path)


def test_text_instead_of_bytes_is_refused(tmp_path: Path) -> None:
    meter = CgroupMemory(group_v2(tmp_path, memory_current="n/a\n", memory_max="max\n"))
    with pytest.raises(MeterError, match="'n/a' instead of a number of bytes"):
        meter.current_bytes()
