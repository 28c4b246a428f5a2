"""Which rails and which GPU a meter reads, and how old it says that their values are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from edgefold.devices.power.meters.ina238 import Ina238
from edgefold.devices.power.meters.ina3221 import Ina3221
from edgefold.devices.power.meters.nvml import NvmlEnergy, NvmlPower
from edgefold.devices.power.meters.pmic import Pmic
from edgefold.devices.power.meters.rapl import Rapl
from edgefold.devices.sysfs import read_number
from edgefold.runtime.errors import MeterError
from tests.devices.power_bench import Bench, constant
from tests.devices.power_rigs import RIGS, FakeNvml, hwmon_chip, pmic_text, write
from tests.fake_nvidia import FakeCudart

# Rails --------------------------------------------------------------------------------------------


def test_only_the_modules_input_is_read_where_there_is_one(tmp_path: Path) -> None:
    sensor = RIGS["Orin Nano"](tmp_path, Bench(constant(0.0), 5.0))
    assert isinstance(sensor, Ina3221)
    assert sensor.rails == ("VDD_IN",) and "carrier" in sensor.scope
    assert sensor.step_w == pytest.approx(0.04)  # 8 mA at 5 V


def test_rails_that_lie_inside_another_are_left_out_and_named(tmp_path: Path) -> None:
    sensor = RIGS["AGX Orin"](tmp_path, Bench(constant(0.0), 20.0))
    assert sensor.rails == ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")
    assert "VDDQ_VDD2_1V8AO lies inside VIN_SYS_5V0" in sensor.scope


def test_a_board_without_an_input_rail_sums_what_does_not_overlap(tmp_path: Path) -> None:
    sensor = RIGS["AGX Xavier, JetPack 4"](tmp_path, Bench(constant(0.0), 20.0))
    assert sensor.rails == ("GPU", "CPU", "SOC", "CV", "VDDRQ", "SYS5V")


def test_channels_that_are_off_or_unconnected_are_no_rails(tmp_path: Path) -> None:
    folder = tmp_path / "bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon0"
    hwmon_chip(folder, ("VDD_GPU", "NC", "VDD_SOC"), 5000)
    write(folder / "in3_enable", 0)
    assert Ina3221(tmp_path).rails == ("VDD_GPU",)


CHIP = "bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon0"
THREE = ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")


@pytest.mark.parametrize(
    ("labels", "samples", "interval_ms", "off", "memory_s", "period_s"),
    [
        (("VDD_IN", "A", "B"), 512, 1, (), 0.430, 0.02),  # JetPack 6: the samples are not in it
        (("VDD_IN", "A", "B"), 512, 1, (2,), 0.418, 0.02),  # 1 ms of two: 0.408 each, rounded
        (("VDD_IN", "A", "B"), 512, 0, (2, 3), 0.143, 0.02),
        (("VDD_IN", "A", "B"), 64, 7, (), 0.422, 0.02),  # the chip's own conversion time
        (("VDD_IN", "A", "B"), 1024, 49, (), 50.651, 0.02),  # the longest that the chip has
        (("VDD_IN", "A", "B"), 512, 430, (), 0.645, 1.075),  # JetPack 5: they are; reads wait
        (THREE, 512, 430, (), 1.075, 2.15),  # three currents and a voltage, each after an average
        (("VDD_IN", "A", "B"), 1, 40, (), 0.06, 0.1),  # one sample: kernels cannot be told apart
        (("VDD_IN", "A", "B"), None, 7, (), 0.0105, 0.02),
        (("VDD_IN", "A", "B"), None, None, (), 0.430, 0.02),  # nothing is told: the usual setting
    ],
)
def test_the_age_of_values_follows_the_samples_and_the_kernel(
    labels: Sequence[str],
    samples: int | None,
    interval_ms: int | None,
    off: Sequence[int],
    memory_s: float,
    period_s: float,
    tmp_path: Path,
) -> None:
    folder = tmp_path / CHIP
    hwmon_chip(folder, labels, 5000)
    for n in off:
        write(folder / f"in{n}_enable", 0)
    (folder / "update_interval").unlink()
    for name, value in (("samples", samples), ("update_interval", interval_ms)):
        if value is not None:
            write(folder / name, value)
    sensor = Ina3221(tmp_path)
    assert sensor.memory_s == pytest.approx(memory_s, abs=6e-4)  # the driver rounds to 1 ms
    assert sensor.period_s == pytest.approx(period_s)


def test_where_reads_wait_long_one_voltage_is_read_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / CHIP
    hwmon_chip(folder, THREE, 2000)
    write(folder / "samples", 512)
    write(folder / "update_interval", 430)
    sensor, reads = Ina3221(tmp_path), list[str]()

    def note(path: Path, unit: str) -> float:
        reads.append(path.name)
        return read_number(path, unit)

    monkeypatch.setattr("edgefold.devices.power.meters.ina3221.read_number", note)
    for n in (1, 2, 3):
        write(folder / f"curr{n}_input", 1000 * n)
        write(folder / f"in{n}_input", 4000)
    powers_w = [sensor.read_w() for _ in range(3)]
    assert powers_w == pytest.approx([5 + 2 * 4 + 3 * 5, 5 + 2 * 4 + 3 * 4, 4 * 6])
    currents = ["curr1_input", "curr2_input", "curr3_input"]
    voltages = ["in2_input", "in3_input", "in1_input"]  # in1 was read at the opening
    assert reads == [name for voltage in voltages for name in (voltage, *currents)]


def test_a_rail_whose_current_never_changes_is_named(tmp_path: Path) -> None:
    folder = tmp_path / CHIP
    hwmon_chip(folder, THREE, 2000)
    sensor = Ina3221(tmp_path)
    for current in (500, 520):
        write(folder / "curr1_input", current)
        write(folder / "in2_input", 5000 + current)  # its voltage moves, its current does not
        write(folder / "curr3_input", current)
        sensor.read_w()
    assert sensor.still_rails == ("VDD_CPU_CV",)


def test_a_rail_of_the_power_chip_that_never_changes_is_named() -> None:
    powers = iter((6.0, 6.0, 7.0))
    sensor = Pmic(lambda words: pmic_text(next(powers)).replace("DDR_VDD2_A", "NO_A"))
    sensor.read_w()
    still = [sensor.still_rails]
    sensor.read_w()
    still.append(sensor.still_rails)
    assert still == [("3V3_SYS", "VDD_CORE"), ()]


def test_thor_reads_its_input_in_microwatts(tmp_path: Path) -> None:
    sensor = RIGS["Thor"](tmp_path, Bench(constant(0.0), 23.456789))
    assert isinstance(sensor, Ina238)
    assert sensor.read_w() == pytest.approx(23.456789) and sensor.rails == ("VIN",)


def test_thors_input_is_found_by_the_name_in_the_chips_label(tmp_path: Path) -> None:
    RIGS["Thor"](tmp_path, Bench(constant(0.0), 20.0))
    drivers = tmp_path / "bus/i2c/drivers/ina238"
    other = drivers / "2-0045/hwmon/hwmon5/power1_input"
    write(other, 7_000_000)
    with pytest.raises(MeterError):
        Ina238(tmp_path)
    write(other.with_name("label"), "VDD_3V3")
    write(drivers / "2-0044/hwmon/hwmon2/label", "VIN")
    sensor = Ina238(tmp_path)
    assert sensor.rails == ("VIN",) and sensor.read_w() == pytest.approx(20.0)
    other.unlink()
    write(drivers / "2-0044/hwmon/hwmon2/label", "VIN_TOTAL")  # one chip needs no certain name
    assert Ina238(tmp_path).rails == ("VIN_TOTAL",)


def test_rails_of_the_power_chip_pair_by_name_and_lone_voltages_are_left_out() -> None:
    sensor = Pmic(lambda words: pmic_text(6.0))
    assert sensor.rails == ("3V3_SYS", "VDD_CORE", "DDR_VDD2")
    assert sensor.read_w() == pytest.approx(6.0, rel=1e-6)


def test_rapl_sums_packages_and_memory_and_nothing_twice(tmp_path: Path) -> None:
    bench = Bench(constant(0.0), 10.0)
    sensor = RIGS["RAPL"](tmp_path, bench)
    assert isinstance(sensor, Rapl) and sensor.rails == ("package-0", "dram")
    bench.wait(1.0)
    bench.publish()
    assert sensor.read_j() == pytest.approx(10.0)


# Which GPU ----------------------------------------------------------------------------------------

TWO = (b"00000000:3B:00.0", b"00000000:65:00.0")


@pytest.mark.parametrize("kind", [NvmlEnergy, NvmlPower])
def test_of_several_gpus_the_one_is_read_that_cuda_uses(
    kind: type[NvmlEnergy] | type[NvmlPower],
) -> None:
    bench = Bench(constant(2.0))
    nvml = FakeNvml(bench, bus_ids=TWO)
    sensor = kind(nvml, lambda: FakeCudart(bus_id=TWO[1]))
    assert sensor.rails == ("GPU 00000000:65:00.0",)
    bench.wait(1.0)
    assert moved(sensor) > 0
    other = kind(nvml, lambda: FakeCudart(bus_id=TWO[0]))
    bench.wait(1.0)
    assert moved(other) == 0


def moved(sensor: NvmlEnergy | NvmlPower) -> float:
    return sensor.read_j() if isinstance(sensor, NvmlEnergy) else sensor.read_w()


def no_cuda() -> FakeCudart:
    raise MeterError("cuda-bindings is not installed")


def test_several_gpus_of_which_cuda_names_none_are_refused() -> None:
    nvml = FakeNvml(Bench(constant(2.0)), bus_ids=TWO)
    for cudart in (no_cuda, lambda: FakeCudart(status=100)):
        with pytest.raises(MeterError, match="which one is in use"):
            NvmlEnergy(nvml, cudart)
    with pytest.raises(MeterError, match="Not Found"):  # in another container, say
        NvmlEnergy(nvml, lambda: FakeCudart(bus_id=b"00000000:AF:00.0"))


def test_a_single_gpu_is_read_without_cuda() -> None:
    sensor = NvmlEnergy(FakeNvml(Bench(constant(2.0))), no_cuda)
    assert sensor.rails == ("GPU 0",)


def test_a_machine_without_a_gpu_is_refused() -> None:
    with pytest.raises(MeterError):
        NvmlEnergy(FakeNvml(Bench(constant(2.0)), bus_ids=()), no_cuda)


def test_under_mig_the_scope_says_that_the_whole_card_is_counted() -> None:
    bench = Bench(constant(2.0))
    assert "whole card" in NvmlEnergy(FakeNvml(bench, mig=1)).scope
    assert "whole card" not in NvmlEnergy(FakeNvml(bench)).scope
