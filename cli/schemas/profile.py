"""Fields of the record of `edgefold profile`."""

from __future__ import annotations

from typing import Annotated, Literal

from edgefold.cli.schemas.paced import Paced
from edgefold.cli.schemas.parts import (
    Backend,
    Interval,
    Machine,
    MemoryFigure,
    Plan,
    Validity,
)
from edgefold.cli.schemas.schema import (
    MISSING,
    Bytes,
    Count,
    Hertz,
    Joules,
    Keyword,
    Object,
    Seconds,
    Sha256,
    Share,
    Shown,
    Watts,
    record,
    unit,
)


@record()
class Bundle:
    """The bundle that was measured."""

    path: Annotated[str, "Folder of the bundle."]
    hash: Annotated[Sha256, "SHA-256 of its manifest, which holds those of its files."]
    model: Annotated[
        Object,
        "The model as its manifest describes it: name, summary, n_parameters and its settings.",
    ]
    precision: Annotated[
        Literal["float32", "float16", "int8"], "Element type of refresh and query."
    ]
    task: Annotated[str | None, "Name of the task that it was trained on."]
    n_streams: Annotated[Count, "Streams side by side."]
    n_inputs: Annotated[Count, "Columns of x."]
    n_outputs: Annotated[Count, "Columns of y."]
    chunk: Annotated[Count, "Points that one call learns at most."]
    targets: Annotated[Count, "Targets that one query takes."]
    versions: Annotated[
        dict[str, Annotated[str, "A version."]], "Versions of the packages that exported it."
    ]
    open_s: Annotated[
        Seconds,
        "Time to open it.",
        Shown("open", "edgefold_open_seconds", "Time to open the bundle."),
    ]
    keeps: Annotated[
        str,
        "What becomes of points beyond the state's capacity; empty where any number "
        "fits, missing in older records.",
    ] = MISSING


@record()
class Options:
    """The command's options."""

    n_updates: Annotated[Count, "--updates."]
    n_queries: Annotated[Count, "--queries."]
    rate_hz: Annotated[Hertz, "--rate: arrivals a second."]
    backend: Annotated[str, "--backend."]
    threads: Annotated[Count, "--threads."]
    memory_limit: Annotated[Bytes | None, "--memory-limit."]
    engine_cache: Annotated[str | None, "--engine-cache."]
    cuda_graphs: Annotated[bool, "False with --no-cuda-graphs."]
    energy_error: Annotated[Share, "--energy-error: standard error over energy."]
    energy_limit_s: Annotated[Seconds, "--energy-seconds."]
    power_replay: Annotated[str | None, "--power-replay."]
    gpu_wait: Annotated[str | None, "--gpu-wait."]


@record()
class Latency:
    """One step."""

    name: Annotated[str, "Name of the step, as gates take it."]
    what: Annotated[str, "What was timed, in words."]
    n: Annotated[Count, "Calls."]
    n_points: Annotated[Count, "Points or targets of one call, per stream."]
    mean_s: Annotated[Seconds, "Mean."]
    p50_s: Annotated[Seconds, "Median."]
    p90_s: Annotated[Seconds, "90 % quantile."]
    p99_s: Annotated[Seconds | None, "99 % quantile; null for fewer than 100 calls."]
    p999_s: Annotated[Seconds | None, "99.9 % quantile; null for fewer than 1,000 calls."]
    max_s: Annotated[Seconds, "Longest call."]
    p50_interval_s: Annotated[
        Interval,
        "95 % interval of the median over the calls of this run; null for fewer than ten calls.",
    ]
    p99_interval_s: Annotated[Interval, "95 % interval of the 99 % quantile; null where that is."]
    n_late: Annotated[Count, "Calls that took longer than the time between two arrivals."]
    edges_s: Annotated[
        list[Annotated[Seconds, "An edge."]], "Edges of the histogram's bins, one more than bins."
    ]
    counts: Annotated[list[Annotated[Count, "Calls."]], "Calls in each bin."]


@record()
class Timeline:
    """The first step along the stream, in up to 100 blocks of calls."""

    calls: Annotated[list[Annotated[Count, "Calls."]], "Number of the last call of each block."]
    p50_s: Annotated[list[Annotated[Seconds, "A median."]], "Median of each block."]
    p99_s: Annotated[list[Annotated[Seconds, "A quantile."]], "99 % quantile of each block."]
    max_s: Annotated[list[Annotated[Seconds, "A time."]], "Longest call of each block."]


@record()
class Stage:
    """One stage."""

    name: Annotated[str, "What was done before."]
    needed_bytes: Annotated[
        Bytes,
        "What the kernel cannot take back: anonymous pages, also swapped ones, and shared memory.",
    ]
    file_bytes: Annotated[Bytes, "Resident clean pages of mapped files."]


