"""Libraries of the tests' bundles, each compiled once in a session: quickly rather than well.

A bundle's C is generated where the train extra is installed; elsewhere it lies beside the bundle
(`write_c`), as a library that was built on another machine.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from edgefold.export.checks.laws import answers, distance, draw
from edgefold.export.checks.subjects import StreamSubject
from edgefold.export.native.toolchain.compilers import Compiler, compile_library, find_compiler
from edgefold.runtime.backends.base import EngineOptions
from edgefold.runtime.backends.native.library_store import LibraryStore
from edgefold.runtime.backends.native.processor import read_processor
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.checking.library_proof import prove_library
from edgefold.runtime.errors import BackendError
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from tests.made_once import made_once

STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
QUICK = ("-O1",)
"""The optimiser takes half a minute for a large model, and changes no law."""
Native = Callable[[Path], EngineOptions]


def c_files(bundle: Path) -> Mapping[str, str]:
    """The C of a bundle, by file name."""
    ready = bundle.with_name(f"{bundle.name}.c")
    if ready.is_dir():
        return {path.name: path.read_text() for path in sorted(ready.iterdir())}
    from edgefold.export.native.generator import generate

    return generate(bundle).files


def write_c(bundle: Path) -> None:
    """Write a bundle's C beside it, for an environment that cannot generate it."""
    folder = bundle.with_name(f"{bundle.name}.c")
    files = c_files(bundle)
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)


def compiler_or_skip(name: str | None = None, flags: Sequence[str] = QUICK) -> Compiler:
    """A compiler for this machine."""
    try:
        return find_compiler(name, extra=flags)
    except BackendError as error:
        pytest.skip(str(error))


def build(bundle: Path, folder: Path, compiler: Compiler) -> EngineOptions:
    """Compile a bundle, prove the library, and keep it; returns what opens it.

    Args:
        bundle: The bundle.
        folder: In which the store and the compiler's files lie.
        compiler: For this machine.
    """
    work = folder / "work"
    work.mkdir(parents=True)
    library = compile_library(c_files(bundle), compiler, work)
    told = prove_library(str(bundle), None, library, lambda doing, name: None)
    assert told["passed"], told
    store = LibraryStore(folder / "cache")
    facts = {"compiler": compiler.title, "flags": " ".join(compiler.flags), **told}
    store.keep(load_manifest(bundle), read_processor(), library, facts)
    return EngineOptions(folder / "cache")


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    """Compiles a bundle the first time that it is asked for; gives what opens it."""

    @cache
    def options(bundle: Path) -> EngineOptions:
        def make(folder: Path) -> None:
            build(bundle, folder, compiler_or_skip())

        return EngineOptions(made_once(tmp_path_factory, "native", make, bundle) / "cache")

    return options


def build_sensors(factory: pytest.TempPathFactory, compiler: Compiler) -> Path:
    """Compile the shipped bundle once in a run; returns the folder as `build` fills it."""

    def make(folder: Path) -> None:
        build(shipped_bundle(), folder, compiler)

    return made_once(factory, "compiled-sensors", make)


@pytest.fixture(scope="module")
def compiled_sensors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lets `auto` find a library of the shipped bundle: a row takes a twentieth of onnxruntime's.

    Without a compiler or the generator of C, the same tests run on onnxruntime.
    """
    try:
        compiler = find_compiler(extra=(*QUICK, *STRICT))
        importlib.import_module("edgefold.export.native.generator")
    except (BackendError, ModuleNotFoundError):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        cache = build_sensors(tmp_path_factory, compiler) / "cache"
        patch.setenv("EDGEFOLD_CACHE", str(cache))
        yield


def stays_with_onnxruntime(
    one: StreamSubject,
    other: StreamSubject,
    n: int = 10_000,
    log_density: float = 1e-5,
    most: float = 1e-5,
    shared: Path | None = None,
) -> None:
    """Fail if two streams of a bundle part over n points or what fits.

    Args:
        one, other: The streams.
        n: Number of points.
        log_density: Bound of the difference of what a bundle calls so, in nats.
        most: Bound of the other differences.
        shared: File by which `one` takes over the state of `other` before each point, for a model
            that remembers rounding errors for thousands of points; without it, each stream goes on
            from its own state. Forecasts of later slots are then judged by their bands.
    """
    x, y = draw(one, n)
    together = 100 if shared is None else 1
    for part in np.array_split(np.arange(x.shape[1]), -(-x.shape[1] // together)):
        if shared is not None:
            other.save(shared)
            one.restore(shared)
        found, expected = (answers(subject, x[:, part], y[:, part]) for subject in (one, other))
        # float32 sums in another order: some 4e-7 where a state forgets, 2e-6 of a log density.
        told = found.pop("log_density", None)
        if told is not None:
            assert np.max(np.abs(told - expected.pop("log_density"))) < log_density
        if shared is not None and (later := found.pop("ahead_quantiles", None)) is not None:
            bands = expected.pop("ahead_quantiles")
            found["ahead_mean"] = expected["ahead_mean"]  # it lies between the quantiles
            width = np.maximum(bands[..., -1:] - bands[..., :1], 1e-6)
            assert np.max(np.abs(later - bands) / width) < WITHIN_BAND or part[0] < N_NARROW
        assert distance(found, expected) < most


WITHIN_BAND, N_NARROW = 0.01, 100
"""Part of the band from the lowest to the highest quantile by which a forecast of a later slot may
differ: least squares of 15 columns multiply the rounding of float32, and nobody sees a hundredth of
a band. The bands of the first rows are as narrow as rounding itself."""


SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
PROVE = """
import json, sys
from pathlib import Path
from edgefold.runtime.checking.library_proof import prove_library
print(json.dumps(prove_library(sys.argv[1], None, Path(sys.argv[2]), lambda doing, name: None)))
"""


def prove_with_sanitizers(bundle: Path, folder: Path) -> None:
    """Replay the golden stream on a library that watches its reads, writes and arithmetic.

    Fails with the first report of a sanitizer: addresses, also of the buffers that Python
    allocates, and undefined behaviour.
    """
    compiler = compiler_or_skip("gcc", (*QUICK, *SANITIZERS))
    library = compile_library(c_files(bundle), compiler, folder)
    found = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    environment = {
        **os.environ,
        "LD_PRELOAD": found.stdout.strip(),  # Python itself was built without it
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROVE, str(bundle), str(library)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:4000]
    assert json.loads(done.stdout)["passed"]
