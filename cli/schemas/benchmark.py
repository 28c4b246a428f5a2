"""Define the fields of a benchmark's record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from edgefold.devices.machine.machine import LoadAverage, Machine
from edgefold.devices.machine.validity import Validity
from edgefold.runtime.record_fields import MISSING, Count, Index, Keyword, Object, SchemaVersion


@dataclass(frozen=True, kw_only=True)
class BenchmarkConditions(Machine):
    """Describes the machine and its state during the measurement."""

    date: Annotated[str, "When, in UTC.", Keyword("format", "date-time")]
    load_average_after: Annotated[LoadAverage, "The load at the end."]
    nice: Annotated[Index, "Niceness of the process."]
    threads: Annotated[Count, "Threads of a step."]
    on_gpu: Annotated[bool, "Whether steps ran on a GPU."] = MISSING
    versions: Annotated[
        dict[str, Annotated[str, "A version."]], "Versions of Python and of packages."
    ]


@dataclass(frozen=True, kw_only=True)
class RequirementFields:
    """Holds one bound that a measured value must keep, and whether it was met."""

    what: Annotated[str, "What is bounded."]
    measured: Annotated[str, "What was measured, with its unit."]
    bound: Annotated[str, "The bound, with its unit."]
    met: Annotated[bool, "Whether it was met."]


@dataclass(frozen=True, kw_only=True)
class BenchmarkRecord:
    """Holds a benchmark's measurements, their conditions, and whether requirements were met."""

    schema: SchemaVersion
    name: Annotated[str, "Name of the benchmark."]
    question: Annotated[str, "What it asks."]
    command: Annotated[str, "The command that wrote it."]
    quick: Annotated[bool, "A smoke run, whose figures mean nothing."]
    conditions: BenchmarkConditions
    validity: Annotated[
        Validity, "Whether something disturbed the measurement; older records lack it."
    ] = MISSING
    requirements: Annotated[list[RequirementFields], "Bounds that the project set itself."]
    data: Annotated[Object, "The benchmark's own numbers; units end their names."]
