"""Fields of the record of `edgefold profile` that no module of devices/ fills by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

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
    unit,
)


@dataclass(frozen=True, kw_only=True)
class ProfileConditions(Machine):
    """The machine, the software and the settings of the measurement."""

    date: Annotated[str, "When, in UTC.", Keyword("format", "date-time")]
    backend: BackendReport
    python: Annotated[str, "Version of Python."]
    numpy: Annotated[str, "Version of numpy."]
    onnxruntime: Annotated[str, "Version of onnxruntime."]
    edgefold: Annotated[str, "Version of edgefold."]
    gc_enabled: Annotated[bool, "Whether Python's cyclic collector ran."]
    n_warm_up: Annotated[Count, "Calls before anything was timed."]


@dataclass(frozen=True)
class GateRecord:
    """One gate, or one figure of the baseline."""

    gate: Annotated[str, "What was asked."]
    figure: Annotated[str, "Name of the figure, such as update.p99."]
    unit: Annotated[Literal["s", "B", "J", "share"], "Unit of the value."]
    value: Annotated[
        float | None, "What was measured; null if nothing was.", unit("as `unit` says")
    ]
    verdict: Annotated[Literal["passed", "FAILED", "UNSURE"], "What became of it."]
    reason: Annotated[str, "Why it is UNSURE; empty otherwise."]


@dataclass(frozen=True, kw_only=True)
class ProfileRecord:
    """Latency, memory and energy of a bundle on one machine."""

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
