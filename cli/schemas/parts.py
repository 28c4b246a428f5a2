"""Parts that several records share."""

from __future__ import annotations

from typing import Annotated, Literal

from edgefold.cli.schemas.schema import (
    MISSING,
    Bytes,
    Celsius,
    Count,
    Hertz,
    Index,
    Seconds,
    Shared,
    record,
    unit,
)

Interval = Annotated[
    tuple[Annotated[Seconds | None, "An end."], Annotated[Seconds | None, "An end."]] | None,
    "Both ends of a 95 % interval; an end is null where it lies outside of what was seen.",
    Shared("interval"),
]


@record()
class CpuClock:
    """Cores under one rule."""

    cores: Annotated[list[Annotated[Index, "Number of a core."]], "Numbers of the cores."]
    governor: Annotated[str | None, "Governor of the cores."]
    min_hz: Annotated[Hertz | None, "Lowest clock that is allowed now."]
    max_hz: Annotated[Hertz | None, "Highest clock that is allowed now."]
    limit_hz: Annotated[Hertz | None, "What the silicon could do."]
    current_hz: Annotated[
        list[Annotated[Hertz | None, "Clock of a core."]], "Clock of each core now."
    ]


@record()
class GpuClock:
    """Clock of an integrated GPU."""

    name: Annotated[str, "Its name in devfreq."]
    governor: Annotated[str | None, "Governor of the GPU."]
    min_hz: Annotated[Hertz | None, "Lowest clock that is allowed now."]
    max_hz: Annotated[Hertz | None, "Highest clock that is allowed now."]
    current_hz: Annotated[Hertz | None, "Clock now; null while the GPU is off."]
    units_off: Annotated[
        str | None,
        "Mask of the units (TPCs) that the power mode switches off, as a Jetson writes "
        'it; "0" is none.',
    ] = MISSING


@record()
class Jetson:
    """A Jetson's software."""

    linux: Annotated[str, "Release of Jetson Linux."]
    jetpack: Annotated[str | None, "Major version of JetPack."]


@record(part="machine", open=True)
class Machine:
    """The machine at the start. A value that the machine does not show is null."""

    board: Annotated[str | None, "The board's own name."]
    cpu_model: Annotated[str | None, "The processor's name."]
    architecture: Annotated[str, "As `uname -m`."]
    n_cores: Annotated[Count, "Cores that the process may use."]
    load_average: Annotated[
        tuple[
            Annotated[float, "Runnable programs.", unit("count")],
            Annotated[float, "Runnable programs.", unit("count")],
            Annotated[float, "Runnable programs.", unit("count")],
        ],
        "Runnable programs over the last 1, 5 and 15 minutes.",
    ]
    memory_bytes: Annotated[Bytes | None, "MemTotal: what the kernel has to give."]
    kernel: Annotated[str, "As `uname -r`."]
    frequency_governor: Annotated[str | None, "Governor of the first core."]
    frequency_hz: Annotated[Hertz | None, "Clock of the first core."]
    temperature_celsius: Annotated[Celsius | None, "The hottest thermal zone."]
    throttle_temperature_celsius: Annotated[
        Celsius | None, "Where the kernel begins to lower clocks."
    ] = MISSING
    silent_zones: Annotated[
        list[Annotated[str, "Name of a zone."]], "Thermal zones that do not answer."
    ] = MISSING
    throttle_flags: Annotated[
        list[Annotated[str, "A warning."]] | None,
        "A Raspberry Pi's warnings; empty on a healthy one.",
    ] = MISSING
    cpu_clocks: Annotated[list[CpuClock], "Cores by the rule of their clock."] = MISSING
    gpu_clock: GpuClock | None = MISSING
    memory_clock_hz: Annotated[Hertz | None, "The memory's clock; a Jetson shows it to root."] = (
        MISSING
    )
    memory_cap_hz: Annotated[
        Hertz | None, "The most that the power mode allows the memory's clock."
    ] = MISSING
    page_bytes: Annotated[Bytes | None, "Size of a page of this kernel."] = MISSING
    jetson: Jetson | None = MISSING
    power_mode: PowerMode = MISSING


@record(part="backend", open=True)
class Backend:
    """The backend that ran the graphs. A backend may report more than these fields."""

    asked: Annotated[str, "What --backend asked for; missing where it was the one that opened."] = (
        MISSING
    )
    name: Annotated[str, "Name of the backend, as --backend takes it."]
    device: Annotated[str, "`cpu`, or the GPU's name."]
    version: Annotated[str, "Version of the inference library."]
    provider: Annotated[str, "Execution provider of onnxruntime."] = MISSING
    threads: Annotated[Count, "Threads of a step."] = MISSING
    refused: Annotated[
        dict[str, Annotated[str, "Why it did not open."]],
        "Backends that `auto` tried before, with the reason.",
    ] = MISSING


