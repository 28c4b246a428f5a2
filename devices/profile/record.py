"""Define the parts of a profile's record on the bundle, the options and the process's memory.

Nothing here needs numpy, which must not be loaded before the first memory is read; times are
described in `latency`, joules in `energy`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from edgefold.devices.memory.monitor import MemorySurvey
from edgefold.devices.memory.process import (
    FileBytes,
    MappedBytes,
    MappedFile,
    NeededBytes,
    ResidentBytes,
    TouchedBytes,
)
from edgefold.runtime.backends.base import Wait
from edgefold.runtime.record_fields import (
    OPTIONAL,
    Bytes,
    BytesRange,
    Count,
    Hertz,
    MemoryPlan,
    Object,
    Seconds,
    Sha256,
    ShareOfOne,
    Shown,
    one_of,
)


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """Holds the options of `edgefold profile`, such as numbers of calls, rate and backend."""

    n_updates: Annotated[Count, "--updates."] = 10_000
    n_queries: Annotated[Count, "--queries."] = 1_000
    rate_hz: Annotated[Hertz, "--rate: arrivals a second."] = 50.0
    backend: Annotated[str, "--backend."] = "auto"
    threads: Annotated[Count, "--threads."] = 1
    memory_limit: Annotated[Bytes | None, "--memory-limit."] = None
    engine_cache: Annotated[str | None, "--engine-cache."] = None
    cuda_graphs: Annotated[bool, "False with --no-cuda-graphs."] = True
    gpu_wait: Annotated[Wait, "--gpu-wait."] = "auto"
    energy_error: Annotated[
        ShareOfOne, "--energy-error: standard error over energy at which its measurement ends."
    ] = 0.05
    energy_limit_s: Annotated[Seconds, "--energy-seconds: when it ends at the latest."] = 120.0
    power_replay: Annotated[
        str | None, "--power-replay: a recording of power that replaces a sensor."
    ] = None


@dataclass(frozen=True, slots=True)
class MeasuredBundle:
    """Describes the bundle that was measured."""

    path: Annotated[str, "Folder of the bundle."]
    hash: Annotated[Sha256, "SHA-256 of its manifest, which holds those of its files."]
    model: Annotated[
        Object,
        "The model as its manifest describes it: name, summary, n_parameters and its settings.",
    ]
    precision: Annotated[
        str, one_of("float32", "float16", "int8"), "Element type of refresh and query."
    ]
    task: Annotated[str | None, "Name of the task that it was trained on."]
    n_streams: Annotated[Count, "Streams side by side."]
    n_inputs: Annotated[Count, "Columns of x."]
    n_outputs: Annotated[Count, "Columns of y."]
    chunk: Annotated[Count, "Points that one call learns at most."]
    targets: Annotated[Count, "Targets that one query takes."]
    keeps: Annotated[
        str,
        "What becomes of points beyond the state's capacity; empty where any number fits, missing "
        "in older records.",
        OPTIONAL,
    ]
    versions: Annotated[
        dict[str, Annotated[str, "A version."]], "Versions of the packages that exported it."
    ]
    open_s: Annotated[
        Seconds,
        "Time to open it.",
        Shown("open", "edgefold_open_seconds", "Time to open the bundle."),
    ]


@dataclass(frozen=True, slots=True)
class MemoryStage:
    """Holds the memory of the process after one stage of the profile, such as `opening`."""

    name: Annotated[str, "What was done before."]
    needed_bytes: NeededBytes
    file_bytes: FileBytes


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Holds the memory of the process after some of the timed updates."""

    n_updates: Annotated[Count, "Updates before it."]
    needed_bytes: NeededBytes
    file_bytes: FileBytes


@dataclass(frozen=True, slots=True)
class MemoryToRunWell:
    """Holds the needed memory plus the used pages of files: those that came back after a drop."""

    range_bytes: Annotated[BytesRange | None, "Least and most; null if it was not measured."] = None
    kept_bytes: Annotated[Bytes | None, "Pages of files that could not be dropped."] = None
    reason: Annotated[str | None, "Why it was not measured."] = None


@dataclass(frozen=True, slots=True)
class PredictedMemory:
    """Holds the memory that `edgefold budget` predicts for a Python program on this machine."""

    needed_bytes: Annotated[Bytes, "What the kernel cannot take back."]
    to_run_well_bytes: Annotated[Bytes, "With the pages of files that come back after a drop."]
    looks_like_bytes: Annotated[
        BytesRange, "Least and most that is resident, by how the files lie in the page cache."
    ]
    complete: Annotated[
        bool, "Whether nothing is left out that was never measured, such as a GPU's libraries."
    ]


@dataclass(frozen=True, slots=True)
class FilePages:
    """Holds the sizes of the clean (unchanged) pages of mapped files, in total and by file."""

    touched_bytes: TouchedBytes
    resident_bytes: ResidentBytes
    mapped_bytes: MappedBytes
    largest: Annotated[list[MappedFile], "The files with the most resident pages."]


@dataclass(frozen=True, slots=True)
class MeasuredMemory:
    """Holds the memory of the process, of the GPU and of the machine during the profile."""

    plan: MemoryPlan
    buffers_bytes: Annotated[Bytes, "Buffers that the stream holds."]
    stages: Annotated[list[MemoryStage], "Memory after each stage of the start."]
    samples: Annotated[list[MemorySample], "Memory along the updates."]
    needed_bytes: Annotated[
        Bytes,
        "The most of all readings of what the kernel cannot take back.",
        Shown(
            "needed",
            "edgefold_memory_needed_bytes",
            "Memory that cannot be taken back, at its most.",
            is_limit=True,
        ),
    ]
    n_readings: Annotated[Count, "Readings of what is needed."]
    needed_growth_bytes: Annotated[
        Bytes,
        "What is needed at the end of the updates less that at their start.",
        Shown(
            "growth",
            "edgefold_memory_growth_bytes",
            "What needed memory grew by over the updates.",
        ),
    ]
    to_run_well: Annotated[MemoryToRunWell, Shown("to_run_well", is_limit=True)]
    predicted: PredictedMemory
    files: FilePages
    resident_peak_open_bytes: Annotated[Bytes, "VmHWM after opening."]
    resident_peak_bytes: Annotated[
        Bytes,
        "VmHWM at the end: what is needed, and resident pages of files.",
        Shown("resident_peak", "edgefold_memory_resident_peak_bytes", "VmHWM since the warm-up."),
    ]
    window_note: Annotated[str, "Since when the peak and the touched pages count."]
    survey: MemorySurvey
