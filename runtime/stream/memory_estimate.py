"""Estimate the memory of a process with a bundle, part by part, before any graph is opened.

Three figures (docs/measuring.md explains them):

    needed        the most anonymous memory: the kernel cannot take it back while the process lives
    to run well   needed, plus the pages of files without which steps wait for a disk
    looks like    needed, plus all pages of files that `top` shows: a range, because the page cache
                  may hold the libraries in blocks of 16 kB to 1 MiB

The estimate is the sum of these parts:

    process      Python, numpy and edgefold, before a bundle is read
    command      further modules and data of `edgefold run`
    runtime      onnxruntime: its import, and structures of its first session
    graphs       structures of each graph's session: nodes, their kernels, names
    weights      weights of each graph; a session keeps a packed copy of a product's weights, and
                 on a CPU float32 copies of float16 ones; it reads the others from the mapped file
    state        two buffers a tensor
    cache        tensors that refresh writes and query reads
    io           points, targets, predictions, checks
    activations  the most that any graph holds at once: all graphs use one arena, one by one
    merge        what a program's first merge adds: session, weights and inputs of its graph, and
                 activations beyond those of the others. A stream that never merges needs none

Constants were measured, all other figures are counted from the manifest;
`benchmarks/memory/memory_states.py` compares the estimate with measured processes. Parts that we
never measured, such as a CUDA context on a given board, are listed in `unmeasured` with the most
that others report: `needed_bytes` is then a lower bound, and `most_bytes` an upper one.

`Stream.open(..., memory_limit=n)` calls `require_within(manifest, n, backend)` once the manifest is
read, before anything is opened. It applies a limit as the kernel applies that of a control group
(`MemoryMax=` of a service), which counts all pages and drops clean ones of files before it kills:

    limit < needed         refused
    limit < to run well    starts slowly or hardly, as pages are dropped and read again: a warning
    else                   fits
"""

from __future__ import annotations

import math
import os
import platform
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from edgefold.runtime.backends.base import BackendInfo
from edgefold.runtime.backends.needed_memory import present_bytes
from edgefold.runtime.backends.registry import info_of
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.errors import BundleError, MemoryLimitError
from edgefold.runtime.record_fields import Bytes, BytesRange, Count

PYTHON, RUN = "a Python program", "edgefold run"
"""The kinds of programs that open a bundle: we assume that the first runs every step; the second
runs only the steps of one row."""


@dataclass(frozen=True, slots=True)
class Part:
    """Holds one named part of a process's memory, in bytes."""

    name: Annotated[str, "What it is."]
    needed_bytes: Annotated[Bytes, "Anonymous memory, which cannot be taken back."]
    well_bytes: Annotated[Bytes, "Pages of files that steady steps need in memory."] = 0
    seen_bytes: Annotated[
        BytesRange,
        "Pages of files that may be resident: fewest with small blocks, most with large ones.",
    ] = (0, 0)


@dataclass(frozen=True, slots=True)
class Baseline:
    """Holds the memory of a process on one architecture that does not depend on the bundle.

    Attributes:
        process: The memory of Python, numpy and edgefold.
        command: The further memory of `edgefold run`.
        runtime: The memory of onnxruntime.
        session_bytes: The bytes of `runtime` that the first session takes.
        measured: The machine and the versions of the measurement.
    """

    process: Part
    command: Part
    runtime: Part
    session_bytes: int
    measured: str


COMMAND = Part("command", 1_400_000)
"""The memory of argument parsing and of the loop with its readers and writers: 1.2 to 1.5 MB for
the smallest examples."""
PROCESS_FILES: tuple[int, tuple[int, int]] = (9_000_000, (12_500_000, 24_000_000))
RUNTIME_FILES: tuple[int, tuple[int, int]] = (12_000_000, (20_000_000, 26_000_000))
"""The bytes of pages of files: those that are needed to run well, and those in memory if the page
cache has blocks of 16 kB or of 1 MiB (Linux 6.18, x86-64). The first was found with limits of real
control groups to which the files of numpy and onnxruntime were charged: three bundles started at
once with 18 to 21 MB above the needed memory (1 MB of that is the kernel's own for the process) and
did not get through the start with 16 to 19 MB. Five bundles were then run at the predicted limit.
Starting takes more than the steps: a running loop uses 10 MB."""

