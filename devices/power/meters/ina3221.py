"""Read the INA3221 of Jetson boards: up to three rails a chip, through sysfs.

    layout   folder below /sys/bus/i2c/drivers        rail's name      reading
    hwmon    ina3221/1-0040/hwmon/hwmonN/             inN_label        inN_input mV, currN_input mA
    iio      ina3221x/6-0040/iio:deviceN/             rail_name_N      in_powerN_input mW

hwmon is JetPack 5 and later (Orin, Xavier, Thor), iio is JetPack 4 (Nano, TX2, Xavier). The numbers
of chips, hwmonN and iio:deviceN differ between boards and boots, so rails are found by driver and
label. `in7_label` is the sum of the shunt voltages and no rail.

Summed is the module's input where a board has that rail, else every rail that lies inside no other:
on AGX Orin VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0, on AGX Xavier all six. A current near zero may
read negative (the shunt amplifier's offset); it is passed on, since clamping would bias a mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgefold.devices.sysfs import optional_number, read_number, read_sensor
from edgefold.runtime.errors import MeterError

TOTALS = ("VDD_IN", "POM_5V_IN")  # Orin Nano and NX, Xavier NX, TX2; Nano
INSIDE = {  # Jetson Linux Developer Guide, AGX Orin: "is also included in VIN_SYS_5V0 power"
    "VDDQ_VDD2_1V8AO": "VIN_SYS_5V0",
}
UNUSED = {"", "NC"}  # channels of the chip that the board leaves open
SHUNT_STEP_UV = 40.0  # INA3221 data sheet: 40 uV a step, 8 mA at 5 mOhm
MIN_PERIOD_S = 0.02


@dataclass(frozen=True, slots=True)
class _Rail:
    """One rail: its files, and the smallest difference it shows, where that is known."""

    label: str
    files: tuple[Path, ...]
    step_w: float | None

    def read_w(self) -> float:
        if len(self.files) == 1:
            return read_number(self.files[0], "milliwatts") / 1e3
        voltage, current = self.files
        volts = read_number(voltage, "millivolts") / 1e3
        return volts * read_number(current, "milliamperes") / 1e3


class Ina3221:
    """This board's rails as one `PowerSensor`.

    Args:
        root: Where sysfs is mounted; tests pass a recorded tree.

    Raises:
        MeterError: There is no such chip, or a rail may not be read.
    """

    def __init__(self, root: Path = Path("/sys")) -> None:
        drivers = root / "bus" / "i2c" / "drivers"
        chips = [
            *sorted((drivers / "ina3221").glob("*/hwmon/hwmon*")),
            *sorted((drivers / "ina3221x").glob("*/iio*device*")),
        ]
        found = [rail for chip in chips for rail in _rails(chip)]
        if not found:
            raise MeterError(
                f"{drivers} has no rail of an ina3221: not a Jetson board, or the module ina3221 "
                "is not loaded"
            )
        self._rails, self.scope = _choose(found)
        self.rails = tuple(rail.label for rail in self._rails)
        self.name = f"INA3221 ({', '.join(self.rails)})"
        steps = [rail.step_w for rail in self._rails]
        known = [step for step in steps if step is not None]
        self.step_w = math.hypot(*known) if len(known) == len(steps) else None
        # A read of either file waits until the chip has finished a round of all its conversions.
        cycle_ms = max(optional_number(chip / "update_interval") or 0.0 for chip in chips)
        self.period_s = max(MIN_PERIOD_S, 2 * len(self._rails) * cycle_ms / 1e3)
        self.read_w()

    def read_w(self) -> float:
        """Return watts now, summed over the rails.

        Raises:
            MeterError: A rail cannot be read any more: the message names its file.
        """
        return sum(rail.read_w() for rail in self._rails)


def _rails(chip: Path) -> Iterator[_Rail]:
    for n in (1, 2, 3):
        label_file = chip / f"in{n}_label"
        if label_file.exists() and optional_number(chip / f"in{n}_enable") != 0:
            label = read_sensor(label_file)
            voltage, current = chip / f"in{n}_input", chip / f"curr{n}_input"
            if label not in UNUSED:
                shunt_uohm = optional_number(chip / f"shunt{n}_resistor")
                step_w = None
                if shunt_uohm:
                    volts = read_number(voltage, "millivolts") / 1e3
                    step_w = SHUNT_STEP_UV / shunt_uohm * volts
                yield _Rail(label, (voltage, current), step_w)
    for n in (0, 1, 2):
        label_file = chip / f"rail_name_{n}"
        if label_file.exists() and (label := read_sensor(label_file)) not in UNUSED:
            yield _Rail(label, (chip / f"in_power{n}_input",), None)


def _choose(found: list[_Rail]) -> tuple[list[_Rail], str]:
    """Choose the rails to sum; returns them and what they cover in words."""
    for total in TOTALS:
        chosen = [rail for rail in found if rail.label == total]
        if chosen:
            return chosen[:1], "the module's input; the carrier board's own consumption is not in"
    labels = {rail.label for rail in found}
    inner = {label: whole for label, whole in INSIDE.items() if {label, whole} <= labels}
    left_out = "".join(f"; {label} lies inside {whole}" for label, whole in inner.items())
    scope = f"the sum of the module's rails, which has no rail for its whole input{left_out}"
    return [rail for rail in found if rail.label not in inner], scope
