"""Read temperatures, the limits at which clocks are lowered, and whether clocks were lowered.

    zone        what
    temp        thousandths of a degree; EAGAIN while its part is switched off (Jetson: gpu-thermal
                of an idle GPU, cv0-thermal to cv2-thermal of chips without DLA and PVA)
    trip_point  where something happens; cdevN and cdevN_trip_point name it: a cooling device

Only a passive trip with a device of cpufreq or devfreq lowers clocks. An Orin has a passive trip at
70 C that warns of a hot surface, and the one that lowers clocks at 99 C.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgefold.devices.host import Runner, optional_answer
from edgefold.devices.sysfs import optional_number, optional_text

NOT_A_SENSOR = {"PMIC-Die"}  # of Nano, TX2 and Xavier: shows 100 C or 50 C always
OFF_CELSIUS = -256.0  # of a zone whose part is off, on JetPack 5 and before
JUNCTION = "tj"  # the hottest of a Jetson's zones, which is worth a second try
COOLERS = ("cpufreq", "devfreq", "Processor")  # the last is ACPI's, which lowers a core's clock too
ALERT = "throttle-alert"  # Jetson's, which stand on while the hardware lowers clocks
OVER_CURRENT = "over-current events"
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


@dataclass(frozen=True, slots=True)
class Zone:
    """Describes a thermal zone, or a temperature sensor of the processor.

    Attributes:
        temperature_celsius: Temperature now; None where the zone does not answer with a number.
        throttle_celsius: Temperature from which on clocks are lowered; None where no trip of the
            zone does so.
    """

    name: str
    temperature_celsius: float | None
    throttle_celsius: float | None = None


def read_zones(sys: Path = Path("/sys")) -> tuple[Zone, ...]:
    """Return every thermal zone and temperature sensor of the processor, sorted by name."""
    zones = []
    for folder in sys.glob("class/thermal/thermal_zone*"):
        name = optional_text(folder / "type") or folder.name
        if name in NOT_A_SENSOR:
            continue
        value = _celsius(folder / "temp")
        if value is None and name.startswith(JUNCTION):
            value = _celsius(folder / "temp")
        shown = None if value == OFF_CELSIUS else value
        zones.append(Zone(name, shown, _throttle(folder)))
    for monitor in sys.glob("class/hwmon/hwmon*"):
        name = optional_text(monitor / "name") or ""
        if name in {"coretemp", "k10temp", "cpu_thermal"}:
            zones += [
                Zone(f"{name} {path.name.removesuffix('_input')}", _celsius(path))
                for path in monitor.glob("temp*_input")
            ]
    return tuple(sorted(zones, key=lambda zone: zone.name))


def _throttle(zone: Path) -> float | None:
    """Return the lowest temperature in C at which a zone lowers clocks; None where none does."""
    limits = []
    for bound in zone.glob("cdev*_trip_point"):
        kind = optional_text(zone / bound.name.removesuffix("_trip_point") / "type") or ""
        trip = zone / f"trip_point_{optional_text(bound)}_type"
        if any(cooler in kind for cooler in COOLERS) and optional_text(trip) == "passive":
            value = _celsius(trip.with_name(trip.name.replace("_type", "_temp")))
            if value is not None and value > 0:  # a trip that is switched off lies below
                limits.append(value)
    return min(limits, default=None)


def _celsius(path: Path) -> float | None:
    value = optional_number(path)
    return None if value is None else value / 1e3


def read_cooling(sys: Path = Path("/sys")) -> dict[str, float]:
    """Return the state of each device that lowers clocks, by its type; 0 is at rest."""
    states = {}
    for folder in sys.glob("class/thermal/cooling_device*"):
        kind = optional_text(folder / "type") or ""
        state = optional_number(folder / "cur_state")
        if state is not None and any(word in kind for word in (*COOLERS, ALERT)):
            states[f"{kind} ({folder.name})"] = state
    return states


def read_throttle_counters(sys: Path = Path("/sys")) -> dict[str, float]:
    """Return how often the hardware lowered clocks since the boot, by cause.

    A Jetson counts over-current and under-voltage (hwmon `soctherm_oc`), an x86-64 processor heat.
    """
    counters: dict[str, float] = {}
    for monitor in sys.glob("class/hwmon/hwmon*"):
        if optional_text(monitor / "name") == "soctherm_oc":
            for path in monitor.glob("oc*_event_cnt"):
                value = optional_number(path)
                if value is not None:
                    counters[f"{OVER_CURRENT} {path.name.partition('_')[0]}"] = value
    cores = sys.glob("devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
    counts = [value for path in cores if (value := optional_number(path)) is not None]
    return {**counters, "heat events of all cores": sum(counts)} if counts else counters


def throttle_flags(sys: Path = Path("/sys"), run: Runner | None = None) -> tuple[str, ...] | None:
    """Return a Raspberry Pi's warnings about its supply and its heat, now and since the boot.

    Args:
        sys: Folder where sysfs is mounted.
        run: Runs `vcgencmd` where the kernel does not show the flags; None does not run it.

    Returns:
        Texts of the flags that are set, none on a healthy board; None where no firmware reports.
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
