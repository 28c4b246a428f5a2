"""What would help a machine, each with the command that brings it, read off the doctor's record.

    needed     without it nothing runs
    more       another backend or figure
    steadier   the same figures with less noise

A command is one that the user types; what no command brings is said without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

BUSY_LOAD = 0.5  # runnable programs per core


@dataclass(frozen=True, slots=True)
class Remedy:
    """One piece of advice."""

    kind: str
    what: str
    command: str | None = None


def remedies(record: dict[str, Any]) -> list[Remedy]:
    """Advice in the order of its weight; empty where nothing is missing."""
    found = [*_needed(record), *_gpu(record), *_power(record), *_memory(record)]
    found += [*_steadier(record), *_extras(record)]
    order = {"needed": 0, "more": 1, "steadier": 2}
    return sorted(found, key=lambda cure: order[cure.kind])


def _needed(record: dict[str, Any]) -> Iterator[Remedy]:
    imported, machine = record["software"]["onnxruntime"], record["machine"]
    if imported["opens"]:
        return
    if imported.get("crashed") and machine["architecture"] == "aarch64":
        yield Remedy(
            "needed",
            f"onnxruntime does not import ({imported['reason']}); 1.31 crashes where /proc/cpuinfo "
            "names no Arm core, as under an emulator, and 1.23 does not",
            "pip install 'onnxruntime==1.23.2'",
        )
        return
    yield Remedy(
        "needed",
        f"onnxruntime does not import ({imported['reason']})",
        "pip install --force-reinstall numpy onnxruntime psutil",
    )


def _gpu(record: dict[str, Any]) -> Iterator[Remedy]:
    machine, packages = record["machine"], record["software"]["packages"]
    backends = {entry["name"]: entry for entry in record["backends"]}
    jetson = machine["jetson"]
    if backends["tensorrt"]["opens"] or not (jetson or machine["nvidia_driver"]):
        return
    if jetson and jetson["jetpack"] in ("4", "5"):
        yield Remedy(
            "more",
            f"TensorRT needs JetPack 6 or 7; this board runs Jetson Linux {jetson['linux']}, where "
            "onnxruntime on the CPU is the backend",
        )
        return
    if not (packages["tensorrt"] or packages["tensorrt-rtx"]):
        what = "TensorRT, to run on the GPU"
        if jetson:
            yield Remedy(
                "more",
                f"{what}; it is the system's, so the virtual environment must see it",
                "sudo apt install python3-libnvinfer && "
                "python3 -m venv --system-site-packages .venv",
            )
        else:
            yield Remedy("more", what, "pip install tensorrt-cu13")
    if not packages["cuda-bindings"]:
        bound = "'cuda-bindings<13'" if jetson and jetson["jetpack"] == "6" else "cuda-bindings"
        yield Remedy("more", "CUDA's bindings, which TensorRT is driven by", f"pip install {bound}")


def _power(record: dict[str, Any]) -> Iterator[Remedy]:
    machine, packages = record["machine"], record["software"]["packages"]
    if any(meter["reads"] for meter in record["power"]):
        return
    reasons = {meter["name"]: meter["reason"] for meter in record["power"]}
    barred = [path for reason in reasons.values() for path in _barred(reason)]
    if barred:
        yield Remedy(
            "more",
            "energy figures: the sensor is there and closed to you (until the next boot)",
            f"sudo chmod a+r {' '.join(barred)}",
        )
    if machine["nvidia_driver"] and not packages["nvidia-ml-py"]:
        yield Remedy("more", "the GPU's energy counter", "pip install 'edgefold[nvidia]'")
    if (machine["board"] or "").startswith("Raspberry Pi"):
        yield from _raspberry_pi(machine["board"], reasons.get("PMIC") or "")
    if machine["architecture"] == "x86_64" and not barred:
        if machine["virtual"]:
            yield Remedy(
                "more",
                "energy figures: a virtual machine hides the processor's counter; measure on the "
                "machine itself",
            )
        else:
            yield Remedy("more", "the processor's energy counter", "sudo modprobe intel_rapl_msr")


def _raspberry_pi(board: str, reason: str) -> Iterator[Remedy]:
    if not board.startswith(("Raspberry Pi 5", "Raspberry Pi Compute Module 5")):
        yield Remedy(
            "more", "energy figures: this board has no sensor; an external meter is needed"
        )
    elif "not installed" in reason:
        yield Remedy("more", "energy figures of the power chip", "sudo apt install raspi-utils")
    elif "usermod" in reason:
        yield Remedy(
            "more",
            "energy figures: the firmware is closed to you (until you log in again)",
            "sudo usermod -aG video $USER",
        )


def _barred(reason: str) -> list[str]:
    """Files that a reason says may not be read; RAPL's as a pattern, since they are all closed."""
    if "Permission denied" not in reason:
        return []
    paths = re.findall(r"(/\S+) cannot be read", reason)
    return [re.sub(r"intel-rapl[:\d]+", "intel-rapl:*", path) for path in paths]


