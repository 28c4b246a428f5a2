"""Read the INA238 of Jetson Thor: one rail, the input of module and carrier board together.

Read from /sys/bus/i2c/drivers/ina238/*/hwmon/hwmonN/power1_input in microwatts. The driver does not
tell the chip's step, so that the smallest difference seen stands for it.
"""

from __future__ import annotations

from pathlib import Path

from edgefold.devices.sysfs import read_number, read_sensor
from edgefold.runtime.errors import MeterError

UW_PER_W = 1e6
PERIOD_S = 0.02


class Ina238:
    """The board's input as a `PowerSensor`.

    Args:
        root: Where sysfs is mounted; tests pass a recorded tree.

    Raises:
        MeterError: There is no such chip, there are several, or it may not be read.
    """

    period_s = PERIOD_S
    step_w = None
    scope = "the board's input, its carrier board included"

    def __init__(self, root: Path = Path("/sys")) -> None:
        drivers = root / "bus" / "i2c" / "drivers"
        files = sorted((drivers / "ina238").glob("*/hwmon/hwmon*/power1_input"))
        if len(files) != 1:
            raise MeterError(
                f"{drivers} shows {len(files)} chips of the driver ina238 where Jetson Thor has "
                "one: not that board, or the module ina238 is not loaded"
            )
        self._file = files[0]
        label = self._file.with_name("in1_label")
        self.rails = (read_sensor(label) if label.exists() else "VIN",)
        self.name = f"INA238 ({self.rails[0]})"
        self.read_w()

    def read_w(self) -> float:
        """Return watts now.

        Raises:
            MeterError: The file cannot be read any more.
        """
        return read_number(self._file, "microwatts") / UW_PER_W
