"""Boards as data: memory, rates, power modes and sensors, each figure with where it comes from.

A profile is a JSON file in devices/boards/, or the user's own. A figure is

    {"value": 68e9, "status": "confirmed", "source": "the document that was read"}
    {"value": 1.28e12, "status": "derived", "formula": "1024 * 2 * 625e6", "source": "of what"}
    {"value": 930e6, "status": "unconfirmed", "source": "recalled; no document was read"}
    {"value": null, "status": "unknown", "source": null}

A formula is numbers joined by * and /, and has to give the value. Power modes and sensors have one
status each. Rates of a GPU are dense (data sheets like to print sparse ones, which are twice as
high). Units are bytes, hertz, watts, bytes/s and operations/s; memory sizes are the data sheet's,
in powers of two.

A profile describes a board; nothing here was measured on one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgefold.devices.boards.schema import (
    UNCONFIRMED,
    FieldError,
    Figure,
    Form,
    shown,
)
from edgefold.runtime.errors import BoardError

SCHEMA = 2
MOST_BYTES = 1_000_000
PROFILES = Path(__file__).parent
PRECISIONS = ("float32", "float16", "int8")


@dataclass(frozen=True, slots=True)
class Cpu:
    """One core at the board's highest clock; flops_per_cycle counts float32, a fused product twice.

    Attributes:
        cores: How many, all clusters together.
    """

    model: str
    cores: Figure
    clock_hz: Figure
    flops_per_cycle: Figure

    def rate(self, clock_hz: float | None = None) -> float | None:
        """Peak float32 operations a second of one core, at its own clock or another one."""
        clock = clock_hz or self.clock_hz.value
        per_cycle = self.flops_per_cycle.value
        return clock * per_cycle if clock and per_cycle else None


@dataclass(frozen=True, slots=True)
class Gpu:
    """Dense peak rates by precision: float32 on CUDA cores, float16 and int8 on tensor cores."""

    model: str
    clock_hz: Figure
    rates: Mapping[str, Figure]


@dataclass(frozen=True, slots=True)
class PowerMode:
    """One mode of nvpmodel; what the source does not tell is None."""

    name: str
    power_w: float | None
    n_cores: int | None
    cpu_clock_hz: float | None
    gpu_clock_hz: float | None
    source: str
    status: str = UNCONFIRMED


@dataclass(frozen=True, slots=True)
class Sensor:
    """What our meters can read there; no rails where the board has no sensor."""

    name: str
    rails: tuple[str, ...]
    note: str
    source: str
    status: str


@dataclass(frozen=True, slots=True)
class Scope:
    """Whether a backend is promised to run on a board, and why, or why not."""

    in_scope: bool
    note: str


@dataclass(frozen=True, slots=True)
class Board:
    """One profile.

    Attributes:
        memory_bytes: As the data sheet says. visible_bytes: What Linux reports as MemTotal.
        backends: For onnxruntime and tensorrt, whether they are in scope there, and why.
    """

    name: str
    title: str
    architecture: str
    memory_bytes: Figure
    visible_bytes: Figure
    bandwidth_bytes_per_s: Figure
    cpu: Cpu
    gpu: Gpu | None
    power_modes: tuple[PowerMode, ...]
    sensors: tuple[Sensor, ...]
    backends: Mapping[str, Scope]
    notes: tuple[str, ...]

    def statuses(self) -> dict[str, str]:
        """Every known figure, power mode and sensor by name, and its status."""
        figures = {
            "memory": self.memory_bytes,
            "visible memory": self.visible_bytes,
            "memory bandwidth": self.bandwidth_bytes_per_s,
            "CPU cores": self.cpu.cores,
            "CPU clock": self.cpu.clock_hz,
            "operations per cycle": self.cpu.flops_per_cycle,
        }
        if self.gpu:
            figures["GPU clock"] = self.gpu.clock_hz
            figures |= {f"GPU {name} rate": rate for name, rate in self.gpu.rates.items()}
        found = {name: each.status for name, each in figures.items() if each.value is not None}
        found |= {f"mode {mode.name}": mode.status for mode in self.power_modes}
        return found | {f"sensor {sensor.name}": sensor.status for sensor in self.sensors}


def board_names() -> list[str]:
    """The profiles that come with this version."""
    return sorted(path.stem for path in PROFILES.glob("*.json"))


def board_text(name: str) -> str:
    """A profile as JSON, to start one's own from.

    Raises:
        BoardError: There is no such profile.
    """
    return _read(_place(name))


def load_board(name: str) -> Board:
    """A profile by name, or a file's if the name ends in .json or holds a slash.

    Raises:
        BoardError: Unknown, unreadable, or not as profiles are written; the field is named.
    """
    path = _place(name)
    try:
        form = json.loads(_read(path))
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        reason = str(error).partition(";")[0]
        raise BoardError(f"{path} is no JSON: {reason}.") from error
    try:
        return _board(form)
    except FieldError as wrong:
        raise BoardError(
            f"{path}: {wrong}. `edgefold budget --show NAME` prints a profile that is right."
        ) from None


def _place(name: str) -> Path:
    if name.endswith(".json") or "/" in name:
        return Path(name)
    path = PROFILES / f"{name}.json"
    if not path.is_file():
        raise BoardError(
            f"no board is called {name!r}; take one of {', '.join(board_names())}, or a file such "
            "as ./myboard.json."
        )
    return path


def _read(path: Path) -> str:
    try:
        if path.exists() and not path.is_file():
            raise BoardError(f"{path} is no file; give a profile as --show prints one.")
        if path.stat().st_size > MOST_BYTES:
            raise BoardError(f"{path} is larger than {MOST_BYTES:,} bytes: no profile.")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise BoardError(f"{path} cannot be read: {reason}.") from error


def _board(value: Any) -> Board:
    form = Form(value, "the profile")
    schema = form.take("schema")
    if schema != SCHEMA:
        raise FieldError(f"schema is {shown(schema)}, this version of edgefold reads {SCHEMA}")
    memory, cpu, gpu = form.inner("memory"), form.inner("cpu"), form.take("gpu")
    backends = form.inner("backends")
    board = Board(
        name=form.text("name"),
        title=form.text("title"),
        architecture=form.text("architecture"),
        memory_bytes=memory.figure("total_bytes"),
        visible_bytes=memory.figure("visible_bytes"),
        bandwidth_bytes_per_s=memory.figure("bandwidth_bytes_per_s"),
        cpu=Cpu(
            cpu.text("model"),
            cpu.figure("cores"),
            cpu.figure("clock_hz"),
            cpu.figure("flops_per_cycle"),
        ),
        gpu=None if gpu is None else _gpu(Form(gpu, "gpu")),
        power_modes=tuple(_power_mode(mode) for mode in form.inners("power_modes")),
        sensors=tuple(_sensor(sensor) for sensor in form.inners("sensors")),
        backends={name: _scope(backends.inner(name)) for name in ("onnxruntime", "tensorrt")},
        notes=form.texts("notes"),
    )
    for part in (memory, cpu, backends, form):
        part.end()
    return board


def _scope(form: Form) -> Scope:
    scope = Scope(form.flag("in_scope"), form.text("note"))
    form.end()
    return scope


def _gpu(form: Form) -> Gpu:
    rates = form.inner("dense_operations_per_s")
    gpu = Gpu(
        form.text("model"),
        form.figure("clock_hz"),
        {name: rates.figure(name) for name in PRECISIONS},
    )
    rates.end()
    form.end()
    return gpu


def _power_mode(form: Form) -> PowerMode:
    n_cores = form.number("n_cores")
    mode = PowerMode(
        form.text("name"),
        form.number("power_w"),
        None if n_cores is None else int(n_cores),
        form.number("cpu_clock_hz"),
        form.number("gpu_clock_hz"),
        form.text("source"),
        form.status(),
    )
    form.end()
    return mode


def _sensor(form: Form) -> Sensor:
    sensor = Sensor(
        form.text("name"),
        form.texts("rails"),
        form.text("note"),
        form.text("source"),
        form.status(),
    )
    form.end()
    return sensor
