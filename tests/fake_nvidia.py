"""Stand-ins for NVIDIA's Python modules, as far as the meters call them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class FakeNvmlError(Exception):
    pass


@dataclass
class FakeNvml:
    """Two GPUs, and what each lists; a string is a refusal."""

    gpus: list[list[tuple[int, int | None]] | str] = field(default_factory=list)
    starts: bool = True
    NVMLError: type[Exception] = FakeNvmlError

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.starts:
            raise FakeNvmlError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        listed = self.gpus[handle]
        if isinstance(listed, str):
            raise FakeNvmlError(listed)
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in listed]


class FakeCudart:
    """A device of 1000 bytes, or an error number; integrated it shares the machine's memory."""

    cudaDeviceAttr = SimpleNamespace(cudaDevAttrIntegrated=18)  # noqa: N815

    def __init__(
        self,
        free: int = 400,
        status: int = 0,
        is_integrated: bool = False,
        bus_id: bytes = b"00000000:01:00.0",
    ) -> None:
        self.free, self.status, self.is_integrated = free, status, is_integrated
        self.bus_id = bus_id

    def cudaGetDevice(self) -> tuple[int, int | None]:  # noqa: N802
        return (self.status, None) if self.status else (0, 0)

    def cudaDeviceGetAttribute(self, attribute: int, device: int) -> tuple[int, int]:  # noqa: N802
        assert (attribute, device) == (18, 0)
        return 0, int(self.is_integrated)

    def cudaDeviceGetPCIBusId(self, n_bytes: int, device: int) -> tuple[int, bytes]:  # noqa: N802
        assert n_bytes > len(self.bus_id) and device == 0
        return self.status, self.bus_id + b"\0" * 8

    def cudaMemGetInfo(self) -> tuple[int, int | None, int | None]:  # noqa: N802
        return (self.status, None, None) if self.status else (0, self.free, 1000)

    def cudaGetErrorString(self, status: int) -> tuple[int, bytes]:  # noqa: N802
        return 0, b"no CUDA-capable device is detected"
