from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from edgefold.devices.boards.board import (
    UNKNOWN,
    Figure,
    Microcontroller,
    load_microcontroller,
    microcontroller_names,
)
from edgefold.devices.budget.checks import FITS, MISFIT, UNSURE, Demand
from edgefold.devices.budget.microcontroller import (
    INSTRUCTIONS_PER_FLOP,
    SEARCH,
    STACK_BYTES,
    CSizes,
    NoCSizes,
    call_range,
    judge_microcontroller,
    search_range,
)
from edgefold.devices.budget.season_search_work import search_work
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.predictions.sensor_forecast import SensorForecast
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

WORK = {"flop": 1_000_000, "bytes": 1_000_000, "moved_bytes": 4_000_000, "n_nodes": 100}


@pytest.fixture
def manifest(tiny_bundle: Path) -> Manifest:
    return load_manifest(tiny_bundle)


@pytest.fixture
def part() -> Microcontroller:
    return load_microcontroller("rp2350")


@pytest.mark.parametrize("name", microcontroller_names())
def test_every_microcontroller_answers_with_flash_ram_and_the_time_of_each_graph(
    manifest: Manifest, name: str
) -> None:
    budget = judge_microcontroller(manifest, load_microcontroller(name), Demand(rate_hz=0.1))
    assert [check.name for check in budget.checks] == ["flash", "RAM", "latency"]
    assert set(budget.steps) == set(manifest.graphs)
    assert all(0 < step.low_s < (step.high_s or 0) for step in budget.steps.values())
    assert budget.verdict == FITS


def test_a_call_takes_its_arithmetic_at_least_and_four_cycles_an_instruction_at_most(
    part: Microcontroller,
) -> None:
    found = call_range(WORK, part)
    assert found.low_s == pytest.approx(1e6 / (2 * 150e6))
    assert found.high_s == pytest.approx(4 * (4.5e6 + 60 * 100) / 150e6)
    soft = call_range(WORK, load_microcontroller("rp2040"))
    assert soft.high_s == pytest.approx(4 * (125e6 + 60 * 100) / 133e6)


def test_an_unknown_clock_leaves_the_range_open(part: Microcontroller) -> None:
    cpu = dataclasses.replace(part.cpu, clock_hz=Figure(None, None, UNKNOWN))
    found = call_range(WORK, dataclasses.replace(part, cpu=cpu))
    assert found.high_s is None and "clock of Arm Cortex-M33 is unknown" in found.reason


def test_ram_is_the_plan_of_the_state_and_at_most_its_activations_and_the_stack(
    manifest: Manifest, part: Microcontroller
) -> None:
    plan = manifest.memory_plan
    kept = plan["state_bytes"] + plan["cache_bytes"] + plan["io_bytes"]
    budget = judge_microcontroller(manifest, part, Demand())
    assert sum(share.low_bytes for share in budget.ram) == kept
    assert budget.ram_bytes == kept + plan["activations_bytes"] + STACK_BYTES


@pytest.mark.parametrize(
    ("limit", "verdict"), [(60_000 + STACK_BYTES, FITS), (60_001, UNSURE), (59_999, MISFIT)]
)
def test_with_the_sizes_of_the_c_only_the_stack_is_uncertain(
    manifest: Manifest, part: Microcontroller, limit: int, verdict: str
) -> None:
    sizes = CSizes(ram_bytes=60_000, arena_bytes=10_000, constant_bytes=100_000)
    budget = judge_microcontroller(manifest, part, Demand(memory_bytes=limit), sizes)
    assert [check.verdict for check in budget.checks] == [FITS, verdict]
    assert (budget.checks[1].change == "") == (verdict == FITS)


@pytest.fixture
def sensors() -> Manifest:
    return load_manifest(shipped_bundle())


@pytest.mark.parametrize(
    ("longest", "counted"),
    # A search in emulated Cortex-M4F, of the record sensor_firmware: the dearest row with one less
    # a row without.
    [(168, 10_048_600 - 2_417_565), (1440, 61_210_480 - 2_415_033)],
)
def test_a_search_for_seasons_is_counted_as_in_emulation(longest: int, counted: int) -> None:
    work = search_work(longest)
    double = INSTRUCTIONS_PER_FLOP["none"] * work.double
    least, most = (INSTRUCTIONS_PER_FLOP["single"] * n + double for n in (work.least, work.most))
    assert 0.8 * counted < least < 1.1 * counted  # some of the slots were missing
    assert counted < most < 1.5 * counted


def test_an_arrival_of_a_sensor_has_a_search_at_most(
    sensors: Manifest, part: Microcontroller
) -> None:
    budget = judge_microcontroller(sensors, part, Demand(rate_hz=1.0))
    step, search = budget.steps["step"], budget.steps[SEARCH]
    assert budget.arrival.low_s == step.low_s
    assert budget.arrival.high_s == pytest.approx((step.high_s or 0) + (search.high_s or 0))
    assert (search.high_s or 0) > 61.2e6 / 150e6  # one instruction a cycle, as emulated
    assert "predict-every" not in budget.checks[-1].change
    soft = search_range(1440, load_microcontroller("rp2040"))
    assert (soft.high_s or 0) > 10 * (search.high_s or 0)
    cpu = dataclasses.replace(part.cpu, clock_hz=Figure(None, None, UNKNOWN))
    unknown = judge_microcontroller(sensors, dataclasses.replace(part, cpu=cpu), Demand())
    assert unknown.arrival.high_s is None and unknown.arrival.reason


