"""Find NVIDIA's driver and load its Python modules, for the meters of power and of memory."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType
from typing import Any

from edgefold.devices.sysfs import optional_text
from edgefold.runtime.errors import MeterError, Remedy, install_extra

NVML = Remedy("energy and memory of the GPU", install_extra("nvidia"))
GPU_DEVICES = ("nvidiactl", "nvmap")  # of discrete GPUs and of Jetson boards
BUS_ID_BYTES = 32  # room for "00000000:00:00.0" and its zero
CUDA_MODULES = ("cuda.bindings.runtime", "cuda.cudart")  # the second is its place before 12.8


def has_gpu(root: Path = Path("/")) -> bool:
    """Return whether an NVIDIA driver shows a GPU by a device file below `root`/dev."""
    return any((root / "dev" / name).exists() for name in GPU_DEVICES)


def driver_version(root: Path = Path("/")) -> str | None:
    """Return the version of the driver of discrete GPUs and Thor; None where it is not loaded.

    Jetson Linux 34 to 36 (Orin) shows such a file as well, with 540.4.0, but its GPU has a driver
    of its own, which NVML does not read.
    """
    if re.match(r"# R3[4-6] ", optional_text(root / "etc/nv_tegra_release") or ""):
        return None
    text = optional_text(root / "proc/driver/nvidia/version") or ""
    match = re.search(r"\s(\d+\.[\d.]+)\s", text)
    return match[1] if match else None


def load_nvml(root: Path = Path("/")) -> ModuleType:
    """Import NVIDIA's NVML module.

    Raises:
        MeterError: The module is not installed; with a remedy where the driver is loaded.
    """
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise MeterError(
            f"nvidia-ml-py is not installed; {NVML.command} installs it",
            NVML if driver_version(root) else None,
        ) from error


def load_cudart() -> ModuleType:
    """Import and return CUDA's runtime module: cuda.bindings.runtime, or the older cuda.cudart.

    Raises:
        MeterError: Neither package is installed.
    """
    for name in CUDA_MODULES:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise MeterError(
        "cuda-bindings is not installed; pip install cuda-bindings, of the major version of the "
        "CUDA in use"
    )


def cuda_bus_id(cudart: Any, device: int = 0) -> str:
    """Return the PCI bus id of a CUDA device, such as "0000:3b:00.0".

    Args:
        cudart: CUDA's runtime module, as `load_cudart` returns it.
        device: CUDA's number of the GPU, among those that CUDA_VISIBLE_DEVICES leaves. For a part
            of a divided GPU (MIG), CUDA gives the id of the whole card.

    Raises:
        MeterError: CUDA shows no such device.
    """
    (name,) = ask_cuda(cudart, "cudaDeviceGetPCIBusId", BUS_ID_BYTES, device)
    return bytes(name).split(b"\0")[0].decode()


def ask_cuda(cudart: Any, function: str, *arguments: Any) -> tuple[Any, ...]:
    """Call the named function of the module `cudart`; return its results without the status.

    Raises:
        MeterError: The function fails, or the bindings do not find CUDA's library.
    """
    try:
        status, *values = getattr(cudart, function)(*arguments)
    except RuntimeError as error:
        raise MeterError(f"{function}: {error}") from error
    if int(status):
        refused, text = cudart.cudaGetErrorString(status)
        words = f"error {int(status)}" if int(refused) else bytes(text).decode(errors="replace")
        raise MeterError(f"{function}: {words}")
    return tuple(values)