@record()
class Sample:
    """One reading."""

    n_updates: Annotated[Count, "Updates before it."]
    needed_bytes: Annotated[
        Bytes,
        "What the kernel cannot take back: anonymous pages, also swapped ones, and shared memory.",
    ]
    file_bytes: Annotated[Bytes, "Resident clean pages of mapped files."]


@record()
class FilesToRunWell:
    """With the pages of files that came back after they were dropped."""

    range_bytes: Annotated[
        list[Annotated[Bytes, "Memory."]] | None, "Least and most; null if it was not measured."
    ]
    kept_bytes: Annotated[Bytes | None, "Pages of files that could not be dropped."]
    reason: Annotated[str | None, "Why it was not measured."]


@record()
class Predicted:
    """Prediction of `edgefold budget` for a Python program on this machine."""

    needed_bytes: Annotated[Bytes, "What the kernel cannot take back."]
    to_run_well_bytes: Annotated[Bytes, "With the pages of files that come back after a drop."]
    looks_like_bytes: Annotated[
        list[Annotated[Bytes, "Memory."]],
        "Least and most that is resident, by how the files lie in the page cache.",
    ]
    complete: Annotated[
        bool, "Whether nothing is left out that was never measured, such as a GPU's libraries."
    ]


@record()
class LargestFile:
    """One file."""

    path: Annotated[str, "Path of the file."]
    touched_bytes: Annotated[Bytes, "Used since the warm-up."]
    resident_bytes: Annotated[Bytes, "In memory now."]
    mapped_bytes: Annotated[Bytes, "All of them."]


@record()
class Files:
    """Clean pages of mapped files."""

    touched_bytes: Annotated[Bytes, "Used since the warm-up."]
    resident_bytes: Annotated[Bytes, "In memory now."]
    mapped_bytes: Annotated[Bytes, "All of them."]
    largest: Annotated[list[LargestFile], "The files with the most resident pages."]


@record()
class Survey:
    """Memory besides the process's own."""

    gpu: Annotated[
        MemoryFigure,
        "On the GPU.",
        Shown("gpu_memory", "edgefold_gpu_memory_bytes", "Memory on the GPU."),
    ]
    available_drop: Annotated[MemoryFigure, "How far the machine's available memory fell."]
    group_peak: Annotated[
        MemoryFigure,
        "Peak of the process's control group, of all processes in it since the group "
        "was made: its source tells how many others there are.",
    ]
    group_limit: Annotated[MemoryFigure, "Its limit."]


@record()
class Memory:
    """Memory of the process, of the GPU and of the machine."""

    plan: Plan
    buffers_bytes: Annotated[Bytes, "Buffers that the stream holds."]
    stages: Annotated[list[Stage], "Memory after each stage of the start."]
    samples: Annotated[list[Sample], "Memory along the updates."]
    n_readings: Annotated[Count, "Readings of what is needed."]
    needed_bytes: Annotated[
        Bytes,
        "The most of all readings of what the kernel cannot take back.",
        Shown(
            "needed",
            "edgefold_memory_needed_bytes",
            "Memory that cannot be taken back, at its most.",
        ),
    ]
    to_run_well: Annotated[FilesToRunWell, Shown("to_run_well")]
    needed_growth_bytes: Annotated[
        Bytes,
        "What is needed at the end of the updates less that at their start.",
        Shown(
            "growth",
            "edgefold_memory_growth_bytes",
            "What needed memory grew by over the updates.",
        ),
    ]
    predicted: Predicted
    files: Files
    resident_peak_open_bytes: Annotated[Bytes, "VmHWM after opening."]
    resident_peak_bytes: Annotated[
        Bytes,
        "VmHWM at the end: what is needed, and resident pages of files.",
        Shown("resident_peak", "edgefold_memory_resident_peak_bytes", "VmHWM since the warm-up."),
    ]
    window_note: Annotated[str, "Since when the peak and the touched pages count."]
    survey: Survey


@record()
class Candidate:
    """One kind."""

    kind: Annotated[str, "Its name."]
    opened: Annotated[bool, "Whether it opened."]
    reason: Annotated[str | None, "Why it did not."]


