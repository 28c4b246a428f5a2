"""Fields of the record of `edgefold benchmark`."""

from __future__ import annotations

from typing import Annotated, Literal

from edgefold.cli.schemas.parts import Machine, Validity
from edgefold.cli.schemas.schema import MISSING, Count, Index, Keyword, Object, record, unit


@record()
class Conditions(Machine):
    """The machine and its state during the measurement."""

    date: Annotated[str, "When, in UTC.", Keyword("format", "date-time")]
    load_average_after: Annotated[
        tuple[
            Annotated[float, "Runnable programs.", unit("count")],
            Annotated[float, "Runnable programs.", unit("count")],
            Annotated[float, "Runnable programs.", unit("count")],
        ],
        "The load at the end.",
    ]
    nice: Annotated[Index, "Niceness of the process."]
    threads: Annotated[Count, "Threads of a step."]
    on_gpu: Annotated[bool, "Whether steps ran on a GPU."] = MISSING
    versions: Annotated[
        dict[str, Annotated[str, "A version."]], "Versions of Python and of packages."
    ]


@record()
class Requirement:
    """One bound."""

    what: Annotated[str, "What is bounded."]
    measured: Annotated[str, "What was measured, with its unit."]
    bound: Annotated[str, "The bound, with its unit."]
    met: Annotated[bool, "Whether it was met."]


@record(name="benchmark", title="The record of a benchmark")
class BenchmarkRecord:
    """A benchmark's measurements, what they ran on, and whether requirements were met."""

    schema: Annotated[Literal[1], "Version of this record's fields.", unit("count")]
    name: Annotated[str, "Name of the benchmark."]
    question: Annotated[str, "What it asks."]
    command: Annotated[str, "The command that wrote it."]
    quick: Annotated[bool, "A smoke run, whose figures mean nothing."]
    conditions: Conditions
    validity: Annotated[
        Validity, "Whether something disturbed the measurement; older records lack it."
    ] = MISSING
    requirements: Annotated[list[Requirement], "Bounds that the project set itself."]
    data: Annotated[Object, "The benchmark's own numbers; units end their names."]
