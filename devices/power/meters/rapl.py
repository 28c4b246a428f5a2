"""Read energy counters of x86 processors through powercap: /sys/class/powercap/intel-rapl:N.

Sums the packages and their DRAM. `core` and `uncore` lie inside the package, `psys` around it, and
`intel-rapl-mmio` shows the same package again: none of them is added. Other processes of the
machine are in the figure; only an idle baseline and a quiet machine keep them out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from edgefold.devices.host import is_virtual
from edgefold.devices.sysfs import read_number, read_sensor
from edgefold.runtime.errors import MeterError, Remedy

UJ_PER_J = 1e6
PERIOD_S = 1e-3  # Intel SDM, volume 3B: the counter is renewed about once a millisecond
STEP_J = 61.04e-6  # 2^-14 J, the coarsest unit in use; sysfs does not show the actual one
MAX_POWER_W = 1000.0  # of one domain: bounds how soon a counter can wrap


@dataclass(slots=True)
class _Domain:
    """Holds one counter: its file, the range in uJ at which it wraps, its last value, its sum."""

    path: Path
    range_uj: int
    last_uj: int
    total_uj: int = 0


class Rapl:
    """Reads the energy of this machine's packages and DRAM, as one `EnergySensor`.

    Args:
        root: Folder where sysfs is mounted; tests pass a recorded tree.
        cpuinfo: The file that shows whether this machine is virtual.

    Raises:
        MeterError: There is no counter, or it may not be read: the message says which.
    """

    period_s = memory_s = PERIOD_S
    scope = "processor packages and their memory; boards, disks and GPUs are not in"

    def __init__(self, root: Path = Path("/sys"), cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
        folder = root / "class" / "powercap"
        names: list[str] = []
        self._domains: list[_Domain] = []
        for zone in sorted(folder.glob("intel-rapl:*")):
            label = read_sensor(zone / "name")
            if label.startswith("package") or label == "dram":
                self._domains.append(_open(zone))
                names.append(label)
        if not self._domains:
            raise MeterError(
                f"{folder} has no intel-rapl package: not an x86 machine with RAPL, a virtual "
                "machine, or the kernel module intel_rapl_msr is not loaded",
                _remedy(cpuinfo),
            )
        self.rails = tuple(names)
        self.name = f"RAPL ({', '.join(names)})"
        self.step_j = STEP_J * len(self._domains)
        self.max_gap_s = min(d.range_uj for d in self._domains) / UJ_PER_J / MAX_POWER_W

    def read_j(self) -> float:
        """Return the joules used since the sensor was opened, also over wraps of the counters.

        Raises:
            MeterError: A counter cannot be read any more.
        """
        for domain in self._domains:
            now_uj = _number(domain.path)
            moved_uj = now_uj - domain.last_uj
            if moved_uj < 0:  # wrapped: the counter runs from 0 to range_uj
                moved_uj += domain.range_uj
            domain.last_uj = now_uj
            domain.total_uj += moved_uj
        return sum(domain.total_uj for domain in self._domains) / UJ_PER_J


def _remedy(cpuinfo: Path) -> Remedy | None:
    """Return the command or advice that makes the counters visible on x86; None elsewhere."""
    if os.uname().machine != "x86_64":
        return None
    if is_virtual(cpuinfo):
        return Remedy(
            "energy figures: a virtual machine hides the processor's counter; measure on the "
            "machine itself"
        )
    return Remedy("the processor's energy counter", "sudo modprobe intel_rapl_msr")


def _open(zone: Path) -> _Domain:
    counter = zone / "energy_uj"
    return _Domain(counter, _number(zone / "max_energy_range_uj"), _number(counter))


def _number(path: Path) -> int:
    every = path.parent.with_name("intel-rapl:*") / path.name  # the kernel closes all of them
    return int(read_number(path, "microjoules", str(every)))
