from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from edgefold.devices.boards.board import UNKNOWN, Board, Figure, PowerMode, board_names, load_board
from edgefold.devices.budget.budget import judge
from edgefold.devices.budget.checks import FITS, MISFIT, UNSURE, Demand, worst
from edgefold.devices.budget.roofline import HIGH_FACTOR, Range, cpu_range, gpu_range
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest

WORK = {"flop": 16_000_000, "bytes": 1_000_000, "moved_bytes": 4_000_000, "n_nodes": 100}


@pytest.fixture
def manifest(tiny_bundle: Path) -> Manifest:
    return load_manifest(tiny_bundle)


@pytest.fixture
def pi() -> Board:
    return load_board("raspberry-pi-5")


def narrowed(manifest: Manifest, precision: str) -> Manifest:
    """The manifest as if refresh and query computed in a precision."""
    graphs = {
        name: dataclasses.replace(graph, precision=precision)
        if graph.step in ("refresh", "query")
        else graph
        for name, graph in manifest.graphs.items()
    }
    return dataclasses.replace(manifest, precision={"name": precision}, graphs=graphs)


def with_cpu(board: Board, **changes: Any) -> Board:
    return dataclasses.replace(board, cpu=dataclasses.replace(board.cpu, **changes))


def with_memory(board: Board, **changes: Figure) -> Board:
    return dataclasses.replace(board, memory=dataclasses.replace(board.memory, **changes))


# The range ------------------------------------------------------------------------------------


def test_bandwidth_follows_the_memory_clock_of_the_power_mode() -> None:
    board = load_board("jetson-orin-nano-8gb-super")
    modes = {mode.name: mode for mode in board.power_modes}
    cold = {
        name: dataclasses.replace(modes[name], cpu_clock_hz=1e9) for name in ("25W", "15W", "7W")
    }
    full, capped, unknown = (cpu_range(WORK, board, "float32", cold[name]) for name in cold)
    assert full.high_s is not None and capped.high_s is not None
    slower_s = WORK["bytes"] / (0.5 * 102e9) * (3199 / 2133 - 1)
    assert capped.high_s - full.high_s == pytest.approx(slower_s)
    assert capped.low_s == full.low_s  # what lies in a cache does not wait for the memory
    assert unknown.high_s is None and "7W" in unknown.reason


@pytest.mark.long
@pytest.mark.parametrize("name", ["raspberry-pi-5", "raspberry-pi-4"])
def test_an_estimate_for_another_page_size_says_that_it_was_not_measured(
    name: str, manifest: Manifest
) -> None:
    budget = judge(manifest, load_board(name), Demand())
    assert ("16 KiB" in budget.footprint.baseline) == (name == "raspberry-pi-5")
    assert ("page size" in budget.figures) == (name == "raspberry-pi-5")


def test_a_call_takes_at_least_its_arithmetic_and_at_most_four_models_and_cold_memory(
    pi: Board,
) -> None:
    rate = 16 * 2.4e9
    found = cpu_range(WORK, pi, "float32", None)
    assert found.low_s == pytest.approx(WORK["flop"] / rate)
    model_s = WORK["flop"] / rate + WORK["moved_bytes"] / (1.1 * rate) + 100 * 1100 / 2.4e9
    assert found.high_s == pytest.approx(HIGH_FACTOR * model_s + 1e6 / (0.5 * 17e9))
    assert found.reason == ""


def test_traffic_is_the_floor_where_there_is_little_arithmetic(pi: Board) -> None:
    work = {**WORK, "flop": 1}
    assert cpu_range(work, pi, "float32", None).low_s == pytest.approx(1e6 / (1.1 * 16 * 2.4e9))


def test_wider_vectors_do_not_raise_the_rate_of_caches_in_the_upper_bound(pi: Board) -> None:
    wide = with_cpu(pi, flops_per_cycle=Figure(64, "a test"))
    rate = 64 * 2.4e9
    model_s = WORK["flop"] / rate + WORK["moved_bytes"] / (20 * 2.4e9) + 100 * 1100 / 2.4e9
    found = cpu_range(WORK, wide, "float32", None)
    assert found.high_s == pytest.approx(HIGH_FACTOR * model_s + 1e6 / (0.5 * 17e9))
    assert found.low_s == pytest.approx(WORK["flop"] / rate)


