"""Read GPU memory by NVIDIA's libraries: of a process by NVML, of a whole discrete GPU by CUDA.

NVML answers `nvmlInit` on Jetson Orin and then NotSupported to its queries: only a query shows it.
It numbers processes as the host does: in a container the own number finds nothing. CUDA's figure is
of all processes, and asking for it makes a CUDA context, some hundred megabytes on a large GPU, in
a process that had none. Where the GPU shares the machine's memory CUDA calls free what the kernel
calls MemFree, so that every page of a file in the page cache counts as taken: it is not asked there
(`edgefold.devices.memory.nvmap` and the drop of MemAvailable are).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

from edgefold.devices.nvidia import ask_cuda
from edgefold.runtime.errors import MeterError


class ProcessGpuMemory(ABC):
    """Reads the GPU memory of one process, by default this one, from a list of all processes."""

    name: str
    per_process = True

    def __init__(self, source: object, pid: int | None) -> None:
        self._source = source
        self._pid = os.getpid() if pid is None else pid
        self.processes_bytes()

    def read_bytes(self) -> int:
        """Return the bytes of GPU memory that the process holds.

        Raises:
            MeterError: The meter has no figure, or does not list the process.
        """
        sizes = self.processes_bytes()
        if self._pid not in sizes:
            raise MeterError(
                f"{self._source} lists {len(sizes)} processes and not {self._pid}: it holds no GPU "
                f"memory, or runs in a container, whose numbers {self.name} does not know"
            )
        return sizes[self._pid]

    @abstractmethod
    def processes_bytes(self) -> dict[int, int]:
        """Return each process's bytes by process number; raises MeterError when unreadable."""


class NvmlMemory(ProcessGpuMemory):
    """Reads by NVML how much memory one process holds on all GPUs together.

    Args:
        nvml: The module pynvml, or one that behaves alike.
        pid: Process number; this process by default.

    Raises:
        MeterError: NVML does not start, or starts and refuses the query.
    """

    name = "NVML"

    def __init__(self, nvml: Any, pid: int | None = None) -> None:
        self._nvml = nvml
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise MeterError(f"NVML does not start: {error}") from error
        super().__init__(self.name, pid)

    def processes_bytes(self) -> dict[int, int]:
        """Return the bytes of each process that computes on a GPU, by process number.

        Raises:
            MeterError: A query is refused, or leaves the size of a process out.
        """
        nvml, sizes = self._nvml, dict[int, int]()
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                device = nvml.nvmlDeviceGetHandleByIndex(index)
                for process in nvml.nvmlDeviceGetComputeRunningProcesses(device):
                    if process.usedGpuMemory is None:
                        raise MeterError(f"NVML hides the memory of process {process.pid}")
                    sizes[process.pid] = sizes.get(process.pid, 0) + process.usedGpuMemory
        except nvml.NVMLError as error:
            raise MeterError(f"NVML does not tell the memory of processes: {error}") from error
        return sizes


class CudaMemory:
    """Reads by CUDA how much memory of the current GPU is in use by all processes together.

    The difference between two reads is the memory that was taken meanwhile.

    Args:
        cudart: The module cuda.bindings.runtime, cuda.cudart, or one that behaves alike.

    Raises:
        MeterError: CUDA has no device, or one that shares the machine's memory.
    """

    name = "cudaMemGetInfo"
    per_process = False

    def __init__(self, cudart: Any) -> None:
        self._cudart = cudart
        attribute = cudart.cudaDeviceAttr.cudaDevAttrIntegrated
        device = ask_cuda(cudart, "cudaGetDevice")[0]
        if ask_cuda(cudart, "cudaDeviceGetAttribute", attribute, device)[0]:
            raise MeterError(
                "cudaMemGetInfo is not asked, since this GPU shares the machine's memory and the "
                "page cache would count as taken; see the drop of MemAvailable"
            )

    def read_bytes(self) -> int:
        """Return the bytes of the device's memory that are in use.

        Raises:
            MeterError: CUDA has no device or refuses.
        """
        free, total = ask_cuda(self._cudart, "cudaMemGetInfo")
        return int(total) - int(free)
