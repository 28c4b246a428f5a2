from __future__ import annotations

from pathlib import Path

from edgefold.devices.machine import read_machine


def test_a_recorded_board_is_described(tmp_path: Path) -> None:
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    (proc / "device-tree").mkdir(parents=True)
    (proc / "device-tree/model").write_bytes(b"NVIDIA Jetson Orin Nano\0")
    (proc / "cpuinfo").write_text("processor\t: 0\nmodel name\t: ARMv8\nprocessor\t: 1\n")
    (proc / "meminfo").write_text("MemTotal:        7825424 kB\nMemFree: 1 kB\n")
    cpufreq = sys / "devices/system/cpu/cpu0/cpufreq"
    cpufreq.mkdir(parents=True)
    (cpufreq / "scaling_governor").write_text("schedutil\n")
    (cpufreq / "scaling_cur_freq").write_text("1510400\n")
    for index, millidegrees in enumerate(("48500", "51250")):
        folder = sys / f"class/thermal/thermal_zone{index}"
        folder.mkdir(parents=True)
        (folder / "temp").write_text(millidegrees)
    machine = read_machine(proc, sys)
    assert machine.board == "NVIDIA Jetson Orin Nano"
    assert machine.cpu_model == "ARMv8"
    assert machine.memory_bytes == 7825424 * 1024
    assert machine.frequency_governor == "schedutil"
    assert machine.frequency_hz == 1510400e3
    assert machine.temperature_celsius == 51.25
    assert machine.n_cores >= 1


def test_what_the_kernel_hides_is_none(tmp_path: Path) -> None:
    machine = read_machine(tmp_path, tmp_path)
    assert machine.board is None
    assert machine.cpu_model is None
    assert machine.memory_bytes is None
    assert machine.frequency_hz is None
    assert machine.frequency_governor is None
    assert machine.temperature_celsius is None
