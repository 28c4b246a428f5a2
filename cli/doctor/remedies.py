"""List advice for a machine, each with a command that helps, from the doctor's record.

    needed     without it nothing runs
    more       another backend or figure
    steadier   the same figures with less noise

The remedy of a meter or a backend comes with its own entry in the record. This module adds only
advice that no meter can give: on packages, power modes, clocks and load.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from edgefold.cli.plots.matplotlib_check import NEWER
from edgefold.devices.machine.thermal import OVER_CURRENT
from edgefold.runtime.backends.registry import AUTO, BACKENDS
from edgefold.runtime.errors import Remedy, install_extra

BUSY_LOAD = 0.5  # runnable programs per core
TENSORRT = ("tensorrt", "tensorrt-cu12", "tensorrt-cu13", "tensorrt-rtx")
NUMPY_2_MATPLOTLIB = (3, 8, 4)  # the first matplotlib whose wheels were built for NumPy 2


def remedies(record: dict[str, Any]) -> dict[str, list[Remedy]]:
    """Return lists of advice, empty if nothing is missing, under needed, more and steadier."""
    runtime = list(_onnxruntime(record))
    runs = any(entry["opens"] for entry in record["backends"])
    more = [*runtime, *_gpu(record), *_meters(record), *_builder(record), *_extras(record)]
    needed = [] if runs else runtime
    return {
        "needed": needed,
        "more": [remedy for remedy in dict.fromkeys(more) if remedy not in needed],
        "steadier": list(_steadier(record)),
    }


def _onnxruntime(record: dict[str, Any]) -> Iterator[Remedy]:
    imported, machine = record["software"]["onnxruntime"], record["machine"]
    if imported["opens"]:
        return
    if imported.get("crashed") and machine["architecture"] == "aarch64":
        yield Remedy(
            f"onnxruntime does not import ({imported['reason']}); 1.31 crashes where /proc/cpuinfo "
            "names no Arm core, as under an emulator, and 1.23 does not",
            "pip install 'onnxruntime==1.23.2'",
        )
        return
    found = imported.get("remedy")
    yield Remedy(**found) if found else Remedy(f"onnxruntime: {imported['reason']}")


def _gpu(record: dict[str, Any]) -> Iterator[Remedy]:
    machine, packages = record["machine"], record["software"]["packages"]
    opens = {entry["name"]: entry["opens"] for entry in record["backends"]}
    runs_on_gpu = any(opens[name] for name in AUTO if BACKENDS[name].device == "gpu")
    jetson = machine["jetson"]
    if runs_on_gpu or not (jetson or machine["nvidia_driver"]):
        return
    if jetson and jetson["jetpack"] in ("4", "5"):
        yield Remedy(
            f"TensorRT needs JetPack 6 or 7; this board runs Jetson Linux {jetson['linux']}, where "
            "onnxruntime on the CPU is the backend",
        )
        return
    cuda = _newest_cuda(machine)
    if cuda < 12:
        yield Remedy(
            f"CUDA 12 needs NVIDIA's driver 525 or newer, and this one is "
            f"{machine['nvidia_driver']}; install a newer driver"
        )
        return
    if not any(packages[name] for name in TENSORRT):
        what = "TensorRT, to run on the GPU"
        if jetson:
            yield Remedy(
                f"{what}; it is the system's, so the virtual environment must see it",
                "sudo apt install python3-libnvinfer && "
                "python3 -m venv --system-site-packages .venv",
            )
        else:
            yield Remedy(what, f"pip install tensorrt-cu{cuda}")
    elif packages["tensorrt-cu13"] and cuda < 13:
        yield Remedy(
            f"tensorrt-cu13 needs NVIDIA's driver 580 or newer, and this one is "
            f"{machine['nvidia_driver']}",
            "pip uninstall tensorrt-cu13 && pip install tensorrt-cu12",
        )
    bindings = packages["cuda-bindings"]
    if not bindings or _numbers(bindings) >= (cuda + 1,):
        yield Remedy(
            "CUDA's bindings, which the tensorrt backend needs, of a version for the driver",
            f"pip install 'cuda-bindings=={cuda}.*'",
        )


def _newest_cuda(machine: dict[str, Any]) -> int:
    """Return the newest major version of CUDA that the machine's driver runs; 11 is too old.

    CUDA 13 needs driver 580 or newer, CUDA 12 driver 525 (CUDA Toolkit release notes, table 3).
    """
    if machine["jetson"]:
        return 12 if machine["jetson"]["jetpack"] == "6" else 13
    driver = _numbers(machine["nvidia_driver"])
    return 13 if driver >= (580,) else 12 if driver >= (525,) else 11


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: (3, 8) of "3.8.rc1"."""
    parts = takewhile(str.isdecimal, version.split("."))
    return tuple(map(int, parts))


