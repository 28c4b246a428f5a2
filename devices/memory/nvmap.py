"""Read GPU memory on a Jetson: of each process as root, of all processes together as any user.

    /sys/kernel/debug/nvmap/iovmm/clients                           /proc/meminfo

    CLIENT                        PROCESS      PID        SIZE      NvMapMemUsed:     110592 kB
    user                          python3     4711     102400K
    total                                               110592K

nvmap is the allocator behind CUDA there, and its pages are in nobody's RSS. A buffer that two
processes share counts in full for both, so the sum of the clients may pass the total. debugfs is
for root only; the total is also a line of /proc/meminfo ("CUDA for Tegra" names both), though not
in every release. Boards whose GPU runs on NVIDIA's unified driver (Thor) answer by NVML instead.
"""

from __future__ import annotations

from pathlib import Path

from edgefold.devices.memory.gpu import ProcessGpuMemory
from edgefold.devices.memory.process import SystemMemory
from edgefold.devices.sysfs import read_text
from edgefold.runtime.backends.needed_memory import KIB
from edgefold.runtime.errors import MeterError, Remedy

ADVICE = "only a Jetson has it, and there debugfs must be mounted and the reader be root"
ROOT = Remedy(
    "GPU memory of a process: only root may read nvmap",
    'sudo "$(command -v edgefold)" profile BUNDLE',
)


class Nvmap(ProcessGpuMemory):
    """Reads the GPU memory of one process from nvmap's table of clients.

    Args:
        root: Folder where sysfs is mounted; tests pass a recorded tree.
        pid: Process number; this process by default.

    Raises:
        MeterError: The file cannot be read.
    """

    name = "nvmap"

    def __init__(self, root: Path = Path("/sys"), pid: int | None = None) -> None:
        self._path = root / "kernel" / "debug" / "nvmap" / "iovmm" / "clients"
        super().__init__(self._path, pid)

    def processes_bytes(self) -> dict[int, int]:
        """Return the bytes of GPU memory that each process holds, by process number.

        Raises:
            MeterError: The file cannot be read, or is not a table of clients.
        """
        lines = [line.split() for line in read_text(self._path, ADVICE, ROOT).splitlines()]
        if not lines or lines[0][-2:] != ["PID", "SIZE"]:
            raise MeterError(f"{self._path} does not begin with CLIENT, PROCESS, PID and SIZE")
        sizes: dict[int, int] = {}
        for words in lines[1:]:
            # From the right: a process's name may hold blanks. The line of the total has no number.
            if len(words) >= 3 and words[-2].isdigit():
                pid = int(words[-2])
                sizes[pid] = sizes.get(pid, 0) + self._kib(words[-1]) * KIB
        return sizes

    def _kib(self, word: str) -> int:
        digits = word.removesuffix("K")
        if not digits.isdigit():
            raise MeterError(f"{self._path} has the size {word[:20]!r} instead of kibibytes")
        return int(digits)


class NvmapTotal:
    """Reads the GPU memory of all processes together, as /proc/meminfo shows it.

    The difference between two reads is the memory that was taken meanwhile.

    Args:
        root: Folder where procfs is mounted; tests pass a recorded tree.

    Raises:
        MeterError: This kernel does not report the memory.
    """

    name = "NvMapMemUsed"
    per_process = False

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._system = SystemMemory(root)
        self.read_bytes()

    def read_bytes(self) -> int:
        """Return the bytes of GPU memory that all processes hold together.

        Raises:
            MeterError: /proc/meminfo cannot be read, or has no such line.
        """
        return self._system.nvmap_bytes()
