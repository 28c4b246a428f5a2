"""Prove a compiled library on this machine, against the predictions that export recorded."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any, cast

from edgefold.runtime.backends.base import Backend, Watch
from edgefold.runtime.backends.native.backend import NativeBackend
from edgefold.runtime.backends.watched import WatchedBackend
from edgefold.runtime.bundle.signature import load_expected
from edgefold.runtime.checking.golden import check_stream
from edgefold.runtime.stream.stream import Stream

MEASURED_S = 0.02
"""How long each step is repeated: an indication, not a measurement."""


def prove_library(
    bundle: str,
    expect_hash: str | None,
    library: Path,
    watch: Watch,
    named: Path | None = None,
) -> dict[str, Any]:
    """Replay a bundle's golden stream on a library, and time each step.

    A library that computes nonsense may end the process, so call this in one of its own.

    Args:
        bundle: The bundle's folder.
        expect_hash: See `load_expected`.
        library: The file, which the caller trusts.
        watch: Is told what begins; see `EngineOptions`.
        named: How messages name the library, where it is a copy.

    Returns:
        As JSON has it: generator; passed; proof: worst and tolerance; step_s: the median of each
        graph's time in seconds, Python's call included.

    Raises:
        BackendError: It does not load, or is another bundle's.
        BundleError: The bundle is damaged or refused.
    """
    manifest = load_expected(bundle, expect_hash)
    watch("load", "native")
    native = NativeBackend(manifest, library, {}, watch, named)
    try:
        stream = Stream(manifest, cast(Backend, WatchedBackend(native, watch)), {}, False)
    except BaseException:
        native.close()
        raise
    with stream:
        report = check_stream(stream)
        times = {name: _time(stream, name) for name in manifest.graphs}
    # JSON has no NaN.
    worst = report.worst if report.worst < float("inf") else None
    return {
        "generator": native.generator,
        "passed": report.passed,
        "proof": {"worst": worst, "tolerance": report.tolerance},
        "step_s": times,
    }


def _time(stream: Stream, name: str) -> float:
    seconds: list[float] = []
    end = time.perf_counter() + MEASURED_S
    while len(seconds) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        stream.run_step(name)
        seconds.append(time.perf_counter() - start)
    return median(seconds)
