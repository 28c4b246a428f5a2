"""What a measurement ran on: the conditions that a record carries. Measures nothing itself.

A value that the kernel does not show is None, never a guess.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine at one moment."""

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


def read_machine(proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> Machine:
    """Describe this machine; roots are parameters so that tests read recorded trees."""
    cpuinfo = _pairs(proc / "cpuinfo")
    meminfo = _pairs(proc / "meminfo")
    frequency = sys / "devices/system/cpu/cpu0/cpufreq"
    khz = _number(_text(frequency / "scaling_cur_freq"))
    mhz = _number(cpuinfo.get("cpu MHz"))
    total = meminfo.get("MemTotal", "").split()
    return Machine(
        board=_text(proc / "device-tree/model") or _text(sys / "class/dmi/id/product_name"),
        cpu_model=cpuinfo.get("model name") or cpuinfo.get("Model"),
        architecture=os.uname().machine,
        n_cores=len(os.sched_getaffinity(0)),
        load_average=os.getloadavg(),
        memory_bytes=int(total[0]) * 1024 if total and total[0].isdigit() else None,
        kernel=os.uname().release,
        frequency_governor=_text(frequency / "scaling_governor"),
        frequency_hz=khz * 1e3 if khz else (mhz * 1e6 if mhz else None),
        temperature_celsius=_hottest(sys),
    )


def _hottest(sys: Path) -> float | None:
    """The hottest thermal zone or CPU sensor; both report thousandths of a degree."""
    paths = [*sys.glob("class/thermal/thermal_zone*/temp")]
    for monitor in sys.glob("class/hwmon/hwmon*"):
        if _text(monitor / "name") in {"coretemp", "k10temp", "cpu_thermal"}:
            paths.extend(monitor.glob("temp*_input"))
    readings = [value for path in paths if (value := _number(_text(path))) is not None]
    return max(readings) / 1e3 if readings else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip("\0\n ") or None
    except OSError:
        return None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _pairs(path: Path) -> dict[str, str]:
    """Lines `name : value`; the first of a name stays."""
    pairs: dict[str, str] = {}
    for line in (_text(path) or "").splitlines():
        name, found, value = line.partition(":")
        if found:
            pairs.setdefault(name.strip(), value.strip())
    return pairs
