"""The paced profile in virtual time, on two backends whose power and crossing are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.devices.power import probe
from edgefold.devices.power.probe import Candidate
from edgefold.devices.profile.paced import PacedOptions, Surroundings, measure_paced
from edgefold.runtime.errors import MeterError
from tests.devices.paced_bench import Counter, Device, PacedBench

CPU = Device(work_s=8e-3, work_w=2.5)  # 20 mJ an arrival
GPU = Device(work_s=2e-3, work_w=3.0, awake_s=0.25, awake_w=0.6)  # 6 mJ, and 0.6 W from 4 Hz on
CROSSING_HZ = 0.6 / (0.020 - 0.006)  # 43 Hz
REPORTS = {"cpu": {"device": "cpu"}, "gpu": {"device": "NVIDIA Orin"}}


def measure(
    bench: PacedBench,
    rates_hz: tuple[float, ...],
    seconds: float | None = 20.0,
    surroundings: Surroundings | None = None,
    names: tuple[str, ...] = ("cpu", "gpu"),
) -> dict[str, Any]:
    return measure_paced(
        {name: bench.call(name) for name in names},
        {name: REPORTS[name] for name in names},
        PacedOptions(rates_hz, (), seconds),
        lambda line: None,
        surroundings or bench.surroundings(),
    )


def run_of(record: dict[str, Any], backend: str, rate_hz: float) -> dict[str, Any]:
    found = (r for r in record["runs"] if (r["backend"], r["rate_hz"]) == (backend, rate_hz))
    return next(found)


# Arrivals -----------------------------------------------------------------------------------------


def test_an_answer_is_timed_from_when_it_was_due_and_from_when_the_process_woke() -> None:
    bench = PacedBench({"cpu": CPU}, oversleep_s=1e-3)
    record = measure(bench, (10.0,), names=("cpu",))
    latency = record["runs"][0]["latency"]
    for quantile in ("p50_s", "p90_s", "p99_s", "max_s"):
        assert latency["from_wake"][quantile] == pytest.approx(8e-3, rel=1e-6)
        assert latency["timer"][quantile] == pytest.approx(1e-3, rel=1e-6)
        assert latency["from_due"][quantile] == pytest.approx(9e-3, rel=1e-6)
    assert (latency["n_late"], latency["n_skipped"]) == (0, 0)
    assert latency["n"] >= 200
    assert record["runs"][0]["cpu_share"] == pytest.approx(0.08, rel=0.03)  # edges of four blocks


def test_quantiles_of_arrivals_carry_their_intervals() -> None:
    device = Device(work_s=8e-3, work_w=2.5)
    bench = PacedBench({"cpu": device}, oversleep_s=1e-3)
    call, random = bench.call("cpu"), np.random.default_rng(0)

    def run() -> None:
        bench.devices["cpu"] = replace(device, work_s=random.uniform(4e-3, 12e-3))
        bench.call("cpu").run()

    record = measure_paced(
        {"cpu": replace(call, run=run)},
        REPORTS,
        PacedOptions((20.0,), (), 60.0),
        lambda line: None,
        bench.surroundings(),
    )
    due = record["runs"][0]["latency"]["from_due"]
    low_s, high_s = due["p50_interval_s"]
    assert low_s < 9e-3 < high_s and high_s - low_s < 2e-3  # 1200 times over 8 ms
    assert due["p99_interval_s"][0] < 12.92e-3


def test_arrivals_keep_to_their_times_and_do_not_drift() -> None:
    bench = PacedBench({"cpu": CPU}, oversleep_s=1e-3)
    measure(bench, (20.0,), names=("cpu",), seconds=30.0)
    times = np.array([time_s for _, time_s in bench.log])
    gaps = np.diff(times)
    gaps = gaps[gaps < 0.1]  # the others are idle windows
    assert len(gaps) > 500
    assert gaps == pytest.approx(np.full(len(gaps), 0.05), abs=1e-9)


def test_arrivals_that_take_too_long_are_late_and_those_in_their_way_are_skipped() -> None:
    bench = PacedBench({"cpu": Device(work_s=0.25, work_w=1.0)})
    record = measure(bench, (10.0,), names=("cpu",))
    latency = record["runs"][0]["latency"]
    assert latency["n_late"] == latency["n"] > 60
    # 0.25 s an arrival serve 4 of 10 a second; the rest has no turn.
    assert latency["n_skipped"] / (latency["n"] + latency["n_skipped"]) == pytest.approx(
        0.6, abs=0.02
    )
    assert latency["timer"]["p50_s"] is None or latency["timer"]["max_s"] < 1e-9


def test_the_99th_percentile_needs_a_hundred_arrivals() -> None:
    few = measure(PacedBench({"cpu": CPU}), (2.0,), names=("cpu",), seconds=20.0)
    assert few["runs"][0]["latency"]["from_due"]["p99_s"] is None
    assert few["runs"][0]["latency"]["from_due"]["p99_interval_s"] is None
    enough = measure(PacedBench({"cpu": CPU}), (2.0,), names=("cpu",), seconds=None)
    assert enough["runs"][0]["latency"]["n"] >= 100
    assert enough["runs"][0]["latency"]["from_due"]["p99_s"] is not None


@pytest.mark.parametrize(("rate_hz", "seconds"), [(0.1, 300), (1, 100), (10, 60), (100, 60)])
def test_a_rate_is_measured_for_a_minute_or_a_hundred_arrivals(
    rate_hz: float, seconds: float
) -> None:
    assert PacedOptions((rate_hz,), ()).seconds_at(rate_hz) == seconds
    assert PacedOptions((rate_hz,), (), 7.0).seconds_at(rate_hz) == 7


def test_backends_take_turns_in_mirrored_rounds() -> None:
    bench = PacedBench({"cpu": CPU, "gpu": GPU})
    record = measure(bench, (10.0,), seconds=40.0)
    blocks, last = [], ("", 0.0)
    for label, time_s in bench.log:
        if label != last[0] or time_s > last[1] + 1:  # an idle window lies between two blocks
            blocks.append(label)
        last = (label, time_s)
    assert blocks == ["cpu", "gpu", "gpu", "cpu", "cpu", "gpu", "gpu", "cpu"]
    assert [run["n_blocks"] for run in record["runs"]] == [4, 4]
    judged = [block["name"] for block in record["validity"]["blocks"]]
    assert judged == [f"10 Hz, {label}" for label in blocks]


def test_a_slow_rate_has_fewer_blocks_with_arrivals_in_each() -> None:
    record = measure(PacedBench({"cpu": CPU}), (0.1,), names=("cpu",), seconds=50.0)
    assert record["runs"][0]["n_blocks"] == 2  # two arrivals in a block at least
    assert record["runs"][0]["latency"]["n"] >= 4


# Energy -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate_hz", [10.0, 50.0])
def test_power_and_joules_an_arrival_are_those_of_the_board(rate_hz: float) -> None:
    bench = PacedBench({"cpu": CPU, "gpu": GPU}, noise_w=0.02, drift_w_per_s=1e-3)
    record = measure(bench, (rate_hz,))
    for name, device in bench.devices.items():
        energy = run_of(record, name, rate_hz)["energy"]
        truth_w = device.power_w(rate_hz)
        # One seed: three half-widths are six standard errors.
        assert abs(energy["power_above_idle_w"] - truth_w) < 3 * energy["power_interval_95_w"]
        assert energy["power_above_idle_w"] == pytest.approx(truth_w, rel=0.1)
        assert energy["energy_j"] * rate_hz == pytest.approx(energy["power_above_idle_w"], rel=0.01)
        assert 0 < energy["power_interval_95_w"] < 0.1
        assert energy["n_arrivals"] == pytest.approx(20 * rate_hz, rel=0.05)


@pytest.mark.long
def test_the_interval_of_power_covers_the_truth() -> None:
    covered = 0
    for seed in range(60):
        bench = PacedBench({"cpu": CPU, "gpu": GPU}, noise_w=0.1, seed=seed)
        for run in measure(bench, (25.0,), seconds=12.0)["runs"]:
            energy = run["energy"]
            truth_w = bench.devices[run["backend"]].power_w(25.0)
            covered += abs(energy["power_above_idle_w"] - truth_w) <= energy["power_interval_95_w"]
    assert covered >= 0.93 * 120


@pytest.mark.long
def test_the_crossing_is_found_and_its_interval_covers_the_truth() -> None:
    found = covered = 0
    for seed in range(40):
        bench = PacedBench({"cpu": CPU, "gpu": GPU}, noise_w=0.15, seed=seed)
        crossing = measure(bench, (10.0, 30.0, 60.0, 90.0), seconds=12.0)["crossings"][0]
        if crossing["verdict"] != "crossing":
            continue
        found += 1
        assert (crossing["a"], crossing["b"], crossing["less"]) == ("cpu", "gpu", "gpu")
        assert crossing["low_hz"] < crossing["rate_hz"] < crossing["high_hz"]
        assert crossing["after_hz"] < crossing["rate_hz"] < crossing["until_hz"]
        covered += crossing["low_hz"] <= CROSSING_HZ <= crossing["high_hz"]
    assert found >= 38  # the difference is 0.46 W at 10 Hz and -0.66 W at 90 Hz
    assert covered >= 0.93 * found


def test_without_a_sensor_there_is_no_energy_and_no_crossing_and_no_idle_window() -> None:
    def refuse() -> list[Candidate]:
        return [Candidate("none", None, MeterError("no meter here"))]

    bench = PacedBench({"cpu": CPU, "gpu": GPU})
    world = replace(bench.surroundings(), probe=refuse)
    record = measure(bench, (10.0,), surroundings=world)
    assert record["sensor"] is None and "no meter here" in record["reason"]
    assert [run["energy"] for run in record["runs"]] == [None, None]
    assert record["crossings"][0]["verdict"] == "none"
    assert "no power sensor" in record["crossings"][0]["reason"]
    # Two backends of 20 s and four settling seconds each: nothing else took time.
    assert bench.now_s - 50 == pytest.approx(48, abs=2)


@pytest.mark.parametrize("covers", [probe.PROCESSOR, probe.GPU])
def test_a_sensor_of_one_device_does_not_compare_a_processor_with_a_gpu(
    covers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = PacedBench({"cpu": CPU, "gpu": GPU})
    meter = probe.Meter("a counter", covers, lambda host: Counter(bench))
    monkeypatch.setattr(probe, "METERS", (meter,))
    record = measure(bench, (10.0,))
    assert all(run["energy"] for run in record["runs"])
    assert (
        record["crossings"][0]["verdict"] == "none" and covers in record["crossings"][0]["reason"]
    )


def test_a_rate_that_a_backend_does_not_keep_up_with_is_left_out_of_the_comparison() -> None:
    slow = Device(work_s=0.05, work_w=0.5)
    bench = PacedBench({"cpu": slow, "gpu": GPU})
    record = measure(bench, (5.0, 50.0))
    assert run_of(record, "cpu", 50.0)["energy"] is not None
    assert [d["rate_hz"] for d in record["crossings"][0]["differences"]] == [5.0]


def test_a_sensor_that_fails_gives_the_reason_and_keeps_the_latencies() -> None:
    bench = PacedBench({"cpu": CPU})

    class Failing(Counter):
        def read_j(self) -> float:
            if bench.now_s > 60:
                raise MeterError("the counter is gone")
            return super().read_j()

    record = measure(
        bench, (10.0,), names=("cpu",), surroundings=bench.surroundings(Failing(bench))
    )
    run = record["runs"][0]
    assert run["energy"] is None and run["energy_reason"] == "the counter is gone"
    assert run["latency"]["n"] >= 200


# Ends and conditions ------------------------------------------------------------------------------


@pytest.mark.parametrize("at_s", [5.0, 30.0, 52.0])
def test_an_interrupt_keeps_everything_that_was_measured(at_s: float) -> None:
    bench = PacedBench({"cpu": CPU, "gpu": GPU}, interrupt_at_s=50 + at_s)
    record = measure(bench, (10.0, 20.0), seconds=40.0)
    assert record["interrupted"]
    n = sum(run["latency"]["n"] for run in record["runs"])
    assert n <= len(bench.log) and all(run["latency"]["n"] > 0 for run in record["runs"])
    blocks = {5.0: 0, 30.0: 1, 52.0: 2}[at_s]  # blocks of 10 s, idle windows of 5 s
    assert sum(run["energy"] is not None for run in record["runs"]) == min(blocks, 2)
    assert not measure(PacedBench({"cpu": CPU}), (10.0,), names=("cpu",))["interrupted"]


def board(root: Path, cpu_khz: int, gpu_hz: int) -> None:
    """What /proc and /sys show of a board whose third core runs this thread."""
    files = {
        "proc/thread-self/stat": "7 (a (b) c) S " + " ".join(["0"] * 35) + " 2 0 0\n",
        "sys/devices/system/cpu/cpu2/cpufreq/scaling_cur_freq": f"{cpu_khz}\n",
        "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor": "schedutil\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil\n",
        "sys/class/devfreq/17000000.gpu/cur_freq": f"{gpu_hz}\n",
        "sys/class/devfreq/17000000.gpu/governor": "nvhost_podgov\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_clocks_of_the_core_that_runs_and_of_the_gpu_are_counted(tmp_path: Path) -> None:
    board(tmp_path, cpu_khz=1_510_400, gpu_hz=306_000_000)
    bench = PacedBench({"cpu": CPU, "gpu": GPU}, root=tmp_path)
    calls = {name: bench.call(name) for name in bench.devices}
    run = calls["gpu"].run

    shown: list[bool] = []

    def wake() -> None:
        if not shown:
            board(tmp_path, cpu_khz=729_600, gpu_hz=0)
            shown.append(True)
        run()

    calls["gpu"] = replace(calls["gpu"], run=wake)  # the processor comes first and last
    options = PacedOptions((10.0,), (), 20.0)
    record = measure_paced(calls, REPORTS, options, lambda line: None, bench.surroundings())
    first, second = (run["clocks"] for run in record["runs"])
    assert [clock["frequency_hz"] for clock in first["cpu"]] == [729_600_000, 1_510_400_000]
    assert [clock["frequency_hz"] for clock in second["cpu"]] == [729_600_000]
    assert [clock["frequency_hz"] for clock in second["gpu"]] == [0]  # off
    assert 15 <= sum(clock["n"] for clock in second["cpu"]) <= 25  # once a second
    assert record["governor"]["before"]["cpu_governor"] == "schedutil"
    assert record["governor"]["after"]["gpu_governor"] == "nvhost_podgov"


def test_a_machine_that_shows_no_clock_has_empty_histograms(tmp_path: Path) -> None:
    record = measure(PacedBench({"cpu": CPU}, root=tmp_path), (10.0,), names=("cpu",))
    assert record["runs"][0]["clocks"] == {"cpu": [], "gpu": []}
