from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgefold.devices.energy import EnergyMeter
from edgefold.devices.errors import MeterError
from edgefold.devices.rapl import Rapl
from edgefold.devices.sensors import find_energy_sensor

RANGE_UJ = 262_143_328_850


def zone(root: Path, name: str, label: str, energy_uj: int) -> Path:
    folder = root / "class/powercap" / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{label}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    return folder / "energy_uj"


class Bench:
    """A machine of constant power whose clock moves only when told."""

    period_s = 1e-3
    step_j = 1e-4
    max_gap_s = 60.0
    name = "a bench"

    def __init__(self, power_w: float = 5.0) -> None:
        self.power_w = power_w
        self.now_s = 0.0
        self.energy_j = 0.0

    def clock(self) -> float:
        return self.now_s

    def wait(self, duration_s: float) -> None:
        self.now_s += duration_s
        self.energy_j += duration_s * self.power_w

    def read_j(self) -> float:
        return self.energy_j


def test_rapl_sums_packages_and_dram_and_nothing_twice(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", 1_000_000)
    core = zone(tmp_path, "intel-rapl:0:0", "core", 0)
    dram = zone(tmp_path, "intel-rapl:0:1", "dram", 5_000_000)
    platform = zone(tmp_path, "intel-rapl:1", "psys", 0)
    same = zone(tmp_path, "intel-rapl-mmio:0", "package-0", 0)
    sensor = Rapl(tmp_path)
    assert sensor.read_j() == 0
    package.write_text("3000000\n")
    dram.write_text("5500000\n")
    for other in (core, platform, same):
        other.write_text("9000000\n")
    assert sensor.read_j() == pytest.approx(2.5)
    assert sensor.name == "RAPL (package-0, dram)"


def test_rapl_counts_on_past_a_wrap(tmp_path: Path) -> None:
    package = zone(tmp_path, "intel-rapl:0", "package-0", RANGE_UJ - 1_000_000)
    sensor = Rapl(tmp_path)
    package.write_text("500000\n")
    assert sensor.read_j() == pytest.approx(1.5)
    package.write_text("700000\n")
    assert sensor.read_j() == pytest.approx(1.7)
    package.write_text("600000\n")
    assert sensor.read_j() == pytest.approx(1.7 - 0.1 + RANGE_UJ / 1e6)
    assert sensor.max_gap_s == pytest.approx(RANGE_UJ / 1e6 / 1000)


def test_a_machine_without_rapl_says_so(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="has no intel-rapl package"):
        find_energy_sensor(tmp_path)


def test_an_unreadable_counter_names_file_mode_and_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    counter.chmod(0o400)
    read_text = Path.read_text

    def refuse(path: Path) -> str:
        if path == counter:
            raise PermissionError(13, "Permission denied", str(path))
        return read_text(path)

    monkeypatch.setattr(Path, "read_text", refuse)  # root would be let through the mode
    with pytest.raises(MeterError, match=re.escape(f"{counter} may not be read (mode 400)")):
        find_energy_sensor(tmp_path)


def test_a_counter_that_holds_text_is_refused(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", 1).write_text("n/a\n")
    with pytest.raises(MeterError, match="'n/a' instead of a number"):
        Rapl(tmp_path)


def test_idle_power_is_subtracted() -> None:
    bench = Bench(power_w=5.0)
    meter = EnergyMeter(bench, bench.clock)
    assert meter.measure_idle(bench.wait, 2.0) == pytest.approx(5.0)
    bench.power_w = 12.0
    meter.start()
    bench.wait(3.0)
    window = meter.stop()
    assert window.total_j == pytest.approx(36.0)
    assert window.net_j == pytest.approx(21.0)
    assert window.duration_s == pytest.approx(3.0)


def test_work_below_idle_comes_out_negative() -> None:
    bench = Bench(power_w=5.0)
    meter = EnergyMeter(bench, bench.clock)
    meter.measure_idle(bench.wait, 2.0)
    bench.power_w = 4.5
    meter.start()
    bench.wait(2.0)
    assert meter.stop().net_j == pytest.approx(-1.0)


def test_a_window_of_a_few_periods_is_refused() -> None:
    bench = Bench()
    meter = EnergyMeter(bench, bench.clock)
    meter.measure_idle(bench.wait, 1.0)
    meter.start()
    bench.wait(0.05)
    with pytest.raises(MeterError, match=r"0\.05 s is too short.*measure for 0\.1 s"):
        meter.stop()


def test_a_counter_that_stands_still_is_refused() -> None:
    bench = Bench(power_w=0.0)
    meter = EnergyMeter(bench, bench.clock)
    with pytest.raises(MeterError, match="too coarse"):
        meter.measure_idle(bench.wait, 1.0)


def test_a_pause_that_may_hide_a_wrap_is_refused() -> None:
    bench = Bench()
    meter = EnergyMeter(bench, bench.clock)
    meter.measure_idle(bench.wait, 1.0)
    meter.start()
    bench.wait(50)
    meter.poll()
    bench.wait(70)
    with pytest.raises(MeterError, match="not read for 70 s"):
        meter.poll()
    with pytest.raises(MeterError, match="No window is open"):
        meter.stop()


def test_a_long_idle_window_is_read_often_enough() -> None:
    bench = Bench()
    assert EnergyMeter(bench, bench.clock).measure_idle(bench.wait, 300.0) == pytest.approx(5.0)


def test_a_window_needs_an_idle_baseline() -> None:
    bench = Bench()
    with pytest.raises(MeterError, match="measure_idle"):
        EnergyMeter(bench, bench.clock).start()
