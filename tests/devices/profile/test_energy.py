"""Rounds of idleness and work on a simulated clock, down to the record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgefold.cli.text.numbers import format_energy
from edgefold.cli.text.profile import energy_lines
from edgefold.devices.power.probe import Candidate
from edgefold.devices.power.sensor import EnergySensor, PowerSensor
from edgefold.devices.profile.energy import Driver, EnergyOptions, measure_energy
from edgefold.runtime.errors import MeterError
from tests.devices.power_bench import Bench, SyntheticCounter, SyntheticPower, constant, spikes

CALL_S = 0.005


def measured(
    bench: Bench, sensor: PowerSensor | EnergySensor, options: EnergyOptions | None = None
) -> dict[str, Any]:
    """The record of two steps, one of which takes twice as long."""
    driver = Driver(bench.clock, bench.sleep, bench.sampling)
    steps = {"update": bench.call(CALL_S), "query": bench.call(2 * CALL_S)}
    candidates = [
        Candidate("RAPL", None, MeterError("no such counter")),
        Candidate("synthetic", sensor, None),
    ]
    record = measure_energy(
        steps,
        options or EnergyOptions(),
        lambda text: None,
        driver=driver,
        probe=lambda: candidates,
    )
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    return record


def test_a_quiet_sensor_needs_one_round_of_each_step() -> None:
    bench = Bench(constant(2.0))
    record = measured(bench, SyntheticPower(bench, noise_w=0.05))
    for name, call_s in (("update", CALL_S), ("query", 2 * CALL_S)):
        figure = record[name]
        assert figure["energy_j"] == pytest.approx(2.0 * call_s, rel=0.02)
        assert figure["target_met"] and figure["n_rounds"] == 1
        assert figure["relative_error"] < 0.05
    assert record["reason"] is None and record["replay"] is None
    assert record["rails"] == ["all"]
    assert bench.now_s < 100 + 25
    whats = [window["what"] for window in record["samples"]["windows"]]
    assert whats == ["idle", "update", "idle", "query", "idle"]
    assert len(record["samples"]["time_s"]) == len(record["samples"]["power_w"]) == 600


def test_a_noisy_sensor_is_measured_until_the_target_is_reached() -> None:
    bench = Bench(constant(2.0))
    record = measured(bench, SyntheticPower(bench, noise_w=1.5))
    for name in ("update", "query"):
        assert record[name]["n_rounds"] > 1
        assert record[name]["target_met"]
    assert record["update"]["energy_j"] == pytest.approx(2.0 * CALL_S, rel=0.15)


def test_a_target_out_of_reach_ends_at_the_limit_and_says_what_was_reached() -> None:
    bench = Bench(constant(2.0))
    options = EnergyOptions(target=0.001, limit_s=40.0)
    record = measured(bench, SyntheticPower(bench, noise_w=2.0), options)
    assert bench.now_s <= 141
    figure = record["update"]
    assert not figure["target_met"] and figure["relative_error"] > 0.001
    line = next(line for line in energy_lines(record) if "NOT reached" in line)
    assert f"{figure['relative_error'] * 100:.1f} %" in line and "--energy-seconds" in line


def test_a_target_beyond_all_numbers_is_measured_to_the_limit() -> None:
    bench = Bench(constant(2.0))
    options = EnergyOptions(target=1e-300, limit_s=40.0)
    record = measured(bench, SyntheticPower(bench, noise_w=2.0), options)
    assert record["update"]["n_rounds"] > 1 and not record["update"]["target_met"]


def test_a_limit_too_short_for_one_round_is_a_reason() -> None:
    bench = Bench(constant(2.0))
    record = measured(bench, SyntheticPower(bench), EnergyOptions(limit_s=5.0))
    assert record["update"] is None
    assert record["reason"].startswith("2.5 s of --energy-seconds are left for update, too few")
    assert "it takes 3.93 s" in record["reason"]  # three windows of a second, and their leads


def test_a_short_limit_shortens_the_windows() -> None:
    bench = Bench(constant(2.0))
    record = measured(bench, SyntheticPower(bench), EnergyOptions(limit_s=10.0))
    assert record["reason"] is None and record["query"] is not None
    assert bench.now_s <= 110.5


def test_a_sensor_that_fails_on_the_way_keeps_what_was_finished() -> None:
    bench = Bench(constant(2.0))

    class Dying(SyntheticCounter):
        def read_j(self) -> float:
            if bench.now_s > 115:
                raise MeterError("/sys/rail cannot be read")
            return super().read_j()

    record = measured(bench, Dying(bench))
    assert record["update"] is not None and record["query"] is None
    lines = energy_lines(record)
    assert any("unavailable: /sys/rail cannot be read" in line for line in lines)
    assert any(line.startswith("update") for line in lines)


def test_no_sensor_at_all_is_told_with_every_reason() -> None:
    candidates = [
        Candidate(kind, None, MeterError(reason))
        for kind, reason in (("RAPL", "no counter"), ("PMIC", "no command"))
    ]
    record = measure_energy(
        {"update": lambda: None}, EnergyOptions(), lambda text: None, probe=lambda: candidates
    )
    assert record["update"] is None and record["reason"] == "RAPL: no counter; PMIC: no command"
    lines = energy_lines({**record, "query": None})
    assert lines[0].startswith("unavailable")
    assert any("no counter" in line for line in lines) and any(
        "no command" in line for line in lines
    )


def test_what_the_sampling_cannot_see_is_in_the_lines() -> None:
    bench = Bench(spikes(0.11, 0.002, 40.0))
    record = measured(bench, SyntheticPower(bench, noise_w=0.02), EnergyOptions(limit_s=30.0))
    lines = [line for line in energy_lines(record) if line.startswith("unresolved")]
    assert any("update: " in line and "stand alone" in line for line in lines)
    assert record["update"]["n_lone_samples"] > 0


@pytest.mark.parametrize(
    ("energy_j", "half_width_j", "text"),
    [
        (0.0123, 0.0004, "12.30 ± 0.40 mJ"),
        (4.5e-5, 2e-6, "45.0 ± 2.0 µJ"),
        (-3e-6, 2e-5, "-3 ± 20 µJ"),
        (1234.0, 100.0, "1,234 ± 100 J"),
        (2.0, 0.0, "2.0 ± 0.0 J"),
    ],
)
def test_a_figure_and_its_interval_share_a_unit(
    energy_j: float, half_width_j: float, text: str
) -> None:
    assert format_energy(energy_j, half_width_j) == text


@pytest.mark.parametrize(
    ("energy_j", "text"),
    [
        (2.34e-4, "234 µJ"),
        (9.998e-4, "1 mJ"),
        (0.1234, "123 mJ"),
        (12_345.0, "12,345 J"),
        (-2.3e-7, "-0.23 µJ"),
        (0.0, "0 µJ"),
    ],
)
def test_a_figure_alone_is_written_without_an_exponent(energy_j: float, text: str) -> None:
    assert format_energy(energy_j) == text
