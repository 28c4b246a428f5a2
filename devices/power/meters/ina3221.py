"""Read the INA3221 of Jetson boards: up to three rails a chip, through sysfs.

    layout   folder below /sys/bus/i2c/drivers        rail's name      reading
    hwmon    ina3221/1-0040/hwmon/hwmonN/             inN_label        inN_input mV, currN_input mA
    iio      ina3221x/6-0040/iio:deviceN/             rail_name_N      in_powerN_input mW

hwmon is JetPack 5 and later (Orin, Xavier, Thor), iio is JetPack 4 (Nano, TX2, Xavier). The numbers
of chips, hwmonN and iio:deviceN differ between boards and boots, so rails are found by driver and
label. `in7_label` is the sum of the shunt voltages and no rail.

The power is that of the module's input where a board has that rail, else a sum of all outer rails:
on AGX Orin VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0, on AGX Xavier all six. A current near zero may
read negative (the shunt amplifier's offset); it is passed on, since clamping would bias a mean.

The chip converts voltage and current of its channels in turn, averages over `samples` such cycles
and keeps that average until the next one is finished. NVIDIA's nvpower.sh sets 512 samples and 430
ms on Orin and Xavier, for the over-current warning; nothing is written here. What the driver says
and how it reads changed in Linux 5.14 ("hwmon: ina3221: use CVRF only for single-shot conversion"):

    kernel           update_interval            a read
    before 5.14      430: samples are in it     waits for the next finished average
    5.14 and later   1: one cycle only          returns the last finished average at once

Where reads wait long, the rails' currents are read one after the other, chips in turn, and one of
the voltages: these are regulated and change by little.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgefold.devices.power.sensor import RailWatch
from edgefold.devices.sysfs import optional_number, read_number, read_sensor
from edgefold.runtime.errors import MeterError

TOTALS = ("VDD_IN", "POM_5V_IN")  # Orin Nano and NX, Xavier NX, TX2; Nano
INSIDE = {  # Jetson Linux Developer Guide, AGX Orin: "is also included in VIN_SYS_5V0 power"
    "VDDQ_VDD2_1V8AO": "VIN_SYS_5V0",
}
UNUSED = {"", "NC"}  # channels of the chip that the board leaves open
SHUNT_STEP_UV = 40.0  # INA3221 data sheet: 40 uV a step, 8 mA at 5 mOhm
MIN_PERIOD_S = 0.02
# INA3221 data sheet, CT bits: the driver sets the same time for bus and shunt voltage.
PAIRS_MS = tuple(2 * us / 1e3 for us in (140, 204, 332, 588, 1100, 2116, 4156, 8244))
# What is assumed where no file says: nvpower.sh's average; NVIDIA's driver of kernel 4.9 averages
# 64 samples of 2.2 ms on three channels, about as long.
USUAL_CYCLE_S = 0.43
LONG_S = 0.05  # of a cycle
WAIT = 1.25  # of a cycle: before 5.14 the driver looks every quarter of a cycle whether it is over


@dataclass(frozen=True, slots=True)
class _Rail:
    """Describes one rail: its chip, its files, and its smallest step in W; None where unknown."""

    label: str
    chip: Path
    channel: int
    current: Path
    voltage: Path | None
    step_w: float | None

    def read_current(self) -> float:
        """Return the current in A; of a driver that shows power only (iio), the power in W."""
        unit = "milliwatts" if self.voltage is None else "milliamperes"
        return read_number(self.current, unit) / 1e3

    def read_voltage(self) -> float:
        """Return the voltage in V; 1 for a driver that shows power only (iio)."""
        return 1.0 if self.voltage is None else read_number(self.voltage, "millivolts") / 1e3


@dataclass(frozen=True, slots=True)
class _Cycle:
    """Describes how long one chip averages in s, and whether a read waits for the next average."""

    length_s: float
    waits: bool


class Ina3221:
    """Reads the power of this board's rails, as one `PowerSensor`.

    Args:
        root: Folder where sysfs is mounted; tests pass a recorded tree.

    Raises:
        MeterError: There is no such chip, or a rail may not be read.
    """

    def __init__(self, root: Path = Path("/sys")) -> None:
        drivers = root / "bus" / "i2c" / "drivers"
        chips = [
            *sorted((drivers / "ina3221").glob("*/hwmon/hwmon*")),
            *sorted((drivers / "ina3221x").glob("*/iio*device*")),
        ]
        rails = [rail for chip in chips for rail in _rails(chip)]
        if not rails:
            raise MeterError(
                f"{drivers} has no rail of an ina3221: not a Jetson board, or the module ina3221 "
                "is not loaded"
            )
        chosen, self.scope = _choose(rails)
        self.rails = tuple(rail.label for rail in chosen)
        self.name = f"INA3221 ({', '.join(self.rails)})"
        steps = [rail.step_w for rail in chosen]
        known_steps = [step for step in steps if step is not None]
        self.step_w = math.hypot(*known_steps) if len(known_steps) == len(steps) else None
        self._rails = sorted(chosen, key=lambda rail: rail.channel)  # chips in turn
        cycles = [_cycle(chip) for chip in {rail.chip for rail in chosen}]
        cycle_s = max(cycle.length_s for cycle in cycles)
        waits = any(cycle.waits for cycle in cycles)
        self._in_turn = waits and cycle_s > LONG_S
        n_currents = max(Counter(rail.chip for rail in chosen).values())
        n_reads = n_currents + (1 if self._in_turn else n_currents)
        self.period_s = max(MIN_PERIOD_S, WAIT * n_reads * cycle_s if waits else 0.0)
        # The first value waits until the last one is read.
        self.memory_s = cycle_s * (n_reads + 1) / 2 if waits else cycle_s
        self._watch = RailWatch()
        self._turn = 0
        self._volts = [rail.read_voltage() for rail in self._rails]
        self.read_w()

    def read_w(self) -> float:
        """Return the power now in W, summed over the rails.

        Raises:
            MeterError: A rail cannot be read any more: the message names its file.
        """
        rails = self._rails
        for n in (self._turn,) if self._in_turn else range(len(rails)):
            self._volts[n] = rails[n].read_voltage()
        self._turn = (self._turn + 1) % len(rails)
        amperes = [rail.read_current() for rail in rails]
        self._watch.see({rail.label: a for rail, a in zip(rails, amperes, strict=True)})
        return sum(v * a for v, a in zip(self._volts, amperes, strict=True))

    @property
    def still_rails(self) -> tuple[str, ...]:
        """Return the names of the rails whose current has never changed."""
        return self._watch.still


def _cycle(chip: Path) -> _Cycle:
    """Return how long the averages of a chip are, and whether a read waits for the next one."""
    interval_ms = optional_number(chip / "update_interval")
    if interval_ms is None:
        return _Cycle(USUAL_CYCLE_S, False)
    enabled = [optional_number(chip / f"in{n}_enable") for n in (1, 2, 3)]
    n_channels = max(1, sum(on != 0 for on in enabled))
    samples = optional_number(chip / "samples") or 1.0
    pair_ms = (interval_ms - 0.5) / n_channels  # rounded to whole milliseconds
    if samples == 1 or pair_ms > PAIRS_MS[-1]:  # with one sample, both kernels say the same
        return _Cycle(interval_ms / 1e3, True)
    nearest_ms = min(PAIRS_MS, key=lambda pair: abs(pair - interval_ms / n_channels))
    return _Cycle(samples * nearest_ms * n_channels / 1e3, False)


def _rails(chip: Path) -> Iterator[_Rail]:
    for n in (1, 2, 3):
        label_file = chip / f"in{n}_label"
        if label_file.exists() and optional_number(chip / f"in{n}_enable") != 0:
            label = read_sensor(label_file)
            voltage = chip / f"in{n}_input"
            if label not in UNUSED:
                shunt_uohm = optional_number(chip / f"shunt{n}_resistor")
                step_w = None
                if shunt_uohm:
                    volts = read_number(voltage, "millivolts") / 1e3
                    step_w = SHUNT_STEP_UV / shunt_uohm * volts
                yield _Rail(label, chip, n, chip / f"curr{n}_input", voltage, step_w)
    for n in (0, 1, 2):
        label_file = chip / f"rail_name_{n}"
        if label_file.exists() and (label := read_sensor(label_file)) not in UNUSED:
            yield _Rail(label, chip, n, chip / f"in_power{n}_input", None, None)


def _choose(rails: list[_Rail]) -> tuple[list[_Rail], str]:
    """Choose the rails to sum; return them, and words on what the sum covers."""
    for total in TOTALS:
        chosen = [rail for rail in rails if rail.label == total]
        if chosen:
            return chosen[:1], "the module's input; the carrier board's own consumption is not in"
    labels = {rail.label for rail in rails}
    inner = {label: whole for label, whole in INSIDE.items() if {label, whole} <= labels}
    left_out = "".join(f"; {label} lies inside {whole}" for label, whole in inner.items())
    scope = f"the sum of the module's rails, which has no rail for its whole input{left_out}"
    return [rail for rail in rails if rail.label not in inner], scope
