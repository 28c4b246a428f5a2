"""Describe the machine that a measurement ran on. Nothing is measured here.

A value that the machine does not show is None, never a guess.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

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
    ActivePowerMode,
    JetsonRelease,
    read_power_mode,
    read_release,
)
from edgefold.devices.machine.thermal import read_zones, throttle_flags
from edgefold.devices.memory.process import SystemMemory
from edgefold.devices.sysfs import number, optional_text
from edgefold.runtime.errors import MeterError


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine at one moment.

    Attributes:
        n_cores: Cores that this process may use.
        frequency_hz: Clock of the first core, or of the processor as /proc/cpuinfo has it.
        page_bytes: Of this kernel.
        temperature_celsius: Of the hottest zone that answers.
        throttle_temperature_celsius: Where the kernel begins to lower clocks.
        silent_zones: Thermal zones that do not answer, such as those of a part that is off.
        throttle_flags: A Raspberry Pi's complaints; empty on a healthy one.
        memory_cap_hz: The most that the power mode allows the memory's clock.
    """

    board: str | None
    cpu_model: str | None
    architecture: str
    n_cores: int
    load_average: tuple[float, float, float]
    memory_bytes: int | None
    kernel: str
    frequency_governor: str | None
    frequency_hz: float | None
    temperature_celsius: float | None
    throttle_temperature_celsius: float | None = None
    silent_zones: tuple[str, ...] = ()
    throttle_flags: tuple[str, ...] | None = None
    cpu_clocks: tuple[CpuClocks, ...] = ()
    gpu_clock: GpuClock | None = None
    memory_clock_hz: float | None = None
    memory_cap_hz: float | None = None
    page_bytes: int | None = None
    jetson: JetsonRelease | None = None
    power_mode: ActivePowerMode | None = None


def read_machine(root: Path = Path("/"), run: Runner | None = None) -> Machine:
    """Describe this machine.

    Args:
        root: What /proc, /sys, /etc and /var start from; tests pass a recorded tree.
        run: Asks vendors' commands where files are silent; None starts no other program.
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
    """Parse lines `name : value`; the first of a name stays."""
    pairs: dict[str, str] = {}
    for line in (optional_text(path) or "").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            pairs.setdefault(name.strip(), value.strip())
    return pairs
