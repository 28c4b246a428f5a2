"""Describe the machine that a measurement ran on; nothing is measured here.

A value that the machine does not show is None, never a guess.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from edgefold.devices.host import Runner, read_board
from edgefold.devices.machine.clocks import (
    CpuClocks,
    GpuClock,
    first_clock_hz,
    read_cpu_clocks,
    read_gpu_clock,
    read_memory_cap_hz,
    read_memory_clock_hz,
)
from edgefold.devices.machine.jetson import (
    JetsonRelease,
    PowerMode,
    read_power_mode,
    read_release,
)
from edgefold.devices.machine.thermal import read_zones, throttle_flags
from edgefold.devices.memory.process import SystemMemory
from edgefold.devices.sysfs import number, optional_text
from edgefold.runtime.errors import MeterError
from edgefold.runtime.record_fields import OPTIONAL, Bytes, Celsius, Count, Hertz, unit

LoadAverage = tuple[
    Annotated[float, "Runnable programs.", unit("count")],
    Annotated[float, "Runnable programs.", unit("count")],
    Annotated[float, "Runnable programs.", unit("count")],
]


@dataclass(frozen=True, slots=True)
class Machine:
    """Describes the machine at the start; a value that the machine does not show is null."""

    board: Annotated[str | None, "The board's own name."]
    cpu_model: Annotated[str | None, "The processor's name."]
    architecture: Annotated[str, "As `uname -m`."]
    n_cores: Annotated[Count, "Cores that the process may use."]
    load_average: Annotated[LoadAverage, "Runnable programs over the last 1, 5 and 15 minutes."]
    memory_bytes: Annotated[Bytes | None, "MemTotal: what the kernel has to give."]
    kernel: Annotated[str, "As `uname -r`."]
    frequency_governor: Annotated[str | None, "Governor of the first core."]
    frequency_hz: Annotated[
        Hertz | None, "Clock of the first core, or of the processor as /proc/cpuinfo has it."
    ]
    temperature_celsius: Annotated[Celsius | None, "The hottest thermal zone that answers."]
    throttle_temperature_celsius: Annotated[
        Celsius | None, "Where the kernel begins to lower clocks.", OPTIONAL
    ] = None
    silent_zones: Annotated[
        tuple[Annotated[str, "Name of a zone."], ...],
        "Thermal zones that do not answer, such as those of a part that is off.",
        OPTIONAL,
    ] = ()
    throttle_flags: Annotated[
        tuple[Annotated[str, "A warning."], ...] | None,
        "A Raspberry Pi's warnings; empty on a healthy one.",
        OPTIONAL,
    ] = None
    cpu_clocks: Annotated[tuple[CpuClocks, ...], "Cores by the rule of their clock.", OPTIONAL] = ()
    gpu_clock: Annotated[GpuClock | None, OPTIONAL] = None
    memory_clock_hz: Annotated[
        Hertz | None, "The memory's clock; a Jetson shows it to root.", OPTIONAL
    ] = None
    memory_cap_hz: Annotated[
        Hertz | None, "The most that the power mode allows the memory's clock.", OPTIONAL
    ] = None
    page_bytes: Annotated[Bytes | None, "Size of a page of this kernel.", OPTIONAL] = None
    jetson: Annotated[JetsonRelease | None, OPTIONAL] = None
    power_mode: Annotated[PowerMode, OPTIONAL] = None


def read_machine(root: Path = Path("/"), run: Runner | None = None) -> Machine:
    """Read what this machine is and the clocks, temperatures and load that it has now.

    Args:
        root: Folder that holds /proc, /sys, /etc and /var; tests pass a recorded tree.
        run: Runs vendors' commands where no file has a value; None starts no other program.
    """
    proc, sys = root / "proc", root / "sys"
    cpuinfo = _pairs(proc / "cpuinfo")
    clocks, zones = read_cpu_clocks(sys), read_zones(sys)
    mhz = number(cpuinfo.get("cpu MHz"))
    return Machine(
        board=read_board(root),
        cpu_model=cpuinfo.get("model name") or cpuinfo.get("Model"),
        architecture=os.uname().machine,
        n_cores=len(os.sched_getaffinity(0)),
        load_average=os.getloadavg(),
        memory_bytes=_memory(proc),
        kernel=os.uname().release,
        frequency_governor=clocks[0].governor if clocks else None,
        frequency_hz=first_clock_hz(clocks) or (mhz * 1e6 if mhz else None),
        temperature_celsius=max(_known(zone.temperature_celsius for zone in zones), default=None),
        throttle_temperature_celsius=min(
            _known(zone.throttle_celsius for zone in zones), default=None
        ),
        silent_zones=tuple(zone.name for zone in zones if zone.temperature_celsius is None),
        throttle_flags=throttle_flags(sys, run),
        cpu_clocks=clocks,
        gpu_clock=read_gpu_clock(sys),
        memory_clock_hz=read_memory_clock_hz(sys),
        memory_cap_hz=read_memory_cap_hz(sys),
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        jetson=read_release(root),
        power_mode=read_power_mode(root, run),
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _memory(proc: Path) -> int | None:
    try:
        return SystemMemory(proc).total_bytes()
    except MeterError:
        return None


def _pairs(path: Path) -> dict[str, str]:
    """Return the values of a file's lines `name : value` by name; a name's first line counts."""
    pairs: dict[str, str] = {}
    for line in (optional_text(path) or "").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            pairs.setdefault(name.strip(), value.strip())
    return pairs
