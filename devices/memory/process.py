"""Read the memory of one process, and of the machine, in bytes as the Linux kernel counts them.

    needed     anonymous pages, also swapped out, and shared memory: nobody can take them back
    files      clean pages of mapped files: dropped when memory is short, read again at need
    resident   both, as far as they are in memory: VmRSS, what `top` shows

    start_window()        steps run             read(), files()
    ─────┬─────────────────────────────────────────┬─────> time
         │ VmHWM falls to what is resident         │ VmHWM is the peak of this window only
         │ no page counts as touched               │ touched: the pages that the steps used

How many pages of files are resident depends on the page cache: of a library that was just written a
fault may map 1 MiB. So what is needed is compared and limited; VmHWM, which counts both, is
information. The kernel keeps no peak of what is needed: read it often.
Counters in `status` may lag by 64 pages a thread, so growth is read from `smaps_rollup`, which
walks the page tables and is exact (and takes of the order of a millisecond). On boards whose GPU
shares the memory, CUDA memory is in none of these numbers: `edgefold.devices.memory.monitor` puts
the GPU's share and the drop of MemAvailable next to them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from edgefold.devices.sysfs import read_text
from edgefold.runtime.backends.needed_memory import KIB
from edgefold.runtime.errors import MeterError
from edgefold.runtime.record_fields import Bytes

NO_FILES = ("/dev/", "/memfd:", "/SYSV")  # shared memory and devices
CURE = "memory is measured on Linux 4.14 or later, by the process's own user or root"

NeededBytes = Annotated[
    Bytes,
    "What the kernel cannot take back: anonymous pages, also swapped ones, and shared memory.",
]
FileBytes = Annotated[Bytes, "Resident clean pages of mapped files."]
TouchedBytes = Annotated[Bytes, "Used since the warm-up."]
ResidentBytes = Annotated[Bytes, "In memory now."]
MappedBytes = Annotated[Bytes, "All of them."]


@dataclass(frozen=True, slots=True)
class MemoryReading:
    """Holds a process's needed (anonymous, swapped, shared) memory and resident file pages."""

    needed_bytes: NeededBytes
    file_bytes: FileBytes


@dataclass(frozen=True, slots=True)
class MappedFile:
    """Holds the sizes of the clean pages of one file that the process maps."""

    path: Annotated[str, "Path of the file."]
    touched_bytes: TouchedBytes
    resident_bytes: ResidentBytes
    mapped_bytes: MappedBytes


class ProcessMemory:
    """Reads the memory of one process.

    Args:
        root: Folder where procfs is mounted; tests pass a recorded tree.
        pid: Process number, or "self".
    """

    def __init__(self, root: Path = Path("/proc"), pid: int | str = "self") -> None:
        self._folder = root / str(pid)

    def start_window(self) -> str | None:
        """Let VmHWM start again from what is resident, and forget which pages were touched.

        Returns:
            None when done, else the reason why the kernel refused: both then cover the whole life
            of the process, and a report must say so.
        """
        path = self._folder / "clear_refs"
        try:
            for what in "15":  # pages touched, then the peak
                path.write_text(what)
        except OSError as error:
            return f"{path} cannot be written ({error.strerror}), so the peak is of the whole life"
        return None

    def resident_peak_bytes(self) -> int:
        """Return VmHWM: the most resident bytes since `start_window` or the process's start."""
        path = self._folder / "status"
        return _pick(_fields(path), "VmHWM", path)

    def read(self) -> MemoryReading:
        """Return the needed bytes (anonymous, swapped, shared) and those of mapped files now.

        Raises:
            MeterError: A file cannot be read or lacks a field.
        """
        path, status = self._folder / "smaps_rollup", self._folder / "status"
        fields, shared = _fields(path), _pick(_fields(status), "RssShmem", status)
        anonymous = _pick(fields, "Anonymous", path)
        return MemoryReading(
            needed_bytes=anonymous + fields.get("Swap", 0) + shared,
            file_bytes=_pick(fields, "Rss", path) - anonymous - shared,
        )

    def files(self) -> list[MappedFile]:
        """Return the files that the process maps, the one with the most resident bytes first.

        Raises:
            MeterError: The maps cannot be read.
        """
        totals: dict[str, list[int]] = {}
        text = read_text(self._folder / "smaps", CURE)
        for head, body in re.findall(r"^[0-9a-f]+-.*?(/.*)?\n((?:\w+:.*\n?)+)", text, re.MULTILINE):
            part = {name: int(kib) * KIB for name, kib in re.findall(r"(\w+): +(\d+) kB", body)}
            resident, mapped = (part[size] - part["Anonymous"] for size in ("Rss", "Size"))
            figures = (min(part["Referenced"], resident), resident, mapped)
            if head and not head.startswith(NO_FILES):
                before = totals.get(head, [0, 0, 0])
                totals[head] = [a + b for a, b in zip(before, figures, strict=True)]
        files = [MappedFile(path, *figures) for path, figures in totals.items()]
        return sorted(files, key=lambda file: -file.resident_bytes)


class SystemMemory:
    """Reads the memory of the whole machine: all of it, and how much is free or available.

    Args:
        root: Folder where procfs is mounted; tests pass a recorded tree.
        page_bytes: Size of a page; None for that of this kernel (a Raspberry Pi 5 has 16 KiB).
    """

    def __init__(self, root: Path = Path("/proc"), page_bytes: int | None = None) -> None:
        self._path = root / "meminfo"
        self._zones = root / "zoneinfo"
        self._page_bytes = page_bytes or os.sysconf("SC_PAGE_SIZE")

    def total_bytes(self) -> int:
        """Return MemTotal in bytes: the memory that the firmware and the kernel's image left.

        Raises:
            MeterError: The file cannot be read.
        """
        return _pick(_fields(self._path), "MemTotal", self._path)

    def available_bytes(self) -> int:
        """Return MemAvailable in bytes: free memory and caches that would give way.

        The GPU's share is not in it.

        Raises:
            MeterError: The file cannot be read.
        """
        return _pick(_fields(self._path), "MemAvailable", self._path)

    def free_bytes(self) -> int:
        """Return MemFree in bytes: memory that nobody uses, not even the page cache.

        A GPU that shares the processor's memory gets no more than this, because the kernel empties
        the page cache for programs only.

        Raises:
            MeterError: The file cannot be read.
        """
        return _pick(_fields(self._path), "MemFree", self._path)

    def nvmap_bytes(self) -> int:
        """Return NvMapMemUsed: bytes of a Jetson's GPU memory that all processes hold together.

        Raises:
            MeterError: The file cannot be read, or has no such line, as in some releases.
        """
        return _pick(_fields(self._path), "NvMapMemUsed", self._path)

    def listed_bytes(self) -> int:
        """Return the bytes of free pages in lists of each processor, not counted in MemAvailable.

        Newer kernels let the lists grow: Linux 6.18 held 770 MB in them on a machine of 25 GB, so
        that a process of 500 MB came and went with MemAvailable moving by 160 MB. The sum of both
        moved by 500 MB.

        Raises:
            MeterError: The file cannot be read.
        """
        counts = re.findall(r"^\s+count:\s+(\d+)$", read_text(self._zones), re.MULTILINE)
        return sum(int(count) for count in counts) * self._page_bytes


def _fields(path: Path) -> dict[str, int]:
    """Return the lines `Name:  123 kB` of a procfs file as numbers of bytes by name."""
    text = read_text(path, CURE)
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