def test_a_narrower_type_lowers_the_floor_and_never_the_upper_bound(pi: Board) -> None:
    wide = {**WORK, "flop": 10**9}
    full, half, quarter = (cpu_range(wide, pi, p, None) for p in ("float32", "float16", "int8"))
    assert half.low_s == pytest.approx(full.low_s / 2)
    assert quarter.low_s == pytest.approx(full.low_s / 4)
    assert full.high_s is not None and half.high_s is not None
    assert full.high_s == quarter.high_s
    assert half.high_s > full.high_s


def test_a_narrow_bundles_fold_is_judged_as_float32(manifest: Manifest, pi: Board) -> None:
    half = narrowed(manifest, "float16")
    steps, wide = judge(half, pi, Demand()).steps, judge(manifest, pi, Demand()).steps
    for name in ("condition", "update", "consolidate"):
        assert steps[name] == wide[name]
    for name in ("refresh", "query"):
        assert steps[name] != wide[name]


def test_a_slower_mode_takes_longer(pi: Board) -> None:
    mode = PowerMode("half", 5.0, 4, 1.2e9, None, "a test")
    slow, fast = cpu_range(WORK, pi, "float32", mode), cpu_range(WORK, pi, "float32", None)
    assert slow.low_s == pytest.approx(2 * fast.low_s)
    assert slow.high_s is not None and fast.high_s is not None and slow.high_s > fast.high_s


def test_what_is_unknown_leaves_the_range_open_and_says_why(pi: Board) -> None:
    unknown = Figure(None, None, UNKNOWN)
    open_end = cpu_range(WORK, with_memory(pi, bandwidth_bytes_per_s=unknown), "float32", None)
    assert open_end.low_s > 0 and open_end.high_s is None
    assert open_end.reason == "the memory bandwidth is unknown"
    none = cpu_range(WORK, with_cpu(pi, flops_per_cycle=unknown), "float32", None)
    assert none == Range(0.0, None, "the operations per cycle of Arm Cortex-A76 are unknown")
    mode = PowerMode("vague", 5.0, None, None, None, "a test")
    found = cpu_range(WORK, pi, "float32", mode)
    assert found.high_s is None and found.reason == "the clock of mode vague is unknown"
    assert found.low_s == cpu_range(WORK, pi, "float32", None).low_s


def test_a_gpu_has_a_floor_alone() -> None:
    orin = load_board("jetson-orin-nano-8gb")
    found = gpu_range(WORK, orin, "float16", None)
    assert found.low_s == pytest.approx(WORK["flop"] / 10.24e12)
    assert found.high_s is None and "launch" in found.reason
    assert gpu_range(WORK, orin, "float32", None) == found  # as TF32, at best
    assert gpu_range(WORK, orin, "int8", None).low_s == pytest.approx(found.low_s / 2)
    mode = next(m for m in orin.power_modes if m.name == "7W")
    slower = gpu_range(WORK, orin, "float16", mode).low_s / found.low_s
    assert slower == pytest.approx(625 / 408)
    assert gpu_range(WORK, load_board("raspberry-pi-5"), "float32", None).high_s is None
    assert "int8 rate is unknown" in gpu_range(WORK, load_board("jetson-nano"), "int8", None).reason


def test_ranges_add_up_and_an_open_end_stays_open() -> None:
    assert Range(1, 2) + Range(3, 5) == Range(4, 7)
    assert Range(1, 2) + Range(3, None, "why") == Range(4, None, "why")
    assert Range(1, 4).times(0.5) == Range(0.5, 2)
    assert Range(1, None, "why").times(2) == Range(2, None, "why")


# The verdict ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", board_names())
@pytest.mark.parametrize("precision", ["float32", "float16", "int8"])
@pytest.mark.parametrize("backend", ["onnxruntime", "tensorrt", "native"])
def test_every_board_answers_for_every_precision_and_backend(
    manifest: Manifest, name: str, precision: str, backend: str
) -> None:
    asked = narrowed(manifest, precision)
    budget = judge(asked, load_board(name), Demand(10**8, 10.0, 15.0, backend))
    assert budget.verdict in (FITS, UNSURE, MISFIT)
    assert {check.name for check in budget.checks} - {"latency"} == {"software", "memory", "power"}
    for check in budget.checks:
        assert check.finding and bool(check.change) == (check.verdict != FITS), check
    assert json.loads(json.dumps(budget.to_json()))["verdict"] == budget.verdict


