"""Flags that let a compiler reorder sums are refused, and where they are not, a drift shows it.

The running sums of a state carry their rounding errors along: a compiler that may take
`(a + b) - a` for `b` removes that, and the state of a long stream drifts.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from edgefold.export.native.generator import generate
from edgefold.export.native.toolchain.compilers import Compiler, compile_library, find_compiler
from edgefold.runtime import load_manifest
from edgefold.runtime.backends.native.backend import NativeBackend
from edgefold.runtime.bundle.manifest import Graph
from edgefold.runtime.errors import BackendError

pytest.importorskip("torch", reason="exporting needs the train extra")
REORDERING = ("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math")
UNSEEN = "-U__ASSOCIATIVE_MATH__"
"""Hides gcc's word that sums may be reordered; clang says nothing of its own."""
BOUND = 1e-5  # what the runtime's state is held to along a stream, benchmarks/accuracy/drift.py
N_FOLDS = 20_000


def compiler_of(name: str, *flags: str) -> Compiler:
    if not shutil.which(name):
        pytest.skip(f"{name} is not installed")
    return find_compiler(name, extra=flags)


@pytest.fixture(scope="module")
def files(bundles: Path) -> dict[str, str]:
    return generate(bundles / "tiny").files


def drift(bundle: Path, library: Path) -> float:
    """Fold the same sums over and over; the largest relative error of what they add up to."""
    manifest = load_manifest(bundle)
    graph: Graph = manifest.graphs["consolidate"]
    backend = NativeBackend(manifest, library, {})
    staged = backend.allocate_host(graph)
    given = {t.of: backend.allocate_device(t) for t in graph.inputs}
    made = {t.of: backend.allocate_device(t) for t in graph.outputs if t.name not in staged}
    placed = {t.name: given[t.of] for t in graph.inputs}
    placed |= {t.name: made[t.of] for t in graph.outputs if t.name not in staged}
    run = backend.bind(graph, placed)
    recent = np.random.default_rng(0).uniform(1, 2, given["recent_sums"].array.shape)
    given["recent_sums"].write(recent.astype(np.float32))  # all peaks are 0: every weight is 1
    for _ in range(N_FOLDS):
        run()
        for name in ("base_sums", "base_rest"):
            given[name].write(made[name].array)
    expected = N_FOLDS * given["recent_sums"].array.astype(np.float64)
    found = sum(given[name].array.astype(np.float64) for name in ("base_sums", "base_rest"))
    backend.close()
    return float(np.abs(found / expected - 1).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_sums_keep_their_rounding_errors_at_the_flags_of_a_build(
    name: str, bundles: Path, files: dict[str, str], tmp_path: Path
) -> None:
    library = compile_library(files, compiler_of(name), tmp_path)
    assert drift(bundles / "tiny", library) < BOUND / 10


@pytest.mark.parametrize("flags", [("-ffast-math",), ("-Ofast",), REORDERING])
def test_gcc_is_refused_with_flags_that_reorder_sums(
    flags: tuple[str, ...], files: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(BackendError, match="without -ffast-math"):
        compile_library(files, compiler_of("gcc", *flags), tmp_path)


def test_clang_is_refused_with_fast_math(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="without -ffast-math"):
        compile_library(files, compiler_of("clang", "-ffast-math"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_sums_that_a_compiler_reorders_drift(
    name: str, bundles: Path, files: dict[str, str], tmp_path: Path
) -> None:
    library = compile_library(files, compiler_of(name, *REORDERING, UNSEEN), tmp_path)
    assert drift(bundles / "tiny", library) > BOUND
