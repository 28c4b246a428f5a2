"""Which energy sensor this machine has, or why it has none. Further sensors join the list here."""

from __future__ import annotations

from pathlib import Path

from edgefold.devices.energy import EnergySensor
from edgefold.devices.errors import MeterError
from edgefold.devices.rapl import Rapl


def find_energy_sensor(sysfs: Path = Path("/sys")) -> EnergySensor:
    """The first sensor that opens.

    Raises:
        MeterError: None does; the message gives each one's reason.
    """
    reasons = []
    for name, sensor in (("RAPL", Rapl),):
        try:
            return sensor(sysfs)
        except MeterError as error:
            reasons.append(f"{name}: {error}")
    raise MeterError("; ".join(reasons))
