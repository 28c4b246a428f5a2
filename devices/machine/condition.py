"""Read what may disturb a measurement, at one moment: throttling, clocks and the load.

`untold` lists in sentences what the machine does not show. With anything in it, nobody can say that
a figure was undisturbed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from edgefold.devices.machine.clocks import (
    core_span,
    read_cpu_clocks,
    read_gpu_clock,
    read_memory_cap_hz,
    read_memory_clock_hz,
)
from edgefold.devices.machine.thermal import (
    OVER_CURRENT,
    read_cooling,
    read_throttle_counters,
    read_zones,
    throttle_flags,
)
from edgefold.devices.sysfs import optional_text
from edgefold.runtime.record_fields import Celsius, Hertz, Seconds, unit

SINCE_BOOT = "since boot"
GPU = "GPU "

Untold = Annotated[tuple[Annotated[str, "A sentence."], ...], "What the machine does not show."]


@dataclass(frozen=True, slots=True)
class Condition:
    """Describes conditions that may disturb a measurement, as they are at one moment."""

    time_s: Annotated[Seconds, "A clock that never runs backwards."]
    counters: Annotated[
        Mapping[str, Annotated[float, "Times.", unit("count")]],
        "How often the hardware lowered clocks since the boot, by cause.",
    ]
    cooling: Annotated[
        Mapping[str, Annotated[float, "A state.", unit("index")]],
        "States of the devices that lower clocks; 0 is at rest.",
    ]
    flags: Annotated[
        tuple[Annotated[str, "A warning."], ...] | None,
        "A Raspberry Pi's warnings; null elsewhere.",
    ]
    throttling_celsius: Annotated[
        Mapping[str, Annotated[Celsius, "Temperature."]], "Zones at or above their own limit."
    ]
    clocks_hz: Annotated[
        Mapping[str, Annotated[Hertz, "A clock."]],
        "Clocks of the fastest core of each group, the GPU and the memory.",
    ]
    limits_hz: Annotated[
        Mapping[str, Annotated[Hertz, "A clock."]], "The most that each of them may have now."
    ]
    busy_s: Annotated[
        Seconds | None,
        "Processor time of all programs since the boot; null where the kernel counts none.",
    ]
    own_s: Annotated[Seconds, "Processor time of this process and its ended children."]
    untold: Untold


def read_condition(root: Path = Path("/")) -> Condition:
    """Read the condition of this machine; never raises.

    Args:
        root: Folder that holds /proc, /sys and /etc; tests pass a recorded tree.
    """
    sys = root / "sys"
    clocks, limits = _clocks(sys)
    counters, cooling, flags = read_throttle_counters(sys), read_cooling(sys), throttle_flags(sys)
    busy_s = _busy_s(root / "proc/stat")
    untold = []
    if not counters and not cooling and flags is None:
        untold.append("throttling: no counter, cooling device or firmware tells of it")
    counts_current = any(name.startswith(OVER_CURRENT) for name in counters)
    if (root / "etc/nv_tegra_release").exists() and not counts_current:
        untold.append("over-current: this Jetson shows no counter of soctherm_oc")
    if any(flag.endswith(SINCE_BOOT) for flag in flags or ()):
        untold.append("short throttling: the firmware's flags are set since earlier; reboot first")
    if not any(not name.startswith((GPU, "memory")) for name in clocks):
        untold.append("clocks of the cores")
    if busy_s is None:
        untold.append("load of other programs: /proc/stat counts no time")
    return Condition(
        time_s=time.monotonic(),
        counters=counters,
        cooling=cooling,
        flags=flags,
        throttling_celsius={
            zone.name: zone.temperature_celsius
            for zone in read_zones(sys)
            if zone.temperature_celsius is not None
            and zone.throttle_celsius is not None
            and zone.temperature_celsius >= zone.throttle_celsius
        },
        clocks_hz=clocks,
        limits_hz=limits,
        busy_s=busy_s,
        own_s=sum(os.times()[:4]),
        untold=tuple(untold),
    )


def _clocks(sys: Path) -> tuple[dict[str, float], dict[str, float]]:
    """Return the clocks now and their upper limits, in Hz, by name, such as core 0-3 and memory."""
    clocks: dict[str, float | None] = {}
    limits: dict[str, float | None] = {}
    for group in read_cpu_clocks(sys):
        name = f"core {core_span(group.cores)}"
        clocks[name] = max((hz for hz in group.current_hz if hz is not None), default=None)
        limits[name] = group.max_hz
    if gpu := read_gpu_clock(sys):
        clocks[GPU + gpu.name], limits[GPU + gpu.name] = gpu.current_hz, gpu.max_hz
    clocks["memory"], limits["memory"] = read_memory_clock_hz(sys), read_memory_cap_hz(sys)
    return _shown(clocks), _shown(limits)


def _shown(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _busy_s(path: Path) -> float | None:
    """Return the seconds since the boot that cores worked or a hypervisor took, summed over cores.

    `path` is the file /proc/stat; one without these counts gives None.
    """
    words = (optional_text(path) or "").partition("\n")[0].split()
    if len(words) < 9 or words[0] != "cpu" or not all(word.isdigit() for word in words[1:]):
        return None
    user, nice, system, idle, wait, *others = map(int, words[1:9])  # the rest stands in user
    if not user + system + idle + wait:  # a sandbox that shows zeros
        return None
    return (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")
