from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edgefold.devices.machine.condition import Condition, read_condition
from edgefold.devices.machine.validity import (
    BUSY,
    DISTURBED,
    UNKNOWN,
    UNSTEADY,
    VALID,
    ValidityWatch,
    judge,
)
from edgefold.runtime.record_fields import as_json
from tests.recorded_boards import (
    STAT,
    jetson_agx_orin,
    jetson_orin_nano,
    jetson_thor,
    raspberry_pi_4,
    raspberry_pi_5,
    silent,
    write,
)

ZONE, COOLING = "sys/class/thermal/thermal_zone", "sys/class/thermal/cooling_device"
GPU = "sys/class/devfreq/17000000.gpu"
CORE = "sys/devices/system/cpu/cpu3/cpufreq"


def verdict(
    root: Path,
    change: Callable[[], Any] = lambda: None,
    seconds: float = 10.0,
    on_gpu: bool = False,
) -> dict[str, Any]:
    """The record of one block of so many seconds in which something happens to a board."""
    before = read_condition(root)
    change()
    after = replace(read_condition(root), time_s=before.time_s + seconds)
    record: dict[str, Any] = as_json(judge([("query", before, after)], on_gpu))
    json.dumps(record)
    return record


def test_a_board_on_which_nothing_moved_is_valid(tmp_path: Path) -> None:
    found = verdict(jetson_orin_nano(tmp_path))
    assert (found["verdict"], found["reasons"], found["untold"]) == (VALID, [], [])
    assert found["blocks"][0]["before"]["clocks_hz"] == {
        "core 0-5": 729.6e6,
        "GPU 17000000.gpu": 306e6,
        "memory": 2133e6,
    }


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"sys/class/hwmon/hwmon3/oc3_event_cnt": "41\n"}, "oc3 went from 37 to 41"),
        ({"sys/class/hwmon/hwmon3/oc1_event_cnt": "1\n"}, "oc1 went from 0 to 1"),
        ({f"{COOLING}1/cur_state": "2\n"}, "devfreq-17000000.gpu (cooling_device1) lowered clocks"),
        ({f"{COOLING}3/cur_state": "1\n"}, "cpu-throttle-alert (cooling_device3)"),
        ({f"{ZONE}0/temp": "99250\n"}, "cpu-thermal reached 99 C"),
        ({f"{GPU}/max_freq": "408000000\n"}, "from 612 MHz to 408 MHz"),
        ({"sys/kernel/nvpmodel_clk_cap/emc": "0\n"}, "memory went from 2133 MHz to none"),
        ({f"{CORE}/scaling_max_freq": "1190400\n"}, "highest clock allowed for core 3"),
    ],
)
def test_what_lowers_clocks_disturbs(files: dict[str, str], words: str, tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    found = verdict(root, lambda: write(root, files))
    assert found["verdict"] == DISTURBED == found["blocks"][0]["verdict"]
    assert any(words in reason for reason in found["reasons"]), found["reasons"]


def test_what_is_hot_without_an_effect_on_clocks_does_not_disturb(tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    hot = {f"{ZONE}0/temp": "72000\n", f"{ZONE}2/temp": "99500\n", f"{COOLING}2/cur_state": "1\n"}
    assert verdict(root, lambda: write(root, hot))["verdict"] == VALID


@pytest.mark.parametrize("path", [f"{GPU}/cur_freq", "sys/kernel/debug/bpmp/debug/clk/emc/rate"])
def test_a_clock_that_moved_by_itself_is_unsteady(path: str, tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    assert verdict(root, lambda: write(root, {path: "408000000\n"}))["verdict"] == UNSTEADY


def test_a_clock_that_moved_by_what_counting_misses_is_steady(tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    files = {
        f"sys/devices/system/cpu/cpu{index}/cpufreq/scaling_cur_freq": "750000\n"
        for index in range(6)
    }
    assert verdict(root, lambda: write(root, files))["verdict"] == VALID


@pytest.mark.parametrize(("share", "expected"), [(0.5 * BUSY, VALID), (2 * BUSY, DISTURBED)])
def test_load_of_others_disturbs_from_a_share_of_a_core_on(
    share: float, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 6)
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    monkeypatch.setattr("os.times", lambda: (1.0, 0.0, 0.0, 0.0, 0.0))
    root = jetson_orin_nano(tmp_path)
    stat = STAT.format(user=40_000 + round(share * 10 * 100))
    assert verdict(root, lambda: write(root, {"proc/stat": stat}))["verdict"] == expected


def test_own_work_is_no_load_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([(1.0, 0.0, 0.0, 0.0, 0.0), (9.0, 1.0, 0.0, 0.0, 0.0)])
    monkeypatch.setattr("os.times", lambda: next(times))
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    root = jetson_orin_nano(tmp_path)
    stat = STAT.format(user=40_000 + 900)  # 9 s in ticks
    assert verdict(root, lambda: write(root, {"proc/stat": stat}))["verdict"] == VALID


def test_blocks_too_short_for_the_kernels_ticks_are_judged_together(tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    start = read_condition(root)

    def at(seconds: float, busy_s: float) -> Condition:
        moved = (start.busy_s or 0) + busy_s
        return replace(start, time_s=start.time_s + seconds, busy_s=moved)

    blocks = [("a", at(0, 0), at(0.6, 0.6)), ("b", at(0.7, 0.6), at(20, 20))]
    assert judge(blocks[:1], False).verdict == UNKNOWN
    validity = judge(blocks, False)
    assert validity.verdict == DISTURBED
    assert any(reason.startswith("all blocks") for reason in validity.reasons)


def test_blocks_of_one_name_tell_the_load_of_others_once_at_its_most(tmp_path: Path) -> None:
    idle = replace(read_condition(jetson_orin_nano(tmp_path)), busy_s=0.0)
    busy = [replace(idle, time_s=idle.time_s + 10, busy_s=busy_s) for busy_s in (10.0, 20.0)]
    validity = judge([("a", idle, busy[0]), ("a", idle, busy[1])], False)
    assert [reason for reason in validity.reasons if reason.startswith("a: ")] == [
        "a: other programs used 2.0 cores"
    ]


def test_warnings_of_a_raspberry_pi_disturb_when_they_come(tmp_path: Path) -> None:
    root = raspberry_pi_4(tmp_path)
    word = "sys/devices/platform/soc/soc:firmware/get_throttled"
    assert verdict(root)["verdict"] == VALID
    assert verdict(root, lambda: write(root, {word: "50000\n"}))["verdict"] == DISTURBED
    again = verdict(root)  # set since earlier: a short event would not be seen
    assert again["verdict"] == UNKNOWN and again["reasons"] == []
    assert verdict(root, lambda: write(root, {word: "50005\n"}))["verdict"] == DISTURBED


@pytest.mark.parametrize("path", ["sys/class/hwmon/hwmon3/oc3_event_cnt", f"{COOLING}0/cur_state"])
def test_a_counter_that_stops_answering_is_not_called_still(path: str, tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    before = read_condition(root)
    with silent(root / path):
        after = replace(read_condition(root), time_s=before.time_s + 10)
    validity = judge([("query", before, after)], False)
    assert validity.verdict == UNKNOWN and len(validity.untold) == 1


def test_a_machine_that_shows_nothing_is_unknown_and_not_valid(tmp_path: Path) -> None:
    found = verdict(tmp_path)
    assert found["verdict"] == UNKNOWN
    assert len(found["untold"]) == 3  # throttling, clocks, load
    zeros = "cpu  0 0 0 0 0 0 0 0 0 0\n"  # as a sandbox shows
    assert read_condition(write(tmp_path, {"proc/stat": zeros})).busy_s is None


def test_a_jetson_without_its_over_current_counters_is_unknown(tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    for path in root.glob("sys/class/hwmon/hwmon3/*"):
        path.unlink()
    assert verdict(root)["verdict"] == UNKNOWN


def test_work_on_a_gpu_needs_its_clock(tmp_path: Path) -> None:
    root = jetson_thor(tmp_path)  # its GPU is off
    assert verdict(root)["verdict"] == VALID
    assert verdict(root, on_gpu=True)["verdict"] == UNKNOWN
    on = {"sys/class/devfreq/gpu-gpc-0/cur_freq": "1575000000\n"}
    assert verdict(root, lambda: write(root, on), on_gpu=True)["verdict"] == VALID


@pytest.mark.one_case
@pytest.mark.parametrize(
    "board", [jetson_orin_nano, jetson_agx_orin, jetson_thor, raspberry_pi_4, raspberry_pi_5]
)
def test_no_file_that_is_gone_silent_or_nonsense_breaks_the_verdict(
    board: Callable[[Path], Path], tmp_path: Path
) -> None:
    root = board(tmp_path)
    for path in [path for path in root.glob("sys/class/**/*") if path.is_file()]:
        text = path.read_text()
        for nonsense in ("", "nan", "garbage"):
            path.write_text(nonsense)
            assert verdict(root)["verdict"] in (VALID, UNKNOWN)
        with silent(path):
            assert verdict(root)["verdict"] in (VALID, UNKNOWN)
        path.unlink()
        path.write_text(text)


def test_the_watch_judges_each_block_and_the_worst_counts(tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    watch = ValidityWatch(root)
    with watch.block("update"):
        pass
    with watch.block("query"):
        write(root, {"sys/class/hwmon/hwmon3/oc3_event_cnt": "38\n"})
    validity = watch.validity()
    assert validity.verdict == DISTURBED
    assert [block.name for block in validity.blocks] == ["update", "query"]
    assert validity.blocks[1].verdict == DISTURBED != validity.blocks[0].verdict
    assert all(reason.startswith("query: ") for reason in validity.reasons)
