from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from edgefold.devices.machine.jetson import ActivePowerMode, read_power_mode, read_release
from edgefold.devices.machine.machine import read_machine
from edgefold.devices.machine.thermal import throttle_flags
from edgefold.runtime.errors import MeterError
from tests.recorded_boards import (
    NVPMODEL,
    cpu,
    gpu_clock,
    jetson_agx_orin,
    jetson_orin_nano,
    jetson_thor,
    raspberry_pi_5,
    write,
)


def unavailable(words: Sequence[str]) -> str:
    raise MeterError(f"{words[0]} is not installed")


def test_a_jetson_is_described(tmp_path: Path) -> None:
    machine = read_machine(jetson_orin_nano(tmp_path))
    assert machine.board == "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super"
    assert machine.memory_bytes == 7834228 * 1024
    assert machine.temperature_celsius == 51.25
    assert machine.throttle_temperature_celsius == 99
    assert machine.n_cores >= 1
    assert machine.frequency_governor == "schedutil"
    assert machine.frequency_hz == 729600e3
    assert machine.jetson is not None
    assert (machine.jetson.linux, machine.jetson.jetpack) == ("R36.4.3", "6")
    assert machine.power_mode is not None
    assert (machine.power_mode.mode, machine.power_mode.name) == (0, "15W")
    assert machine.power_mode.choices == {0: "15W", 1: "25W", 2: "MAXN_SUPER", 3: "7W"}
    assert machine.gpu_clock is not None
    assert machine.gpu_clock.current_hz == 306e6 and machine.gpu_clock.max_hz == 612e6
    assert machine.gpu_clock.units_off == "240"
    assert machine.memory_clock_hz == machine.memory_cap_hz == 2133e6
    assert machine.throttle_flags is None
    assert machine.silent_zones == ()
    json.dumps(asdict(machine))  # a record carries it


def test_a_raspberry_pi_is_described(tmp_path: Path) -> None:
    machine = read_machine(raspberry_pi_5(tmp_path))
    assert machine.board == "Raspberry Pi 5 Model B Rev 1.0" == machine.cpu_model
    assert machine.throttle_flags == ("under-voltage since boot", "throttled since boot")
    assert machine.throttle_temperature_celsius is None  # its kernel has no passive trip
    assert machine.jetson is None and machine.power_mode is None and machine.gpu_clock is None


def test_an_orin_on_jetpack_5_names_its_gpu_by_the_chip(tmp_path: Path) -> None:
    machine = read_machine(jetson_agx_orin(tmp_path))
    assert machine.jetson is not None and machine.jetson.jetpack == "5"
    assert machine.gpu_clock is not None and machine.gpu_clock.name == "17000000.ga10b"
    assert machine.throttle_temperature_celsius == 99
    assert machine.memory_clock_hz is None  # root alone reads it there
    assert machine.silent_zones == ("CV0-therm",)  # it shows -256 C


def test_a_thor_shows_its_memory_clock_and_a_gpu_that_is_off(tmp_path: Path) -> None:
    machine = read_machine(jetson_thor(tmp_path))
    assert machine.memory_clock_hz == 665.6e6 and machine.memory_cap_hz == 4266e6
    assert machine.gpu_clock is not None
    assert machine.gpu_clock.current_hz is None and machine.gpu_clock.max_hz == 1575e6
    assert machine.throttle_temperature_celsius == 109


def test_a_gpu_is_known_by_its_name_in_the_device_tree(tmp_path: Path) -> None:
    gpu_clock(tmp_path, "57000000.core", (76, 76, 921), "gm20b")
    gpu_clock(tmp_path, "15340000.vic", (115, 115, 1036), "vic")
    gpu = read_machine(tmp_path).gpu_clock
    assert gpu is not None and gpu.name == "57000000.core"


def test_no_cap_of_the_memory_clock_is_absent(tmp_path: Path) -> None:
    write(tmp_path, {"sys/kernel/nvpmodel_clk_cap/emc": "0\n"})
    assert read_machine(tmp_path).memory_cap_hz is None


