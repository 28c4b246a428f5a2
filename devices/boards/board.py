"""Read the profiles of boards: memory, rates, power modes, sensors, each figure with its source.

A profile is a JSON file in devices/boards/, or the user's own. A figure is

    {"value": 68e9, "status": "confirmed", "source": "the document that was read"}
    {"value": 1.28e12, "status": "derived", "formula": "1024 * 2 * 625e6", "source": "of what"}
    {"value": 930e6, "status": "unconfirmed", "source": "recalled; no document was read"}
    {"value": null, "status": "unknown", "source": null}

A formula is numbers joined by * and /. Power modes and sensors have one status each. Rates of a GPU
are dense (data sheets like to print sparse ones, which are twice as high). Units are bytes, hertz,
watts, bytes/s and operations/s; memory sizes are the data sheet's, in powers of two.

The dataclasses have the fields of the file. A profile describes a board; nothing here was measured
on one. A microcontroller, which runs the bundle as C and no Python, has fields of its own; its file
lies in devices/boards/microcontrollers/ and says `"kind": "microcontroller"`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from edgefold.devices.boards.schema import FieldError, read_as
from edgefold.runtime.backends import registry
from edgefold.runtime.errors import BoardError

SCHEMA = 2
MOST_BYTES = 1_000_000
PROFILES = Path(__file__).parent
MICROCONTROLLERS = PROFILES / "microcontrollers"
PRECISIONS = ("float32", "float16", "int8")
BACKENDS = tuple(sorted({info.board_key for info in registry.BACKENDS.values()}))
"""Names of the two families of backends: those of the CPU and those of an NVIDIA GPU."""
Status = Literal["confirmed", "derived", "unconfirmed"]
"""How a value is known: read in the source, derived from others by the formula, or recalled."""
DERIVED: Final = "derived"
UNCONFIRMED: Final = "unconfirmed"
UNKNOWN: Final = "unknown"
STATUSES: tuple[str, ...] = get_args(Status)


@dataclass(frozen=True, slots=True)
class Figure:
    """Holds a number, its source and a status: confirmed, derived, unconfirmed or unknown.

    The number is None if, and only if, the status is unknown.
    """

    value: float | None
    source: str | None
    status: Literal["confirmed", "derived", "unconfirmed", "unknown"] = UNCONFIRMED
    formula: str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) != (self.status == UNKNOWN):
            raise ValueError(f"status is {self.status}; null values, and only these, are {UNKNOWN}")
        if self.value is not None and self.source is None:
            raise ValueError("source is null; write where the value comes from, or a null value")
        if (self.formula is None) == (self.status == DERIVED) and self.status != UNCONFIRMED:
            raise ValueError("formula belongs to derived values; confirmed ones have none")


@dataclass(frozen=True, slots=True)
class Memory:
    """Describes the sizes and the speed of a board's memory.

    Attributes:
        total_bytes: Size that the data sheet states.
        visible_bytes: Size that Linux reports as MemTotal.
        bandwidth_bytes_per_s: Peak bandwidth at `clock_hz`.
        clock_hz: Highest memory clock of the power modes; None where no mode caps it.
        page_bytes: Page size of the kernel that comes with the board; None is 4 KiB.
    """

    total_bytes: Figure
    visible_bytes: Figure
    bandwidth_bytes_per_s: Figure
    clock_hz: Figure | None = None
    page_bytes: Figure | None = None

    def bandwidth(self, clock_hz: float | None) -> float | None:
        """Return the peak bytes/s at a memory clock in Hz (None: the highest); None if unknown."""
        full, top = self.bandwidth_bytes_per_s.value, self.clock_hz and self.clock_hz.value
        return full * clock_hz / top if full and clock_hz and top else full


@dataclass(frozen=True, slots=True)
class Cpu:
    """Describes a board's processor: the number of cores, and one core at the highest clock.

    Attributes:
        cores: Number of cores, all clusters together.
        flops_per_cycle: Operations in float32; a fused multiply-add counts as two.
    """

    model: str
    cores: Figure
    clock_hz: Figure
    flops_per_cycle: Figure

    def rate(self, clock_hz: float | None = None) -> float | None:
        """Return a core's peak float32 operations/s at a clock in Hz; None if unknown.

        A clock of None is the highest one.
        """
        clock = clock_hz or self.clock_hz.value
        per_cycle = self.flops_per_cycle.value
        return clock * per_cycle if clock and per_cycle else None


@dataclass(frozen=True, slots=True)
class Gpu:
    """Describes a GPU by its clock and its dense peak operations/s for each precision.

    The rate for float32 is that of CUDA cores, the others are those of tensor cores.
    """

    model: str
    clock_hz: Figure
    dense_operations_per_s: Mapping[str, Figure]

    def __post_init__(self) -> None:
        if set(self.dense_operations_per_s) != set(PRECISIONS):
            raise ValueError(f"dense_operations_per_s needs the fields {', '.join(PRECISIONS)}")


@dataclass(frozen=True, slots=True)
class PowerMode:
    """Describes a power mode of nvpmodel; None stands for a value that the source lacks."""

    name: str
    power_w: float | None
    n_cores: int | None
    cpu_clock_hz: float | None
    gpu_clock_hz: float | None
    source: str
    status: Status = UNCONFIRMED
    memory_clock_hz: float | None = None


@dataclass(frozen=True, slots=True)
class BoardSensor:
    """Describes a power sensor that our meters read; `rails` is empty on a board without sensor."""

    name: str
    rails: tuple[str, ...]
    note: str
    source: str
    status: Status


@dataclass(frozen=True, slots=True)
class Scope:
    """States whether we promise that a family of backends runs on a board, and why."""

    in_scope: bool
    note: str


@dataclass(frozen=True, slots=True)
class Board:
    """Describes a board with Linux, with the fields of its profile.

    Attributes:
        backends: For each family in `BACKENDS`, whether it is promised to run on this board.
    """

    name: str
    title: str
    architecture: str
    memory: Memory
    cpu: Cpu
    gpu: Gpu | None
    power_modes: tuple[PowerMode, ...]
    sensors: tuple[BoardSensor, ...]
    backends: Mapping[str, Scope]
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        if set(self.backends) != set(BACKENDS):
            raise ValueError(f"backends needs the fields {', '.join(BACKENDS)}")

    def statuses(self) -> dict[str, str]:
        """Return the status of every known figure, power mode and sensor, by name.

        A status is confirmed, derived or unconfirmed.
        """
        figures = {
            "memory": self.memory.total_bytes,
            "visible memory": self.memory.visible_bytes,
            "memory bandwidth": self.memory.bandwidth_bytes_per_s,
            "memory clock": self.memory.clock_hz,
            "page size": self.memory.page_bytes,
            "CPU cores": self.cpu.cores,
            "CPU clock": self.cpu.clock_hz,
            "operations per cycle": self.cpu.flops_per_cycle,
        }
        if self.gpu:
            figures["GPU clock"] = self.gpu.clock_hz
            figures |= {
                f"GPU {name} rate": rate for name, rate in self.gpu.dense_operations_per_s.items()
            }
        statuses: dict[str, str] = {
            name: each.status for name, each in figures.items() if each and each.value is not None
        }
        statuses |= {f"mode {mode.name}": mode.status for mode in self.power_modes}
        return statuses | {f"sensor {sensor.name}": sensor.status for sensor in self.sensors}


@dataclass(frozen=True, slots=True)
class Core:
    """Describes one core of a microcontroller at its highest clock.

    Attributes:
        fpu: Widest float that the core computes in hardware: "none", "single" or "double".
        flops_per_cycle: Operations in float32; a fused multiply-add counts as two.
    """

    model: str
    fpu: Literal["none", "single", "double"]
    cores: Figure
    clock_hz: Figure
    flops_per_cycle: Figure


@dataclass(frozen=True, slots=True)
class Microcontroller:
    """Describes a microcontroller, which runs a bundle as C, without an operating system.

    Attributes:
        flash_bytes: Flash that the program and its constants may take.
        ram_bytes: Size of the largest contiguous block of RAM.
    """

    name: str
    title: str
    architecture: str
    flash_bytes: Figure
    ram_bytes: Figure
    cpu: Core
    notes: tuple[str, ...]

    def statuses(self) -> dict[str, str]:
        """Return the status of every known figure by name: confirmed, derived or unconfirmed."""
        figures = {
            "flash": self.flash_bytes,
            "RAM": self.ram_bytes,
            "CPU cores": self.cpu.cores,
            "CPU clock": self.cpu.clock_hz,
            "operations per cycle": self.cpu.flops_per_cycle,
        }
        return {name: each.status for name, each in figures.items() if each.value is not None}


def board_names() -> list[str]:
    """Return the names of the boards with Linux whose profiles come with this version."""
    return sorted(path.stem for path in PROFILES.glob("*.json"))


def microcontroller_names() -> list[str]:
    """Return the names of the microcontrollers whose profiles come with this version."""
    return sorted(path.stem for path in MICROCONTROLLERS.glob("*.json"))


def board_text(name: str) -> str:
    """Return a profile as JSON, which a user may copy and change.

    Raises:
        BoardError: There is no such profile.
    """
    return _read(_place(name))


def load_board(name: str) -> Board:
    """Read a board's profile by name, or from a file if the name ends in .json or holds a slash.

    Raises:
        BoardError: The profile is unknown, unreadable or not valid (the message names the field),
            or is that of a microcontroller.
    """
    profile = load_profile(name)
    if isinstance(profile, Microcontroller):
        raise BoardError(f"{name} is a microcontroller, which runs no Python; give a board.")
    return profile


def load_microcontroller(name: str) -> Microcontroller:
    """Read a microcontroller's profile by its name or from a file, as `load_board` does."""
    profile = load_profile(name)
    if isinstance(profile, Board):
        raise BoardError(f"{name} is a board with Linux; give a microcontroller.")
    return profile


