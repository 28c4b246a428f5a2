"""What a bundle adds to a process, part by part, before any of its graphs is opened.

"Process memory" is the peak of resident memory (VmHWM): what an out-of-memory killer looks at. It
counts pages of shared libraries that other processes may use as well, and pages of files that the
kernel could drop; anonymous memory alone is smaller by about 30 MB.

    process      Python and numpy: what is resident before the bundle comes
    runtime      onnxruntime: importing it, and the code and tables that its first session touches
    graphs       structures of each graph's session: nodes, their kernels, names
    weights      what each graph reads; a session keeps a packed copy of a product's weights, and
                 on a CPU a float32 copy of float16 ones beside them
    state        two buffers a tensor
    memory       what refresh writes and query reads
    io           points, targets, predictions, checks
    activations  the most that any graph has alive at once: they work in one arena, in turns

The constants of the first three parts were measured (`benchmarks/budget.py`, which also holds the
whole prediction beside measured peaks); the others are counted from the manifest. What was never
measured by us, such as a CUDA context on a given board, stands in `unmeasured` with the most that
others report of it: `process_bytes` is then a lower bound, and `most_bytes` an upper one.

`Stream.open(..., memory_limit=n)` calls `require_within(manifest, n, backend)` once the manifest is
read, before anything is opened.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from edgefold.runtime.errors import BundleError, MemoryLimitError
from edgefold.runtime.manifest import Manifest

OPENER = "edgefold.runtime.backends.onnxruntime_cpu"
CPU_BACKENDS = ("auto", "onnxruntime")
"""Judged alike: where nothing better opens, `auto` ends on the CPU."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """What one architecture's process takes whatever the bundle, in bytes; `measured` says where.

    Attributes:
        process_bytes: Resident after importing edgefold.runtime, which loads numpy.
        import_bytes: Added by importing onnxruntime.
        session_bytes: Added by the first session: code pages, schemas, kernels.
    """

    process_bytes: int
    import_bytes: int
    session_bytes: int
    measured: str


X86_64 = Baseline(
    27_600_000, 17_600_000, 12_800_000, "x86-64: Python 3.11, numpy 2.4, onnxruntime 1.31"
)
AARCH64 = Baseline(
    32_900_000,
    13_600_000,
    9_800_000,
    "aarch64 binaries under emulation (scripts/arm64-memory): Python 3.11, numpy 2.4, "
    "onnxruntime 1.23",
)
BASELINES = {"x86_64": X86_64, "aarch64": AARCH64}

SESSION_BYTES = 90_000
BYTES_PER_GRAPH_BYTE = 29
"""A session's structures: so much for itself, and so many bytes for each byte of the graph's file
(its nodes and names; weights lie elsewhere). Fitted to heap counts of 18 sessions, 21 to 651 nodes:
off by 10 % at most."""


NARROW_STEPS = ("refresh", "query")
"""What a narrow precision narrows; the fold and the state stay float32."""
CONVERTED = 3
"""Two bytes a float16 weight, and four for the float32 that a CPU's session computes with."""


@dataclass(frozen=True, slots=True)
class Part:
    """One named share of a process's memory."""

    name: str
    n_bytes: int


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
        unmeasured: Parts that come on top; with any, `process_bytes` is a lower bound.
    """

    backend: str
    parts: tuple[Part, ...]
    baseline: str
    unmeasured: tuple[Unmeasured, ...] = ()

    @property
    def process_bytes(self) -> int:
        """All parts: the peak of the process."""
        return sum(part.n_bytes for part in self.parts)

    @property
    def most_bytes(self) -> int:
        """The same, with the most that is reported of the unmeasured parts."""
        return self.process_bytes + sum(part.most_bytes for part in self.unmeasured)

    @property
    def bundle_bytes(self) -> int:
        """What the bundle and its runtime add to a process that has Python and numpy loaded."""
        return self.process_bytes - self.part("process")

    def part(self, name: str) -> int:
        """Bytes of one part."""
        return next(part.n_bytes for part in self.parts if part.name == name)


def baseline_of(architecture: str) -> Baseline:
    """The measured constants of an architecture, or x86-64's where none were measured."""
    return BASELINES.get(architecture, X86_64)


