"""Record as plain JSON what a machine has: software, backends, sensors and meters.

Other modules show the record and give advice from it.
Every question has an answer on every machine: a figure, or None or "no" with the reason. A missing
sensor, file or library never raises. Nothing is changed, except that the peak of this process's own
memory is reset, to see whether that is possible.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from edgefold.cli.doctor.backends import IMPORT, probe_backends
from edgefold.cli.doctor.processes import Watch, watch_processes
from edgefold.cli.text.numbers import format_bytes
from edgefold.devices.host import Host, is_virtual
from edgefold.devices.machine.condition import read_condition
from edgefold.devices.machine.machine import read_machine
from edgefold.devices.machine.memory_limits import require_memory_limits
from edgefold.devices.memory.cgroup import CgroupMemory
from edgefold.devices.memory.gpu import ProcessGpuMemory
from edgefold.devices.memory.process import ProcessMemory, SystemMemory
from edgefold.devices.memory.registry import GPU_METERS, GpuMeter
from edgefold.devices.nvidia import driver_version
from edgefold.devices.power.probe import Candidate, probe_sensors
from edgefold.devices.power.sensor import EnergySensor, PowerSensor
from edgefold.devices.sysfs import optional_number
from edgefold.runtime.backends.code_cache import default_folder
from edgefold.runtime.backends.registry import BACKENDS
from edgefold.runtime.errors import MeterError

SCHEMA = 1
PACKAGES = (
    *("edgefold", "numpy", "onnxruntime", "onnxruntime-gpu", "tensorrt"),
    *("tensorrt-cu12", "tensorrt-cu13", "tensorrt-rtx", "cuda-bindings"),
    *("nvidia-ml-py", "matplotlib", "torch"),
)
WATCH_S = 0.3  # energy counters and processes are read twice, this far apart


def installed_version(package: str) -> str | None:
    """Return the version of an installed package, None where it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class DoctorHost(Host):
    """Gives access to the examined machine's packages, backends and programs, and to the time."""

    version: Callable[[str], str | None] = installed_version
    probe: Callable[..., list[dict[str, Any]]] = probe_backends
    watch: Callable[[], Watch] = watch_processes
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


def examine(
    host: DoctorHost, bundle: str | None = None, expect_hash: str | None = None
) -> dict[str, Any]:
    """Examine the machine and return the whole record as plain JSON.

    Raises:
        BundleError: The named bundle is missing, damaged or changed, or has another hash than
            `expect_hash`.
    """
    machine = read_machine(host.root, host.run)  # first: probing loads the processor
    condition = read_condition(host.root)
    busiest = host.watch()
    power = _power(host)
    busy = busiest()
    probed = {entry["name"]: entry for entry in host.probe(bundle, expect_hash)}
    return {
        "schema": SCHEMA,
        "bundle": bundle,
        "machine": {
            **asdict(machine),
            "fastest_power_mode": machine.power_mode.fastest() if machine.power_mode else None,
            "memory_available_bytes": _optional(SystemMemory(host.root / "proc").available_bytes),
            "memory_free_bytes": _optional(SystemMemory(host.root / "proc").free_bytes),
            "busiest": busy,
            "nvidia_driver": driver_version(host.root),
            "virtual": is_virtual(host.root / "proc/cpuinfo"),
        },
        "condition": asdict(condition),
        "software": {
            "python": sys.version.split()[0],
            "executable": sys.executable,
            "packages": {name: host.version(name) for name in PACKAGES},
            "onnxruntime": probed[IMPORT],
            "cache": measure_cache(default_folder(os.environ)),
        },
        "backends": [probed[name] for name in BACKENDS],
        "power": power,
        "memory": _memory(host, probed),
    }


def measure_cache(folder: Path | None) -> dict[str, Any]:
    """Return the cache's folder, the number of its files and their bytes; it need not exist.

    Engines, libraries, times and graphs lie in it; `folder` is None for a user without a home.
    """
    sizes = []
    for place, _, names in os.walk(folder) if folder else ():
        for name in names:
            with suppress(OSError):  # another process removed it
                sizes.append(os.lstat(os.path.join(place, name)).st_size)
    return {
        "folder": None if folder is None else str(folder),
        "n_files": len(sizes),
        "bytes": sum(sizes),
    }


def _optional(read: Callable[[], int]) -> int | None:
    try:
        return read()
    except MeterError:
        return None


# Meters -------------------------------------------------------------------------------------------


