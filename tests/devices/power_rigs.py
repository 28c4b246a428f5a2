"""Every kind of power meter on a bench: trees of files, a command's text, a stand-in for NVML.

Each rig writes what the hardware would show at this moment of the bench, in the hardware's units
and steps, and opens the sensor that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgefold.devices.power.meters.ina238 import Ina238
from edgefold.devices.power.meters.ina3221 import Ina3221
from edgefold.devices.power.meters.nvml import NvmlEnergy, NvmlPower
from edgefold.devices.power.meters.pmic import Pmic
from edgefold.devices.power.meters.rapl import Rapl
from edgefold.devices.power.sensor import EnergySensor, PowerSensor
from tests.devices.power_bench import Bench

Rig = Callable[[Path, Bench], PowerSensor | EnergySensor]
RAPL_RANGE_UJ = 60_000_000  # 60 J: wraps every few seconds here


def write(path: Path, value: object) -> None:
    """Write in place, padded: cutting a file short takes milliseconds on some file systems."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    with path.open("r+") as file:
        file.write(f"{value}".ljust(32) + "\n")


def hwmon_chip(folder: Path, labels: Sequence[str], shunt_uohm: int) -> None:
    """What the mainline driver shows of one INA3221, its rails at rest."""
    for n, label in enumerate(labels, 1):
        write(folder / f"in{n}_label", label)
        write(folder / f"in{n}_enable", 1)
        write(folder / f"in{n}_input", 5000)
        write(folder / f"curr{n}_input", 0)
        write(folder / f"shunt{n}_resistor", shunt_uohm)
    write(folder / "in7_label", "sum of shunt voltages")
    write(folder / "in7_input", 123)
    write(folder / "curr4_input", 99999)
    write(folder / "update_interval", 7)


def show_current(folder: Path, n: int, power_w: float, shunt_uohm: int) -> None:
    """Write current at 5 V in the chip's steps of 40 uV over the shunt."""
    step_ma = 40e3 / shunt_uohm
    write(folder / f"curr{n}_input", round(round(power_w / 5 * 1e3 / step_ma) * step_ma))


def ina3221_total(address: str) -> Rig:
    """A module with VDD_IN; the other rails move too and must not be added."""

    def rig(root: Path, bench: Bench) -> Ina3221:
        folder = root / f"bus/i2c/drivers/ina3221/{address}/hwmon/hwmon3"
        hwmon_chip(folder, ("VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"), 5000)

        def publish() -> None:
            for n, share in ((1, 1.0), (2, 0.5), (3, 0.2)):
                show_current(folder, n, share * bench.power_w, 5000)

        bench.publish = publish
        publish()
        return Ina3221(root)

    return rig


