"""Read the conditions in which an engine is built or run: power mode and clocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgefold.devices.machine.clocks import (
    read_cpu_clocks,
    read_gpu_clock,
    read_memory_clock_hz,
)
from edgefold.devices.machine.jetson import read_power_mode


def read_build_conditions(root: Path = Path("/")) -> dict[str, Any]:
    """Return the power mode and clocks to store next to an engine, as far as the machine has them.

    Args:
        root: Folder that holds /etc, /sys and /var.

    Returns:
        `power_mode`: nvpmodel's name, or its number; `gpu_min_hz`, `gpu_max_hz`, `cpu_max_hz` (the
        highest of all cores) and `memory_hz`.
    """
    mode, gpu = read_power_mode(root), read_gpu_clock(root / "sys")
    cpu_hz = [group.max_hz for group in read_cpu_clocks(root / "sys") if group.max_hz]
    conditions = {
        "power_mode": (mode.name or str(mode.mode)) if mode else None,
        "gpu_min_hz": gpu.min_hz if gpu else None,
        "gpu_max_hz": gpu.max_hz if gpu else None,
        "cpu_max_hz": max(cpu_hz, default=None),
        "memory_hz": read_memory_clock_hz(root / "sys"),
    }
    return {name: value for name, value in conditions.items() if value is not None}
