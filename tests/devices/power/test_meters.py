"""Each meter against a load whose energy is known, on recorded trees of files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgefold.devices.host import Runner, run_command
from edgefold.devices.power.figure import EnergyFigure
from edgefold.devices.power.meters.nvml import NvmlEnergy, NvmlPower
from edgefold.devices.power.meters.pmic import Pmic
from edgefold.devices.power.meters.rapl import Rapl
from edgefold.devices.power.meters.replay import Replay, load_recording
from edgefold.devices.power.sensor import EnergySensor, PowerSensor
from edgefold.runtime.errors import MeterError
from tests.devices import power_rigs
from tests.devices.power_bench import Bench, Load, constant, ramp, spikes, square
from tests.devices.power_rigs import RIGS, FakeNvml, pmic_text

IDLE_W = 12.3  # some 3 % of a step of the coarsest chip away from its next step
LOAD_W = 37.7
RECORDED_MEMORY_S = 0.1
N_RECORDED = 2400  # samples of work: each edge of the square is met within 20 ms, twice


def measure(
    bench: Bench, sensor: PowerSensor | EnergySensor, n_periods: int = 600
) -> tuple[EnergyFigure, float]:
    """The figure of windows as long as the sensor asks for, and what a call really used."""
    meter = bench.meter(sensor)
    period_s = meter.sampler.period_s
    idle_s = max(60 * period_s, 1.01 * meter.min_idle_s)
    work_s = max(n_periods * period_s, 1.01 * meter.min_work_s)
    meter.idle(bench.sleep, idle_s)
    meter.work(bench.call(period_s), work_s)
    meter.idle(bench.sleep, idle_s)
    return meter.figure(), bench.true_j(meter.windows)


def load_of(shape: str, period_s: float) -> Load:
    """Loads in units of the sensor's sampling period."""
    return {
        "constant": constant(LOAD_W),
        "square": square(120 * period_s, LOAD_W),
        "ramp": ramp(120 * period_s, LOAD_W),
        "spikes": spikes(7.3 * period_s, 0.2 * period_s, 10 * LOAD_W),
    }[shape]


@pytest.mark.parametrize("shape", ["constant", "square", "ramp"])
@pytest.mark.parametrize("name", RIGS)
def test_every_meter_finds_a_known_energy(name: str, shape: str, tmp_path: Path) -> None:
    bench = Bench(constant(0.0), IDLE_W)
    sensor = RIGS[name](tmp_path, bench)
    bench.load = load_of(shape, max(sensor.period_s, 0.02))
    figure, truth_j = measure(bench, sensor)
    assert figure.energy_j == pytest.approx(truth_j, rel=0.01)
    assert figure.idle_power_w == pytest.approx(IDLE_W, rel=0.01)
    assert figure.n_lone_samples == 0
    assert figure.n_missed == 0


@pytest.mark.one_case
@pytest.mark.parametrize("name", RIGS)
def test_every_meter_marks_spikes_shorter_than_its_period(name: str, tmp_path: Path) -> None:
    bench = Bench(constant(0.0), IDLE_W)
    sensor = RIGS[name](tmp_path, bench)
    bench.load = load_of("spikes", max(sensor.period_s, 0.02))
    figure, truth_j = measure(bench, sensor)
    assert figure.n_lone_samples > 0
    assert any("events shorter than the sampling period" in s for s in figure.unresolved)
    if isinstance(sensor, EnergySensor):
        assert figure.energy_j == pytest.approx(truth_j, rel=0.01)


@pytest.mark.parametrize("name", ["Orin Nano", "Nano, JetPack 4", "Thor", "Raspberry Pi 5"])
def test_readings_below_zero_near_idle_are_integrated(name: str, tmp_path: Path) -> None:
    bench = Bench(constant(2.0), idle_w=-0.12)
    figure, truth_j = measure(bench, RIGS[name](tmp_path, bench))
    assert figure.idle_power_w == pytest.approx(-0.12, rel=1e-6)  # three steps of 8 mA at 5 V
    assert figure.energy_j == pytest.approx(truth_j, rel=0.01)


def test_rapl_counts_on_past_many_wraps(tmp_path: Path) -> None:
    bench = Bench(constant(LOAD_W), IDLE_W)
    sensor = power_rigs.rapl(tmp_path, bench)
    figure, truth_j = measure(bench, sensor)
    assert bench.energy_j > 8 * power_rigs.RAPL_RANGE_UJ / 1e6
    assert figure.energy_j == pytest.approx(truth_j, rel=1e-3)
    assert sensor.read_j() == pytest.approx(bench.energy_j, rel=1e-6)