X86_64 = Baseline(
    Part("process", 16_000_000, *PROCESS_FILES),
    COMMAND,
    Part("runtime", 8_600_000, *RUNTIME_FILES),
    1_100_000,
    "x86-64: Python 3.11, numpy 2.4, onnxruntime 1.31",
)
"""The memory that was measured stage by stage with the two smallest examples (kalman, rls), whose
own parts are below 0.5 MB. All other bundles of `benchmarks/memory/memory_states.py` test it."""
AARCH64 = Baseline(
    Part("process", 19_400_000, *PROCESS_FILES),
    COMMAND,
    Part("runtime", 6_400_000, *RUNTIME_FILES),
    0,
    "aarch64 binaries under emulation (scripts/arm64-memory): Python 3.11, numpy 2.4, "
    "onnxruntime 1.31; pages of files and the command's share as on x86-64",
)
MEASURED_PAGE_BYTES = 4096
"""The page size of the kernels on which we measured; larger pages round each mapping up."""
BASELINES = {"x86_64": X86_64, "aarch64": AARCH64}  # others are judged as x86-64

SESSION_BYTES = 90_000
BYTES_PER_GRAPH_BYTE = 29
"""The memory of a session's structures is a constant plus 29 bytes for each byte of the graph's
file (nodes and names, without weights). Both were fitted to heap counts of 18 sessions with 21 to
651 nodes, and are wrong by at most 10 %."""

CONVERTED = 4
"""The factor on the bytes of a float16 weight: a session on a CPU computes with float32 copies of
it. For the two presets 3.4 to 4.1 was measured."""
COPIES, HISTORY_COPIES = 2.1, 5
"""The number of copies of a sensor's state and of its history of rows in memory: the data, and a
snapshot of all sensors while it is written. With `SENSOR_BYTES`, each of 50 sensors of series-co2
(81 kB of state, 22 kB of history) needs 290 kB (278 were measured); each of a series with 0.5 kB of
state needs 114 kB (113 were measured)."""
SENSOR_BYTES = 10_000
"""The bytes of a sensor's objects: 10.3 kB were measured for each of 50 sensors of points with 16
bytes of state."""
READ_SHARE = 0.15
"""The share of the weights' file that is read in place: weights that are not in products, such as a
bias."""


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """Describes a part of memory that we have not measured: 0 to the most bytes others report."""

    name: Annotated[str, "What it is."]
    most_bytes: Annotated[Bytes, "The most that others report."]
    source: Annotated[str, "Who reports it."]


