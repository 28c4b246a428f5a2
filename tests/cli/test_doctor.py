from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edgefold.cli.doctor.backends import IMPORT, probed_names
from edgefold.cli.doctor.record import DoctorHost, examine
from edgefold.cli.doctor.remedies import remedies
from edgefold.cli.exit_codes import ExitCode
from edgefold.cli.main import main
from edgefold.cli.plots.matplotlib_check import NEWER
from edgefold.cli.text.doctor import render
from edgefold.devices.host import Runner, run_command
from edgefold.devices.nvidia import load_nvml
from edgefold.runtime.backends.registry import BACKENDS
from edgefold.runtime.errors import MeterError, Remedy
from tests.fake_nvidia import FakeNvml
from tests.recorded_boards import MEMINFO, jetson_orin_nano, raspberry_pi_5, write

Text = pytest.CaptureFixture[str]
INSTALLED = {"numpy": "1.26.4", "onnxruntime": "1.23.2", "matplotlib": "3.8"}
PMIC = "3V3_SYS_A current(1)=0.5A\n3V3_SYS_V volt(9)=3.3V\nEXT5V_V volt(24)=5.1V\n"


NVRM = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs)\n"
    "GCC version:  gcc version 12.2.0\n"
)


def probed(*opening: str) -> list[dict[str, Any]]:
    """What the child would tell on a machine where these backends open."""
    opened = {"opens": True, "version": "1.23.2", "device": "cpu"}
    backends = [
        {"name": name, **(opened if name in opening else {"opens": False, "reason": "not here"})}
        for name in BACKENDS
    ]
    imported = {"name": IMPORT, **opened, "providers": ["CPUExecutionProvider"]}
    return [imported, *backends, {"name": "cudaMemGetInfo", "opens": False, "reason": "no GPU"}]


def unavailable(words: Sequence[str]) -> str:
    raise MeterError(f"{words[0]} is not installed")


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        self.now_s += duration_s


def place(root: Path, run: Runner = unavailable) -> DoctorHost:
    """A recorded board, quiet, with the base install and no GPU library."""
    clock = Clock()
    return DoctorHost(
        root=root,
        run=run,
        version=INSTALLED.get,
        probe=lambda *_: probed("onnxruntime"),
        nvml=lambda: FakeNvml(starts=False),
        watch=lambda: list,
        sleep=clock.sleep,
        clock=clock,
    )


def be_quiet(monkeypatch: pytest.MonkeyPatch, architecture: str) -> None:
    """What no tree of files tells: the processor's kind, and that nothing runs."""
    kernel = os.uname_result(("Linux", "board", "5.15.148", "#1", architecture))
    monkeypatch.setattr(os, "uname", lambda: kernel)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.1, 0.1))


@pytest.fixture
def quiet_board(monkeypatch: pytest.MonkeyPatch) -> None:
    be_quiet(monkeypatch, "aarch64")


def report(record: dict[str, Any]) -> str:
    """The rendered report with its line breaks undone."""
    return " ".join(render(record, remedies(record)).split())


def commands(record: dict[str, Any]) -> list[str]:
    return [r.command for found in remedies(record).values() for r in found if r.command]


