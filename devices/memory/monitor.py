"""Measure memory outside the process: of the GPU, of the whole machine and of the control group.

    MemoryMonitor(...)      poll()    poll()      read()
    ─────┬─────────────────────┬─────────┬───────────┬──> time
         │ MemAvailable and the device's memory      │ GPU: most of all polls
         │ before anything is loaded                 │ drop: start minus least of all polls
                                                     │ group: the kernel's own peak, and the limit

Where the GPU shares the memory (Jetson), CUDA memory is in no figure of the process
(`edgefold.devices.memory.process`); the drop of MemAvailable has all of it, and the noise of every
other process too. They are reported apart and never added. A figure that cannot be read is None
with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from edgefold.devices.host import Host
from edgefold.devices.memory.cgroup import CgroupMemory
from edgefold.devices.memory.process import SystemMemory
from edgefold.devices.memory.registry import GPU_METERS, GpuMemory
from edgefold.devices.nvidia import has_gpu
from edgefold.runtime.errors import MeterError
from edgefold.runtime.record_fields import Bytes, Shown


@dataclass(frozen=True, slots=True)
class MemoryFigure:
    """Holds a number of bytes and its source, or null and the reason."""

    memory_bytes: Annotated[Bytes | None, "What was read."]
    source: Annotated[str, "What it was read from."]
    reason: Annotated[str | None, "Why there is no number, or what null means."] = None


@dataclass(frozen=True, slots=True)
class MemorySurvey:
    """Holds the memory of the GPU, of the whole machine and of the process's control group."""

    gpu: Annotated[
        MemoryFigure,
        "On the GPU.",
        Shown("gpu_memory", "edgefold_gpu_memory_bytes", "Memory on the GPU."),
    ]
    available_drop: Annotated[MemoryFigure, "How far the machine's available memory fell."]
    group_peak: Annotated[
        MemoryFigure,
        "Peak of the process's control group, of all processes in it since the group was made: "
        "its source says how many others there are.",
    ]
    group_limit: Annotated[MemoryFigure, "Its limit."]


class MemoryMonitor:
    """Watches the memory of GPU, machine and control group from its creation on.

    Args:
        root: Folder that holds /proc and /sys; tests pass a recorded tree.
        gpu: Functions that open GPU meters, best first; the first meter that opens is kept.
            None says that no GPU is used: then no library of NVIDIA's is loaded.
    """

    def __init__(
        self, root: Path = Path("/"), gpu: Sequence[Callable[[], GpuMemory]] | None = None
    ) -> None:
        self._root = root
        self._available = _AvailableDrop(SystemMemory(root / "proc"))
        self._gpu = None if gpu is None else _GpuPeak(gpu)

    def poll(self) -> None:
        """Read the meters once, so that a peak between start and end is not missed."""
        self._available.poll()
        if self._gpu is not None:
            self._gpu.poll()

    def read(self) -> MemorySurvey:
        """Poll once more and return everything that was measured so far; never raises."""
        self.poll()
        name = "cgroup"
        try:
            group = CgroupMemory(self._root)
            name = group.shared_name()
            peak = _figure(group.peak_bytes, name)
            limit = _figure(group.limit_bytes, name, "unlimited")
        except MeterError as error:
            peak = limit = MemoryFigure(None, name, str(error))
        return MemorySurvey(
            gpu=MemoryFigure(None, "none", "no GPU is used")
            if self._gpu is None
            else self._gpu.figure(),
            available_drop=self._available.figure(),
            group_peak=peak,
            group_limit=limit,
        )


class _AvailableDrop:
    """Measures how far the machine's available memory fell."""

    def __init__(self, system: SystemMemory) -> None:
        self._system = system
        self._reason: str | None = None
        try:
            system.listed_bytes()
        except MeterError:
            self._lists = False
        else:
            self._lists = True
        self._start = self._least = self._read()

    def poll(self) -> None:
        self._least = min(self._least, self._read())

    def figure(self) -> MemoryFigure:
        lists = " and of the processors' free lists" if self._lists else ""
        drop = self._start - self._least if self._reason is None else None
        return MemoryFigure(drop, f"drop of MemAvailable{lists}, all processes", self._reason)

    def _read(self) -> int:
        """Return the available bytes now; after a failed read the whole run has no figure."""
        try:
            available = self._system.available_bytes()
            return available + (self._system.listed_bytes() if self._lists else 0)
        except MeterError as error:
            self._reason = str(error)
            return 0


class _GpuPeak:
    """Keeps the most memory that was read from the first GPU meter that opens."""

    def __init__(self, makers: Sequence[Callable[[], GpuMemory]]) -> None:
        self._meter: GpuMemory | None = None
        self._start = 0
        self._peak: int | None = None
        reasons = []
        for make in makers:
            try:
                meter = make()
                self._start = 0 if meter.per_process else meter.read_bytes()
            except MeterError as error:
                reasons.append(str(error))
            else:
                self._meter = meter
                break
        self._reason = "; ".join(reasons)

    def poll(self) -> None:
        if self._meter is None:
            return
        try:
            now = self._meter.read_bytes() - self._start
        except MeterError as error:  # such as: not listed yet
            self._reason = str(error)
        else:
            self._peak = now if self._peak is None else max(now, self._peak)

    def figure(self) -> MemoryFigure:
        if self._meter is None:
            return MemoryFigure(None, "none", self._reason)
        scope = "of the process" if self._meter.per_process else "growth, all processes together"
        reason = self._reason if self._peak is None else None
        return MemoryFigure(self._peak, f"{self._meter.name}, {scope}", reason)


def monitor_memory(may_use_gpu: bool, host: Host | None = None) -> MemoryMonitor:
    """Start a monitor; call its `poll` now and then, and `read` at the end.

    Begin before anything is loaded: what was taken by then is not counted.

    Args:
        may_use_gpu: Whether the run might use a GPU. If not, or if the machine has no NVIDIA GPU,
            GPU memory is not read, and no library of NVIDIA's is loaded.
        host: The machine to read; None is this one.
    """
    here = host or Host()
    present = has_gpu(here.root)
    meters = [partial(meter.open, here) for meter in GPU_METERS]
    return MemoryMonitor(here.root, meters if may_use_gpu and present else None)


def _figure(
    read: Callable[[], int | None], source: str, nothing: str | None = None
) -> MemoryFigure:
    """Return the bytes from `read` with their `source`, or why they cannot be read.

    Where `read` returns None, the text `nothing` explains it, such as "unlimited".
    """
    try:
        value = read()
    except MeterError as error:
        return MemoryFigure(None, source, str(error))
    return MemoryFigure(value, source, nothing if value is None else None)
