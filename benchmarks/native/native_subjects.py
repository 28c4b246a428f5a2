"""Bundles opened twice on the same inputs: on onnxruntime, and as C that is compiled here.

Both streams see the same points. Then the inputs of every graph are copied from one to the other,
so that both compute the same, and what they give is compared. Nothing is timed here.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.memory.memory_child import arrivals
from benchmarks.memory.memory_states import sources
from benchmarks.record import ROOT
from edgefold.export.native.generator import FOLDER, PARTS, generate
from edgefold.export.native.toolchain.compilers import Compiler, compile_library, find_compiler
from edgefold.export.native.toolchain.targets import TARGETS
from edgefold.runtime import Stream
from edgefold.runtime.backends.native.backend import NativeBackend
from edgefold.runtime.bundle.manifest_file import load_manifest

TRAINED = {"gp-paper": "gp-paper, float32", "gp-small": "gp-small, float32"}
EXAMPLE_NAMES = (
    *("gru", "lstm", "ssm", "tcn", "transformer", "keyword_spotter", "kalman", "rls"),
    "silero_vad",
)
SUCCESSORS = ("gp-small-2",)
"""Checkpoints of a shape that `TRAINED` has: measured where they are asked for, beside it."""
N_POINTS = 200


def write_bundle(name: str, folder: Path) -> Path:
    """Write a shipped model's bundle, or an example's, in another process."""
    bundle = folder / name
    if name in SUCCESSORS:
        checkpoint = str(ROOT / "checkpoints" / name)
        command = [sys.executable, "-m", "edgefold.cli.main", "export", checkpoint, "--out"]
    else:
        command = sources()[TRAINED.get(name, name)]
    done = subprocess.run(
        [*command, str(bundle)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{name} cannot be exported: {done.stderr.strip()[-400:]}")
    return bundle


def builds(asked: str | None = None) -> dict[str, Compiler]:
    """AVX2, where this is an x86-64 machine, and all that the machine has."""
    avx2 = TARGETS["x86-64-v3"]
    own = find_compiler(asked)
    return {**({"AVX2": find_compiler(asked, avx2)} if avx2.is_native else {}), "own": own}


@contextmanager
def native_stream(
    bundle: Path, compiler: Compiler, folder: Path, buffered: bool = False
) -> Iterator[Stream]:
    """A stream on a library that is compiled into a folder."""
    folder.mkdir(parents=True)
    library = compile_library(generate(bundle).files, compiler, folder)
    manifest = load_manifest(bundle)
    with Stream(manifest, NativeBackend(manifest, library, {}), {}, buffered) as stream:
        yield stream


class Rates:
    """Loops in C beside a library, compiled as it is; see `native_rates.c`."""

    def __init__(self, compiler: Compiler, folder: Path):
        folder.mkdir(parents=True)
        own = Path(__file__).with_name("native_rates.c")
        text = "\n".join(path.read_text() for path in (*(FOLDER / part for part in PARTS), own))
        self._library = ctypes.CDLL(str(compile_library({"rates.c": text}, compiler, folder)))

    def step(self, bound: Any) -> Callable[[int], None]:
        """Return what runs a bound step of the native backend n times."""
        repeat, function = self._library.repeat_step, ctypes.cast(bound.func, ctypes.c_void_p)
        tensors, arena = map(ctypes.c_void_p, bound.args)
        return lambda n: repeat(function, tensors, arena, ctypes.c_long(n))

    def product(self) -> Callable[[int], None]:
        """Return what multiplies (128, 64) by (64, 64) n times: 2 * 128 * 64 * 64 operations."""
        a, b, c = (np.random.default_rng(0).random((128, 64), np.float32) for _ in range(3))
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (a, b, c)]

        def run(n: int, keeps: Any = (a, b, c)) -> None:
            self._library.repeat_product(*pointers, ctypes.c_long(n))

        return run

    def reading(self, n_bytes: int) -> Callable[[int], None]:
        """Return what reads as many bytes n times; they lie where weights of this size would."""
        words = np.ones(n_bytes // 8, np.uint64)
        address, size = ctypes.c_void_p(words.ctypes.data), ctypes.c_size_t(words.size)

        def run(n: int, keeps: Any = words) -> None:
            self._library.repeat_reading(address, size, ctypes.c_long(n))

        return run


@dataclass(frozen=True, slots=True)
class Pair:
    """A graph on onnxruntime, and as C of each build, on the same inputs.

    Attributes:
        ours: By build, what `NativeBackend.bind` gave.
        difference: The largest of an output's elements from onnxruntime's, over the largest element
            of that output, or over 1 where that is smaller.
    """

    theirs: Callable[[], None]
    ours: dict[str, Any]
    difference: float


def pairs(theirs: Stream, ours: dict[str, Stream]) -> dict[str, Pair]:
    """All graphs of a bundle after some points, by name."""
    for stream in (theirs, *ours.values()):
        arrivals(stream, N_POINTS)
    found = {}
    for graph in theirs.manifest.graphs.values():
        reference: Any = bound_step(theirs, graph.name)
        bound = {build: bound_step(stream, graph.name) for build, stream in ours.items()}
        names = [tensor.name for tensor in (*graph.inputs, *graph.outputs)]
        for step in bound.values():
            for name, array in zip(names, step.keeps[1], strict=True):
                np.copyto(array, reference.buffers[name])
        for step in (reference, *bound.values()):
            step()
        outputs = {tensor.name for tensor in graph.outputs}
        differences = [
            float(np.abs(array - wanted).max(initial=0) / max(1, np.abs(wanted).max(initial=0)))
            for step in bound.values()
            for name, array in zip(names, step.keeps[1], strict=True)
            if name in outputs
            for array, wanted in [(np.float64(array), np.float64(reference.buffers[name]))]
        ]
        found[graph.name] = Pair(reference, bound, max(differences, default=0.0))
    return found


def bound_step(stream: Stream, graph: str) -> Any:
    """A stream's bound step from the side of the state that is current."""
    step = stream._steps[graph]
    return step._bound[stream._state.settled().sides & step._mask]