CUDA = Unmeasured(
    "the CUDA context and the GPU's libraries",
    1_100_000_000,
    "TensorRT's logs as users post them tell 14 to 310 MiB for CUDA; NVIDIA's forum (topic 79158) "
    "some 800 MB for the libraries of TensorRT 5, and newer ones load less",
)
ENGINE_BYTES_PER_WEIGHT_BYTE = 5
ENGINE_SCRATCH_BYTES = 16_000_000
"""Upper bounds of the memory of TensorRT-RTX's engines: those of both presets take 3 to 4.7 bytes
for each byte of weights (`benchmarks/memory/engine_build.py`), and up to 8.2 MB of scratch."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """Holds the predicted memory of a process by parts, such as runtime, weights and state."""

    backend: Annotated[str, "Backend that it is for."]
    program: Annotated[str, "The kind of program: a Python program, or edgefold run."]
    parts: Annotated[tuple[Part, ...], "They add up."]
    baseline: Annotated[str, "Where the constants were measured."]
    unmeasured: Annotated[
        tuple[Unmeasured, ...], "Parts that nobody measured; with any, the sum is a lower bound."
    ] = ()
    n_processes: Annotated[Count, "Processes that the parts are the sum of."] = 1

    @property
    def needed_bytes(self) -> int:
        """Return the bytes of anonymous memory of all parts together."""
        return sum(part.needed_bytes for part in self.parts)

    @property
    def to_run_well_bytes(self) -> int:
        """Return `needed_bytes` plus the pages of files without which steps wait for a disk."""
        return self.needed_bytes + sum(part.well_bytes for part in self.parts)

    @property
    def looks_like_bytes(self) -> tuple[int, int]:
        """Return the bytes that `top` shows, with small and with large blocks of page cache."""
        low, high = (sum(part.seen_bytes[i] for part in self.parts) for i in (0, 1))
        return self.needed_bytes + low, self.needed_bytes + high

    @property
    def most_bytes(self) -> int:
        """Return the bytes to run well plus the most bytes that the unmeasured parts may take."""
        return self.to_run_well_bytes + sum(part.most_bytes for part in self.unmeasured)

    def part(self, name: str) -> int:
        """Return the bytes of anonymous memory that the part of this name needs."""
        return next(part.needed_bytes for part in self.parts if part.name == name)

    def of(self, n_processes: int) -> Footprint:
        """Return the footprint of n such processes together, which share their pages of files."""
        return replace(
            self,
            parts=tuple(replace(p, needed_bytes=n_processes * p.needed_bytes) for p in self.parts),
            unmeasured=tuple(
                replace(p, most_bytes=n_processes * p.most_bytes) for p in self.unmeasured
            ),
            n_processes=n_processes,
        )


def footprint(
    manifest: Manifest,
    backend: str = "onnxruntime",
    present_bytes: int = 0,
    architecture: str | None = None,
    page_bytes: int | None = None,
    program: str = PYTHON,
    slots: int = 0,
) -> Footprint:
    """Predict the memory of a process that opens a bundle and runs its steps.

    Args:
        manifest: The bundle's manifest.
        backend: A name of `edgefold.runtime.backends.registry`, or "auto".
        present_bytes: The bytes that the process needs already, without onnxruntime; a caller's
            other modules count too. The larger one of this number and the measured one is used.
        architecture: A name as `platform.machine()` returns it; None stands for this machine.
        page_bytes: The page size of the kernel that will run the process; None stands for this
            machine's.
        program: The kind of program. `PYTHON` runs every step. `RUN`, the command `edgefold run`,
            has further memory and runs the steps of one row (with `--buffered` it also learns
            chunks, which only `PYTHON` counts).
        slots: The number of sensors that share the stream, each with a state of its own.

    Raises:
        BackendError: The backend's name is unknown.
        BundleError: The manifest's plan lacks a figure, or a graph's file cannot be read.
    """
    info = info_of(backend)
    name = architecture or platform.machine()
    baseline = BASELINES.get(name, X86_64)
    source = baseline.measured
    if name not in BASELINES:
        source += f"; not measured on {name}"
    pages = page_bytes or os.sysconf("SC_PAGE_SIZE")
    if pages != MEASURED_PAGE_BYTES:
        source += f"; with pages of 4 KiB, not with {pages // 1024} KiB, where more is needed"
    plan = manifest.memory_plan
    try:
        weights, in_file = _weight_bytes(manifest, info), int(manifest.weights["n_bytes"])
        counted = [Part(part, int(plan[f"{part}_bytes"])) for part in ("state", "cache")]
        late = [graph for graph in manifest.graphs.values() if graph.opens_late]
        late_io = sum(int(plan["graphs"][graph.name]["io_bytes"]) for graph in late)
        counted.append(Part("io", int(plan["io_bytes"]) - late_io))
        activations = _activation_bytes(manifest, program)
        counted.append(Part("activations", activations))
        sizes = {n: (manifest.path / g.file).stat().st_size for n, g in manifest.graphs.items()}
        if late and program == PYTHON:
            counted.append(Part("merge", late_io + _late_bytes(manifest, info, sizes, activations)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BundleError(
            f"{manifest.path} has no complete memory plan ({type(error).__name__}: {error}); "
            "export it again."
        ) from error
    except OSError as error:
        raise BundleError(f"{error.filename} cannot be read: {error.strerror}.") from error
    process, library = baseline.process, baseline.runtime
    structures = sum(
        _session_bytes(sizes[n]) for n, g in manifest.graphs.items() if not g.opens_late
    )
    weight_files = (read := round(in_file * READ_SHARE), (read, in_file))
    if not info.needs_onnxruntime:
        library, structures = Part("runtime", 0), 0
    if info.maps_weights:
        weights, weight_files = 0, (in_file, (in_file, in_file))
    parts = (
        replace(process, needed_bytes=max(process.needed_bytes, present_bytes)),
        *([baseline.command] if program == RUN else []),
        library,
        Part("graphs", structures),
        Part("weights", weights, *weight_files),
        *counted,
        *([Part("slots", slots * _slot_bytes(manifest))] if slots else []),
    )
    unmeasured: tuple[Unmeasured, ...] = ()
    if info.device == "gpu":
        engines = Unmeasured(
            "what engines need beside their weights",
            (ENGINE_BYTES_PER_WEIGHT_BYTE - 1) * weights + ENGINE_SCRATCH_BYTES,
            "engines of TensorRT-RTX, rounded up",
        )
        unmeasured = (CUDA, engines)
    return Footprint(backend, program, parts, source, unmeasured)


def _session_bytes(file_bytes: int) -> int:
    """Return the bytes of the structures of a session of a graph's file."""
    return SESSION_BYTES + BYTES_PER_GRAPH_BYTE * file_bytes