# A recording --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csv", "json", "record"])
@pytest.mark.parametrize("shape", ["constant", "square", "ramp"])
def test_a_recording_gives_the_energy_that_was_recorded(
    shape: str, form: str, tmp_path: Path
) -> None:
    first = Bench(load_of(shape, 0.02), IDLE_W)
    history, figure, _ = record(first)
    times_s, power_w = (column.tolist() for column in np.array(history).T)
    path = tmp_path / "power"
    if form == "csv":
        rows = (f"{t},{p}\n" for t, p in zip(times_s, power_w, strict=True))
        path.write_text("time_s,power_w\n" + "".join(rows))
    else:
        samples = {"time_s": times_s, "power_w": power_w}
        path.write_text(json.dumps(samples if form == "json" else {"energy": {"samples": samples}}))
    second = Bench(constant(0.0))
    replay = Replay(path, second.clock)
    replay.memory_s = RECORDED_MEMORY_S  # else its windows lie beside those of the recording
    replayed, _ = measure(second, replay, N_RECORDED)
    assert replayed.energy_j == pytest.approx(figure.energy_j, rel=0.01)


def record(bench: Bench) -> tuple[list[tuple[float, float]], EnergyFigure, float]:
    """Power at every sample of a run from the first moment on."""
    sensor = RIGS["NVML power"](Path(), bench)
    sensor.period_s = 0.02  # type: ignore[misc]  # quicker than the real one
    sensor.memory_s = RECORDED_MEMORY_S  # type: ignore[misc]
    figure, truth_j = measure(bench, sensor, N_RECORDED)
    return bench.history, figure, truth_j


