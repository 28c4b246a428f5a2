"""Read the INA238 of Jetson Thor: one rail, the input of module and carrier board together.

Read from /sys/bus/i2c/drivers/ina238/*/hwmon/hwmonN/power1_input in microwatts. The chip's name on
the board is in the file `label` next to it. The driver does not give the chip's step, so that the
smallest difference seen stands for it.
"""

from __future__ import annotations

from pathlib import Path

from edgefold.devices.sysfs import optional_text, read_number
from edgefold.runtime.errors import MeterError

UW_PER_W = 1e6
INPUT = "VIN"  # the label of the board's input
PERIOD_S = 0.02
# Kernel, drivers/hwmon/ina238.c: "16 sample averaging, 1052us conversion time, continuous mode",
# each for bus voltage, shunt voltage and temperature.
MEMORY_S = 16 * 3 * 1052e-6


class Ina238:
    """Reads the power of the board's input, as a `PowerSensor`.

    Args:
        root: Folder where sysfs is mounted; tests pass a recorded tree.

    Raises:
        MeterError: There is no such chip, or it may not be read; or there are several, of which
            not exactly one has the label VIN.
    """

    period_s = PERIOD_S
    memory_s = MEMORY_S
    step_w = None
    scope = "the board's input, its carrier board included"

    def __init__(self, root: Path = Path("/sys")) -> None:
        drivers = root / "bus" / "i2c" / "drivers"
        files = sorted((drivers / "ina238").glob("*/hwmon/hwmon*/power1_input"))
        chosen = files if len(files) == 1 else [file for file in files if _label(file) == INPUT]
        if len(chosen) != 1:
            raise MeterError(
                f"{drivers} shows {len(files)} chips of the driver ina238, {len(chosen)} of them "
                f"labelled {INPUT}, where Jetson Thor has one: not that board, or the module "
                "ina238 is not loaded"
            )
        self._file = chosen[0]
        self.rails = (_label(self._file) or INPUT,)
        self.name = f"INA238 ({self.rails[0]})"
        self.read_w()

    def read_w(self) -> float:
        """Return the power of the board's input now, in W.

        Raises:
            MeterError: The file cannot be read any more.
        """
        return read_number(self._file, "microwatts") / UW_PER_W


def _label(file: Path) -> str | None:
    """Return the chip's name on the board; None where the device tree gives none."""
    return optional_text(file.with_name("label")) or optional_text(file.with_name("in1_label"))