def footprint(
    manifest: Manifest,
    backend: str = "onnxruntime",
    present_bytes: int = 0,
    architecture: str | None = None,
) -> Footprint:
    """Predict the peak of a process that opens a bundle and runs every step of it.

    Args:
        manifest: The bundle's.
        backend: A name of `edgefold.runtime.backends.base.OPENERS`, or "auto".
        present_bytes: Resident memory of the process that will open it, without onnxruntime: what
            a caller has loaded beside us counts too. The table's figure stands if it is larger.
        architecture: As in `platform.machine()`; this machine's by default.

    Raises:
        BundleError: The manifest's plan lacks a figure, or a graph's file cannot be read.
    """
    name = architecture or platform.machine()
    baseline = baseline_of(name)
    source = baseline.measured
    if name not in BASELINES:
        source += f"; not measured on {name}"
    plan = manifest.memory_plan
    try:
        weights = _weight_bytes(manifest, backend)
        counted = [
            Part(part, int(plan[f"{part}_bytes"]))
            for part in ("state", "memory", "io", "activations")
        ]
        sizes = [(manifest.path / graph.file).stat().st_size for graph in manifest.graphs.values()]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BundleError(
            f"{manifest.path} has no complete memory plan ({type(error).__name__}: {error}); "
            "export it again."
        ) from error
    except OSError as error:
        raise BundleError(f"{error.filename} cannot be read: {error.strerror}.") from error
    library, structures = 0, 0
    if backend != "tensorrt":  # which loads no onnxruntime
        library = baseline.import_bytes + baseline.session_bytes
        structures = SESSION_BYTES * len(sizes) + BYTES_PER_GRAPH_BYTE * sum(sizes)
    parts = (
        Part("process", max(baseline.process_bytes, present_bytes)),
        Part("runtime", library),
        Part("graphs", structures),
        Part("weights", weights),
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
    half = manifest.precision["name"] == "float16" and backend in CPU_BACKENDS
    graphs = manifest.memory_plan["graphs"]
    return sum(
        int(graphs[name]["weights_bytes"])
        * (CONVERTED if half and graph.step in NARROW_STEPS else 1)
        for name, graph in manifest.graphs.items()
    )


def require_within(manifest: Manifest, limit_bytes: int, backend: str = "onnxruntime") -> Footprint:
    """Refuse a bundle that would take its process beyond a limit.

    Args:
        manifest: The bundle's.
        limit_bytes: For the whole process, interpreter and libraries included.
        backend: The one that will open it. "auto" is judged as the CPU; a GPU's unmeasured
            parts count as nothing, so there only what is certain to be too much is refused.

    Returns:
        The prediction that fits.

    Raises:
        MemoryLimitError: The prediction exceeds the limit.
        BundleError: As in `footprint`.
    """
    present = resident_bytes()
    baseline, opener = baseline_of(platform.machine()), sys.modules.get(OPENER)
    if "onnxruntime" in sys.modules:  # its share stands in another part
        present -= baseline.import_bytes
    if opener is not None and opener.has_opened():
        present -= baseline.session_bytes
    found = footprint(manifest, backend, present)
    if found.process_bytes <= limit_bytes:
        return found
    breakdown = ", ".join(f"{part.name} {_mb(part.n_bytes)}" for part in found.parts)
    raise MemoryLimitError(
        f"{manifest.path} needs {_mb(found.process_bytes)} MB in this process, the limit is "
        f"{_mb(limit_bytes)} MB: {breakdown}. {advice(found, limit_bytes)}"
    )


def advice(found: Footprint, limit_bytes: int, margin: float = 0.0) -> str:
    """What to change when a footprint exceeds a limit; margin: share to be kept free above it."""
    fixed = found.part("process") + found.part("runtime")
    if fixed >= limit_bytes:
        library = "onnxruntime" if found.part("runtime") else "numpy"
        return (
            f"Python and {library} alone take {_mb(fixed)} MB, so no bundle fits: raise the "
            "limit, or unload what else the process holds."
        )
    narrower = "" if found.backend in CPU_BACKENDS else ", or export in float16"
    ways = {
        "activations": "export with a smaller --chunk or fewer latents",
        "state": "train with fewer latents",
        "memory": "train with fewer latents",
        "weights": f"train fewer blocks (the small preset){narrower}",
        "graphs": "train fewer blocks (the small preset)",
    }
    largest = max(ways, key=found.part)
    least_mb = _mb(found.process_bytes * (1 + margin) + 50_000)  # rounded up
    return f"Raise the limit to {least_mb} MB, or {ways[largest]}."


def resident_bytes(proc: Path = Path("/proc")) -> int:
    """Resident memory of this process now; 0 where the kernel does not show it."""
    try:
        n_pages = int((proc / "self" / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return n_pages * os.sysconf("SC_PAGE_SIZE")


def _mb(n_bytes: float) -> str:
    return f"{n_bytes / 1e6:.1f}"