def test_without_a_demand_a_small_bundle_fits(manifest: Manifest, pi: Board) -> None:
    budget = judge(manifest, pi, Demand())
    assert [check.name for check in budget.checks] == ["software", "memory"]
    assert budget.verdict == FITS


def test_the_software_that_c_needs_is_not_onnxruntime(manifest: Manifest, pi: Board) -> None:
    software = judge(manifest, pi, Demand(backend="native")).checks[0]
    assert software.verdict == FITS
    assert "edgefold build" in software.finding and "onnxruntime" not in software.finding


def test_memory_near_the_limit_is_unsure_and_beyond_it_does_not_fit(
    manifest: Manifest, pi: Board
) -> None:
    found = judge(manifest, pi, Demand()).footprint
    needed, well = found.needed_bytes, found.to_run_well_bytes

    def verdict(limit: float) -> str:
        return judge(manifest, pi, Demand(int(limit))).verdict

    assert verdict(well * 1.16) == FITS
    assert verdict(well * 1.10) == UNSURE
    assert verdict(needed - 1) == MISFIT


def test_a_limit_between_needed_and_to_run_well_is_told_to_read_again(
    manifest: Manifest, pi: Board
) -> None:
    found = judge(manifest, pi, Demand()).footprint
    between = (found.needed_bytes + found.to_run_well_bytes) // 2
    budget = judge(manifest, pi, Demand(between))
    check = next(check for check in budget.checks if check.name == "memory")
    assert check.verdict == UNSURE and "read again" in check.finding


def test_several_loops_are_judged_together(manifest: Manifest, pi: Board) -> None:
    one = judge(manifest, pi, Demand())
    four = judge(manifest, pi, Demand(processes=4))
    assert four.footprint.needed_bytes == 4 * one.footprint.needed_bytes
    assert four.needed_by == one.needed_by  # of each
    assert one.footprint.needed_bytes == max(one.needed_by.values())
    limit = int(one.footprint.to_run_well_bytes * 1.16)
    assert judge(manifest, pi, Demand(limit)).verdict == FITS
    assert judge(manifest, pi, Demand(limit, processes=4)).verdict == MISFIT


def test_raising_the_limit_as_advised_fits(manifest: Manifest, pi: Board) -> None:
    needed = judge(manifest, pi, Demand()).footprint.needed_bytes
    refused = next(c for c in judge(manifest, pi, Demand(needed - 1)).checks if c.name == "memory")
    limit_mb = float(refused.change.split("Raise the limit to ")[1].split(" MB")[0])
    assert judge(manifest, pi, Demand(int(limit_mb * 1e6))).verdict == FITS


def test_a_boards_own_memory_is_the_limit_where_none_is_given(
    manifest: Manifest, pi: Board
) -> None:
    found = judge(manifest, pi, Demand()).footprint

    def verdict(n_bytes: float) -> str:
        memory = Figure(n_bytes, "a test")
        return judge(manifest, with_memory(pi, total_bytes=memory), Demand()).verdict

    assert verdict(found.to_run_well_bytes / 0.4) == FITS
    assert verdict(found.to_run_well_bytes / 0.7) == UNSURE
    assert verdict(found.needed_bytes / 1.2) == MISFIT
    nothing = with_memory(pi, total_bytes=Figure(None, None, UNKNOWN))
    assert judge(manifest, nothing, Demand()).verdict == UNSURE


def test_a_rate_is_held_against_both_ends_of_the_range(manifest: Manifest, pi: Board) -> None:
    arrival = judge(manifest, pi, Demand()).arrival
    assert arrival.high_s is not None

    def verdict(rate_hz: float) -> str:
        return judge(manifest, pi, Demand(rate_hz=rate_hz)).verdict

    assert verdict(0.99 / arrival.high_s) == FITS
    assert verdict(1.01 / arrival.high_s) == UNSURE
    assert verdict(1.01 / arrival.low_s) == MISFIT


def test_predicting_less_often_shortens_an_arrival(manifest: Manifest, pi: Board) -> None:
    each = judge(manifest, pi, Demand()).arrival
    tenth = judge(manifest, pi, Demand(predict_every=10)).arrival
    assert tenth.low_s < each.low_s / 2