def ina3221_agx_orin(root: Path, bench: Bench) -> Ina3221:
    """Two chips, no total; the memory's rail is behind the 5 V rail."""
    drivers = root / "bus/i2c/drivers/ina3221"
    first, second = drivers / "1-0040/hwmon/hwmon4", drivers / "1-0041/hwmon/hwmon3"
    hwmon_chip(first, ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"), 2000)
    hwmon_chip(second, ("NC", "VDDQ_VDD2_1V8AO", "NC"), 2000)

    def publish() -> None:
        for n, share in ((1, 0.5), (2, 0.3), (3, 0.2)):
            show_current(first, n, share * bench.power_w, 2000)
        show_current(second, 2, 0.1 * bench.power_w, 2000)

    bench.publish = publish
    publish()
    return Ina3221(root)


def iio_chip(folder: Path, rails: dict[str, float], bench: Bench) -> Callable[[], None]:
    for n, label in enumerate(rails):
        write(folder / f"rail_name_{n}", label)

    def publish() -> None:
        for n, share in enumerate(rails.values()):
            write(folder / f"in_power{n}_input", round(share * bench.power_w * 1e3))

    publish()
    return publish


def ina3221_nano(root: Path, bench: Bench) -> Ina3221:
    """JetPack 4 on a Jetson Nano."""
    folder = root / "bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    rails = {"POM_5V_IN": 1.0, "POM_5V_GPU": 0.3, "POM_5V_CPU": 0.4}
    bench.publish = iio_chip(folder, rails, bench)
    return Ina3221(root)


def ina3221_agx_xavier(root: Path, bench: Bench) -> Ina3221:
    """JetPack 4 on a Jetson AGX Xavier: six rails of two chips, none a total."""
    drivers = root / "bus/i2c/drivers/ina3221x"
    first = iio_chip(drivers / "1-0040/iio:device0", {"GPU": 0.3, "CPU": 0.25, "SOC": 0.15}, bench)
    second = iio_chip(
        drivers / "1-0041/iio:device1", {"CV": 0.1, "VDDRQ": 0.05, "SYS5V": 0.15}, bench
    )

    def publish() -> None:
        first()
        second()

    bench.publish = publish
    return Ina3221(root)


def ina238_thor(root: Path, bench: Bench) -> Ina238:
    """Thor: the board's input on an INA238, an INA3221 with parts of it beside it."""
    file = root / "bus/i2c/drivers/ina238/2-0044/hwmon/hwmon2/power1_input"
    other = root / "bus/i2c/drivers/ina3221/2-0040/hwmon/hwmon1"
    hwmon_chip(other, ("VDD_GPU", "VDD_CPU_SOC_MSS", "VIN_SYS_5V0"), 2000)

    def publish() -> None:
        write(file, round(bench.power_w * 1e6))

    bench.publish = publish
    publish()
    return Ina238(root)


def rapl(root: Path, bench: Bench) -> Rapl:
    """A package and its memory, whose counters wrap on the way."""
    zones = {"intel-rapl:0": ("package-0", 0.8), "intel-rapl:0:0": ("core", 0.6)}
    zones |= {"intel-rapl:0:1": ("dram", 0.2), "intel-rapl:1": ("psys", 1.3)}
    folder = root / "class/powercap"

    def publish() -> None:
        for name, (_, share) in zones.items():
            used_uj = 50_000_000 + round(share * bench.energy_j * 1e6)
            write(folder / name / "energy_uj", used_uj % RAPL_RANGE_UJ)

    for name, (label, _) in zones.items():
        write(folder / name / "name", label)
        write(folder / name / "max_energy_range_uj", RAPL_RANGE_UJ)
    bench.publish = publish
    publish()
    return Rapl(root)


class FakeNvml:
    """The part of pynvml that is used; a query named in `refused` answers as Jetson's does.

    The bench is the GPU at `bus_id`, the last one; those before it use nothing.
    """

    class NVMLError(Exception):
        pass

    def __init__(
        self,
        bench: Bench,
        refused: Sequence[str] = (),
        bus_ids: Sequence[bytes] = (b"0000:65:00.0",),
        mig: int = 0,
    ) -> None:
        self._bench, self.refused = bench, set(refused)
        self._bus_ids, self._mig = bus_ids, mig

    def nvmlInit(self) -> None:  # noqa: N802  # the library's names
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self._bus_ids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> bytes:  # noqa: N802
        if index >= len(self._bus_ids):
            raise self.NVMLError("Invalid Argument")
        return self._bus_ids[index]

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: bytes) -> bytes:  # noqa: N802
        if bus_id not in self._bus_ids:
            raise self.NVMLError("Not Found")
        return bus_id

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:  # noqa: N802
        if not self._mig:
            raise self.NVMLError("Not Supported")
        return [self._mig, self._mig]

    def nvmlDeviceGetName(self, handle: Any) -> bytes:  # noqa: N802
        return b"NVIDIA Bench"

    def _answer(self, query: str, value: float) -> int:
        if query in self.refused:
            raise self.NVMLError("Not Supported")
        return round(value)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:  # noqa: N802
        used_mj = self._bench.energy_j * 1e3 if handle == self._bus_ids[-1] else 0.0
        return self._answer("nvmlDeviceGetTotalEnergyConsumption", 7e6 + used_mj)

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:  # noqa: N802
        used_mw = self._bench.power_w * 1e3 if handle == self._bus_ids[-1] else 0.0
        return self._answer("nvmlDeviceGetPowerUsage", used_mw)


def nvml_energy(root: Path, bench: Bench) -> NvmlEnergy:
    return NvmlEnergy(FakeNvml(bench))


def nvml_power(root: Path, bench: Bench) -> NvmlPower:
    return NvmlPower(FakeNvml(bench))


PMIC_RAILS = {"3V3_SYS": (3.3, 0.3), "VDD_CORE": (0.9, 0.6), "DDR_VDD2": (1.1, 0.1)}


def pmic_text(power_w: float, rails: Sequence[str] = tuple(PMIC_RAILS)) -> str:
    """As the command prints it: currents, then voltages, paired by name alone."""
    lines = []
    for n, rail in enumerate(rails):
        volts, share = PMIC_RAILS[rail]
        lines.append(f"{rail:>10}_A current({n})={share * power_w / volts:.8f}A")
    for n, rail in enumerate(rails, 8):
        lines.append(f"{rail:>10}_V volt({n})={PMIC_RAILS[rail][0]:.8f}V")
    lines += ["   EXT5V_V volt(24)=5.12345678V", "    BATT_V volt(25)=0.00000000V"]
    return "\n".join(lines) + "\n"


def pmic(root: Path, bench: Bench) -> Pmic:
    return Pmic(lambda words: pmic_text(bench.power_w))


RIGS: dict[str, Rig] = {
    "Orin Nano": ina3221_total("1-0040"),
    "Xavier NX": ina3221_total("7-0040"),
    "AGX Orin": ina3221_agx_orin,
    "Nano, JetPack 4": ina3221_nano,
    "AGX Xavier, JetPack 4": ina3221_agx_xavier,
    "Thor": ina238_thor,
    "RAPL": rapl,
    "NVML energy": nvml_energy,
    "NVML power": nvml_power,
    "Raspberry Pi 5": pmic,
}
