"""Find out which power and energy sensors this machine has, and why it does not have the others.

A new meter is a file in `meters/` and a line in `METERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from edgefold.devices.host import Host, read_board
from edgefold.devices.power.meters.ina238 import Ina238
from edgefold.devices.power.meters.ina3221 import Ina3221
from edgefold.devices.power.meters.nvml import NvmlEnergy, NvmlPower
from edgefold.devices.power.meters.pmic import Pmic
from edgefold.devices.power.meters.rapl import Rapl
from edgefold.devices.power.meters.summed import Summed
from edgefold.devices.power.sensor import EnergySensor, PowerSensor
from edgefold.runtime.errors import MeterError

BOARD, PROCESSOR, GPU = "board", "processor", "gpu"


@dataclass(frozen=True, slots=True)
class Meter:
    """Describes a kind of sensor and how to open it.

    Attributes:
        covers: Measured part: `BOARD` is GPU and processor together, `PROCESSOR` or `GPU` is one.
        open: Opens the sensor and reads it once; raises MeterError.
    """

    kind: str
    covers: str
    open: Callable[[Host], PowerSensor | EnergySensor]


METERS = (  # best first among those that cover the same
    Meter("INA238", BOARD, lambda host: Ina238(host.root / "sys")),
    Meter("INA3221", BOARD, lambda host: Ina3221(host.root / "sys")),
    Meter("PMIC", BOARD, lambda host: Pmic(host.run, read_board(host.root))),
    Meter("RAPL", PROCESSOR, lambda host: Rapl(host.root / "sys", host.root / "proc/cpuinfo")),
    Meter("NVML energy", GPU, lambda host: NvmlEnergy(host.nvml(), host.cudart)),
    Meter("NVML power", GPU, lambda host: NvmlPower(host.nvml(), host.cudart)),
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Holds an opened sensor of one kind, or the error that says why it did not open."""

    kind: str
    sensor: PowerSensor | EnergySensor | None
    error: MeterError | None = None

    @property
    def reason(self) -> str | None:
        """Return the reason why the sensor did not open; None if it did."""
        return None if self.error is None else str(self.error)


def probe_sensors(host: Host | None = None, gpu_first: bool = False) -> list[Candidate]:
    """Open every kind of sensor, in the order of preference on this machine.

    Args:
        host: The machine to look at; None is this one.
        gpu_first: Whether the work runs on a discrete GPU: then the GPU's meter comes first, summed
            with the processor's where both are counters.
    """
    order = (BOARD, GPU, PROCESSOR) if gpu_first else (BOARD, PROCESSOR, GPU)
    meters = sorted(METERS, key=lambda meter: order.index(meter.covers))
    probed = [(meter, _probe(meter, host or Host())) for meter in meters]
    counters = [
        (candidate.kind, candidate.sensor)
        for meter, candidate in probed
        if meter.covers != BOARD and isinstance(candidate.sensor, EnergySensor)
    ]
    candidates = [candidate for _, candidate in probed]
    if gpu_first and len(counters) > 1:
        kinds, sensors = zip(*counters, strict=True)
        n_boards = sum(meter.covers == BOARD for meter in METERS)
        candidates.insert(n_boards, Candidate(" + ".join(kinds), Summed(sensors)))
    return candidates


def choose_sensor(candidates: Sequence[Candidate]) -> PowerSensor | EnergySensor:
    """Return the first sensor that opened.

    Raises:
        MeterError: None did; the message gives each one's reason.
    """
    for candidate in candidates:
        if candidate.sensor is not None:
            return candidate.sensor
    raise MeterError("; ".join(f"{c.kind}: {c.reason}" for c in candidates))


def _probe(meter: Meter, host: Host) -> Candidate:
    try:
        return Candidate(meter.kind, meter.open(host))
    except MeterError as error:
        return Candidate(meter.kind, None, error)