def test_a_model_that_filters_is_judged_by_its_step(manifest: Manifest, pi: Board) -> None:
    graph = dataclasses.replace(manifest.graphs["update"], name="step", step="step")
    plan = {**manifest.memory_plan, "graphs": dict(manifest.memory_plan["graphs"])}
    plan["graphs"]["step"] = plan["graphs"]["update"]
    alone = dataclasses.replace(
        manifest, graphs={"step": graph}, memory_plan=plan, consolidate_every=0
    )
    budget = judge(alone, pi, Demand(rate_hz=1.0))
    assert budget.arrival == budget.steps["step"] and budget.verdict == FITS


def test_power_takes_a_mode_within_the_watts_that_meets_the_rate(manifest: Manifest) -> None:
    orin = load_board("jetson-orin-nano-8gb")

    def power(watts: float, rate_hz: float | None = None) -> tuple[str, str]:
        budget = judge(manifest, orin, Demand(rate_hz=rate_hz, power_w=watts))
        check = next(check for check in budget.checks if check.name == "power")
        return check.verdict, check.finding

    assert power(10) == (FITS, "within 10 W: 7W")
    assert power(15) == (FITS, "within 15 W: 15W, 7W")
    assert power(5)[0] == MISFIT and "the least is 7W" in power(5)[1]
    assert power(15, 1.0)[0] == FITS
    assert power(15, 1e6)[0] == MISFIT and "meets 1e+06 Hz" in power(15, 1e6)[1]


def test_a_board_without_modes_cannot_tell_its_power(manifest: Manifest, pi: Board) -> None:
    budget = judge(manifest, pi, Demand(power_w=5.0))
    assert budget.verdict == UNSURE
    assert budget.checks[-1].change == "measure the board's supply"


def test_energy_is_the_modes_watts_times_the_arrival(manifest: Manifest) -> None:
    budget = judge(manifest, load_board("jetson-orin-nano-8gb"), Demand(rate_hz=100.0))
    for mode in budget.modes:
        assert mode.power_w and mode.energy_j and mode.duty
        assert mode.energy_j[0] == pytest.approx(mode.power_w * mode.arrival.low_s)
        assert mode.duty[0] == pytest.approx(100 * mode.arrival.low_s)
    unknown = judge(manifest, load_board("jetson-orin-nano-8gb-super"), Demand()).modes[0]
    assert unknown.name == "MAXN SUPER" and unknown.energy_j is None and unknown.duty is None


def test_a_backend_out_of_scope_does_not_fit_and_an_old_cpu_path_is_unsure(
    manifest: Manifest, pi: Board
) -> None:
    assert judge(manifest, pi, Demand(backend="tensorrt")).verdict == MISFIT
    assert judge(manifest, load_board("jetson-nano"), Demand()).checks[0].verdict == UNSURE
    orin = load_board("jetson-orin-nano-8gb")
    for limit_bytes, memory in ((None, FITS), (600_000_000, UNSURE), (10_000_000, MISFIT)):
        budget = judge(manifest, orin, Demand(backend="tensorrt", memory_bytes=limit_bytes))
        assert [check.verdict for check in budget.checks] == [FITS, memory]


def test_a_bundle_without_counted_work_is_unsure_of_its_time(manifest: Manifest, pi: Board) -> None:
    plan = json.loads(json.dumps(manifest.memory_plan))
    for graph in plan["graphs"].values():
        del graph["work"]
    budget = judge(dataclasses.replace(manifest, memory_plan=plan), pi, Demand(rate_hz=1.0))
    assert budget.verdict == UNSURE
    assert "export it again" in budget.arrival.reason


def test_the_worst_check_rules() -> None:
    assert worst([FITS, UNSURE, MISFIT]) == MISFIT
    assert worst([FITS, UNSURE]) == UNSURE
    assert worst([FITS]) == worst([]) == FITS


def test_an_impossible_rate_does_not_fit_whatever_is_said_of_power(
    manifest: Manifest, pi: Board
) -> None:
    """A Raspberry Pi has no power mode of known watts to hold the rate against."""
    for power_w in (None, 15.0):
        budget = judge(manifest, pi, Demand(rate_hz=1e6, power_w=power_w))
        assert budget.verdict == MISFIT


@pytest.mark.parametrize(("capacity", "way"), [(0, "smaller layers"), (256, "--set capacity=N")])
def test_what_makes_an_arrival_quicker_is_the_capacity_where_points_are_kept(
    manifest: Manifest, pi: Board, capacity: int, way: str
) -> None:
    kept = dataclasses.replace(manifest, capacity=capacity)
    latency = judge(kept, pi, Demand(rate_hz=1e6)).checks[-1]
    assert latency.verdict == MISFIT and way in latency.change
