"""Read clocks of cores, GPU and memory from sysfs; a clock not shown is None, and none is set.

A clock that may move between `min_hz` and `max_hz` makes one run unlike the next. `max_hz` is what
the power mode or the user allows now, `limit_hz` what the silicon could do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from edgefold.devices.sysfs import optional_number, optional_text
from edgefold.runtime.record_fields import OPTIONAL, Hertz, Index

GPU_NAMES = re.compile(r"gpu|ga10b|gv11b|gp10b|gm20b")
"""Matches the names of Jetson GPUs in devfreq.

`gpu` is that of Thor and of Orin on JetPack 6. The names of chips follow: Orin on JetPack 5,
Xavier, TX2 and Nano.
"""
MEMORY_CLOCKS = (
    "kernel/debug/bpmp/debug/clk/emc/rate",  # Jetson; root only
    "class/devfreq/bwmgr/cur_freq",  # Thor
)
MEMORY_CAPS = ("kernel/nvpmodel_clk_cap/emc", "class/devfreq/bwmgr/max_freq")  # Orin, Thor


@dataclass(frozen=True, slots=True)
class CpuClocks:
    """Describes cores with one governor and the same allowed clocks, and their clocks now."""

    cores: Annotated[tuple[Annotated[Index, "Number of a core."], ...], "Numbers of the cores."]
    governor: Annotated[str | None, "Governor of the cores."]
    min_hz: Annotated[Hertz | None, "Lowest clock that is allowed now."]
    max_hz: Annotated[Hertz | None, "Highest clock that is allowed now."]
    limit_hz: Annotated[Hertz | None, "What the silicon could do."]
    current_hz: Annotated[
        tuple[Annotated[Hertz | None, "Clock of a core."], ...], "Clock of each core now."
    ]


@dataclass(frozen=True, slots=True)
class GpuClock:
    """Describes the clock of an integrated GPU: its governor, its bounds and its value now."""

    name: Annotated[str, "Its name in devfreq."]
    governor: Annotated[str | None, "Governor of the GPU."]
    min_hz: Annotated[Hertz | None, "Lowest clock that is allowed now."]
    max_hz: Annotated[Hertz | None, "Highest clock that is allowed now."]
    current_hz: Annotated[Hertz | None, "Clock now; null while the GPU is off."]
    units_off: Annotated[
        str | None,
        "Mask of the units (TPCs) that the power mode switches off, as a Jetson writes it; "
        '"0" is none.',
        OPTIONAL,
    ] = None


def read_cpu_clocks(sys: Path = Path("/sys")) -> tuple[CpuClocks, ...]:
    """Return the cores that are online and show a clock, grouped by governor and allowed clocks."""
    rules: dict[tuple[str | None, float | None, float | None, float | None], list[int]] = {}
    now: dict[int, float | None] = {}
    for folder in sys.glob("devices/system/cpu/cpu[0-9]*/cpufreq"):
        core = int(folder.parent.name.removeprefix("cpu"))
        low, high, limit, current = (
            _scaled(folder / name, 1e3)  # kilohertz
            for name in (
                "scaling_min_freq",
                "scaling_max_freq",
                "cpuinfo_max_freq",
                "scaling_cur_freq",
            )
        )
        if (low, high, current) == (None, None, None):
            continue  # offline
        rule = (optional_text(folder / "scaling_governor"), low, high, limit)
        rules.setdefault(rule, []).append(core)
        now[core] = current
    groups = sorted((sorted(cores), rule) for rule, cores in rules.items())
    return tuple(
        CpuClocks(tuple(cores), *rule, tuple(now[core] for core in cores)) for cores, rule in groups
    )


def read_gpu_clock(sys: Path = Path("/sys")) -> GpuClock | None:
    """Return the clock of an integrated GPU, or None; devfreq does not know discrete GPUs."""
    for folder in sorted(sys.glob("class/devfreq/*")):
        in_tree = optional_text(folder / "device/of_node/name") or ""
        if not GPU_NAMES.search(f"{folder.name} {in_tree}"):
            continue
        low, high, current = (_scaled(folder / f"{name}_freq") for name in ("min", "max", "cur"))
        if (low, high, current) != (None, None, None):
            return GpuClock(
                folder.name,
                optional_text(folder / "governor"),
                low,
                high,
                current or None,  # 0: it is off
                optional_text(folder / "device/tpc_pg_mask"),
            )
    return None


def read_memory_clock_hz(sys: Path = Path("/sys")) -> float | None:
    """Return a Jetson's memory clock in Hz, or None; an Orin shows it to root only."""
    return _first(sys, MEMORY_CLOCKS)


def read_memory_cap_hz(sys: Path = Path("/sys")) -> float | None:
    """Return the highest memory clock in Hz that a Jetson's power mode allows; None for no cap."""
    return _first(sys, MEMORY_CAPS)


def _first(sys: Path, places: Iterable[str]) -> float | None:
    """Return the first clock in Hz in the files `places` below `sys`; None if none shows one."""
    return next((value for place in places if (value := _scaled(sys / place))), None)


def first_clock_hz(clocks: Iterable[CpuClocks]) -> float | None:
    """Return the present clock of the first core in Hz; None where it shows none."""
    return next((now for group in clocks for now in group.current_hz), None)


def core_span(cores: Sequence[int]) -> str:
    """Return numbers of cores as a text: 0-3 where they follow each other, else such as 0,2,5."""
    if len(cores) > 1 and cores[-1] - cores[0] == len(cores) - 1:
        return f"{cores[0]}-{cores[-1]}"
    return ",".join(str(core) for core in cores)


def _scaled(path: Path, factor: float = 1.0) -> float | None:
    value = optional_number(path)
    return None if value is None else value * factor
