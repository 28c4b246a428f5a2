"""Memory of one process as the Linux kernel counts it, in bytes.

    reset_peak()        steps run             read()
    ─────┬──────────────────────────────────────┬─────> time
         │ VmHWM falls to the present RSS       │ VmHWM is the peak of this window alone

VmRSS and VmHWM in `status` are sums of per-thread counters that lag by up to 64 pages a thread, so
growth is read from `smaps_rollup`, which walks the page tables and is exact (and takes of the order
of a millisecond). On boards whose GPU shares the memory, CUDA memory is in none of these numbers:
`edgefold.devices.memory.monitor` puts the GPU's share and the drop of MemAvailable beside them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from edgefold.devices.sysfs import read_text
from edgefold.runtime.errors import MeterError

KIB = 1024


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """One moment. PSS shares common pages among their users, USS counts private pages alone."""

    rss_bytes: int
    pss_bytes: int
    uss_bytes: int
    peak_rss_bytes: int


class ProcessMemory:
    """Meter of one process.

    Args:
        root: Where procfs is mounted; tests pass a recorded tree.
        pid: Process number, or "self".
    """

    def __init__(self, root: Path = Path("/proc"), pid: int | str = "self") -> None:
        self._folder = root / str(pid)

    def reset_peak(self) -> str | None:
        """Let VmHWM start again from the present RSS.

        Returns:
            None when done, else the reason why the kernel refused: the peak then covers the whole
            life of the process, and a report must say so.
        """
        path = self._folder / "clear_refs"
        try:
            path.write_text("5")
        except OSError as error:
            return f"{path} cannot be written ({error.strerror}), so the peak is of the whole life"
        return None

    def peak_bytes(self) -> int:
        """VmHWM: the largest RSS since the process began or since `reset_peak`."""
        return self._field(self._folder / "status", "VmHWM")

    def read(self) -> MemoryReading:
        """Everything at one moment.

        Raises:
            MeterError: A file cannot be read or lacks a field.
        """
        path = self._folder / "smaps_rollup"
        fields = _fields(path)
        private = ("Private_Clean", "Private_Dirty")
        return MemoryReading(
            rss_bytes=_pick(fields, "Rss", path),
            pss_bytes=_pick(fields, "Pss", path),
            uss_bytes=sum(_pick(fields, name, path) for name in private),
            peak_rss_bytes=self.peak_bytes(),
        )

    def _field(self, path: Path, name: str) -> int:
        return _pick(_fields(path), name, path)


class SystemMemory:
    """Memory of the whole machine: what is there, and what could be had without swapping.

    Args:
        root: Where procfs is mounted; tests pass a recorded tree.
        page_bytes: Size of a page; this kernel's by default (a Raspberry Pi 5 has 16 KiB).
    """

    def __init__(self, root: Path = Path("/proc"), page_bytes: int | None = None) -> None:
        self._path = root / "meminfo"
        self._zones = root / "zoneinfo"
        self._page_bytes = page_bytes or os.sysconf("SC_PAGE_SIZE")

    def total_bytes(self) -> int:
        """MemTotal: what the firmware and the kernel's own image left.

        Raises:
            MeterError: The file cannot be read.
        """
        return _pick(_fields(self._path), "MemTotal", self._path)

    def available_bytes(self) -> int:
        """MemAvailable: free memory and the caches that would give way. The GPU's share is not in.

        Raises:
            MeterError: The file cannot be read.
        """
        return _pick(_fields(self._path), "MemAvailable", self._path)

    def listed_bytes(self) -> int:
        """Free pages that wait in lists of each processor, which MemAvailable does not count.

        Newer kernels let the lists grow: Linux 6.18 held 770 MB in them on a machine of 25 GB, so
        that a process of 500 MB came and went with MemAvailable moving by 160 MB. The sum of both
        moved by 500 MB.

        Raises:
            MeterError: The file cannot be read.
        """
        counts = re.findall(r"^\s+count:\s+(\d+)$", read_text(self._zones), re.MULTILINE)
        return sum(int(count) for count in counts) * self._page_bytes


def _fields(path: Path) -> dict[str, int]:
    """Every line `Name:  123 kB` of a procfs file, in bytes."""
    text = read_text(
        path, "memory is measured on Linux 4.14 or later, by the process's own user or root"
    )
    fields = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB" and words[0].isdigit():
            fields[name] = int(words[0]) * KIB
    return fields


def _pick(fields: dict[str, int], name: str, path: Path) -> int:
    if name not in fields:
        raise MeterError(f"{path} has no line '{name}: ... kB'; this kernel does not report it.")
    return fields[name]
