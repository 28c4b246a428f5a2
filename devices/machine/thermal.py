"""Read temperatures, the limit at which clocks are lowered, and whether they were."""

from __future__ import annotations

from pathlib import Path

from edgefold.devices.host import Runner, optional_answer
from edgefold.devices.sysfs import optional_number, optional_text

FLAGS = {  # Raspberry Pi documentation, "vcgencmd get_throttled"
    0: "under-voltage",
    1: "clock capped",
    2: "throttled",
    3: "soft temperature limit",
    16: "under-voltage since boot",
    17: "clock capped since boot",
    18: "throttled since boot",
    19: "soft temperature limit since boot",
}


def hottest_celsius(sys: Path = Path("/sys")) -> float | None:
    """Return the hottest thermal zone or CPU sensor; both report thousandths of a degree."""
    paths = [*sys.glob("class/thermal/thermal_zone*/temp")]
    for monitor in sys.glob("class/hwmon/hwmon*"):
        if optional_text(monitor / "name") in {"coretemp", "k10temp", "cpu_thermal"}:
            paths.extend(monitor.glob("temp*_input"))
    readings = [value for path in paths if (value := optional_number(path)) is not None]
    return max(readings) / 1e3 if readings else None


def throttle_celsius(sys: Path = Path("/sys")) -> float | None:
    """Return the lowest passive trip point: from it on the kernel lowers clocks."""
    trips = []
    for kind in sys.glob("class/thermal/thermal_zone*/trip_point_*_type"):
        if optional_text(kind) == "passive":
            value = optional_number(kind.with_name(kind.name.replace("_type", "_temp")))
            if value is not None and value > 0:  # a trip that is switched off lies below
                trips.append(value)
    return min(trips) / 1e3 if trips else None


def throttle_flags(sys: Path = Path("/sys"), run: Runner | None = None) -> tuple[str, ...] | None:
    """Return a Raspberry Pi's warnings of its supply and heat, now and since the boot.

    Args:
        sys: Where sysfs is mounted.
        run: Asks the firmware where the kernel does not show its word; None does not ask.

    Returns:
        Flags, none of them set on a healthy board; None where no firmware tells.
    """
    for path in sys.glob("devices/platform/soc*/soc*firmware/get_throttled"):
        word = optional_text(path)
        break
    else:
        said = optional_answer(run, "vcgencmd", "get_throttled") if run else ""
        word = said.strip().removeprefix("throttled=")
    try:
        bits = int(word or "", 16)
    except ValueError:
        return None
    return tuple(text for bit, text in FLAGS.items() if bits >> bit & 1)
