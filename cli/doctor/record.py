"""What a machine has, as one plain record; showing it and advising on it live elsewhere.

Every question has an answer on every machine: a figure, or None or "no" with the reason. Nothing
here raises for a missing sensor, file or library, and nothing is changed, but for the peak of this
process's own memory, which is reset to see whether it can be.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from edgefold.cli.doctor.backends import CUDA_MEMORY, IMPORT, NAMES, probe_backends
from edgefold.devices.machine.machine import read_machine
from edgefold.devices.machine.thermal import Runner
from edgefold.devices.memory.cgroup import CgroupMemory
from edgefold.devices.memory.gpu import NvmlMemory, load_nvml
from edgefold.devices.memory.nvmap import Nvmap
from edgefold.devices.memory.process import ProcessMemory, SystemMemory
from edgefold.devices.power.meters.pmic import run_command
from edgefold.devices.sysfs import optional_text
from edgefold.runtime.errors import MeterError

SCHEMA = 1
PACKAGES = (
    *("edgefold", "numpy", "onnxruntime", "onnxruntime-gpu", "psutil", "tensorrt"),
    *("tensorrt-rtx", "cuda-bindings", "nvidia-ml-py", "matplotlib", "torch"),
)
WATCH_S = 0.3  # energy counters and processes are read twice, this far apart
BUSY_PERCENT = 20.0

Watch = Callable[[], list[dict[str, Any]]]


def installed_version(package: str) -> str | None:
    """Version of an installed package, None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def watch_processes() -> Watch:
    """Begin to watch the processor; calling the result tells who used it since, in percent."""
    try:
        import psutil
    except ImportError:
        return list
    try:
        watched = [p for p in psutil.process_iter(["name"]) if p.pid != psutil.Process().pid]
    except (psutil.Error, OSError, IndexError):  # /proc lists no process, as under an emulator
        return list

    def percent(process: Any) -> float:
        try:
            return float(process.cpu_percent())
        except psutil.Error:  # it ended, or is another user's
            return 0.0

    for process in watched:
        percent(process)

    def busiest() -> list[dict[str, Any]]:
        used = [{"name": p.info["name"], "cpu_percent": percent(p)} for p in watched]
        used = [entry for entry in used if entry["cpu_percent"] >= BUSY_PERCENT]
        return sorted(used, key=lambda entry: -entry["cpu_percent"])[:3]

    return busiest


@dataclass(frozen=True, slots=True)
class Place:
    """Where the doctor looks; tests pass a recorded board."""

    root: Path = Path("/")
    run: Runner = run_command
    version: Callable[[str], str | None] = installed_version
    probe: Callable[[str | None], list[dict[str, Any]]] = probe_backends
    nvml: Callable[[], Any] = load_nvml
    watch: Callable[[], Watch] = watch_processes
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


def examine(place: Place, bundle: str | None = None) -> dict[str, Any]:
    """The whole record, as plain JSON.

    Raises:
        BundleError: A bundle was named and is itself missing, damaged or changed.
    """
    machine = read_machine(place.root, place.run)  # first: the probing below is a load of its own
    busiest = place.watch()
    power = _power(place)
    busy = busiest()
    probed = {entry["name"]: entry for entry in place.probe(bundle)}
    return {
        "schema": SCHEMA,
        "bundle": bundle,
        "machine": {
            **asdict(machine),
            "fastest_power_mode": machine.power_mode.fastest() if machine.power_mode else None,
            "memory_available_bytes": _optional(SystemMemory(place.root / "proc").available_bytes),
            "busiest": busy,
            "nvidia_driver": _nvidia_driver(place.root),
            "virtual": _is_virtual(place.root),
        },
        "software": {
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "packages": {name: place.version(name) for name in PACKAGES},
            "onnxruntime": probed[IMPORT],
        },
        "backends": [probed[name] for name in NAMES],
        "power": power,
        "memory": _memory(place, probed[CUDA_MEMORY]),
    }


def _optional(read: Callable[[], int]) -> int | None:
    try:
        return read()
    except MeterError:
        return None


def _nvidia_driver(root: Path) -> str | None:
    """Version of NVIDIA's driver for discrete GPUs and Thor; None where it is not loaded."""
    text = optional_text(root / "proc/driver/nvidia/version") or ""
    found = re.search(r"\s(\d+\.[\d.]+)\s", text)
    return found[1] if found else None


def _is_virtual(root: Path) -> bool:
    """Whether a hypervisor stands between: it hides energy counters."""
    return "hypervisor" in (optional_text(root / "proc/cpuinfo") or "").split()


