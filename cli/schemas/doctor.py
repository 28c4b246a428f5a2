"""Define the fields of the record of `edgefold doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from edgefold.cli.doctor.broker import BrokerReport
from edgefold.devices.machine.condition import Condition
from edgefold.devices.machine.machine import Machine
from edgefold.runtime.errors import Remedy
from edgefold.runtime.record_fields import (
    MISSING,
    Bytes,
    Count,
    Index,
    Percent,
    SchemaVersion,
    Watts,
)


@dataclass(frozen=True, kw_only=True)
class Busiest:
    """Describes one program that used the processor during the examination."""

    name: Annotated[str, "Its name."]
    cpu_percent: Annotated[Percent, "Share of one core."]


@dataclass(frozen=True, kw_only=True)
class MachineNow(Machine):
    """Describes the machine that was examined, as it is now."""

    fastest_power_mode: Annotated[Index | None, "Number of a Jetson's fastest mode."]
    memory_available_bytes: Annotated[Bytes | None, "MemAvailable."]
    memory_free_bytes: Annotated[Bytes | None, "MemFree."] = MISSING
    busiest: Annotated[list[Busiest], "Programs that used the processor."]
    nvidia_driver: Annotated[str | None, "Version of NVIDIA's driver."]
    virtual: Annotated[bool, "Whether it is a virtual machine."]


@dataclass(frozen=True, kw_only=True)
class TriedImport:
    """Says whether onnxruntime (or a backend) can be loaded here, or why it cannot."""

    name: Annotated[str, "Its name."]
    opens: Annotated[bool, "Whether it opens here."]
    reason: Annotated[str, "Why it does not."] = MISSING
    crashed: Annotated[bool, "The process that tried it ended."] = MISSING
    remedy: Remedy = MISSING
    version: Annotated[str, "Version of its library."] = MISSING
    device: Annotated[str, "What it runs on."] = MISSING
    providers: Annotated[
        list[Annotated[str, "A provider."]], "Execution providers of onnxruntime."
    ] = MISSING
    memory_bytes: Annotated[Bytes, "What a meter read."] = MISSING


@dataclass(frozen=True, kw_only=True)
class KeptFiles:
    """Describes the folder of engines, libraries, times and graphs."""

    folder: Annotated[str | None, "Its path; null for a user without a home."]
    n_files: Annotated[Count, "Files in it."]
    bytes: Annotated[Bytes, "Their size."]


@dataclass(frozen=True, kw_only=True)
class Software:
    """Describes Python and the installed packages."""

    python: Annotated[str, "Version of Python."]
    executable: Annotated[str, "Path of Python."]
    packages: Annotated[
        dict[str, Annotated[str | None, "A version."]],
        "Versions of packages; null is not installed.",
    ]
    onnxruntime: TriedImport
    cache: Annotated[KeptFiles, "What was built here and is kept."] = MISSING


@dataclass(frozen=True, kw_only=True)
class CrashedIn:
    """Names the graph of the bundle in which the process of a backend ended."""

    doing: Annotated[
        Literal["open", "bind", "run"], "What was begun: it was opened, bound to memory, or run."
    ]
    graph: Annotated[str, "Name of the graph."]
    signal: Annotated[str | None, "Signal that ended the process; null: it took too long."]


@dataclass(frozen=True, kw_only=True)
class TriedBackend(TriedImport):
    """Says whether one backend opens on this machine, or why it does not."""

    detail: Annotated[str, "Of native: libraries that were built for this processor."] = MISSING
    crashed_in: CrashedIn = MISSING


@dataclass(frozen=True, kw_only=True)
class TriedMeter:
    """Says whether one kind of meter can be read on this machine, or why it cannot."""

    name: Annotated[str, "Its name."]
    reads: Annotated[bool, "Whether it reads here."]
    reason: Annotated[str | None, "Why it does not."] = MISSING
    remedy: Remedy = MISSING
    detail: Annotated[str, "What the figure is of."] = MISSING


@dataclass(frozen=True, kw_only=True)
class TriedPowerMeter(TriedMeter):
    """Says whether one kind of power sensor can be read, and its power now."""

    power_w: Annotated[Watts, "Power now."] = MISSING


@dataclass(frozen=True, kw_only=True)
class TriedMemoryMeter(TriedMeter):
    """Says whether one kind of memory meter can be read, and its bytes now."""

    memory_bytes: Annotated[Bytes, "What it reads now."] = MISSING
    opens: Annotated[bool, "Whether it opens."] = MISSING
    crashed: Annotated[bool, "The process that tried it ended."] = MISSING


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Gives one piece of advice, with the command that follows it."""

    kind: Annotated[str, "needed, safer, more or steadier."]
    what: Annotated[str, "What the user gains or must know."]
    command: Annotated[str | None, "What the user types; null where no command helps."]


@dataclass(frozen=True, kw_only=True)
class DoctorRecord:
    """Describes the machine: its properties, what is missing on it, and advice."""

    schema: SchemaVersion
    bundle: Annotated[str | None, "The bundle that each backend opened."]
    broker: BrokerReport = MISSING
    machine: MachineNow
    software: Software
    condition: Annotated[Condition, "What may disturb a measurement, now."] = MISSING
    backends: Annotated[list[TriedBackend], "Every backend."]
    power: Annotated[list[TriedPowerMeter], "Every kind of power sensor."]
    memory: Annotated[list[TriedMemoryMeter], "Every kind of memory meter."]
    advice: Annotated[list[Advice], "What would help, the most important first."]
