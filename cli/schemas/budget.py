"""Fields of the record of `edgefold budget`."""

from __future__ import annotations

from typing import Annotated, Literal

from edgefold.cli.schemas.parts import TimeRange
from edgefold.cli.schemas.schema import (
    MISSING,
    Bytes,
    Count,
    Hertz,
    Joules,
    Share,
    Watts,
    record,
    unit,
)


@record()
class Demand:
    """Demands of the caller; null demands nothing."""

    memory_bytes: Annotated[Bytes | None, "--memory."]
    rate_hz: Annotated[Hertz | None, "--rate."]
    power_w: Annotated[Watts | None, "--power."]
    backend: Annotated[str, "--backend."]
    predict_every: Annotated[Count, "Arrivals per prediction."]
    processes: Annotated[Count, "Loops beside each other."]


@record()
class Part:
    """One part."""

    name: Annotated[str, "What it is."]
    needed_bytes: Annotated[Bytes, "What cannot be taken back."]
    well_bytes: Annotated[Bytes, "Pages of files that steady steps need."]
    seen_bytes: Annotated[
        list[Annotated[Bytes, "Pages."]], "Pages of files that may be resident: fewest and most."
    ]


@record()
class Unmeasured:
    """One part."""

    name: Annotated[str, "What it is."]
    most_bytes: Annotated[Bytes, "The most that others report."]
    source: Annotated[str, "Who reports it."]


@record()
class Footprint:
    """Memory of the process, by parts."""

    backend: Annotated[str, "Backend that it is for."]
    parts: Annotated[list[Part], "They add up."]
    baseline: Annotated[str, "Where the constants were measured."]
    unmeasured: Annotated[
        list[Unmeasured], "Parts that nobody measured; with any, the sum is a lower bound."
    ]
    program: Annotated[str, "The kind of program."]
    n_processes: Annotated[Count, "Processes together."]


@record()
class Mode:
    """One mode."""

    name: Annotated[str, "Its name."]
    power_w: Annotated[Watts | None, "Its watts."]
    arrival: TimeRange
    duty: Annotated[
        list[Annotated[Share | None, "A share."]] | None,
        "An arrival over the time between two, at least and at most.",
    ]
    energy_j: Annotated[
        list[Annotated[Joules | None, "Energy."]] | None,
        "The mode's watts times the arrival's time: an estimate from above.",
    ]
    verdict: Annotated[Literal["FITS", "UNSURE", "DOES NOT FIT"], "Whether it meets the rate."]


@record()
class Check:
    """One question."""

    name: Annotated[str, "What was asked."]
    verdict: Annotated[Literal["FITS", "UNSURE", "DOES NOT FIT"], "The answer."]
    finding: Annotated[str, "Why."]
    change: Annotated[str, "What would help; empty where nothing is needed."]


@record(name="budget", title="The record of `edgefold budget`")
class BudgetRecord:
    """The verdict whether a bundle fits a board, predicted from data sheets."""

    schema: Annotated[Literal[1], "Version of this record's fields.", unit("count")]
    board: Annotated[str, "Name of the board's profile."]
    title: Annotated[str, "The board in words."]
    bundle: Annotated[str, "Folder of the bundle."]
    precision: Annotated[str, "Element type of refresh and query."]
    demand: Demand
    footprint: Footprint
    needed_by: Annotated[dict[str, Annotated[Bytes, "Memory."]], "What each kind of program needs."]
    needed_bytes: Annotated[Bytes, "Memory without which it is killed."]
    to_run_well_bytes: Annotated[
        Bytes, "Memory without which it waits for pages that are read again."
    ]
    looks_like_bytes: Annotated[
        list[Annotated[Bytes, "Memory."]], "What `top` may show: least and most."
    ]
    steps: Annotated[dict[str, TimeRange], "Time of one call of each graph."]
    arrival: Annotated[TimeRange, "Time of an arrival: predict, then learn; of a filter, one step."]
    modes: Annotated[list[Mode], "The board's power modes."]
    figures: Annotated[
        dict[str, Annotated[Literal["confirmed", "derived", "unconfirmed"], "A status."]],
        "How sure the figures are that the answer rests on.",
    ]
    checks: Annotated[list[Check], "The questions."]
    verdict: Annotated[Literal["FITS", "UNSURE", "DOES NOT FIT"], "The worst of all checks."]
    measured: Annotated[Literal[False], "A budget is never a measurement."]
    keeps: Annotated[
        str,
        "What becomes of points beyond the state's capacity; empty where any number "
        "fits, missing in older records.",
    ] = MISSING


@record()
class MicrocontrollerDemand:
    """Demands of the caller; null demands nothing."""

    memory_bytes: Annotated[Bytes | None, "--memory."]
    rate_hz: Annotated[Hertz | None, "--rate."]
    power_w: Annotated[Watts | None, "--power."]
    backend: Annotated[str, "--backend."]
    predict_every: Annotated[Count, "Arrivals per prediction."]
    processes: Annotated[Count, "Loops beside each other."]


@record()
class Flash:
    """One part."""

    name: Annotated[str, "What it is."]
    low_bytes: Annotated[Bytes, "At least."]
    high_bytes: Annotated[Bytes, "At most."]


@record()
class MicrocontrollerCheck:
    """One question."""

    name: Annotated[str, "What was asked."]
    verdict: Annotated[Literal["FITS", "UNSURE", "DOES NOT FIT"], "The answer."]
    finding: Annotated[str, "Why."]
    change: Annotated[str, "What would help; empty where nothing is needed."]


@record(
    name="budget-microcontroller", title="The record of `edgefold budget` for a microcontroller"
)
class MicrocontrollerBudgetRecord:
    """The verdict whether a bundle, as C, fits a microcontroller, predicted from data sheets."""

    schema: Annotated[Literal[1], "Version of this record's fields.", unit("count")]
    kind: Annotated[Literal["microcontroller"], "Tells it from the record for a board."]
    board: Annotated[str, "Name of the board's profile."]
    title: Annotated[str, "The board in words."]
    bundle: Annotated[str, "Folder of the bundle."]
    precision: Annotated[str, "Element type of refresh and query."]
    demand: MicrocontrollerDemand
    flash: Annotated[list[Flash], "What it needs of the flash; the parts add up."]
    ram: Annotated[list[Flash], "What it needs of the RAM; the parts add up."]
    steps: Annotated[dict[str, TimeRange], "Time of one call of each graph."]
    arrival: Annotated[TimeRange, "Time of an arrival: predict, then learn; of a filter, one step."]
    figures: Annotated[
        dict[str, Annotated[Literal["confirmed", "derived", "unconfirmed"], "A status."]],
        "How sure the figures are that the answer rests on.",
    ]
    checks: Annotated[list[MicrocontrollerCheck], "The questions."]
    keeps: Annotated[
        str,
        "What becomes of points beyond the state's capacity; empty where any number "
        "fits, missing in older records.",
    ]
    verdict: Annotated[Literal["FITS", "UNSURE", "DOES NOT FIT"], "The worst of all checks."]
    measured: Annotated[Literal[False], "A budget is never a measurement."]


BudgetSweep = Annotated[
    dict[
        str,
        Annotated[
            dict[
                str,
                Annotated[
                    BudgetRecord | MicrocontrollerBudgetRecord,
                    "The answer for one bundle on one board.",
                ],
            ],
            "By bundle.",
        ],
    ],
    "By board.",
]
"""The record of `edgefold budget --sweep`."""
