"""Whole commands on recorded boards whose files fail: no traceback, and no figure without a mark.

A board's files answer EAGAIN, vanish, or move while a profile runs. What a fault touches must be
absent with its reason, or the verdict must tell of it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.record import conditions, validity
from edgefold.cli.doctor.backends import IMPORT
from edgefold.cli.doctor.record import DoctorHost
from edgefold.cli.main import main
from edgefold.devices.host import Host
from edgefold.devices.machine.validity import DISTURBED, UNKNOWN, UNSTEADY, VALID
from edgefold.runtime.backends.registry import BACKENDS
from edgefold.runtime.errors import MeterError
from tests import recorded_boards as boards
from tests.fake_nvidia import FakeNvml

ZONE = "sys/class/thermal/thermal_zone{}/temp"
INA3221 = "sys/bus/i2c/drivers/ina3221/{}/hwmon/hwmon1/{}"
OVER_CURRENT = {"sys/class/hwmon/hwmon3/oc3_event_cnt": "99\n"}
GPU = "sys/class/devfreq/{}/{}_freq"
WARNINGS = "sys/devices/platform/soc/soc:firmware/get_throttled"
SHORT = ("--updates", "300", "--queries", "20", "--energy-seconds", "1")
Text = pytest.CaptureFixture[str]
Files = dict[str, str]


@dataclass(frozen=True)
class Simulated:
    """A board and its faults.

    Attributes:
        profile: Its name for `budget`.
        silent: Files that answer EAGAIN, by the zone or sensor that is then absent.
        gone: A file without which the first power meter does not read.
        meter: That meter.
        counters, clocks: What moves during a profile, and disturbs it.
    """

    make: Callable[[Path], Path]
    kernel: str
    profile: str
    silent: dict[str, str]
    gone: str | None
    meter: str | None
    counters: Files
    clocks: Files
    page_bytes: int = 4096


PI_CORES = "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq"
SIMULATED = {
    "AGX Orin, JetPack 5": Simulated(
        boards.jetson_agx_orin,
        "5.10.120-tegra",
        "jetson-agx-orin-32gb",
        {"GPU-therm": ZONE.format(1), "CV0-therm": ZONE.format(2)},
        INA3221.format("1-0040", "curr2_input"),
        "INA3221",
        OVER_CURRENT,
        {GPU.format("17000000.ga10b", "max"): "408000000\n"},
    ),
    "Orin Nano, JetPack 6": Simulated(
        boards.jetson_orin_nano,
        "5.15.148-tegra",
        "jetson-orin-nano-8gb-super",
        {
            "gpu-thermal": ZONE.format(1),
            "tj-thermal": ZONE.format(2),
            "cv0-thermal": ZONE.format(3),
        },
        INA3221.format("1-0040", "in1_input"),
        "INA3221",
        OVER_CURRENT,
        {"sys/kernel/nvpmodel_clk_cap/emc": "1600000000\n"},
    ),
    "Thor, JetPack 7": Simulated(
        boards.jetson_thor,
        "6.8.12-tegra",
        "jetson-thor-t5000",
        {"gpu-thermal": ZONE.format(1)},
        "sys/bus/i2c/drivers/ina238/2-0044/hwmon/hwmon4/power1_input",
        "INA238",
        OVER_CURRENT,
        {"sys/class/devfreq/bwmgr/max_freq": "2133000000\n"},
    ),
    "Raspberry Pi 4": Simulated(
        boards.raspberry_pi_4,
        "6.12.34+rpt-rpi-v8",
        "raspberry-pi-4",
        {"cpu-thermal": ZONE.format(0)},
        None,
        None,
        {WARNINGS: "50005\n"},
        {PI_CORES: "600000\n"},
    ),
    "Raspberry Pi 5": Simulated(
        boards.raspberry_pi_5,
        "6.12.34+rpt-rpi-2712",
        "raspberry-pi-5",
        {"cpu-thermal": ZONE.format(0)},
        None,
        None,
        {WARNINGS: "50005\n"},
        {PI_CORES: "1500000\n"},
        page_bytes=16384,
    ),
}


TOLD = {
    "AGX Orin, JetPack 5": (
        "Jetson Linux R35.4.1 (JetPack 5)",
        "clock of 17000000.ga10b 306 MHz, 306 MHz to 1300 MHz allowed",
        "clock of the memory not shown (root alone may read it)",
        "each reading is a mean of 512 samples",
        "no answer, as while a part is off: CV0-therm",
    ),
    "Orin Nano, JetPack 6": (
        "units off in this power mode: mask 240",
        "clock of the memory 2133 MHz, at most 2133 MHz in this power mode",
        "clocks are lowered from 99 C on",
        "echo 3 | sudo tee /proc/sys/vm/drop_caches",
    ),
    "Thor, JetPack 7": (
        "Jetson Linux R38.2.0 (JetPack 7)",
        "clock of gpu-gpc-0 off now, 315 MHz to 1575 MHz allowed",
        "clock of the memory 666 MHz, at most 4266 MHz in this power mode",
        "power mode 1 120W (of 0 MAXN, 1 120W)",
        "clocks are lowered from 109 C on",
        "energy yes, by INA238, INA3221",
    ),
    "Raspberry Pi 4": ("pages of 4 KiB", "no throttling", "sudo apt full-upgrade"),
    "Raspberry Pi 5": ("pages of 16 KiB", "throttled since boot", "cgroup_enable=memory"),
}


@pytest.fixture(params=SIMULATED)
def board(request: pytest.FixtureRequest) -> Simulated:
    return SIMULATED[request.param]


def unavailable(words: Sequence[str]) -> str:
    raise MeterError(f"{words[0]} is not installed")


@pytest.fixture
def place(board: Simulated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The commands find themselves on the board: its files, kernel and page size."""
    root, sysconf = board.make(tmp_path / "root"), os.sysconf
    kernel = os.uname_result(("Linux", "board", board.kernel, "#1", "aarch64"))

    def board_sysconf(name: str | int) -> int:
        return board.page_bytes if name == "SC_PAGE_SIZE" else sysconf(name)

    def host() -> Host:
        return Host(root, unavailable, nvml=lambda: FakeNvml(starts=False))

    def doctor_host() -> DoctorHost:
        opened = {"opens": True, "version": "1.23.2", "device": "cpu"}
        refused = {"opens": False, "reason": "not on this board"}
        names = [IMPORT, *BACKENDS, "cudaMemGetInfo"]
        found = [{"name": n, **(opened if "onnxruntime" in n[-18:] else refused)} for n in names]
        return DoctorHost(
            root,
            unavailable,
            nvml=lambda: FakeNvml(starts=False),
            probe=lambda *_: found,
            watch=lambda: list,
            sleep=lambda duration_s: None,
        )

    monkeypatch.setattr(os, "uname", lambda: kernel)
    monkeypatch.setattr(os, "sysconf", board_sysconf)
    monkeypatch.setattr("edgefold.devices.profile.profile.Host", host)
    monkeypatch.setattr("edgefold.cli.doctor.record.DoctorHost", doctor_host)
    return root