def _late_bytes(
    manifest: Manifest, info: BackendInfo, sizes: Mapping[str, int], activations: int
) -> int:
    """Return the bytes that graphs which open late add, without their inputs and outputs.

    Args:
        manifest: The bundle's manifest.
        info: The backend's facts.
        sizes: The bytes of each graph's file, by name.
        activations: The most activation bytes of the other graphs.
    """
    late = [name for name, graph in manifest.graphs.items() if graph.opens_late]
    plans = [manifest.memory_plan["graphs"][name] for name in late]
    more = max(int(plan["activations_bytes"]) for plan in plans) - activations
    sessions = sum(_session_bytes(sizes[name]) for name in late) if info.needs_onnxruntime else 0
    weights = 0 if info.maps_weights else _weight_bytes(manifest, info, late=True)
    return sessions + weights + max(more, 0)


def _activation_bytes(manifest: Manifest, program: str) -> int:
    """Return the most activation bytes of a graph that the program (`PYTHON` or `RUN`) runs."""
    graphs = manifest.memory_plan["graphs"]
    wide = program == PYTHON
    return max(
        int(graphs[name]["activations_bytes"])
        for name, graph in manifest.graphs.items()
        if not graph.opens_late and (wide or graph.width <= 1)  # some steps have no rows
    )


def _weight_bytes(manifest: Manifest, info: BackendInfo, late: bool = False) -> int:
    """Return the bytes of the weights of all sessions that open with the bundle, or `late`.

    A missing figure raises KeyError or TypeError.
    """
    graphs = manifest.memory_plan["graphs"]
    return sum(
        int(graphs[name]["weights_bytes"])
        * (CONVERTED if graph.precision == "float16" and info.device == "cpu" else 1)
        for name, graph in manifest.graphs.items()
        if graph.opens_late == late
    )


