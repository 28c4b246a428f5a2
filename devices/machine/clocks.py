"""Read clocks from sysfs: cores, GPU, memory. What is not shown is None; nothing is set.

A clock that may move between `min_hz` and `max_hz` makes one run unlike the next. `max_hz` is what
the power mode or the user allows now, `limit_hz` what the silicon could do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from edgefold.devices.sysfs import optional_number, optional_text

GPU_NAMES = re.compile(r"gpu|gv11b|gp10b|gm20b")  # Xavier's, TX2's and Nano's by their chips
MEMORY_CLOCK = "kernel/debug/bpmp/debug/clk/emc/rate"  # Jetson; root alone


@dataclass(frozen=True, slots=True)
class CpuClocks:
    """Cores under the same rule, and each one's clock now."""

    cores: tuple[int, ...]
    governor: str | None
    min_hz: float | None
    max_hz: float | None
    limit_hz: float | None
    current_hz: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class GpuClock:
    """One GPU's clock, by its name in devfreq."""

    name: str
    governor: str | None
    min_hz: float | None
    max_hz: float | None
    current_hz: float | None


def read_cpu_clocks(sys: Path = Path("/sys")) -> tuple[CpuClocks, ...]:
    """Return the cores that are online and show a clock, grouped by their rule."""
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
    """Return the clock of the GPU that devfreq knows; discrete GPUs are not there."""
    folders = sorted(p for p in sys.glob("class/devfreq/*") if GPU_NAMES.search(p.name))
    for folder in folders:
        current = _scaled(folder / "cur_freq")
        if current is not None:
            return GpuClock(
                folder.name,
                optional_text(folder / "governor"),
                _scaled(folder / "min_freq"),
                _scaled(folder / "max_freq"),
                current,
            )
    return None


def read_memory_clock_hz(sys: Path = Path("/sys")) -> float | None:
    """Return a Jetson's memory clock, which only root may read."""
    return _scaled(sys / MEMORY_CLOCK)


def first_clock_hz(clocks: Iterable[CpuClocks]) -> float | None:
    """Return the clock of the first core."""
    return next((now for group in clocks for now in group.current_hz), None)


def _scaled(path: Path, factor: float = 1.0) -> float | None:
    value = optional_number(path)
    return None if value is None else value * factor
