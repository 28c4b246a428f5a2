"""Do time and memory of an update stay the same from 100 points to 1,000,000?

The paper's size, untrained, float32, one thread. A million single updates, then the clock:

    memory     0 ── warm-up ── 1e3 ──── 1e4 ──── 1e5 ──── 1e6      one stream, single updates
               needed memory read at each of these; tracemalloc over some updates after the end

    time       round:  │ state of 100 │ state of 1e6 │ state of 1e4 │ ...
                         restored       restored       restored
                         into one stream's buffers: some untimed updates, then 128 timed ones

In every round the states take turns in the same buffers, in shuffled order, so neither the drift of
the machine nor where a buffer lies speaks for or against one of them. The state of 1e6 points is
the one that the million single updates left. Compared are the medians of the rounds' ratios to 100
points. Measured in a process without PyTorch.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import tracemalloc
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import (
    Noise,
    Requirement,
    arguments,
    at_most,
    conditions,
    finish,
    progress,
    spread,
)
from benchmarks.subjects import points, untrained
from benchmarks.tables import as_text
from edgefold.devices.memory.process import ProcessMemory
from edgefold.devices.profile.latency import Timer
from edgefold.runtime import Stream

QUESTION = "Do time and memory of an update stay the same along an endless stream?"
WARM_UP = 500
WINDOW = 128
N_POINTS = 1009
N_TRACED = 1000


class Feed:
    """Points in turn, made beforehand."""

    def __init__(self) -> None:
        x, y = points(N_POINTS)
        self._rows = [(x[i : i + 1], y[i : i + 1]) for i in range(N_POINTS)]

    def fold(self, stream: Stream, n: int) -> None:
        """n single updates."""
        rows, update = self._rows, stream.update
        for index in range(n):
            update(*rows[index % N_POINTS])

    def time(self, stream: Stream, n: int, timer: Timer) -> None:
        """n single updates, each timed."""
        for index in range(n):
            x, y = self._rows[index % N_POINTS]
            timer.time(lambda x=x, y=y: stream.update(x, y))  # type: ignore[misc]


def grow(stream: Stream, feed: Feed, sizes: list[int]) -> list[dict[str, int]]:
    """Single updates to the last size; memory at each of them, the first one after warm-up."""
    memory = ProcessMemory()
    memory.read()
    feed.fold(stream, WARM_UP)
    gc.collect()
    samples = []
    for size in sizes:
        while stream.n_points < size:
            feed.fold(stream, min(20_000, size - stream.n_points))
            progress(f"single updates: {stream.n_points:,} of {sizes[-1]:,}", size == sizes[-1])
        samples.append({"n_points": size, **asdict(memory.read())})
    return samples


def trace(stream: Stream, feed: Feed) -> dict[str, int]:
    """Python memory that updates leave behind, and the most that one holds while it runs."""
    tracemalloc.start()
    try:
        feed.fold(stream, 200)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        feed.fold(stream, N_TRACED)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return {"n_updates": N_TRACED, "kept_bytes": after - before, "peak_bytes": peak - before}


def snapshots(bundle: Path, feed: Feed, sizes: list[int], folder: Path) -> dict[int, Path]:
    """States after the smaller sizes, by single updates of a stream of their own."""
    paths = {size: folder / f"{size}.npz" for size in sizes}
    with Stream.open(bundle) as stream:
        for size, path in paths.items():
            feed.fold(stream, size - stream.n_points)
            stream.save(path)
    return paths


def take_turns(
    stream: Stream, feed: Feed, paths: dict[int, Path], n_rounds: int
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Windows of timed updates from each state in turn; returns times, ratios and noise."""
    timers = {size: Timer(WINDOW * n_rounds) for size in paths}
    medians = {size: np.zeros(n_rounds) for size in paths}
    noise, order, sizes = Noise(), np.random.default_rng(0), list(paths)
    for turn in range(n_rounds):
        for size in order.permutation(sizes).tolist():
            stream.restore(paths[size])
            feed.fold(stream, 40)
            feed.time(stream, WINDOW, timers[size])
            medians[size][turn] = np.median(timers[size].taken_ns[-WINDOW:])
        noise.sample()
        progress(f"round {turn + 1} of {n_rounds}", turn + 1 == n_rounds)
    rows = []
    for size, own in medians.items():
        ratio = np.quantile(own / medians[sizes[0]], (0.1, 0.5, 0.9))
        row = {"n_points": size, **spread(timers[size].taken_ns)}
        rows.append({**row, **dict(zip(("ratio_p10", "ratio", "ratio_p90"), ratio, strict=True))})
    return rows, noise.summary()


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Memory along the stream, then times of its states in turn."""
    last = 20_000 if args.quick else args.points
    sizes = [n for n in (100, 1000, 10_000, 100_000) if n < last] + [last]
    feed = Feed()
    with untrained("paper") as subject, tempfile.TemporaryDirectory() as folder:
        with Stream.open(subject.bundle) as stream:
            memory = grow(stream, feed, sizes[1:])
            traced = trace(stream, feed)
            grown = Path(folder) / "grown.npz"
            stream.save(grown)
        paths = {**snapshots(subject.bundle, feed, sizes[:-1], Path(folder)), last: grown}
        with Stream.open(subject.bundle) as stream:
            take_turns(stream, feed, paths, 3)  # warm-up
            times, noise = take_turns(stream, feed, paths, 10 if args.quick else args.rounds)
    return {"times": times, "memory": memory, "traced": traced, "noise": noise}


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project."""
    first, last = data["times"][0], data["times"][-1]
    change = abs(last["ratio"] - 1) * 100
    memory, traced = data["memory"], data["traced"]
    growth = (memory[-1]["needed_bytes"] - memory[0]["needed_bytes"]) / 1024
    n = f"{last['n_points']:,}"
    return [
        at_most(
            f"change of an update's time from {first['n_points']} to {n} points", change, 5, "%"
        ),
        at_most(f"growth of needed memory to {n} points", growth, 64, "KiB"),
        at_most("Python memory that outlives an update", traced["kept_bytes"] / N_TRACED, 0.5, "B"),
        at_most(
            "Python memory that an update holds while it runs", traced["peak_bytes"], 1023, "B"
        ),
    ]


def main() -> None:
    """Measure and record."""
    parser = arguments(__doc__ or "", "constancy")
    parser.add_argument("--points", type=int, default=1_000_000, help="default 1,000,000")
    parser.add_argument("--rounds", type=int, default=150, help="rounds of turns; default 150")
    args = parser.parse_args()
    before = conditions()
    data = measure(args)
    finish(args, "constancy", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