def _power(host: DoctorHost) -> list[dict[str, Any]]:
    """Return an entry for every kind of power sensor: its watts now, or why there are none."""
    candidates = probe_sensors(host)
    starts = [_reading(candidate, host) for candidate in candidates]
    host.sleep(WATCH_S)
    entries = []
    for candidate, start in zip(candidates, starts, strict=True):
        counts = isinstance(candidate.sensor, EnergySensor)  # its power is a difference
        end = _reading(candidate, host) if counts and isinstance(start, tuple) else start
        if isinstance(start, tuple) and isinstance(end, tuple):
            power_w = (end[1] - start[1]) / (end[0] - start[0]) if counts else start[1]
            detail = candidate.sensor.name if candidate.sensor else ""
            if candidate.kind == "INA3221" and (samples := _samples(host)):
                detail += f"; each reading is a mean of {samples:.0f} samples"
            entries.append(_entry(candidate.kind, power_w=power_w, detail=detail))
        else:
            entries.append(_entry(candidate.kind, end if isinstance(end, MeterError) else None))
    return entries


def _samples(host: DoctorHost) -> float | None:
    """Return over how many samples a Jetson's INA3221 averages; None where it is not shown."""
    chips = host.root.glob("sys/bus/i2c/drivers/ina3221/*/hwmon/hwmon*/samples")
    return max((n for chip in chips if (n := optional_number(chip))), default=None)


def _reading(candidate: Candidate, host: DoctorHost) -> tuple[float, float] | MeterError | None:
    """Return the time in s and a sensor's watts, or a counter's joules; or the sensor's error."""
    sensor = candidate.sensor
    if sensor is None:
        return candidate.error
    try:
        return host.clock(), sensor.read_w() if isinstance(sensor, PowerSensor) else sensor.read_j()
    except MeterError as error:
        return error


def _memory(host: DoctorHost, probed: dict[str, Any]) -> list[dict[str, Any]]:
    """Return an entry for every kind of memory meter: its reading in bytes, or why it has none."""
    proc = host.root / "proc"
    process = ProcessMemory(proc)
    refused = process.start_window()
    entries = [
        _read("needed memory", lambda: process.read().needed_bytes, "what cannot be taken back"),
        _read("file pages", lambda: process.read().file_bytes, "clean ones of mapped files"),
        _read("resident peak", process.resident_peak_bytes, "VmHWM of this process: both"),
        _entry("reset of the peak", MeterError(refused) if refused else None),
        _read("MemAvailable", SystemMemory(proc).available_bytes, "of the whole machine"),
        _limits(host),
    ]
    try:
        group = CgroupMemory(host.root)
        limit = group.limit_bytes()
    except MeterError as error:
        entries.append(_entry("cgroup", error))
    else:
        of = "no limit" if limit is None else f"of {format_bytes(limit)}"
        entries += [
            _read("cgroup", group.current_bytes, f"{of}; {group.name}"),
            _read("cgroup peak", group.peak_bytes, "since the group was made"),
        ]
    for meter in GPU_METERS:
        if meter.makes_context:
            entries.append({**probed[meter.name], "reads": probed[meter.name]["opens"]})
        else:
            read = partial(_all_processes_bytes, meter, host)
            entries.append(_read(meter.name, read, "GPU memory of all processes"))
    return entries


def _limits(host: DoctorHost) -> dict[str, Any]:
    try:
        return _entry("enforced limits", detail=f"by {require_memory_limits(host.root)}")
    except MeterError as error:
        return _entry("enforced limits", error)


def _all_processes_bytes(meter: GpuMeter, host: DoctorHost) -> int:
    opened = meter.open(host)
    if isinstance(opened, ProcessGpuMemory):
        return sum(opened.processes_bytes().values())
    return opened.read_bytes()


def _read(name: str, read: Callable[[], int], detail: str) -> dict[str, Any]:
    try:
        return _entry(name, memory_bytes=read(), detail=detail)
    except MeterError as error:
        return _entry(name, error)


def _entry(name: str, error: MeterError | None = None, **figures: Any) -> dict[str, Any]:
    """Return the entry of one meter: its figures, or the error's reason and remedy."""
    if error is None:
        return {"name": name, "reads": True, "reason": None, **figures}
    remedy = {"remedy": asdict(error.remedy)} if error.remedy else {}
    return {"name": name, "reads": False, "reason": str(error), **remedy}
