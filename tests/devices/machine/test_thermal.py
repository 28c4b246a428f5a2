from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgefold.devices.machine.machine import read_machine
from edgefold.devices.machine.thermal import (
    Zone,
    read_cooling,
    read_throttle_counters,
    read_zones,
)
from tests.recorded_boards import (
    cooling,
    jetson_orin_nano,
    jetson_thor,
    silent,
    thermal_zone,
    write,
)

ZONE = "sys/class/thermal/thermal_zone"


def zones(root: Path) -> dict[str, Zone]:
    return {zone.name: zone for zone in read_zones(root / "sys")}


def test_only_a_trip_that_drives_clocks_is_a_limit(tmp_path: Path) -> None:
    found = zones(jetson_orin_nano(tmp_path))
    assert found["cpu-thermal"].throttle_celsius == 99  # at 70 C it warns of a hot surface
    assert found["gpu-thermal"].throttle_celsius == 99
    assert found["tj-thermal"].throttle_celsius is None  # it starts the fan, and ends the board


def test_a_trip_that_is_bound_to_nothing_or_off_is_no_limit(tmp_path: Path) -> None:
    cooling(tmp_path, "cpufreq-cpu0")
    thermal_zone(tmp_path, 0, "unbound", 40000, ("passive", 60000, ""))
    thermal_zone(tmp_path, 1, "off", 40000, ("passive", -274000, "cpufreq-cpu0"))
    thermal_zone(tmp_path, 2, "fan", 40000, ("active", 50000, "cpufreq-cpu0"))
    assert all(zone.throttle_celsius is None for zone in zones(tmp_path).values())


def test_a_zone_that_answers_eagain_is_absent_and_named(tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    with silent(root / f"{ZONE}2/temp", root / f"{ZONE}3/temp"):
        machine = read_machine(root)
        assert machine.silent_zones == ("cv0-thermal", "tj-thermal")
        assert machine.temperature_celsius == 48.5  # of those that answer
        found = zones(root)
        assert found["cv0-thermal"].temperature_celsius is None
        assert found["gpu-thermal"].throttle_celsius == 99


def test_the_junction_is_asked_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = jetson_orin_nano(tmp_path)
    busy, read = {str(root / f"{ZONE}{index}/temp") for index in (0, 2)}, os.read

    def read_busy(handle: int, size: int) -> bytes:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if path in busy:
            busy.remove(path)
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return read(handle, size)

    monkeypatch.setattr(os, "read", read_busy)
    found = zones(root)
    assert busy == set()
    assert found["tj-thermal"].temperature_celsius == 51.25
    assert found["cpu-thermal"].temperature_celsius is None  # the others are not


def test_a_zone_that_vanished_while_it_was_read_is_absent(tmp_path: Path) -> None:
    root = jetson_thor(tmp_path)
    (root / f"{ZONE}2/temp").unlink()
    assert read_machine(root).temperature_celsius == 44.5


def test_the_die_of_the_power_chip_is_no_temperature(tmp_path: Path) -> None:
    thermal_zone(tmp_path, 0, "PMIC-Die", 100000)
    thermal_zone(tmp_path, 1, "CPU-therm", 41000)
    assert set(zones(tmp_path)) == {"CPU-therm"}


def test_counters_tell_over_current_and_heat(tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    throttled = "sys/devices/system/cpu/cpu{}/thermal_throttle/core_throttle_count"
    write(root, {throttled.format(0): "5\n", throttled.format(1): "7\n"})
    assert read_throttle_counters(root / "sys") == {
        "over-current events oc1": 0,
        "over-current events oc2": 0,
        "over-current events oc3": 37,
        "heat events of all cores": 12,
    }


def test_only_devices_that_lower_clocks_are_watched(tmp_path: Path) -> None:
    cooling(
        tmp_path, "pwm-fan", "hot-surface-alert", "cpu-throttle-alert", "Processor", "cpufreq-0"
    )
    kinds = [name.partition(" ")[0] for name in read_cooling(tmp_path / "sys")]
    assert sorted(kinds) == ["Processor", "cpu-throttle-alert", "cpufreq-0"]
