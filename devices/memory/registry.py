"""List the meters of GPU memory, best first.

The monitor takes the first meter that opens, the doctor asks all of them.

A new meter is a file in this folder and a line in `GPU_METERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from edgefold.devices.host import Host
from edgefold.devices.memory.gpu import CudaMemory, NvmlMemory
from edgefold.devices.memory.nvmap import Nvmap, NvmapTotal


class GpuMemory(Protocol):
    """Describes what a meter of GPU memory offers: a name and the bytes in use."""

    @property
    def name(self) -> str:
        """Return the meter's name, for the report."""

    @property
    def per_process(self) -> bool:
        """Return whether only this process is counted; else users subtract the first value."""

    def read_bytes(self) -> int:
        """Return the bytes of GPU memory in use now; raises MeterError when unreadable."""


@dataclass(frozen=True, slots=True)
class GpuMeter:
    """Describes a kind of GPU memory meter and how to open it.

    Attributes:
        name: Name of the meter.
        open: Opens the meter on a machine; raises MeterError.
        makes_context: Whether a read makes a CUDA context, which takes memory; `edgefold doctor`
            then reads the meter in a child process.
    """

    name: str
    open: Callable[[Host], GpuMemory]
    makes_context: bool = False


GPU_METERS = (  # a process's own figure before that of the whole device
    GpuMeter(Nvmap.name, lambda host: Nvmap(host.root / "sys")),
    GpuMeter(NvmlMemory.name, lambda host: NvmlMemory(host.nvml())),
    GpuMeter(NvmapTotal.name, lambda host: NvmapTotal(host.root / "proc")),
    GpuMeter(CudaMemory.name, lambda host: CudaMemory(host.cudart()), makes_context=True),
)
