"""Time each step of an open stream, as an indication of which backend is faster."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from edgefold.runtime.backends.kept_times import KeptTimes
from edgefold.runtime.backends.native.processor import read_processor
from edgefold.runtime.stream.stream import Stream

MEASURED_S = 0.02
"""Seconds for which each step is repeated: its time is an indication, not a measurement."""


def time_steps(stream: Stream) -> dict[str, float]:
    """Return the median time of each graph in seconds, Python's call included.

    Every graph runs on what its buffers hold at least three times; nothing is committed.
    """
    return {name: _time(stream, name) for name in stream.manifest.graphs}


def keep_times(stream: Stream, folder: Path | None) -> None:
    """Time each step, and keep the times where `auto` finds them; see `KeptTimes`.

    Nothing is kept of a stream on several threads, because `auto` is judged by one, and nothing
    where the folder cannot be written. `folder` is the folder of the cache; None is the default.
    """
    report = stream.backend_report
    if report.get("threads", 1) == 1:
        times = KeptTimes(folder)
        times.keep(stream.manifest, read_processor(), report["name"], time_steps(stream))


def _time(stream: Stream, name: str) -> float:
    seconds: list[float] = []
    end = time.perf_counter() + MEASURED_S
    while len(seconds) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        stream.run_step(name)
        seconds.append(time.perf_counter() - start)
    return median(seconds)