def test_a_recording_says_that_it_is_no_measurement_and_repeats(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    path.write_text("time_s,power_w\n5.0,1.0\n6.0,3.0\n7.0,2.0\n")
    bench = Bench(constant(0.0))
    sensor = Replay(path, bench.clock)
    assert "NOT a measurement" in sensor.scope and str(path) in sensor.name
    readings = []
    for _ in range(4):
        readings.append(sensor.read_w())
        bench.now_s += 0.75
    assert readings == pytest.approx([1.0, 2.5, 2.5, 1.5])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,power\n0,1\n", "is not a recording"),
        ("time_s,power_w\n0,1\n", "two or more rows"),
        ("time_s,power_w\n0,1\n0,2\n", "do not increase"),
        ("time_s,power_w\n0,1\n1,nan\n", "finite"),
        ("time_s,power_w\n0,1\n1,1e308\n", r"1e\+308 W; power_w is in watts"),
        ("time_s,power_w\n0," + "1" * 200_000, "is not a recording"),  # csv's own limit
        ('{"energy": {"reason": "none"}}', "is not a recording"),
        ('{"time_s": [0, 1], "power_w": [1, 1' + "0" * 400 + "]}", "is not a recording"),
        ('{"a":' * 100_000, "is not a recording"),
        ("", "two or more rows"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    path.write_text(text)
    with pytest.raises(MeterError, match=words):
        Replay(path, lambda: 0.0)
    with pytest.raises(MeterError, match="check the path"):
        Replay(tmp_path / "none.csv", lambda: 0.0)


def test_a_recording_of_other_bytes_is_refused_without_printing_them(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    path.write_bytes(b"\xff\xfe" * 10_000)
    with pytest.raises(MeterError, match=r"it is not UTF-8") as refusal:
        Replay(path, lambda: 0.0)
    assert len(str(refusal.value)) < 300


def test_a_recording_may_bear_a_spreadsheets_mark_and_spaces(tmp_path: Path) -> None:
    path = tmp_path / "power.csv"
    path.write_text("\ufefftime_s, power_w\n0, 1\n1, 2\n", encoding="utf-8")
    assert load_recording(path) == ([0.0, 1.0], [1.0, 2.0])


@pytest.mark.parametrize("value", ["1.2.3", "\udcff", "nan"])
def test_a_rail_whose_number_is_none_is_no_rail(value: str) -> None:
    with pytest.raises(MeterError, match="no rail with current and voltage"):
        Pmic(lambda words: f"VDD_A current(1)={value}A\nVDD_V volt(2)=1.0V\n")


def test_a_command_that_prints_other_bytes_is_read() -> None:
    assert "x" in run_command(("printf", r"\377x"))


# Failures -----------------------------------------------------------------------------------------

FILES = {
    "Orin Nano": "bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon3/curr1_input",
    "AGX Orin": "bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon4/in3_input",
    "Nano, JetPack 4": "bus/i2c/drivers/ina3221x/6-0040/iio:device0/in_power0_input",
    "Thor": "bus/i2c/drivers/ina238/2-0044/hwmon/hwmon2/power1_input",
    "RAPL": "class/powercap/intel-rapl:0:1/energy_uj",
}


@pytest.mark.parametrize("name", FILES)
def test_a_rail_that_vanishes_in_the_middle_leaves_no_figure(name: str, tmp_path: Path) -> None:
    bench = Bench(constant(LOAD_W), IDLE_W)
    sensor = RIGS[name](tmp_path, bench)
    publish, path = bench.publish, tmp_path / FILES[name]

    def vanish() -> None:
        publish()
        if bench.now_s > 107:
            path.unlink()

    bench.publish = vanish
    with pytest.raises(MeterError, match=re.escape(f"{path} cannot be read")) as caught:
        measure(bench, sensor)
    assert "the driver was unloaded" in str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_an_unreadable_file_is_told_with_its_mode_and_the_cure(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = RIGS[name](tmp_path, Bench(constant(LOAD_W), IDLE_W))
    closed = tmp_path / FILES[name]
    closed.chmod(0o400)

    def refuse(path: Path) -> bytes:
        if path == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return path.read_bytes()

    monkeypatch.setattr("edgefold.devices.sysfs.read_bytes", refuse)  # root would be let through
    with pytest.raises(MeterError) as caught:
        type(sensor)(tmp_path)  # type: ignore[call-arg]
    text, remedy = str(caught.value), caught.value.remedy
    assert f"{closed} cannot be read (Permission denied; mode 400)" in text and "udev" in text
    opened = re.sub("intel-rapl:0:1", "intel-rapl:*", str(closed))  # they are closed together
    assert remedy is not None and remedy.command == f"sudo chmod a+r {opened}"


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_holds_text_is_refused(name: str, tmp_path: Path) -> None:
    sensor = RIGS[name](tmp_path, Bench(constant(LOAD_W), IDLE_W))
    (tmp_path / FILES[name]).write_text("n/a\n")
    with pytest.raises(MeterError, match="'n/a' instead of a number"):
        type(sensor)(tmp_path)  # type: ignore[call-arg]


def test_a_rail_that_the_power_chip_no_longer_shows_leaves_no_figure() -> None:
    bench = Bench(constant(1.0))
    rails = ("3V3_SYS", "VDD_CORE", "DDR_VDD2")
    sensor = Pmic(lambda words: pmic_text(6.0, rails[: 2 if bench.now_s > 115 else 3]))
    with pytest.raises(MeterError, match="no longer shows the rail DDR_VDD2"):
        measure(bench, sensor)


@pytest.mark.parametrize("kind", [NvmlEnergy, NvmlPower])
def test_a_gpu_that_falls_silent_leaves_no_figure(
    kind: type[NvmlEnergy] | type[NvmlPower],
) -> None:
    bench = Bench(constant(1.0))
    nvml = FakeNvml(bench)
    sensor = kind(nvml)
    queries = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage")
    bench.publish = lambda: nvml.refused.update(queries if bench.now_s > 115 else ())
    with pytest.raises(MeterError, match="of NVIDIA Bench answers 'Not Supported'"):
        measure(bench, sensor)


def test_a_gpu_counter_that_was_reset_leaves_no_figure() -> None:
    bench = Bench(constant(1.0))
    sensor = NvmlEnergy(FakeNvml(bench))
    bench.energy_j = -1.0
    with pytest.raises(MeterError, match="was reset"):
        sensor.read_j()


def fails(words: Sequence[str]) -> str:
    return run_command(["sh", "-c", "echo no entry; exit 3"])


def is_missing(words: Sequence[str]) -> str:
    return run_command(["no-such-vcgencmd", *words[1:]])


@pytest.mark.parametrize(
    ("board", "run", "command"),
    [
        ("Raspberry Pi 5 Model B", is_missing, "sudo apt install raspi-utils"),
        ("Raspberry Pi 5 Model B", fails, "sudo usermod -aG video $USER"),
        ("Raspberry Pi Zero 2 W", is_missing, None),
    ],
)
def test_a_raspberry_pi_without_readings_brings_its_remedy(
    board: str, run: Runner, command: str | None
) -> None:
    with pytest.raises(MeterError) as caught:
        Pmic(run, board)
    assert caught.value.remedy is not None and caught.value.remedy.command == command


@pytest.mark.parametrize("run", [is_missing, fails, lambda words: "error=1\n"])
def test_another_machine_without_the_power_chip_needs_no_remedy(run: Runner) -> None:
    with pytest.raises(MeterError, match="only a Raspberry Pi 5") as caught:
        Pmic(run, "a desktop computer")
    assert caught.value.remedy is None


@pytest.mark.parametrize(
    ("architecture", "flags", "command"),
    [
        ("x86_64", "fpu", "sudo modprobe intel_rapl_msr"),
        ("x86_64", "fpu hypervisor", None),
        ("aarch64", "fp", ""),
    ],
)
def test_the_remedy_of_a_missing_counter_depends_on_the_machine(
    architecture: str,
    flags: str,
    command: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    system = os.uname_result(("Linux", "here", "6.1", "#1", architecture))
    monkeypatch.setattr(os, "uname", lambda: system)
    (tmp_path / "cpuinfo").write_text(f"flags\t\t: {flags}\n")
    with pytest.raises(MeterError) as caught:
        Rapl(tmp_path / "sys", tmp_path / "cpuinfo")
    remedy = caught.value.remedy
    assert (remedy.command if remedy else "") == command