def test_what_the_machine_hides_is_none(tmp_path: Path) -> None:
    machine = read_machine(tmp_path, unavailable)
    for name in ("board", "cpu_model", "memory_bytes", "frequency_hz", "frequency_governor"):
        assert getattr(machine, name) is None
    for name in ("temperature_celsius", "throttle_flags", "jetson", "power_mode", "gpu_clock"):
        assert getattr(machine, name) is None
    assert machine.cpu_clocks == ()


def test_cores_of_one_rule_stand_together(tmp_path: Path) -> None:
    for index in (0, 1, 10):
        now = 1_000_000 + index
        khz = {"scaling_cur_freq": now, "scaling_min_freq": 500_000, "scaling_max_freq": 2_000_000}
        cpu(tmp_path, index, "performance", khz)
    cpu(tmp_path, 2, "powersave", {"scaling_cur_freq": 500_000})
    write(tmp_path, {"sys/devices/system/cpu/cpu3/cpufreq/": ""})  # offline
    first, second = read_machine(tmp_path).cpu_clocks
    assert first.cores == (0, 1, 10) and first.governor == "performance"
    assert first.current_hz == (1_000_000e3, 1_000_001e3, 1_000_010e3)
    assert (first.min_hz, first.max_hz, first.limit_hz) == (5e8, 2e9, None)
    assert second.cores == (2,) and second.max_hz is None


def test_a_mode_never_chosen_is_the_boards_default(tmp_path: Path) -> None:
    write(tmp_path, {"etc/nvpmodel.conf": NVPMODEL})
    mode = read_power_mode(tmp_path, unavailable)
    assert mode is not None and (mode.mode, mode.name) == (1, "25W")


def test_nvpmodel_is_asked_where_it_keeps_no_status(tmp_path: Path) -> None:
    write(tmp_path, {"etc/nvpmodel.conf": NVPMODEL})
    mode = read_power_mode(tmp_path, lambda words: "NV Power Mode: 7W\n3\n")
    assert mode is not None and (mode.mode, mode.name) == (3, "7W")


@pytest.mark.parametrize(
    ("choices", "fastest"),
    [
        ({0: "15W", 1: "25W", 2: "MAXN_SUPER", 3: "7W"}, 2),
        ({0: "MAXN", 1: "10W", 4: "MAXN_SUPER"}, 4),
        ({0: "MODE_15W_2CORE", 2: "MODE_15W_6CORE", 3: "MODE_10W_2CORE"}, 2),
        ({0: "QUIET", 1: "LOUD"}, None),
        ({}, None),
    ],
)
def test_the_fastest_mode_is_told_by_name_not_by_number(
    choices: dict[int, str], fastest: int | None
) -> None:
    assert ActivePowerMode(0, None, choices).fastest() == fastest


@pytest.mark.parametrize(
    ("text", "linux", "jetpack"),
    [
        ("# R32 (release), REVISION: 7.1, GCID: 1, BOARD: t210ref\n", "R32.7.1", "4"),
        ("# R99 (release), REVISION: 0.1, GCID: 1\n", "R99.0.1", None),
    ],
)
def test_an_unknown_release_has_no_jetpack(
    text: str, linux: str, jetpack: str | None, tmp_path: Path
) -> None:
    release = read_release(write(tmp_path, {"etc/nv_tegra_release": text}))
    assert release is not None and (release.linux, release.jetpack) == (linux, jetpack)


def test_the_firmware_is_asked_where_the_kernel_hides_the_throttling(tmp_path: Path) -> None:
    assert throttle_flags(tmp_path, lambda words: "throttled=0x0\n") == ()
    assert throttle_flags(tmp_path, lambda words: "throttled=0x5\n") == (
        "under-voltage",
        "throttled",
    )
    assert throttle_flags(tmp_path, unavailable) is None
    assert throttle_flags(tmp_path) is None