@record()
class Work:
    """Work of one call."""

    flop: Annotated[int, "Additions and multiplications.", unit("flop")]
    bytes: Annotated[Bytes, "Bytes that it must touch."]
    moved_bytes: Annotated[Bytes, "Bytes that its nodes read and write."] = MISSING
    n_nodes: Annotated[Count, "Nodes."] = MISSING


@record()
class Graph:
    """One graph."""

    weights_bytes: Annotated[Bytes, "Weights that it reads."]
    activations_bytes: Annotated[Bytes, "Its activations at their most."]
    io_bytes: Annotated[Bytes, "Its inputs and outputs."]
    work: Work = MISSING


@record(part="plan", open=True)
class Plan:
    """Bytes of the bundle, counted at export."""

    weights_bytes: Annotated[Bytes, "Weights."]
    state_bytes: Annotated[Bytes, "Both buffers of the state."]
    cache_bytes: Annotated[Bytes, "What queries read."]
    io_bytes: Annotated[Bytes, "Inputs and outputs of all graphs."]
    activations_bytes: Annotated[Bytes, "The largest graph's activations."]
    total_bytes: Annotated[Bytes, "All of these."]
    graphs: Annotated[dict[str, Graph], "By graph."]


@record(part="memory_figure")
class MemoryFigure:
    """A number and its source, or null and the reason."""

    memory_bytes: Annotated[Bytes | None, "What was read."]
    source: Annotated[str, "What it was read from."]
    reason: Annotated[str | None, "Why there is no number, or what null means."]


@record(part="range")
class TimeRange:
    """Bounds of a time."""

    low_s: Annotated[Seconds, "At least."]
    high_s: Annotated[Seconds | None, "At most; null where there is no bound."]
    reason: Annotated[str, "Why there is no upper bound; may be empty."]


@record(part="remedy")
class Remedy:
    """A remedy that would remove the cause."""

    what: Annotated[str, "What the user gains or must know."]
    command: Annotated[str | None, "What the user types; null where no command helps."]


@record()
class PowerModeFields:
    """A Jetson's power mode; null elsewhere."""

    mode: Annotated[Index, "Number of the mode, for nvpmodel."]
    name: Annotated[str | None, "Its name."]
    choices: Annotated[
        dict[str, Annotated[str, "Name of a mode."]], "Names of all modes by their numbers."
    ]


PowerMode = Annotated[PowerModeFields | None, Shared("power_mode")]


@record(part="condition")
class Condition:
    """Conditions that may disturb a measurement, at one moment."""

    time_s: Annotated[Seconds, "A clock that never runs backwards."]
    counters: Annotated[
        dict[str, Annotated[float, "Times.", unit("count")]],
        "How often the hardware lowered clocks since the boot, by cause.",
    ]
    cooling: Annotated[
        dict[str, Annotated[float, "A state.", unit("index")]],
        "States of the devices that lower clocks; 0 is at rest.",
    ]
    flags: Annotated[
        list[Annotated[str, "A warning."]] | None, "A Raspberry Pi's warnings; null elsewhere."
    ]
    throttling_celsius: Annotated[
        dict[str, Annotated[Celsius, "Temperature."]], "Zones at or above their own limit."
    ]
    clocks_hz: Annotated[
        dict[str, Annotated[Hertz, "A clock."]],
        "Clocks of the fastest core of each group, the GPU and the memory.",
    ]
    limits_hz: Annotated[
        dict[str, Annotated[Hertz, "A clock."]], "The most that each of them may have now."
    ]
    busy_s: Annotated[Seconds | None, "Processor time of all programs since the boot."]
    own_s: Annotated[Seconds, "Processor time of this process and its ended children."]
    untold: Annotated[list[Annotated[str, "A sentence."]], "What the machine does not show."]


@record()
class Block:
    """One block."""

    name: Annotated[str, "What was measured."]
    verdict: Annotated[Literal["valid", "unknown", "unsteady", "disturbed"], "Its verdict."]
    before: Condition
    after: Condition


@record(part="validity")
class Validity:
    """The verdict whether the measurement was disturbed."""

    verdict: Annotated[
        Literal["valid", "unknown", "unsteady", "disturbed"], "The worst of all blocks."
    ]
    reasons: Annotated[list[Annotated[str, "A sentence."]], "What disturbed it."]
    untold: Annotated[
        list[Annotated[str, "A sentence."]],
        "What the machine does not show; with any, the verdict is not `valid`.",
    ] = MISSING
    blocks: Annotated[list[Block], "Each measured block."] = MISSING
