from __future__ import annotations

import importlib
import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from edgefold.devices.memory.gpu import CudaMemory, NvmlMemory
from edgefold.devices.memory.nvmap import ROOT, Nvmap, NvmapTotal
from edgefold.devices.nvidia import NVML, cuda_bus_id, load_cudart, load_nvml
from edgefold.runtime.errors import MeterError
from tests.fake_nvidia import FakeCudart, FakeNvml
from tests.recorded_boards import NVMAP, write

CLIENTS = "kernel/debug/nvmap/iovmm/clients"


def test_nvmap_adds_the_clients_of_a_process(tmp_path: Path) -> None:
    write(tmp_path, {CLIENTS: NVMAP})
    assert Nvmap(tmp_path, pid=4711).read_bytes() == (102400 + 2048) * 1024
    assert Nvmap(tmp_path, pid=4712).read_bytes() == 8 * 1024  # its name holds a blank
    assert Nvmap(tmp_path).processes_bytes()[1801] == 11356 * 1024


def test_older_nvmap_writes_kibibytes_without_their_letter(tmp_path: Path) -> None:
    write(tmp_path, {CLIENTS: NVMAP.replace("K\n", "\n")})
    assert Nvmap(tmp_path, pid=4711).read_bytes() == (102400 + 2048) * 1024


def test_a_process_that_nvmap_does_not_list_is_no_zero(tmp_path: Path) -> None:
    write(tmp_path, {CLIENTS: NVMAP})
    with pytest.raises(MeterError, match="lists 4 processes and not 99"):
        Nvmap(tmp_path, pid=99).read_bytes()


def test_nvmap_for_root_alone_names_the_folder_that_bars_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {CLIENTS: NVMAP})
    debug = tmp_path / "kernel/debug"
    debug.chmod(0o700)
    stat = Path.stat

    def barred(path: Path, **options: Any) -> os.stat_result:
        if debug in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", barred)  # root would be let through the mode
    monkeypatch.setattr("edgefold.devices.sysfs.read_bytes", refuse)
    with pytest.raises(
        MeterError, match=rf"clients cannot be read \(Permission denied; {debug} has mode 700\)"
    ) as caught:
        Nvmap(tmp_path)
    assert caught.value.remedy == ROOT


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "does not begin with"), (NVMAP.replace("8K", "8M"), "'8M' instead of kibibytes")],
)
def test_another_table_than_nvmaps_is_refused(text: str, words: str, tmp_path: Path) -> None:
    write(tmp_path, {CLIENTS: text})
    with pytest.raises(MeterError, match=words):
        Nvmap(tmp_path)


def test_nvml_adds_a_process_over_all_gpus() -> None:
    nvml = FakeNvml([[(7, 100), (8, 50)], [(7, 11)]])
    assert NvmlMemory(nvml, pid=7).read_bytes() == 111
    with pytest.raises(MeterError, match="lists 2 processes and not 9"):
        NvmlMemory(nvml, pid=9).read_bytes()


@pytest.mark.parametrize(
    ("nvml", "words"),
    [
        (FakeNvml(starts=False), "does not start: Driver Not Loaded"),
        (FakeNvml(["Not Supported"]), "does not tell the memory of processes: Not Supported"),
        (FakeNvml([[(7, None)]]), "hides the memory of process 7"),
    ],
)
def test_nvml_that_starts_and_tells_nothing_is_refused(nvml: FakeNvml, words: str) -> None:
    with pytest.raises(MeterError, match=words):
        NvmlMemory(nvml, pid=7)


def test_cuda_tells_what_of_the_device_is_taken() -> None:
    assert CudaMemory(FakeCudart(free=400)).read_bytes() == 600


def test_cuda_without_a_device_gives_its_words() -> None:
    with pytest.raises(MeterError, match="cudaGetDevice: no CUDA-capable device"):
        CudaMemory(FakeCudart(status=100))
    cudart = FakeCudart()
    meter = CudaMemory(cudart)
    cudart.status = 100
    with pytest.raises(MeterError, match="cudaMemGetInfo: no CUDA-capable device"):
        meter.read_bytes()


def test_bindings_that_do_not_find_cudas_library_are_a_meters_error() -> None:
    def refuse(*arguments: int) -> None:
        raise RuntimeError('Function "cudaGetDevice" not found')  # as cuda-bindings raises it

    cudart = SimpleNamespace(
        cudaGetDevice=refuse,
        cudaDeviceGetPCIBusId=refuse,
        cudaDeviceAttr=FakeCudart.cudaDeviceAttr,
    )
    with pytest.raises(MeterError):
        CudaMemory(cudart)
    with pytest.raises(MeterError):
        cuda_bus_id(cudart)


def test_cuda_is_not_asked_where_the_gpu_shares_the_machines_memory() -> None:
    """It would count the page cache as taken."""
    with pytest.raises(MeterError, match="page cache"):
        CudaMemory(FakeCudart(is_integrated=True))


def test_everybody_may_read_what_all_processes_hold_of_nvmap(tmp_path: Path) -> None:
    meminfo = "MemTotal: 7801856 kB\nNvMapMemFree:  94784 kB\nNvMapMemUsed:     805068 kB\n"
    write(tmp_path, {"meminfo": meminfo})
    meter = NvmapTotal(tmp_path)
    assert meter.read_bytes() == 805068 * 1024
    assert not meter.per_process
    write(tmp_path, {"meminfo": meminfo.replace("NvMapMemUsed", "Other")})
    with pytest.raises(MeterError, match="has no line 'NvMapMemUsed"):
        meter.read_bytes()


def test_real_cuda_has_the_functions_that_are_asked() -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    for name in ("cudaGetDevice", "cudaDeviceGetAttribute", "cudaMemGetInfo", "cudaGetErrorString"):
        assert callable(getattr(runtime, name))
    assert int(runtime.cudaDeviceAttr.cudaDevAttrIntegrated) == 18


def test_missing_libraries_name_what_brings_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(name: str) -> ModuleType:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", nothing)
    for driver, remedy in ((None, None), ("NVRM version: Kernel Module  580.65.06  Release", NVML)):
        write(tmp_path, {"proc/driver/nvidia/version": driver} if driver else {})
        with pytest.raises(MeterError, match=r"pip install 'edgefold\[nvidia\]'") as caught:
            load_nvml(tmp_path)
        assert caught.value.remedy == remedy  # it helps where there is a driver
    with pytest.raises(MeterError, match="pip install cuda-bindings"):
        load_cudart()


def test_the_older_place_of_cudas_module_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    older = ModuleType("cuda.cudart")

    def only_older(name: str) -> ModuleType:
        if name != "cuda.cudart":
            raise ImportError(name)
        return older

    monkeypatch.setattr(importlib, "import_module", only_older)
    assert load_cudart() is older