def _memory(record: dict[str, Any]) -> Iterator[Remedy]:
    machine = record["machine"]
    reasons = {meter["name"]: meter["reason"] or "" for meter in record["memory"]}
    if machine["jetson"] and "Permission denied" in reasons["nvmap"]:
        yield Remedy(
            "more",
            "GPU memory of a process: nvmap is for root alone",
            'sudo "$(command -v edgefold)" profile BUNDLE',
        )
    if (machine["board"] or "").startswith("Raspberry Pi") and "controller" in reasons["cgroup"]:
        yield Remedy(
            "more",
            "memory of control groups, which the firmware switches off (from the next boot on)",
            "sudo sed -i '1s/$/ cgroup_enable=memory/' /boot/firmware/cmdline.txt",
        )


def _steadier(record: dict[str, Any]) -> Iterator[Remedy]:
    machine = record["machine"]
    mode, fastest = machine["power_mode"], machine["fastest_power_mode"]
    if mode and fastest is not None and fastest != mode["mode"]:
        yield Remedy(
            "steadier",
            f"power mode {mode['mode']} ({mode['name'] or 'unnamed'}) limits clocks and cores; "
            f"{fastest} ({mode['choices'][fastest]}) is the fastest",
            f"sudo nvpmodel -m {fastest}",
        )
    clocks = [*machine["cpu_clocks"], *([machine["gpu_clock"]] if machine["gpu_clock"] else [])]
    moving = [clock for clock in clocks if _moves(clock)]
    governors = ", ".join(sorted({clock["governor"] or "not shown" for clock in moving}))
    if machine["jetson"] and moving:
        yield Remedy("steadier", f"clocks move with the load ({governors})", "sudo jetson_clocks")
    elif moving:
        yield Remedy(
            "steadier",
            f"clocks move with the load ({governors})",
            "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        )
    flags = ", ".join(machine["throttle_flags"] or ())
    if flags:
        yield Remedy(
            "steadier",
            f"the firmware reports: {flags}; use a supply and a cable that hold their voltage "
            "under load, and a fan",
        )
    if machine["load_average"][0] > BUSY_LOAD * machine["n_cores"] or machine["busiest"]:
        yield Remedy("steadier", "other programs use the processor; see who", "ps aux --sort=-%cpu")


def _moves(clock: dict[str, Any]) -> bool:
    """Whether a governor may lower it: `performance` and a range of one value leave it alone."""
    low, high = clock["min_hz"], clock["max_hz"]
    fixed = low is not None and high is not None and low >= high
    return not fixed and clock["governor"] != "performance"


def _extras(record: dict[str, Any]) -> Iterator[Remedy]:
    packages = record["software"]["packages"]
    if not packages["matplotlib"]:
        yield Remedy("more", "reports and plots", "pip install 'edgefold[report]'")
    if not packages["torch"] and record["machine"]["architecture"] == "x86_64":
        yield Remedy("more", "training and export", "pip install 'edgefold[train]'")