@record()
class CallEnergy:
    """Energy of one call above the idle power."""

    energy_j: Annotated[Joules, "Energy of one call."]
    standard_error_j: Annotated[Joules, "Its standard error."]
    interval_95_j: Annotated[Joules, "Half the width of its 95 % interval."]
    parts_j: Annotated[
        dict[str, Annotated[Joules, "One part."]],
        "Parts of the standard error; they add up in squares.",
    ]
    n_calls: Annotated[Count, "Calls in the windows of work."]
    n_rounds: Annotated[Count, "Rounds of idleness and work."]
    duration_s: Annotated[Seconds, "Length of the windows of work."]
    call_s: Annotated[Seconds, "Time of one call there."]
    power_w: Annotated[Watts, "Mean power during work."]
    idle_power_w: Annotated[Watts, "Mean power of all idle windows."]
    idle_before_w: Annotated[Watts, "Power of the first idle window."]
    idle_after_w: Annotated[Watts, "Power of the last one."]
    n_samples: Annotated[Count, "Samples in the windows of work."]
    n_missed: Annotated[Count, "Samples that were due and not taken."]
    period_s: Annotated[Seconds, "Time between two samples."]
    memory_s: Annotated[Seconds, "How far back a reading of the sensor reaches."] = MISSING
    memory_measured_s: Annotated[Seconds | None, "The same as it was seen in the readings."] = (
        MISSING
    )
    sensor_step: Annotated[
        float,
        "Smallest difference that the sensor tells, in W or J as `sensor_step_unit` says.",
        unit("W or J"),
    ]
    sensor_step_unit: Annotated[str, "W or J."]
    sensor_step_known: Annotated[
        bool, "Whether the driver tells the step; if not, it is the smallest difference seen."
    ]
    n_lone_samples: Annotated[Count, "Samples that stood out from both neighbours."]
    unresolved: Annotated[
        list[Annotated[str, "A sentence."]],
        "What is shorter than the sampling period, or was missed.",
    ]
    relative_error: Annotated[Share | None, "Standard error over energy; null for an energy of 0."]
    target_met: Annotated[bool, "Whether the error is within --energy-error."]
    measured_for_s: Annotated[Seconds, "Time that was spent on it."]


@record()
class Window:
    """One window."""

    what: Annotated[str, "`idle`, or the step."]
    start_s: Annotated[Seconds, "Start."]
    end_s: Annotated[Seconds, "End."]


@record()
class Samples:
    """Power over time."""

    time_s: Annotated[list[Annotated[Seconds, "A time."]], "Middle of each sample, from the start."]
    power_w: Annotated[list[Annotated[Watts, "Power."]], "Mean power of each sample."]
    windows: Annotated[list[Window], "What was done when."]


@record()
class Energy:
    """Energy of the steps, or why there is none. The field of a step's name has its figure."""

    sensor: Annotated[str | None, "Name of the sensor; null without one."]
    rails: Annotated[list[Annotated[str, "Name of a rail."]], "Rails that it sums."] = MISSING
    scope: Annotated[str, "What it covers, in words."] = MISSING
    replay: Annotated[
        str | None, "A recording that replaced the sensor: then nothing here is a measurement."
    ]
    target: Annotated[Share, "Standard error over energy that was asked for."]
    limit_s: Annotated[Seconds, "Time that was allowed."]
    reason: Annotated[str | None, "Why a figure is missing."]
    candidates: Annotated[list[Candidate], "Every kind of sensor that was tried."]
    steps: Annotated[
        list[Annotated[str, "Name of a step."]], "Names of the steps that were to be measured."
    ]
    update: CallEnergy | None = MISSING
    step: CallEnergy | None = MISSING
    query: CallEnergy | None = MISSING
    samples: Samples = MISSING


@record()
class Conditions(Machine):
    """The machine, the software and the settings of the measurement."""

    date: Annotated[str, "When, in UTC.", Keyword("format", "date-time")]
    backend: Backend
    python: Annotated[str, "Version of Python."]
    numpy: Annotated[str, "Version of numpy."]
    onnxruntime: Annotated[str, "Version of onnxruntime."]
    edgefold: Annotated[str, "Version of edgefold."]
    gc_enabled: Annotated[bool, "Whether Python's cyclic collector ran."]
    n_warm_up: Annotated[Count, "Calls before anything was timed."]


@record()
class Gate:
    """One gate, or one figure of the baseline."""

    gate: Annotated[str, "What was asked."]
    figure: Annotated[str, "Name of the figure, such as update.p99."]
    unit: Annotated[Literal["s", "B", "J", "share"], "Unit of the value."]
    value: Annotated[
        float | None, "What was measured; null if nothing was.", unit("as `unit` says")
    ]
    verdict: Annotated[Literal["passed", "FAILED", "UNSURE"], "What became of it."]
    reason: Annotated[str, "Why it is UNSURE; empty otherwise."]


@record(name="profile", title="The record of `edgefold profile`")
class ProfileRecord:
    """Latency, memory and energy of a bundle on one machine."""

    schema: Annotated[Literal[1], "Version of this record's fields.", unit("count")]
    bundle: Bundle
    options: Options
    latency: Annotated[list[Latency], "Times of each step."]
    timeline: Timeline
    memory: Memory
    energy: Energy
    conditions: Conditions
    validity: Annotated[Validity, "Whether the measurement was disturbed."]
    paced: Paced = MISSING
    gates: Annotated[list[Gate], "What became of --fail-if and --baseline; empty without them."]
