"""Read discrete NVIDIA GPUs through NVML (nvidia-ml-py): an energy counter, or power.

The counter (Volta and later) is in millijoules since the driver was loaded and misses nothing; the
power reading is a mean over a time that depends on the GPU (up to a second) and says nothing of
what happens within it. On Jetson boards NVML opens and then refuses every such query: each one is
therefore tried before a sensor is offered.
"""

from __future__ import annotations

from typing import Any

from edgefold.runtime.errors import MeterError

MJ_PER_J = 1e3
MW_PER_W = 1e3
PERIOD_S = 0.1  # both values are renewed some ten times a second
MAX_GAP_S = 3600.0  # 64 bits of millijoules do not wrap


class _Gpu:
    """One GPU behind NVML, and what both sensors share."""

    period_s = PERIOD_S
    scope = "the GPU's board alone; the processor and its memory are not in"

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        try:
            nvml.nvmlInit()
            self._handle = nvml.nvmlDeviceGetHandleByIndex(index)
            name = nvml.nvmlDeviceGetName(self._handle)
        except nvml.NVMLError as error:
            raise MeterError(f"NVML shows no GPU {index} ({error})") from error
        self._label = name.decode() if isinstance(name, bytes) else str(name)
        self.rails = (f"GPU {index}",)

    def _ask(self, query: str) -> float:
        try:
            return float(getattr(self._nvml, query)(self._handle))
        except self._nvml.NVMLError as error:
            raise MeterError(f"{query} of {self._label} answers '{error}'") from error


class NvmlEnergy(_Gpu):
    """The GPU's energy counter as an `EnergySensor`.

    Args:
        nvml: The module pynvml, or a stand-in.
        index: Which GPU, in NVML's order.

    Raises:
        MeterError: There is no such GPU, or it has no counter.
    """

    step_j = 1 / MJ_PER_J
    max_gap_s = MAX_GAP_S

    def __init__(self, nvml: Any, index: int = 0) -> None:
        super().__init__(nvml, index)
        self._first_mj = self._ask("nvmlDeviceGetTotalEnergyConsumption")
        self.name = f"NVML energy ({self._label})"

    def read_j(self) -> float:
        """Return joules since the sensor was opened.

        Raises:
            MeterError: The counter cannot be read any more, or was reset.
        """
        moved_mj = self._ask("nvmlDeviceGetTotalEnergyConsumption") - self._first_mj
        if moved_mj < 0:
            raise MeterError(f"The energy counter of {self._label} was reset; measure again.")
        return moved_mj / MJ_PER_J


class NvmlPower(_Gpu):
    """The GPU's power reading as a `PowerSensor`; arguments and errors as for `NvmlEnergy`."""

    step_w = 1 / MW_PER_W

    def __init__(self, nvml: Any, index: int = 0) -> None:
        super().__init__(nvml, index)
        self.name = f"NVML power ({self._label})"
        self.read_w()

    def read_w(self) -> float:
        """Return watts, as the driver averages them.

        Raises:
            MeterError: The reading is not supported, or not any more.
        """
        return self._ask("nvmlDeviceGetPowerUsage") / MW_PER_W
