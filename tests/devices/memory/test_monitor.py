from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from edgefold.devices.host import Host
from edgefold.devices.memory.gpu import CudaMemory
from edgefold.devices.memory.monitor import MemoryMonitor, monitor_memory
from edgefold.devices.memory.nvmap import Nvmap
from edgefold.devices.memory.registry import GpuMemory
from edgefold.runtime.errors import MeterError
from tests.fake_nvidia import FakeCudart, FakeNvml
from tests.recorded_boards import jetson_orin_nano, write


def available(root: Path, kib: int) -> None:
    write(root, {"proc/meminfo": f"MemTotal: 8000000 kB\nMemAvailable: {kib} kB\n"})


def held_by(root: Path, pid: int, kib: int) -> None:
    table = f"CLIENT PROCESS PID SIZE\nuser python3 {pid} {kib}K\ntotal {kib}K\n"
    write(root, {"sys/kernel/debug/nvmap/iovmm/clients": table})


def test_three_numbers_of_a_jetson_stand_apart(tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    available(root, 5_000_000)
    held_by(root, 4711, 1_000)
    surveyor = MemoryMonitor(root, [lambda: Nvmap(root / "sys", pid=4711)])
    available(root, 4_800_000)
    held_by(root, 4711, 120_000)
    surveyor.poll()
    available(root, 4_900_000)
    held_by(root, 4711, 90_000)
    found = surveyor.read()
    assert found.gpu.memory_bytes == 120_000 * 1024
    assert found.gpu.source == "nvmap, of the process"
    assert found.available_drop.memory_bytes == 200_000 * 1024
    assert found.group_limit.memory_bytes is None and found.group_limit.reason == "unlimited"
    assert found.group_peak.memory_bytes is None
    assert "kernels before 5.19" in (found.group_peak.reason or "")


def test_memory_that_others_gave_back_shows_as_no_use(tmp_path: Path) -> None:
    available(tmp_path, 1_000)
    surveyor = MemoryMonitor(tmp_path)
    available(tmp_path, 1_500)
    assert surveyor.read().available_drop.memory_bytes == 0


def test_free_pages_in_the_processors_lists_are_no_use(tmp_path: Path) -> None:
    page = os.sysconf("SC_PAGE_SIZE")

    def show(kib: int, *listed: int) -> None:
        available(tmp_path, kib)
        cpus = "".join(
            f"    cpu: {i}\n              count:    {n}\n              high:     900\n"
            for i, n in enumerate(listed)
        )
        write(tmp_path, {"proc/zoneinfo": f"Node 0, zone   Normal\n  pagesets\n{cpus}"})

    show(1_000_000, 30, 12)
    surveyor = MemoryMonitor(tmp_path)
    show(900_000, 10, 2)
    drop = surveyor.read().available_drop
    assert drop.memory_bytes == 100_000 * 1024 + 30 * page
    assert "free lists" in drop.source
    (tmp_path / "proc/zoneinfo").unlink()  # half a sum would be no figure
    assert surveyor.read().available_drop.memory_bytes is None


def test_what_the_device_held_at_the_start_is_subtracted(tmp_path: Path) -> None:
    cudart = FakeCudart(free=900)
    surveyor = MemoryMonitor(tmp_path, [lambda: CudaMemory(cudart)])
    cudart.free = 300
    surveyor.poll()
    cudart.free = 500
    gpu = surveyor.read().gpu
    assert gpu.memory_bytes == 600
    assert gpu.source == "cudaMemGetInfo, growth, all processes together"


def test_every_meter_that_does_not_open_gives_its_reason(tmp_path: Path) -> None:
    def broken() -> GpuMemory:
        raise MeterError("NVML does not start: Driver Not Loaded")

    makers = [lambda: Nvmap(tmp_path / "sys"), broken, lambda: CudaMemory(FakeCudart(status=35))]
    gpu = MemoryMonitor(tmp_path, makers).read().gpu
    assert gpu.memory_bytes is None and gpu.reason is not None
    for words in ("nvmap/iovmm/clients cannot be read", "Driver Not Loaded", "no CUDA-capable"):
        assert words in gpu.reason


def test_a_process_that_never_appears_is_none_with_a_reason(tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    gpu = MemoryMonitor(root, [lambda: Nvmap(root / "sys", pid=99)]).read().gpu
    assert gpu.memory_bytes is None and "not 99" in (gpu.reason or "")


def test_nothing_readable_is_a_survey_of_reasons(tmp_path: Path) -> None:
    found = monitor_memory(may_use_gpu=False, host=Host(tmp_path)).read()
    for figure in (
        found.gpu,
        found.available_drop,
        found.group_peak,
        found.group_limit,
    ):
        assert figure.memory_bytes is None and figure.reason
    assert found.gpu.reason == "no GPU is used"


def test_a_machine_without_a_gpu_loads_no_library_of_one(tmp_path: Path) -> None:
    def load() -> ModuleType:
        raise MeterError("a library was asked for")

    host = Host(tmp_path, nvml=load, cudart=load)
    assert monitor_memory(may_use_gpu=True, host=host).read().gpu.reason == "no GPU is used"
    write(tmp_path, {"dev/nvmap": ""})
    reason = monitor_memory(may_use_gpu=True, host=host).read().gpu.reason
    assert reason is not None and "clients cannot be read (no such file)" in reason
    assert reason.count("a library was asked for") == 2


def test_without_root_a_jetson_tells_the_growth_of_all_processes_together(tmp_path: Path) -> None:
    meminfo = "MemAvailable: 6000000 kB\nNvMapMemUsed: {} kB\n"
    write(tmp_path, {"dev/nvmap": "", "proc/meminfo": meminfo.format(800_000)})
    nvml = FakeNvml(["Not Supported"])
    host = Host(tmp_path, nvml=lambda: nvml, cudart=lambda: FakeCudart(is_integrated=True))
    surveyor = monitor_memory(may_use_gpu=True, host=host)
    write(tmp_path, {"proc/meminfo": meminfo.format(800_123)})
    gpu = surveyor.read().gpu
    assert gpu.memory_bytes == 123 * 1024
    assert gpu.source == "NvMapMemUsed, growth, all processes together"


def test_where_nvmap_tells_nothing_the_drop_of_memavailable_stands_alone(tmp_path: Path) -> None:
    meminfo = "MemAvailable: {} kB\n"
    write(tmp_path, {"dev/nvmap": "", "proc/meminfo": meminfo.format(6_000_000)})
    nvml = FakeNvml(["Not Supported"])
    host = Host(tmp_path, nvml=lambda: nvml, cudart=lambda: FakeCudart(is_integrated=True))
    surveyor = monitor_memory(may_use_gpu=True, host=host)
    write(tmp_path, {"proc/meminfo": meminfo.format(5_999_000)})
    survey = surveyor.read()
    assert survey.gpu.memory_bytes is None
    assert "drop of MemAvailable" in (survey.gpu.reason or "")
    assert survey.available_drop.memory_bytes == 1000 * 1024


def test_this_machine_is_surveyed() -> None:
    surveyor = monitor_memory(may_use_gpu=False)
    block = bytearray(b"x") * (64 << 20)
    found = surveyor.read()
    assert len(block) == 64 << 20
    assert found.available_drop.memory_bytes is not None  # others may have freed as much