def meter(record: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    return next(entry for entry in record[kind] if entry["name"] == name)


# Boards -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quiet_board")
def test_a_jetson_is_told_whole(tmp_path: Path) -> None:
    record = examine(place(jetson_orin_nano(tmp_path)))
    text = report(record)
    for words in (
        "board NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
        "Jetson Linux R36.4.3 (JetPack 6)",
        "memory 8.0 GB, 5.4 GB available",
        "clock of core 0-5 730 MHz, 115 MHz to 1510 MHz allowed (the silicon's limit is 1728 MHz)",
        "clock of 17000000.gpu 306 MHz, 306 MHz to 612 MHz allowed",
        "units off in this power mode: mask 240",
        "clock of the memory 2133 MHz, at most 2133 MHz in this power mode",
        "throttling over-current events oc3 37 since the boot",
        "over-current or under-voltage lowered clocks 37 times",
        "enforced limits yes by cgroup v2",
        "power mode 0 15W (of 0 15W, 1 25W, 2 MAXN_SUPER, 3 7W)",
        "temperature 51 C; clocks are lowered from 99 C on",
        "onnxruntime yes 1.23.2 on cpu",
        "tensorrt no not here",
        "needed memory yes 42.1 MB",
        "resident peak yes 72.9 MB",
        "cgroup yes 90.0 MB, no limit",
        "kernels before 5.19 keep no peak",
        "nvmap yes 118.7 MB, GPU memory of all processes",
        "runs yes, on onnxruntime",
    ):
        assert words in text
    assert meter(record, "power", "INA3221")["power_w"] == pytest.approx(4.984 * 0.936)
    assert "energy yes, by INA3221" in text


@pytest.mark.usefixtures("quiet_board")
def test_a_jetson_is_told_the_commands_that_bring_what_it_lacks(tmp_path: Path) -> None:
    assert commands(examine(place(jetson_orin_nano(tmp_path)))) == [
        "sudo apt install python3-libnvinfer && python3 -m venv --system-site-packages .venv",
        "pip install 'cuda-bindings==12.*'",
        "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches",
        "sudo nvpmodel -m 2",
        "sudo jetson_clocks",
    ]


@pytest.mark.usefixtures("quiet_board")
def test_an_orin_shows_no_driver_of_discrete_gpus(tmp_path: Path) -> None:
    """JetPack 6's Orin has the file of such drivers, and NVML refuses every query there."""
    root = jetson_orin_nano(tmp_path)
    assert (root / "proc/driver/nvidia/version").exists()
    record = examine(replace(place(root), nvml=partial(load_nvml, root)))
    assert record["machine"]["nvidia_driver"] is None
    assert not any("nvidia-ml-py" in c or "[nvidia]" in c for c in commands(record))


@pytest.mark.usefixtures("quiet_board")
def test_a_jetson_at_its_fastest_needs_nothing(tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    write(root, {"var/lib/nvpmodel/status": "pmode:0002\n"})
    write(root, {"sys/class/devfreq/17000000.gpu/min_freq": "612000000\n"})
    for index in range(6):
        scaling = f"sys/devices/system/cpu/cpu{index}/cpufreq/scaling_min_freq"
        write(root, {scaling: "1510400\n"})
    write(root, {"proc/meminfo": MEMINFO.replace("1893120", "5193120")})  # few pages of files
    here = replace(place(root), probe=lambda *_: probed("onnxruntime", "tensorrt"))
    record = examine(here)
    assert commands(record) == []
    assert "runs yes, on tensorrt, onnxruntime" in report(record)


@pytest.mark.usefixtures("quiet_board")
def test_a_jetson_of_an_older_jetpack_is_told_that_no_command_helps(tmp_path: Path) -> None:
    root = jetson_orin_nano(tmp_path)
    write(root, {"etc/nv_tegra_release": "# R35 (release), REVISION: 4.1, GCID: 1\n"})
    record = examine(place(root))
    assert "TensorRT needs JetPack 6 or 7; this board runs Jetson Linux R35.4.1" in report(record)
    assert not any("libnvinfer" in command for command in commands(record))


@pytest.mark.usefixtures("quiet_board")
def test_what_a_meter_needs_is_shown(tmp_path: Path) -> None:
    record = examine(place(jetson_orin_nano(tmp_path)))
    nvmap = meter(record, "memory", "nvmap")
    nvmap |= {"reads": False, "reason": "closed", "remedy": {"what": "be root", "command": "su"}}
    assert "su" in commands(record)


@pytest.mark.usefixtures("quiet_board")
def test_a_raspberry_pi_is_told_whole(tmp_path: Path) -> None:
    record = examine(place(raspberry_pi_5(tmp_path), lambda words: PMIC))
    text = report(record)
    for words in (
        "board Raspberry Pi 5 Model B Rev 1.0",
        "clock of core 0-3 1500 MHz, 1500 MHz to 2400 MHz allowed, governor ondemand",
        "firmware reports under-voltage since boot, throttled since boot",
        "cgroup no",
        "controller is not enabled for this group",
        "energy yes, by PMIC",
    ):
        assert words in text
    assert meter(record, "power", "PMIC")["power_w"] == pytest.approx(1.65)
    assert commands(record) == [
        "sudo sed -i '1s/$/ cgroup_enable=memory/' /boot/firmware/cmdline.txt",
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
    ]
    assert "use a supply and a cable" in text


@pytest.mark.usefixtures("quiet_board")
def test_a_power_meter_that_is_missing_brings_its_remedy(tmp_path: Path) -> None:
    host = place(raspberry_pi_5(tmp_path), lambda words: run_command(["no-such-command"]))
    assert "sudo apt install raspi-utils" in commands(examine(host))


@pytest.mark.usefixtures("quiet_board")
def test_a_raspberry_pi_without_a_sensor_is_told_so(tmp_path: Path) -> None:
    root = raspberry_pi_5(tmp_path)
    write(root, {"proc/device-tree/model": "Raspberry Pi Zero 2 W Rev 1.0\0"})
    assert "this board has no power sensor; use an external meter" in report(examine(place(root)))


def test_a_machine_that_shows_nothing_has_a_full_report(tmp_path: Path) -> None:
    record = examine(place(tmp_path))
    text = report(record)
    for words in (
        "board not shown",
        "memory not shown",
        "clock not shown",
        "temperature not shown",
    ):
        assert words in text
    for kind in ("power", "memory"):
        assert all(entry["reason"] for entry in record[kind])
    assert "energy no meter reads" in text
    json.dumps(record)


@pytest.mark.long
@pytest.mark.usefixtures("quiet_board")
@pytest.mark.parametrize("board", [jetson_orin_nano, raspberry_pi_5])
def test_no_file_that_holds_nonsense_or_is_gone_breaks_the_report(
    board: Callable[[Path], Path], tmp_path: Path
) -> None:
    here = place(board(tmp_path), lambda words: PMIC)
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        sound = path.read_bytes()
        for nonsense in (b"garbage", b"nan", None):
            path.unlink() if nonsense is None else path.write_bytes(nonsense)
            record = examine(here)
            json.dumps(record, allow_nan=False)
            assert report(record)
        path.write_bytes(sound)


# Ordinary machines --------------------------------------------------------------------------------


@pytest.fixture
def pc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A desktop machine with an NVIDIA GPU and a RAPL counter that two reads apart by 1 J."""
    be_quiet(monkeypatch, "x86_64")
    zone = "sys/class/powercap/intel-rapl:0"
    files = {"name": "package-0\n", "energy_uj": "1000000\n", "max_energy_range_uj": "9" * 12}
    write(tmp_path, {f"{zone}/{name}": text for name, text in files.items()})
    return write(
        tmp_path,
        {
            "proc/cpuinfo": "model name\t: A processor\ncpu MHz\t\t: 3000.0\nflags\t\t: fpu avx2\n",
            "proc/driver/nvidia/version": NVRM,
        },
    )


def test_a_counter_becomes_watts_between_two_reads(pc: Path) -> None:
    here, clock = place(pc), Clock()

    def sleep(duration_s: float) -> None:
        clock.sleep(duration_s)
        write(pc, {"sys/class/powercap/intel-rapl:0/energy_uj": "4000000\n"})

    record = examine(replace(here, sleep=sleep, clock=clock))
    assert meter(record, "power", "RAPL")["power_w"] == pytest.approx(3.0 / clock.now_s)


def test_a_gpu_without_its_libraries_brings_them(pc: Path) -> None:
    record = examine(place(pc))
    assert "NVIDIA driver 580.65.06" in report(record)
    brought = commands(record)
    assert brought[:2] == ["pip install tensorrt-cu13", "pip install 'cuda-bindings==13.*'"]


OLDER = NVRM.replace("580.65.06", "550.54.15")  # CUDA 12.4's driver


@pytest.mark.parametrize(
    ("driver", "packages", "brought"),
    [
        (NVRM, {"tensorrt-cu13": "10.16", "cuda-bindings": "13.0.1"}, []),
        (NVRM, {"tensorrt-cu12": "10.13", "cuda-bindings": "12.9.1"}, []),
        (OLDER, {}, ["pip install tensorrt-cu12", "pip install 'cuda-bindings==12.*'"]),
        (
            OLDER,
            {"tensorrt-cu13": "10.16", "cuda-bindings": "13.0.1"},
            [
                "pip uninstall tensorrt-cu13 && pip install tensorrt-cu12",
                "pip install 'cuda-bindings==12.*'",
            ],
        ),
        (NVRM.replace("580.65.06", "470.256.02"), {}, []),
    ],
)
def test_the_libraries_of_a_gpu_are_those_that_its_driver_runs(
    driver: str, packages: dict[str, str], brought: list[str], pc: Path
) -> None:
    write(pc, {"proc/driver/nvidia/version": driver})
    record = examine(replace(place(pc), version={**INSTALLED, **packages}.get))
    assert [c for c in commands(record) if "tensorrt" in c or "cuda" in c] == brought
    assert ("CUDA 12 needs NVIDIA's driver 525" in report(record)) == ("470" in driver)


@pytest.mark.parametrize(("numpy", "advised"), [("2.2.6", True), ("1.26.4", False)])
def test_a_matplotlib_for_the_other_numpy_is_seen(numpy: str, advised: bool, pc: Path) -> None:
    """Ubuntu 22.04's python3-matplotlib beside the NumPy that pip chooses for Python 3.10."""
    versions = {**INSTALLED, "matplotlib": "3.5.1", "numpy": numpy}
    brought = commands(examine(replace(place(pc), version=versions.get)))
    assert (NEWER in brought) == advised


def test_a_power_meters_remedy_is_shown_only_while_none_reads(pc: Path) -> None:
    record = examine(place(pc))
    closed = {"name": "other", "reads": False, "reason": "closed"}
    record["power"].append({**closed, "remedy": {"what": "open it", "command": "chmod"}})
    assert "chmod" not in commands(record)  # RAPL reads
    meter(record, "power", "RAPL")["reads"] = False
    assert "chmod" in commands(record)


@pytest.mark.parametrize(
    ("flags", "words"),
    [("fpu hypervisor", "a virtual machine hides"), ("fpu", "sudo modprobe intel_rapl_msr")],
)
def test_no_counter_is_a_matter_of_the_machine(flags: str, words: str, pc: Path) -> None:
    shutil.rmtree(pc / "sys/class/powercap")
    write(pc, {"proc/cpuinfo": f"flags\t\t: {flags}\n"})
    assert words in report(examine(place(pc)))


def test_other_programs_are_named(pc: Path) -> None:
    busy = [{"name": "compiler", "cpu_percent": 97.0}]
    record = examine(replace(place(pc), watch=lambda: lambda: busy))
    assert "busy now: compiler 97 %" in report(record)
    assert "ps aux --sort=-%cpu" in commands(record)


@pytest.mark.usefixtures("quiet_board")
def test_an_onnxruntime_that_crashes_on_arm_brings_an_older_one(tmp_path: Path) -> None:
    dead = {"opens": False, "reason": "ended by SIGILL", "crashed": True}
    here = replace(
        place(raspberry_pi_5(tmp_path)),
        probe=lambda *_: [{"name": name, **dead} for name in probed_names()],
    )
    record = examine(here)
    assert commands(record)[0] == "pip install 'onnxruntime==1.23.2'"
    assert "runs no: no backend opens" in report(record)


@pytest.mark.parametrize(("opening", "kind"), [("native", "more"), ("none", "needed")])
def test_a_missing_onnxruntime_is_advised_once(opening: str, kind: str, tmp_path: Path) -> None:
    remedy = {"what": "onnxruntime", "command": "pip install 'edgefold[cpu]'"}
    missing = {"opens": False, "reason": "onnxruntime is not installed", "remedy": remedy}
    probes = [
        entry | missing if entry["name"] in (IMPORT, "onnxruntime") else entry
        for entry in probed(opening)
    ]
    record = examine(replace(place(tmp_path), probe=lambda *_: probes))
    advised = {k: [r.command for r in found] for k, found in remedies(record).items()}
    assert advised[kind][0] == remedy["command"]
    assert sum(found.count(remedy["command"]) for found in advised.values()) == 1


def test_the_cache_is_shown_with_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEFOLD_CACHE", str(tmp_path / "cache"))
    here = place(tmp_path / "board")
    assert f"cache {tmp_path}/cache, empty" in report(examine(here))
    write(tmp_path / "cache", {"a.engine": "x" * 1500, "graphs/b.zip": "y" * 500})
    record = examine(here)
    assert record["software"]["cache"] == {
        "folder": str(tmp_path / "cache"),
        "n_files": 2,
        "bytes": 2000,
    }
    assert f"cache {tmp_path}/cache, 2 files, 2.0 kB" in report(record)


# The command --------------------------------------------------------------------------------------


def test_this_machine_has_a_report_and_nothing_else_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    home, path = tmp_path / "home", tmp_path / "doctor.json"
    home.mkdir()
    for name in ("HOME", "XDG_CACHE_HOME", "EDGEFOLD_CACHE", "TMPDIR"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.chdir(home)
    assert main(["doctor", "--json", str(path)]) == 0
    assert list(home.iterdir()) == [] and list(tmp_path.iterdir()) in ([home, path], [path, home])
    text = capsys.readouterr().out
    for title in ("machine\n", "software\n", "backends that open\n", "power meters\n"):
        assert title in text
    assert text.isascii()
    record = json.loads(path.read_text())
    assert {entry["name"]: entry["opens"] for entry in record["backends"]}["onnxruntime"]
    assert record["software"]["onnxruntime"]["providers"]
    assert meter(record, "memory", "needed memory")["memory_bytes"] > 1e6
    assert "advice" in record


def test_a_record_that_cannot_be_written_costs_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    def full(path: Path, content: str) -> None:
        raise OSError(28, "No space left on device", str(path))

    here = DoctorHost(probe=lambda *_: probed())
    monkeypatch.setattr("edgefold.cli.doctor.record.DoctorHost", lambda: here)
    monkeypatch.setattr("edgefold.cli.commands.doctor.write_record", full)
    assert main(["doctor", "--json", str(tmp_path / "doctor.json")]) == ExitCode.MACHINE
    printed = capsys.readouterr()
    assert "power meters" in printed.out and "written" not in printed.out
    assert "No space left" in printed.err


def test_a_bundle_is_opened_by_each_backend(tiny_bundle: Path, capsys: Text) -> None:
    assert main(["doctor", str(tiny_bundle)]) == 0
    text = capsys.readouterr().out
    assert f"backends that open {tiny_bundle}" in text
    assert "onnxruntime           yes" in text


def test_a_broken_bundle_is_an_error_of_its_own(tmp_path: Path, capsys: Text) -> None:
    assert main(["doctor", str(tmp_path / "none")]) == 1
    error = capsys.readouterr().err
    assert "is not a bundle" in error and error.count("\n") == 1


def test_no_backend_is_a_failure_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: Text
) -> None:
    here = DoctorHost(probe=lambda *_: probed())
    monkeypatch.setattr("edgefold.cli.doctor.record.DoctorHost", lambda: here)
    assert main(["doctor"]) == ExitCode.MACHINE
    assert "no backend opens" in capsys.readouterr().out


def test_the_broker_that_was_asked_for_comes_after_the_machine(tmp_path: Path) -> None:
    record = examine(place(raspberry_pi_5(tmp_path), lambda words: PMIC))
    record["broker"] = {"name": "mqtt://hub/home", "answers": False, "reason": "no route"}
    lost = Remedy("a restart loses messages", "persistence true")
    text = render(record, {**remedies(record), "safer": [lost]})
    broker = text.index("\nbroker mqtt://hub/home\n")
    advice = text.index("would bring more backends")
    assert text.index("\nmemory meters\n") < advice < broker < text.index("persistence true")
    assert text.count("\n", broker) < 12
