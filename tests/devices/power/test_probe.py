from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from edgefold.devices.host import Host
from edgefold.devices.power.probe import METERS, Candidate, choose_sensor, probe_sensors
from edgefold.devices.power.sensor import EnergySensor
from edgefold.runtime.errors import MeterError
from tests.devices.power_bench import Bench, constant
from tests.devices.power_rigs import RIGS, FakeNvml, pmic_text

KINDS = [meter.kind for meter in METERS]


def nothing(words: Sequence[str]) -> str:
    raise MeterError(f"{words[0]} is not installed")


def no_nvml() -> Any:
    raise MeterError("nvidia-ml-py is not installed")


def probe(root: Path, gpu_first: bool = False, **how: Any) -> list[Candidate]:
    return probe_sensors(Host(root, **{"run": nothing, "nvml": no_nvml, **how}), gpu_first)


def opened(candidates: list[Candidate]) -> list[str]:
    return [c.kind for c in candidates if c.sensor is not None]


def test_a_machine_without_any_sensor_gives_every_reason(tmp_path: Path) -> None:
    candidates = probe(tmp_path)
    assert [c.kind for c in candidates] == KINDS
    with pytest.raises(MeterError) as caught:
        choose_sensor(candidates)
    for kind in KINDS:
        assert f"{kind}: " in str(caught.value)
    assert "has no intel-rapl package" in str(caught.value)


@pytest.mark.parametrize(
    ("rig", "kind"),
    [("Orin Nano", "INA3221"), ("Nano, JetPack 4", "INA3221"), ("RAPL", "RAPL")],
)
def test_the_sensor_of_a_board_is_found(rig: str, kind: str, tmp_path: Path) -> None:
    RIGS[rig](tmp_path / "sys", Bench(constant(0.0), 5.0))
    candidates = probe(tmp_path)
    assert opened(candidates) == [kind]
    assert choose_sensor(candidates).name.startswith(kind)


def test_thors_whole_input_comes_before_its_parts(tmp_path: Path) -> None:
    RIGS["Thor"](tmp_path / "sys", Bench(constant(0.0), 20.0))
    candidates = probe(tmp_path)
    assert opened(candidates) == ["INA238", "INA3221"]
    assert choose_sensor(candidates).rails == ("VIN",)


def test_on_orin_nvml_opens_and_every_query_is_refused(tmp_path: Path) -> None:
    bench = Bench(constant(0.0), 5.0)
    RIGS["Orin Nano"](tmp_path / "sys", bench)
    queries = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetPowerUsage")
    candidates = probe(tmp_path, nvml=lambda: FakeNvml(bench, queries))
    assert opened(candidates) == ["INA3221"]
    for candidate, query in zip(candidates[-2:], queries, strict=True):
        assert candidate.reason == f"{query} of NVIDIA Bench answers 'Not Supported'"


def test_a_gpu_without_a_counter_is_read_by_its_power(tmp_path: Path) -> None:
    nvml = FakeNvml(Bench(constant(0.0)), ["nvmlDeviceGetTotalEnergyConsumption"])
    assert opened(probe(tmp_path, nvml=lambda: nvml)) == ["NVML power"]


def test_work_on_a_gpu_is_measured_with_the_processor_that_feeds_it(tmp_path: Path) -> None:
    bench = Bench(constant(0.0), 5.0)
    RIGS["RAPL"](tmp_path / "sys", bench)
    for gpu_first, name in ((False, "RAPL"), (True, "NVML energy (NVIDIA Bench) + RAPL")):
        candidates = probe(tmp_path, nvml=lambda: FakeNvml(bench), gpu_first=gpu_first)
        assert set(opened(candidates)) >= {"RAPL", "NVML energy", "NVML power"}
        sensor = choose_sensor(candidates)
        assert sensor.name.startswith(name)
    assert isinstance(sensor, EnergySensor)
    assert sensor.rails == ("GPU 0", "package-0", "dram")
    assert sensor.max_gap_s == pytest.approx(0.06)  # the one that wraps first: 60 J at 1 kW
    bench.wait(2.0)
    bench.publish()
    assert sensor.read_j() == pytest.approx(20.0, rel=1e-3)  # each shows the bench's 10 J


def test_a_modules_input_comes_before_its_gpu(tmp_path: Path) -> None:
    bench = Bench(constant(0.0), 20.0)
    RIGS["Thor"](tmp_path / "sys", bench)
    candidates = probe(tmp_path, nvml=lambda: FakeNvml(bench), gpu_first=True)
    assert choose_sensor(candidates).rails == ("VIN",)


def test_a_gpu_alone_is_measured_alone(tmp_path: Path) -> None:
    nvml = FakeNvml(Bench(constant(0.0)))
    candidates = probe(tmp_path, nvml=lambda: nvml, gpu_first=True)
    assert choose_sensor(candidates).rails == ("GPU 0",)


def test_a_raspberry_pi_5_is_read_through_its_command(tmp_path: Path) -> None:
    candidates = probe(tmp_path, run=lambda words: pmic_text(5.0))
    assert opened(candidates) == ["PMIC"]
