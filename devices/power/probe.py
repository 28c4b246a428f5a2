"""Which power and energy sensors this machine has, and why it has not the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefold.devices.memory.gpu import load_nvml
from edgefold.devices.power.meters.ina238 import Ina238
from edgefold.devices.power.meters.ina3221 import Ina3221
from edgefold.devices.power.meters.nvml import NvmlEnergy, NvmlPower
from edgefold.devices.power.meters.pmic import Pmic, run_command
from edgefold.devices.power.meters.rapl import Rapl
from edgefold.devices.power.meters.summed import Summed
from edgefold.devices.power.sampler import EnergySensor, PowerSensor
from edgefold.runtime.errors import MeterError


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kind of sensor: opened, or the reason why it is not."""

    kind: str
    sensor: PowerSensor | EnergySensor | None
    reason: str | None


_Opener = tuple[str, Callable[[], PowerSensor | EnergySensor]]


def probe_sensors(
    sysfs: Path = Path("/sys"),
    run: Callable[[Sequence[str]], str] = run_command,
    nvml: Callable[[], Any] = load_nvml,
    gpu_first: bool = False,
) -> list[Candidate]:
    """Open every kind of sensor and read it once, the most telling one for this machine first.

    Args:
        sysfs: Where sysfs is mounted; tests pass a recorded tree.
        run: Runs a command and returns what it printed.
        nvml: Returns the module pynvml or raises MeterError.
        gpu_first: The work runs on a discrete GPU: prefer its meter, summed with the processor's
            where both are counters.
    """
    board: list[_Opener] = [  # these see a module's GPU and processor alike
        ("INA238", lambda: Ina238(sysfs)),
        ("INA3221", lambda: Ina3221(sysfs)),
        ("PMIC", lambda: Pmic(run)),
    ]
    processor: list[_Opener] = [("RAPL", lambda: Rapl(sysfs))]
    gpu: list[_Opener] = [
        ("NVML energy", lambda: NvmlEnergy(nvml())),
        ("NVML power", lambda: NvmlPower(nvml())),
    ]
    boards = [_probe(*opener) for opener in board]
    parts = [_probe(*opener) for opener in (gpu + processor if gpu_first else processor + gpu)]
    counters = [c.sensor for c in parts if isinstance(c.sensor, EnergySensor)]
    if gpu_first and len(counters) > 1:
        both = Candidate("NVML energy + RAPL", Summed(counters), None)
        return [*boards, both, *parts]
    return [*boards, *parts]


def choose_sensor(candidates: Sequence[Candidate]) -> PowerSensor | EnergySensor:
    """The first sensor that opened.

    Raises:
        MeterError: None did; the message gives each one's reason.
    """
    for candidate in candidates:
        if candidate.sensor is not None:
            return candidate.sensor
    raise MeterError("; ".join(f"{c.kind}: {c.reason}" for c in candidates))


def _probe(kind: str, opener: Callable[[], PowerSensor | EnergySensor]) -> Candidate:
    try:
        return Candidate(kind, opener(), None)
    except MeterError as error:
        return Candidate(kind, None, str(error))