# Meters -------------------------------------------------------------------------------------------


def _power(place: Place) -> list[dict[str, Any]]:
    """Every kind of power sensor with its watts now, or its reason."""
    try:
        from edgefold.devices.power.probe import probe_sensors
        from edgefold.devices.power.sampler import PowerSensor
    except ImportError as error:
        return [_entry("all sensors", reason=f"{error.name} is not installed")]
    candidates = probe_sensors(place.root / "sys", place.run, place.nvml)
    counters: dict[str, tuple[float, float]] = {}
    entries: dict[str, dict[str, Any]] = {}
    for candidate in candidates:
        sensor = candidate.sensor
        if sensor is None:
            entries[candidate.kind] = _entry(candidate.kind, reason=candidate.reason)
            continue
        try:
            if isinstance(sensor, PowerSensor):
                entries[candidate.kind] = _entry(
                    candidate.kind, power_w=sensor.read_w(), detail=sensor.name
                )
            else:
                counters[candidate.kind] = place.clock(), sensor.read_j()
        except MeterError as error:
            entries[candidate.kind] = _entry(candidate.kind, reason=str(error))
    place.sleep(WATCH_S)
    for candidate in candidates:
        sensor = candidate.sensor
        if candidate.kind not in counters or sensor is None or isinstance(sensor, PowerSensor):
            continue
        start_s, start_j = counters[candidate.kind]
        try:
            joules, lasted_s = sensor.read_j() - start_j, place.clock() - start_s
            entries[candidate.kind] = _entry(
                candidate.kind, power_w=joules / lasted_s, detail=sensor.name
            )
        except MeterError as error:
            entries[candidate.kind] = _entry(candidate.kind, reason=str(error))
    return [entries[candidate.kind] for candidate in candidates]


def _memory(place: Place, cuda: dict[str, Any]) -> list[dict[str, Any]]:
    """Every kind of memory meter with its reading, or its reason."""
    proc, sys_ = place.root / "proc", place.root / "sys"
    process = ProcessMemory(proc)
    entries = [
        _read("owned memory", lambda: process.read().owned_bytes, "what cannot be taken back"),
        _read("file pages", lambda: process.read().file_bytes, "clean ones of mapped files"),
        _read("resident peak", process.resident_peak_bytes, "VmHWM of this process: both"),
        _entry("reset of the peak", process.start_window(), detail="a window has its own"),
        _read("MemAvailable", SystemMemory(proc).available_bytes, "of the whole machine"),
    ]
    try:
        group = CgroupMemory(place.root)
        limit = group.limit_bytes()
    except MeterError as error:
        entries.append(_entry("cgroup", reason=str(error)))
    else:
        of = "no limit" if limit is None else f"of {limit / 1e6:.1f} MB"
        entries += [
            _read("cgroup", group.current_bytes, f"{of}; {group.name}"),
            _read("cgroup peak", group.peak_bytes, "since the group was made"),
        ]
    entries += [
        _clients("nvmap", lambda: Nvmap(sys_).clients_bytes()),
        _clients("NVML", lambda: NvmlMemory(place.nvml()).processes_bytes()),
        _entry(CUDA_MEMORY, cuda.get("reason"), cuda.get("memory_bytes"), "taken on the GPU"),
    ]
    return entries


def _clients(name: str, read: Callable[[], dict[int, int]]) -> dict[str, Any]:
    """A meter of every process's GPU memory: how many there are, and their sum."""
    try:
        sizes = read()
    except MeterError as error:
        return _entry(name, reason=str(error))
    return _entry(
        name, memory_bytes=sum(sizes.values()), detail=f"GPU memory of {len(sizes)} processes"
    )


def _read(name: str, read: Callable[[], int], detail: str) -> dict[str, Any]:
    try:
        return _entry(name, memory_bytes=read(), detail=detail)
    except MeterError as error:
        return _entry(name, reason=str(error))


def _entry(
    name: str,
    reason: str | None = None,
    memory_bytes: int | None = None,
    detail: str | None = None,
    power_w: float | None = None,
) -> dict[str, Any]:
    """One meter; it reads unless there is a reason why not."""
    entry: dict[str, Any] = {"name": name, "reads": reason is None, "reason": reason}
    if reason is None:
        figures = {"memory_bytes": memory_bytes, "power_w": power_w, "detail": detail}
        entry |= {key: value for key, value in figures.items() if value is not None}
    return entry