@contextmanager
def faults(board: Simulated, root: Path) -> Iterator[None]:
    """Zones answer EAGAIN, and the first power meter has lost a file."""
    if board.gone:
        (root / board.gone).unlink()
    with boards.silent(*(root / path for path in board.silent.values())):
        yield


def strict(path: Path) -> dict[str, Any]:
    """A record that has no NaN and no infinity, which are figures that nobody marked."""

    def refuse(name: str) -> float:
        raise AssertionError(name)

    record: dict[str, Any] = json.loads(path.read_text(), parse_constant=refuse)
    return record


def happens(monkeypatch: pytest.MonkeyPatch, stage: str, fault: Callable[[], Any]) -> None:
    """Let something happen in the midst of a profile, when it tells a stage on the terminal."""

    class Moving:
        def show(self, text: str) -> None:
            if text.startswith(stage):
                fault()

        def clear(self) -> None:
            """Leave the terminal as it is."""

    monkeypatch.setattr("edgefold.cli.commands.profile.StatusLine", Moving)


@pytest.mark.usefixtures("place")
def test_doctor_tells_a_board_whole(request: pytest.FixtureRequest, capsys: Text) -> None:
    assert main(["doctor"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert [
        words for words in TOLD[request.node.callspec.params["board"]] if words not in text
    ] == []


def test_doctor_marks_what_does_not_answer(
    board: Simulated, place: Path, tmp_path: Path, capsys: Text
) -> None:
    with faults(board, place):
        assert main(["doctor", "--json", str(tmp_path / "doctor.json")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    record = strict(tmp_path / "doctor.json")
    machine = record["machine"]
    assert set(machine["silent_zones"]) == set(board.silent)
    assert all(name in text for name in board.silent)
    if len(list(place.glob("sys/class/thermal/thermal_zone*"))) == len(board.silent):
        assert machine["temperature_celsius"] is None and "temperature not shown" in text
    else:
        assert machine["temperature_celsius"] > 40  # no zone that is off counts as 0
    assert machine["page_bytes"] == board.page_bytes
    assert ("estimates were measured with 4 KiB" in text) == (board.page_bytes != 4096)
    for meter in (*record["power"], *record["memory"]):
        assert meter["reads"] or meter["reason"], meter
    lost = [meter for meter in record["power"] if meter["name"] == board.meter]
    assert not any(meter["reads"] for meter in lost)
    limits = next(entry for entry in record["memory"] if entry["name"] == "enforced limits")
    assert limits["reads"] == (not board.profile.startswith("raspberry"))


@pytest.mark.one_case
def test_a_profile_marks_what_does_not_answer(
    board: Simulated, place: Path, tiny_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    path, page = tmp_path / "profile.json", tmp_path / "profile.html"
    words = ["profile", str(tiny_bundle), *SHORT, "--json", str(path)]
    with faults(board, place):
        assert main([*words, "--html", str(page)] if find_spec("matplotlib") else words) == 0
    record = strict(path)
    energy = record["energy"]
    for name in energy["steps"]:
        assert energy[name] or energy["reason"], name
    lost = [meter for meter in energy["candidates"] if meter["kind"] == board.meter]
    assert all(meter["reason"] for meter in lost)
    assert set(record["conditions"]["silent_zones"]) == set(board.silent)
    assert record["validity"]["verdict"] in (VALID, UNKNOWN)  # a quick run cannot tell the load
    texts = [capsys.readouterr().out, *([unescape(page.read_text())] if page.exists() else [])]
    for line in (record["validity"]["verdict"], *record["validity"]["untold"]):
        assert all(line in text for text in texts)


@pytest.mark.one_case
@pytest.mark.parametrize("what", ["counters", "clocks"])
def test_a_profile_tells_what_moved_while_it_ran(
    what: str,
    board: Simulated,
    place: Path,
    tiny_bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Text,
) -> None:
    happens(monkeypatch, "timing updates", lambda: boards.write(place, getattr(board, what)))
    path = tmp_path / "profile.json"
    with faults(board, place):
        assert main(["profile", str(tiny_bundle), *SHORT, "--json", str(path)]) == 0
    found = strict(path)["validity"]
    assert found["verdict"] == DISTURBED
    assert found["blocks"][0]["verdict"] == DISTURBED
    shown = capsys.readouterr().out
    assert all(reason in shown for reason in found["reasons"])


def test_a_budget_marks_its_figures(
    board: Simulated, tiny_bundle: Path, tmp_path: Path, capsys: Text
) -> None:
    path = tmp_path / "budget.json"
    words = ["budget", str(tiny_bundle), "--device", board.profile, "--rate", "50"]
    assert main([*words, "--json", str(path)]) in (0, 3, 4)
    text, record = capsys.readouterr().out, strict(path)
    assert record["measured"] is False and "no board was measured" in text
    assert ("16 KiB" in text) == (board.page_bytes != 4096)
    for mode in record["modes"]:
        assert mode["arrival"]["high_s"] is not None or mode["arrival"]["reason"], mode["name"]
    assert all(status != "unknown" for status in record["figures"].values())


@pytest.mark.parametrize("what", ["counters", "clocks"])
def test_a_benchmarks_record_tells_its_conditions_and_what_moved(
    what: str, board: Simulated, place: Path
) -> None:
    with faults(board, place):
        before = conditions(root=place)
        assert set(before["silent_zones"]) == set(board.silent)
        assert validity(before, place)["verdict"] in (VALID, UNKNOWN)
        boards.write(place, getattr(board, what))
        after = validity(before, place)
    assert after["verdict"] == DISTURBED and after["reasons"]
    json.dumps([before, after], allow_nan=False)


@pytest.mark.parametrize("board", [SIMULATED["Orin Nano, JetPack 6"]], ids=["Orin Nano"])
def test_a_rail_that_vanishes_while_energy_is_measured_leaves_no_figure(
    board: Simulated,
    place: Path,
    tiny_bundle: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert board.gone
    lost, path = place / board.gone, tmp_path / "profile.json"
    happens(monkeypatch, "measuring the energy", lambda: lost.unlink(missing_ok=True))
    words = ["profile", str(tiny_bundle), *SHORT[:-1], "10", "--json", str(path)]
    assert main(words) == 0
    energy = strict(path)["energy"]
    assert energy["reason"] and not any(energy[name] for name in energy["steps"])


@pytest.mark.parametrize("board", [SIMULATED["Orin Nano, JetPack 6"]], ids=["Orin Nano"])
def test_a_gpu_that_sleeps_between_two_reads_is_no_clock_of_zero(
    board: Simulated, place: Path
) -> None:
    path = GPU.format("17000000.gpu", "cur")
    boards.write(place, {path: "0\n"})
    before = conditions(on_gpu=True, root=place)
    assert before["gpu_clock"]["current_hz"] is None
    boards.write(place, {path: "306000000\n"})
    assert UNSTEADY not in [block["verdict"] for block in validity(before, place)["blocks"]]
