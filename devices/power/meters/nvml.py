"""Read discrete NVIDIA GPUs through NVML (nvidia-ml-py): an energy counter, or power.

The counter (Volta and later) is in millijoules since the driver was loaded and misses nothing; the
power reading is a mean over a second (Ampere and later; less on older GPUs). On Jetson boards NVML
opens and then refuses every such query: each one is therefore tried before a sensor is offered.

NVML numbers GPUs by bus and shows all of them; CUDA numbers them fastest first and obeys
CUDA_VISIBLE_DEVICES. So where there are several, CUDA is asked for the bus id of its first GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgefold.devices.nvidia import cuda_bus_id, load_cudart
from edgefold.runtime.errors import MeterError

MJ_PER_J = 1e3
MW_PER_W = 1e3
PERIOD_S = 0.1  # both values are renewed some ten times a second
# NVML's reference, nvmlDeviceGetPowerUsage: "On Ampere (except GA100) or newer GPUs, the API
# returns power averaged over 1 sec interval."
POWER_MEMORY_S = 1.0
MAX_GAP_S = 3600.0  # 64 bits of millijoules do not wrap
MIG_ON = 1


class _Gpu:
    """Finds the GPU that CUDA uses in NVML; holds the attributes that both sensors share."""

    period_s = PERIOD_S

    def __init__(self, nvml: Any, cudart: Callable[[], Any]) -> None:
        self._nvml = nvml
        try:
            nvml.nvmlInit()
            self._handle, label = _gpu_in_use(nvml, cudart)
            name = nvml.nvmlDeviceGetName(self._handle)
        except nvml.NVMLError as error:
            raise MeterError(f"NVML shows no GPU ({error})") from error
        self._label = name.decode() if isinstance(name, bytes) else str(name)
        self.rails = (label,)
        self.scope = "the GPU's board alone; the processor and its memory are not in"
        if self._is_split():
            self.scope = (
                "the whole card, which is split by MIG: work on its other instances is in; the "
                "processor and its memory are not"
            )

    def _is_split(self) -> bool:
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(self._handle)[0] == MIG_ON)
        except self._nvml.NVMLError:
            return False  # a GPU that cannot be split refuses the query

    def _ask(self, query: str) -> float:
        try:
            return float(getattr(self._nvml, query)(self._handle))
        except self._nvml.NVMLError as error:
            raise MeterError(f"{query} of {self._label} answers '{error}'") from error


class NvmlEnergy(_Gpu):
    """Reads the GPU's energy counter, as an `EnergySensor`.

    Args:
        nvml: The module pynvml, or a stand-in.
        cudart: Returns CUDA's runtime module, or raises MeterError; called if there are several
            GPUs.

    Raises:
        MeterError: There is no GPU, it has no counter, or CUDA does not say which one it uses.
    """

    memory_s = PERIOD_S
    step_j = 1 / MJ_PER_J
    max_gap_s = MAX_GAP_S

    def __init__(self, nvml: Any, cudart: Callable[[], Any] = load_cudart) -> None:
        super().__init__(nvml, cudart)
        self._first_mj = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        self.name = f"NVML energy ({self._label})"

    def read_j(self) -> float:
        """Return the joules used since the sensor was opened.

        Raises:
            MeterError: The counter cannot be read any more, or was reset.
        """
        moved_mj = self._ask("nvmlDeviceGetTotalEnergyConsumption") - self._first_mj
        if moved_mj < 0:
            raise MeterError(f"The energy counter of {self._label} was reset; measure again.")
        return moved_mj / MJ_PER_J


class NvmlPower(_Gpu):
    """Reads the GPU's power, as a `PowerSensor`; arguments and errors are as for `NvmlEnergy`."""

    memory_s = POWER_MEMORY_S
    step_w = 1 / MW_PER_W

    def __init__(self, nvml: Any, cudart: Callable[[], Any] = load_cudart) -> None:
        super().__init__(nvml, cudart)
        self.name = f"NVML power ({self._label})"
        self.read_w()

    def read_w(self) -> float:
        """Return the power in W, as the driver averages it.

        Raises:
            MeterError: The reading is not supported, or not any more.
        """
        return self._ask("nvmlDeviceGetPowerUsage") / MW_PER_W


def _gpu_in_use(nvml: Any, cudart: Callable[[], Any]) -> tuple[Any, str]:
    """Return NVML's handle of CUDA's first GPU, and the GPU's name for reports."""
    count = nvml.nvmlDeviceGetCount()
    if count < 2:
        return nvml.nvmlDeviceGetHandleByIndex(0), "GPU 0"
    try:
        bus_id = cuda_bus_id(cudart())
    except MeterError as error:
        raise MeterError(
            f"NVML shows {count} GPUs, and CUDA does not tell which one is in use: {error}"
        ) from error
    return nvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode()), f"GPU {bus_id}"