def _meters(record: dict[str, Any]) -> list[Remedy]:
    """Return the remedies of meters and backends; those of power only if no power meter reads."""
    entries = [*record["backends"], *record["memory"]]
    if not any(meter["reads"] for meter in record["power"]):
        entries = [*record["power"], *entries]
    return list(dict.fromkeys(Remedy(**e["remedy"]) for e in entries if e.get("remedy")))


def _builder(record: dict[str, Any]) -> Iterator[Remedy]:
    """Yield the advice to free memory for TensorRT's builder, which on a Jetson needs MemFree."""
    machine = record["machine"]
    free, available = machine["memory_free_bytes"], machine["memory_available_bytes"]
    if machine["jetson"] and free is not None and available is not None and free < available / 2:
        yield Remedy(
            f"faster engines: their builder drops what does not fit into the {free / 1e6:,.0f} MB "
            f"of free memory, and {(available - free) / 1e6:,.0f} MB more are page cache; run this "
            "right before `edgefold engine`",
            "sync; echo 3 | sudo tee /proc/sys/vm/drop_caches",
        )


def _steadier(record: dict[str, Any]) -> Iterator[Remedy]:
    machine = record["machine"]
    mode, fastest = machine["power_mode"], machine["fastest_power_mode"]
    if mode and fastest is not None and fastest != mode["mode"]:
        yield Remedy(
            f"power mode {mode['mode']} ({mode['name'] or 'unnamed'}) limits clocks and cores; "
            f"{fastest} ({mode['choices'][fastest]}) is the fastest",
            f"sudo nvpmodel -m {fastest}",
        )
    clocks = [*machine["cpu_clocks"], *([machine["gpu_clock"]] if machine["gpu_clock"] else [])]
    moving = [clock for clock in clocks if _moves(clock)]
    governors = ", ".join(sorted({clock["governor"] or "not shown" for clock in moving}))
    if machine["jetson"] and moving:
        yield Remedy(f"clocks move with the load ({governors})", "sudo jetson_clocks")
    elif moving:
        yield Remedy(
            f"clocks move with the load ({governors})",
            "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        )
    flags = ", ".join(machine["throttle_flags"] or ())
    if flags:
        yield Remedy(
            f"the firmware reports: {flags}; use a supply and a cable that hold their voltage "
            "under load, and a fan",
        )
    events = sum(
        count for name, count in record["condition"]["counters"].items() if OVER_CURRENT in name
    )
    if events:
        yield Remedy(
            f"over-current or under-voltage lowered clocks {events:,.0f} times since the boot; a "
            "power mode with a limit of watts, or a stronger supply, avoids it",
        )
    if machine["load_average"][0] > BUSY_LOAD * machine["n_cores"] or machine["busiest"]:
        yield Remedy("other programs use the processor; list them", "ps aux --sort=-%cpu")


def _moves(clock: dict[str, Any]) -> bool:
    """Return whether a clock may change: its bounds differ, and its governor is not performance."""
    low, high = clock["min_hz"], clock["max_hz"]
    fixed = low is not None and high is not None and low >= high
    return not fixed and clock["governor"] != "performance"


def _extras(record: dict[str, Any]) -> Iterator[Remedy]:
    packages = record["software"]["packages"]
    plots, numpy = packages["matplotlib"], packages["numpy"]
    if not plots:
        yield Remedy("reports and plots", install_extra("report"))
    elif numpy and _numbers(numpy) >= (2,) and _numbers(plots) < NUMPY_2_MATPLOTLIB:
        yield Remedy(
            f"reports and plots: matplotlib {plots} was built for NumPy 1 and does not import "
            f"with NumPy {numpy}",
            NEWER,
        )
    if not packages["torch"] and record["machine"]["architecture"] == "x86_64":
        yield Remedy("training and export", install_extra("train"))