def _slot_bytes(manifest: Manifest) -> int:
    """Return the bytes that one sensor takes: state, history, and their copies in a snapshot."""
    from edgefold.runtime.series.features import SeriesFeatures
    from edgefold.runtime.series.spec import SeriesSpec

    state = sum(math.prod(t.shape) * np.dtype(t.dtype).itemsize for t in manifest.state)
    history, features = 0, manifest.task.get("features")
    if manifest.task.get("name") == "series" and isinstance(features, dict):
        rows = SeriesFeatures(SeriesSpec.from_json(features)).arrays()
        history = sum(array.nbytes for array in rows.values())
    return round(COPIES * state) + HISTORY_COPIES * history + SENSOR_BYTES


def require_within(
    manifest: Manifest, limit_bytes: int, backend: str = "onnxruntime", slots: int = 0
) -> Footprint:
    """Refuse a bundle whose process would need more than a limit; the page cache does not count.

    Args:
        manifest: The bundle's manifest.
        limit_bytes: The limit of the whole process, interpreter and libraries included.
        backend: The backend that will open the bundle. "auto" counts as the CPU. The unmeasured
            parts of a GPU count as 0 bytes, so that a bundle is refused only if it certainly needs
            too much.
        slots: The number of sensors that share the stream, each with a state of its own.

    Returns:
        The estimate; a warning is given if the limit is too small to run well.

    Raises:
        MemoryLimitError: The process would need more than the limit.
        BundleError: The manifest's plan lacks a figure, or a graph's file cannot be read.
    """
    baseline = BASELINES.get(platform.machine(), X86_64)
    session = baseline.session_bytes
    present = present_bytes(baseline.runtime.needed_bytes - session, session)
    estimate = footprint(manifest, backend, present, slots=slots)
    needed, well = estimate.needed_bytes, estimate.to_run_well_bytes
    if well <= limit_bytes:
        return estimate
    if needed <= limit_bytes:
        warnings.warn(
            f"{manifest.path} needs {_mb(needed)} of {_mb(limit_bytes)} MB, but {_mb(well)} MB to "
            "run well: with less, pages of libraries are dropped and read again, and starting may "
            "take very long.",
            RuntimeWarning,
            stacklevel=3,
        )
        return estimate
    breakdown = ", ".join(f"{part.name} {_mb(part.needed_bytes)}" for part in estimate.parts)
    raise MemoryLimitError(
        f"{manifest.path} needs {_mb(needed)} MB ({_mb(well)} MB to run well), the limit is "
        f"{_mb(limit_bytes)} MB: {breakdown}. "
        + advice(estimate, limit_bytes, with_less_room=manifest.with_less_room)
    )


def advice(
    estimate: Footprint, limit_bytes: int, margin: float = 0.0, with_less_room: str = ""
) -> str:
    """Return a sentence that advises what to change when an estimate exceeds a limit.

    Args:
        estimate: The estimated memory of the process.
        limit_bytes: The limit in bytes that the estimate exceeds.
        margin: The fraction of the estimate that is added to it for the advised limit.
        with_less_room: The manifest's advice to export a smaller buffer of points; "" without one.
    """
    parts = estimate.parts
    fixed = sum(p.needed_bytes for p in parts if p.name in ("process", "command", "runtime"))
    if fixed >= limit_bytes:
        library = "onnxruntime" if estimate.part("runtime") else "numpy"
        return (
            f"Python and {library} alone need {_mb(fixed)} MB, so no bundle fits: raise the "
            "limit, or unload what else the process holds."
        )
    ways = {
        "activations": with_less_room or "export with a smaller --chunk or fewer --targets",
        "state": with_less_room or "train a model with a smaller state",
        "cache": with_less_room or "train a model with a smaller state",
        "weights": "train a model with fewer or smaller layers"
        + ("" if info_of(estimate.backend).device == "cpu" else ", or export in float16"),
        "graphs": "train a model with fewer layers",
        **({"slots": "serve fewer streams"} if any(p.name == "slots" for p in parts) else {}),
    }
    way = ways[max(ways, key=estimate.part)]
    least_mb = _mb(estimate.to_run_well_bytes * (1 + margin) + 50_000)  # rounded up
    return f"Raise the limit to {least_mb} MB, or {way}."


def _mb(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:.1f}"
