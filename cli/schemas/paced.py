"""Fields of a profile at the stream's own rate: `edgefold profile --paced`."""

from __future__ import annotations

from typing import Annotated, Literal

from edgefold.cli.schemas.parts import (
    Backend,
    Interval,
    PowerMode,
)
from edgefold.cli.schemas.schema import (
    Celsius,
    Count,
    Hertz,
    Joules,
    Ratio,
    Seconds,
    Share,
    Watts,
    record,
)


@record()
class StateBefore:
    """Rules of the clocks before."""

    cpu_governor: Annotated[str | None, "Governor of the first core."]
    gpu_governor: Annotated[str | None, "Governor of the GPU."]
    power_mode: PowerMode
    temperature_celsius: Annotated[Celsius | None, "The hottest zone."]


@record()
class Governor:
    """Rules of the clocks."""

    before: StateBefore
    after: Annotated[StateBefore, "Rules of the clocks after."]


@record()
class FromDue:
    """From the moment an arrival was due to its answer."""

    p50_s: Annotated[Seconds | None, "Median."]
    p90_s: Annotated[Seconds | None, "90 % quantile."]
    p99_s: Annotated[Seconds | None, "99 % quantile; null for fewer than 100."]
    max_s: Annotated[Seconds | None, "Longest."]
    p50_interval_s: Annotated[Interval, "95 % interval of the median; null for too few."]
    p99_interval_s: Annotated[Interval, "95 % interval of the 99 % quantile; null for too few."]


@record()
class RunLatency:
    """Times of arrivals."""

    n: Annotated[Count, "Arrivals."]
    n_late: Annotated[Count, "Answers that came when the next arrival was due."]
    n_skipped: Annotated[Count, "Arrivals that were skipped, because others were still worked on."]
    from_due: FromDue
    from_wake: Annotated[FromDue, "From the process's waking to the answer."]
    timer: Annotated[FromDue, "How late the process woke."]


@record()
class Cpu:
    """One clock."""

    frequency_hz: Annotated[Hertz, "The clock; 0 is a GPU that is off."]
    n: Annotated[Count, "Readings."]


@record()
class Clocks:
    """Clocks while it ran."""

    cpu: Annotated[list[Cpu], "Clocks of the cores while the stream ran."]
    gpu: Annotated[list[Cpu], "Clocks of the GPU while the stream ran."]


@record()
class RunEnergy:
    """Power above idle; null without a sensor."""

    power_above_idle_w: Annotated[Watts, "Mean power."]
    power_interval_95_w: Annotated[Watts, "Half the width of its interval."]
    energy_j: Annotated[Joules, "Energy of an arrival."]
    energy_interval_95_j: Annotated[Joules, "Half the width of its interval."]
    idle_power_w: Annotated[Watts, "Power of the idle windows."]
    n_arrivals: Annotated[Count, "Arrivals."]
    duration_s: Annotated[Seconds, "Length of the blocks."]
    scatter: Annotated[
        Ratio | None,
        "How far the blocks lie apart, over what their errors explain; null for one block.",
    ]


@record()
class Run:
    """One run."""

    rate_hz: Annotated[Hertz, "Arrivals a second."]
    backend: Annotated[str, "Label of the backend."]
    duration_s: Annotated[Seconds, "How long."]
    n_blocks: Annotated[Count, "Blocks, in turns with other backends."]
    cpu_share: Annotated[Share | None, "Processor time of the process over the duration."]
    latency: RunLatency
    clocks: Clocks
    energy: RunEnergy | None
    energy_reason: Annotated[str | None, "Why there is no energy."]


@record()
class Difference:
    """One rate."""

    rate_hz: Annotated[Hertz, "Arrivals a second."]
    power_w: Annotated[Watts, "Power of b less that of a."]
    interval_95_w: Annotated[Watts, "Half the width of its interval."]
    less: Annotated[str | None, "Which needs less; null where the interval holds 0."]


@record()
class Crossing:
    """Two backends."""

    a: Annotated[str, "Label of the one."]
    b: Annotated[str, "Label of the other."]
    verdict: Annotated[
        Literal["crossing", "one", "part", "mixed", "unclear", "none"],
        "crossing: one below a rate, the other above it; one: the same at every rate; "
        "part: the same wherever it can be told; mixed: it changes more than once; "
        "unclear: it can be told at no rate; none: no figures.",
    ]
    differences: Annotated[list[Difference], "At each rate."]
    less: Annotated[
        str | None, "Which needs less: from the crossing on, or wherever it can be told."
    ]
    rate_hz: Annotated[Hertz | None, "The crossing."]
    low_hz: Annotated[Hertz | None, "Lower end of its 95 % interval."]
    high_hz: Annotated[Hertz | None, "Upper end."]
    after_hz: Annotated[Hertz | None, "Highest measured rate where the other one still needs less."]
    until_hz: Annotated[Hertz | None, "Lowest measured rate from which on `less` needs less."]
    reason: Annotated[str | None, "Why there are no figures."]


@record()
class Paced:
    """The stream at its own rate, asleep between arrivals: --paced."""

    what: Annotated[str, "What an arrival does."]
    rates_hz: Annotated[list[Annotated[Hertz, "A rate."]], "Rates."]
    seconds: Annotated[Seconds | None, "--paced-seconds."]
    interrupted: Annotated[bool, "Whether Ctrl-C ended it."]
    sensor: Annotated[str | None, "Name of the power sensor."]
    kind: Annotated[str | None, "Kind of the sensor."]
    rails: Annotated[list[Annotated[str, "Name of a rail."]] | None, "Rails that it sums."]
    scope: Annotated[str | None, "What it covers."]
    reason: Annotated[str | None, "Why there is no power."]
    replay: Annotated[str | None, "A recording that replaced the sensor."]
    backends: Annotated[dict[str, Backend], "What ran, by the label of the runs."]
    refused: Annotated[
        dict[str, Annotated[str, "Why."]], "Backends that did not open, with the reason."
    ]
    governor: Governor
    runs: Annotated[list[Run], "One backend at one rate."]
    crossings: Annotated[list[Crossing], "Which of two backends needs less power at which rates."]
