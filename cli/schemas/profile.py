"""Define the fields of `edgefold profile`'s record that are not defined in devices/profile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from edgefold.cli.records.gates import GateRecord
from edgefold.devices.machine.machine import Machine
from edgefold.devices.machine.validity import Validity
from edgefold.devices.profile.energy import MeasuredEnergy
from edgefold.devices.profile.latency import Latency, Timeline
from edgefold.devices.profile.paced import PacedRecord
from edgefold.devices.profile.record import MeasuredBundle, MeasuredMemory, ProfileOptions
from edgefold.runtime.record_fields import (
    MISSING,
    BackendReport,
    Count,
    Keyword,
    SchemaVersion,
)


@dataclass(frozen=True, kw_only=True)
class ProfileConditions(Machine):
    """Describes the machine, the software and the settings of the measurement."""

    date: Annotated[str, "When, in UTC.", Keyword("format", "date-time")]
    backend: BackendReport
    python: Annotated[str, "Version of Python."]
    numpy: Annotated[str, "Version of numpy."]
    onnxruntime: Annotated[str | None, "Version of onnxruntime; null where it is missing."]
    edgefold: Annotated[str, "Version of edgefold."]
    gc_enabled: Annotated[bool, "Whether Python's cyclic collector ran."]
    n_warm_up: Annotated[Count, "Calls before anything was timed."]


@dataclass(frozen=True, kw_only=True)
class ProfileRecord:
    """Holds the measured latency, memory and energy of a bundle on one machine."""

    schema: SchemaVersion
    bundle: MeasuredBundle
    options: ProfileOptions
    latency: Annotated[list[Latency], "Times of each step."]
    timeline: Timeline
    memory: MeasuredMemory
    energy: MeasuredEnergy
    conditions: ProfileConditions
    validity: Annotated[Validity, "Whether the measurement was disturbed."]
    paced: PacedRecord = MISSING
    gates: Annotated[
        list[GateRecord], "What became of --fail-if and --baseline; empty without them."
    ]
