"""What a process with a bundle takes, part by part, before any of its graphs is opened.

Every part has two kinds of memory. What the process owns (`edgefold.runtime.owned_memory`) cannot
be taken back while it lives. Clean pages of files can: at least those are wanted that every step
touches, and at most every page of the files that are mapped is in memory.

    process      Python, numpy and edgefold, before the bundle comes
    runtime      onnxruntime: importing it, and what its first session makes
    graphs       structures of each graph's session: nodes, their kernels, names
    weights      what each graph reads; a session keeps a packed copy of a product's weights, and
                 on a CPU float32 copies of float16 ones; the rest it reads from the mapped file
    state        two buffers a tensor
    cache        what refresh writes and query reads
    io           points, targets, predictions, checks
    activations  the most that any graph has alive at once: they work in one arena, in turns

The constants of the first three parts were measured (`benchmarks/budget.py`, which also holds the
whole prediction beside measured processes); the others are counted from the manifest. What was
never measured by us, such as a CUDA context on a given board, stands in `unmeasured` with the most
that others report of it: `owned_bytes` is then a lower bound, and `most_bytes` an upper one.

`Stream.open(..., memory_limit=n)` calls `require_within(manifest, n, backend)` once the manifest is
read, before anything is opened. A limit is judged as the kernel judges that of a control group
(`MemoryMax=` of a service), which counts both kinds and drops clean pages before it kills:

    limit < owned                    refused
    limit < owned + touched files    runs, but steps wait for pages that are read again: a warning
    else                             fits
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import warnings
from dataclasses import dataclass, replace

from edgefold.runtime.errors import BundleError, MemoryLimitError
from edgefold.runtime.manifest import Manifest
from edgefold.runtime.owned_memory import owned_bytes

OPENER = "edgefold.runtime.backends.onnxruntime_cpu"
CPU_BACKENDS = ("auto", "onnxruntime")
"""Judged alike: where nothing better opens, `auto` ends on the CPU."""


@dataclass(frozen=True, slots=True)
class Part:
    """One named share of a process's memory.

    Attributes:
        owned_bytes: What cannot be taken back.
        touched_bytes: Pages of files that steady steps read.
        mapped_bytes: All pages of the files that it maps.
    """

    name: str
    owned_bytes: int
    touched_bytes: int = 0
    mapped_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Baseline:
    """What one architecture's process takes whatever the bundle; `measured` says where.

    Attributes:
        process: Python, numpy and edgefold; a Python program owns 0.5 MB less, `edgefold run` 1 MB
            more.
        runtime: onnxruntime, of which `session_bytes` come with the first session.
    """

    process: Part
    runtime: Part
    session_bytes: int
    measured: str


X86_64 = Baseline(
    Part("process", 16_300_000, 2_200_000, 52_400_000),
    Part("runtime", 8_800_000, 1_300_000, 30_600_000),
    1_800_000,
    "x86-64: Python 3.11, numpy 2.4, onnxruntime 1.31",
)
AARCH64 = Baseline(
    Part("process", 19_400_000, 2_200_000, 45_700_000),
    Part("runtime", 6_400_000, 1_300_000, 26_400_000),
    0,
    "aarch64 binaries under emulation (scripts/arm64-memory): Python 3.11, numpy 2.4, "
    "onnxruntime 1.31; touched pages as on x86-64",
)
MEASURED_PAGE_BYTES = 4096
"""Of the kernels on which everything here was measured; larger pages round each mapping up."""
BASELINES = {"x86_64": X86_64, "aarch64": AARCH64}  # others are judged as x86-64

SESSION_BYTES = 90_000
BYTES_PER_GRAPH_BYTE = 29
"""A session's structures: so much for itself, and so many bytes for each byte of the graph's file
(its nodes and names; weights lie elsewhere). Fitted to heap counts of 18 sessions, 21 to 651 nodes:
off by 10 % at most."""

CONVERTED = 4
"""Times the bytes of a float16 weight: a CPU's session computes with float32 copies of it. Measured
for the two presets: 3.4 to 4.1."""
TOUCHED_SHARE = 0.15
"""Of the weights' file: what no product reads, such as a bias, is read from the mapped file."""


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A part of which we have no measurement: at least nothing, at most what others report."""

    name: str
    most_bytes: int
    source: str


CUDA = Unmeasured(
    "the CUDA context and the GPU's libraries",
    1_100_000_000,
    "TensorRT's logs as users post them tell 14 to 310 MiB for CUDA; NVIDIA's forum (topic 79158) "
    "some 800 MB for the libraries of TensorRT 5, and newer ones load less",
)
ENGINE_BYTES_PER_WEIGHT_BYTE = 5
ENGINE_SCRATCH_BYTES = 16_000_000
"""Above what TensorRT-RTX's engines of both presets have: 3 to 4.7 bytes for each of the weights'
(`benchmarks/engine_build.py`), and up to 8.2 MB of scratch."""


@dataclass(frozen=True, slots=True)
class Footprint:
    """A prediction.

    Attributes:
        parts: In the order of the module's docstring.
        baseline: Where the constants come from.
        unmeasured: Parts that come on top; with any, `owned_bytes` is a lower bound.
    """

    backend: str
    parts: tuple[Part, ...]
    baseline: str
    unmeasured: tuple[Unmeasured, ...] = ()

    @property
    def owned_bytes(self) -> int:
        """What the process cannot give back: all parts."""
        return sum(part.owned_bytes for part in self.parts)

    @property
    def file_bytes(self) -> tuple[int, int]:
        """Clean pages of files beside it: those that every step touches, and all mapped ones."""
        touched = sum(part.touched_bytes for part in self.parts)
        return touched, sum(part.mapped_bytes for part in self.parts)

    @property
    def wanted_bytes(self) -> int:
        """What is owned and the pages that every step touches: no step waits for a disk."""
        return self.owned_bytes + self.file_bytes[0]

    @property
    def most_bytes(self) -> int:
        """The same, with the most that is reported of the unmeasured parts."""
        return self.wanted_bytes + sum(part.most_bytes for part in self.unmeasured)

    def part(self, name: str) -> int:
        """Bytes that are owned for one part."""
        return next(part.owned_bytes for part in self.parts if part.name == name)


def footprint(
    manifest: Manifest,
    backend: str = "onnxruntime",
    present_bytes: int = 0,
    architecture: str | None = None,
    page_bytes: int | None = None,
) -> Footprint:
    """Predict the memory of a process that opens a bundle and runs every step of it.

    Args:
        manifest: The bundle's.
        backend: A name of `edgefold.runtime.backends.registry`, or "auto".
        present_bytes: What the process that will open it owns, without onnxruntime: what a caller
            has loaded beside us counts too. The table's figure stands if it is larger.
        architecture: As in `platform.machine()`; this machine's by default.
        page_bytes: Of the kernel that will run it; this machine's by default.

    Raises:
        BundleError: The manifest's plan lacks a figure, or a graph's file cannot be read.
    """
    name = architecture or platform.machine()
    baseline = BASELINES.get(name, X86_64)
    source = baseline.measured
    if name not in BASELINES:
        source += f"; not measured on {name}"
    pages = page_bytes or os.sysconf("SC_PAGE_SIZE")
    if pages != MEASURED_PAGE_BYTES:
        source += f"; with pages of 4 KiB, not with {pages // 1024} KiB, where more is owned"
    plan = manifest.memory_plan
    try:
        weights, in_file = _weight_bytes(manifest, backend), int(manifest.weights["n_bytes"])
        counted = [
            Part(part, int(plan[f"{part}_bytes"]))
            for part in ("state", "cache", "io", "activations")
        ]
        sizes = [(manifest.path / graph.file).stat().st_size for graph in manifest.graphs.values()]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BundleError(
            f"{manifest.path} has no complete memory plan ({type(error).__name__}: {error}); "
            "export it again."
        ) from error
    except OSError as error:
        raise BundleError(f"{error.filename} cannot be read: {error.strerror}.") from error
    process, library = baseline.process, baseline.runtime
    structures = SESSION_BYTES * len(sizes) + BYTES_PER_GRAPH_BYTE * sum(sizes)
    if backend == "tensorrt":  # which loads no onnxruntime
        library, structures = Part("runtime", 0), 0
    parts = (
        replace(process, owned_bytes=max(process.owned_bytes, present_bytes)),
        library,
        Part("graphs", structures),
        Part("weights", weights, round(in_file * TOUCHED_SHARE), in_file),
        *counted,
    )
    unmeasured: tuple[Unmeasured, ...] = ()
    if backend not in CPU_BACKENDS:
        engines = Unmeasured(
            "what engines need beside their weights",
            (ENGINE_BYTES_PER_WEIGHT_BYTE - 1) * weights + ENGINE_SCRATCH_BYTES,
            "engines of TensorRT-RTX, rounded up",
        )
        unmeasured = (CUDA, engines)
    return Footprint(backend, parts, source, unmeasured)


def _weight_bytes(manifest: Manifest, backend: str) -> int:
    """Of all sessions together; a manifest that lacks a figure raises KeyError or TypeError."""
    graphs = manifest.memory_plan["graphs"]
    return sum(
        int(graphs[name]["weights_bytes"])
        * (CONVERTED if graph.precision == "float16" and backend in CPU_BACKENDS else 1)
        for name, graph in manifest.graphs.items()
    )


def require_within(manifest: Manifest, limit_bytes: int, backend: str = "onnxruntime") -> Footprint:
    """Refuse a bundle whose process would own more than a limit; the page cache has no say.

    Args:
        manifest: The bundle's.
        limit_bytes: For the whole process, interpreter and libraries included.
        backend: The one that will open it. "auto" is judged as the CPU; a GPU's unmeasured
            parts count as nothing, so there only what is certain to be too much is refused.

    Returns:
        The prediction that fits; a warning tells if it does so without the touched files alone.

    Raises:
        MemoryLimitError: The process would own more than the limit.
        BundleError: As in `footprint`.
    """
    found = footprint(manifest, backend, _present_bytes())
    owned, touched = found.owned_bytes, found.file_bytes[0]
    if owned + touched <= limit_bytes:
        return found
    if owned <= limit_bytes:
        warnings.warn(
            f"{manifest.path} makes this process own {_mb(owned)} of {_mb(limit_bytes)} MB, which "
            f"leaves too little for the {_mb(touched)} MB of files that every step touches: steps "
            "wait for pages that are read again.",
            RuntimeWarning,
            stacklevel=3,
        )
        return found
    breakdown = ", ".join(f"{part.name} {_mb(part.owned_bytes)}" for part in found.parts)
    raise MemoryLimitError(
        f"{manifest.path} makes this process own {_mb(owned)} MB, the limit is "
        f"{_mb(limit_bytes)} MB: {breakdown}. {advice(found, limit_bytes)}"
    )


def _present_bytes() -> int:
    """What this process owns without onnxruntime's share, which stands in another part."""
    # glibc keeps what was freed, most of a closed stream: the next stream would use it again.
    getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
    baseline = BASELINES.get(platform.machine(), X86_64)
    imported, opener = "onnxruntime" in sys.modules, sys.modules.get(OPENER)
    first = imported and not (opener and opener.has_opened())  # its share is still to come
    share = imported * baseline.runtime.owned_bytes - first * baseline.session_bytes
    return (owned_bytes() or 0) - share


def advice(found: Footprint, limit_bytes: int, margin: float = 0.0) -> str:
    """What to change when a footprint exceeds a limit; margin: share to be kept free above it."""
    fixed = found.part("process") + found.part("runtime")
    if fixed >= limit_bytes:
        library = "onnxruntime" if found.part("runtime") else "numpy"
        return (
            f"Python and {library} alone own {_mb(fixed)} MB, so no bundle fits: raise the "
            "limit, or unload what else the process holds."
        )
    ways = {
        "activations": "export with a smaller --chunk or fewer --targets",
        "state": "train a model with a smaller state",
        "cache": "train a model with a smaller state",
        "weights": "train a model with fewer or smaller layers"
        + ("" if found.backend in CPU_BACKENDS else ", or export in float16"),
        "graphs": "train a model with fewer layers",
    }
    way = ways[max(ways, key=found.part)]
    least_mb = _mb(found.wanted_bytes * (1 + margin) + 50_000)  # rounded up
    return f"Raise the limit to {least_mb} MB, or {way}."


def _mb(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:.1f}"