def test_advice_for_a_sensor_is_what_the_shipped_bundle_can_do(
    sensors: Manifest, part: Microcontroller
) -> None:
    sizes = CSizes(ram_bytes=180_000, arena_bytes=50_000, constant_bytes=197_000)
    changes = [
        judge_microcontroller(sensors, part, Demand(memory_bytes=n), sizes).checks[1].change
        for n in (100_000, 185_000)
    ]
    for change in changes:
        assert change.startswith("shorten the seasons (--longest-season 24)")
        assert "--preset" not in change and "--chunk" not in change
    assert isinstance(sensors.prediction, SensorForecast)
    kind = dataclasses.replace(sensors.prediction, longest_season=24)
    shortest = dataclasses.replace(sensors, prediction=kind)
    check = judge_microcontroller(shortest, part, Demand(memory_bytes=100_000), sizes).checks[1]
    assert check.change.startswith("give more RAM")


def test_exact_sizes_are_promised_only_where_they_are_not_known(
    manifest: Manifest, part: Microcontroller
) -> None:
    plan = manifest.memory_plan
    limit = plan["state_bytes"] + plan["cache_bytes"] + plan["io_bytes"] + 1
    unknown = judge_microcontroller(manifest, part, Demand(memory_bytes=limit)).checks[1]
    assert unknown.verdict == UNSURE and "counts it exactly" in unknown.change
    sizes = CSizes(ram_bytes=60_000, arena_bytes=10_000, constant_bytes=100_000)
    known = judge_microcontroller(manifest, part, Demand(memory_bytes=60_001), sizes).checks[1]
    assert known.verdict == UNSURE and "exactly" not in known.change


def test_several_streams_of_one_firmware_share_the_arena(
    manifest: Manifest, part: Microcontroller
) -> None:
    sizes = CSizes(ram_bytes=60_000, arena_bytes=10_000, constant_bytes=100_000)
    budget = judge_microcontroller(manifest, part, Demand(processes=3), sizes)
    assert budget.ram_bytes == 3 * 50_000 + 10_000 + STACK_BYTES


def test_too_many_constants_do_not_fit_the_flash(manifest: Manifest) -> None:
    sizes = CSizes(ram_bytes=60_000, arena_bytes=10_000, constant_bytes=1_100_000)
    budget = judge_microcontroller(manifest, load_microcontroller("nrf52840"), Demand(), sizes)
    assert budget.checks[0].verdict == MISFIT and "more flash" in budget.checks[0].change


@pytest.mark.parametrize(
    ("precision", "narrower"),
    [("float32", ["float16", "int8"]), ("float16", ["int8"]), ("int8", [])],
)
def test_constants_that_do_not_fit_may_be_exported_narrower(
    manifest: Manifest, part: Microcontroller, precision: str, narrower: list[str]
) -> None:
    manifest = dataclasses.replace(manifest, precision={"name": precision})
    sizes = CSizes(ram_bytes=60_000, arena_bytes=10_000, constant_bytes=100_000_000)
    change = judge_microcontroller(manifest, part, Demand(), sizes).checks[0].change
    assert [name for name in ("float32", "float16", "int8") if name in change] == narrower


def test_too_little_ram_names_the_preset_that_was_made_for_it(
    manifest: Manifest, part: Microcontroller
) -> None:
    budget = judge_microcontroller(manifest, part, Demand(memory_bytes=1000))
    assert "--preset tiny" in budget.checks[1].change


@pytest.mark.parametrize("rate_hz", [1e3, 1e9])
@pytest.mark.parametrize("clock", [Figure(150e6, "a document"), Figure(None, None, UNKNOWN)])
def test_no_advice_asks_for_python_on_a_microcontroller(
    manifest: Manifest, part: Microcontroller, rate_hz: float, clock: Figure
) -> None:
    part = dataclasses.replace(part, cpu=dataclasses.replace(part.cpu, clock_hz=clock))
    check = judge_microcontroller(manifest, part, Demand(rate_hz=rate_hz)).checks[-1]
    assert check.name == "latency" and check.verdict != FITS
    assert "edgefold profile" not in check.change and "CYCCNT" in check.change


@pytest.mark.parametrize(("is_refused", "verdict"), [(True, MISFIT), (False, UNSURE)])
def test_a_bundle_that_does_not_become_c_never_fits(
    manifest: Manifest, part: Microcontroller, is_refused: bool, verdict: str
) -> None:
    sizes = NoCSizes("no rule for GRU", "write it without GRU", is_refused)
    budget = judge_microcontroller(manifest, part, Demand(), sizes)
    assert budget.verdict == verdict
    first = budget.checks[0]
    assert (first.name, first.finding, first.change) == ("C", sizes.reason, sizes.change)