def load_profile(name: str) -> Board | Microcontroller:
    """Read the profile of a board or of a microcontroller, by name or from a file."""
    path = _place(name)
    try:
        form = json.loads(_read(path))
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        reason = str(error).partition(";")[0]
        raise BoardError(f"{path} is not JSON: {reason}.") from error
    try:
        schema = form.pop("schema", None) if isinstance(form, dict) else SCHEMA
        if schema != SCHEMA:
            raise FieldError(f"schema is {schema!r}, this version of edgefold reads {SCHEMA}")
        is_small = isinstance(form, dict) and form.get("kind") == "microcontroller"
        if is_small:
            del form["kind"]
        profile: Board | Microcontroller = read_as(Microcontroller if is_small else Board, form)
    except FieldError as wrong:
        raise BoardError(
            f"{path}: {wrong}. `edgefold budget --show NAME` prints a valid profile."
        ) from None
    return profile


def _place(name: str) -> Path:
    if name.endswith(".json") or "/" in name:
        return Path(name)
    for folder in (PROFILES, MICROCONTROLLERS):
        if (folder / f"{name}.json").is_file():
            return folder / f"{name}.json"
    raise BoardError(
        f"{name!r} is not a board. Boards with Linux: {', '.join(board_names())}. "
        f"Microcontrollers: {', '.join(microcontroller_names())}. `edgefold budget --list` "
        "describes each; for another one give the file of a profile, such as ./myboard.json."
    )


def _read(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise BoardError(f"{path} is not a file; give a profile such as --show prints.")
        if path.stat().st_size > MOST_BYTES:
            raise BoardError(f"{path} is larger than {MOST_BYTES:,} bytes, which is not a profile.")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise BoardError(f"{path} cannot be read: {reason}.") from error
