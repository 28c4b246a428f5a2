"""Check a compiled library on this machine against the predictions that export recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any, cast

from edgefold.runtime.backends.base import Backend, Watch
from edgefold.runtime.backends.native.backend import NativeBackend
from edgefold.runtime.backends.watched import WatchedBackend
from edgefold.runtime.bundle.signature import load_expected
from edgefold.runtime.checking.golden import check_stream
from edgefold.runtime.checking.step_times import time_steps
from edgefold.runtime.child_process import die_first
from edgefold.runtime.errors import EdgefoldError
from edgefold.runtime.stream.stream import Stream


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
        expect_hash: The hash that the bundle must have, or None; see `load_expected`.
        library: The library's file, which the caller trusts.
        watch: Function that is called with the work that begins; see `EngineOptions`.
        named: File by which messages name the library, if `library` is a copy of it.

    Returns:
        A dictionary that JSON can hold: generator; passed; proof: worst error and tolerance;
        step_s: the median time of each graph in seconds, Python's call included.

    Raises:
        BackendError: The library does not load, or belongs to another bundle.
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
        times = time_steps(stream)
    # JSON has no NaN.
    worst = report.worst if report.worst < float("inf") else None
    return {
        "generator": native.generator,
        "passed": report.passed,
        "proof": {"worst": worst, "tolerance": report.tolerance},
        "step_s": times,
    }


def main(request: dict[str, Any], answer: IO[bytes]) -> None:
    """Prove the library of a request in this child process, and write the result as JSON.

    Args:
        request: `bundle`, its folder; `expect_hash`, its hash; `library`, the file.
        answer: Pipe to the parent; it receives what `prove_library` returns, or `error`, the
            reason why the library does not load.
    """
    die_first()
    try:
        result = prove_library(
            request["bundle"],
            request["expect_hash"],
            Path(request["library"]),
            lambda doing, what: None,
        )
    except EdgefoldError as error:
        result = {"error": str(error)}
    answer.write(json.dumps(result).encode())
