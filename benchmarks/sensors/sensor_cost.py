"""How much does a row of the general model of sensors cost, now and after a million rows?

    state after 100 rows ─┐  round:  │ onnxruntime, 100 │ native, 1e6 │ native, 100 │ ...
    state after 1e6 rows ─┘            some untimed rows, then 128 timed ones

    python -m benchmarks sensor_cost [--bundle B]

A row is one step: it is scored, the experts and the memory learn it, and forecasts of all horizons
are made. Time is that of `Stream.step`, from Python. Clock, seasons and alarms around it are timed
apart, as `edgefold run` calls them. The million rows go through the native backend where there is a
C compiler; both backends read the same snapshots. Measured in a process without PyTorch.
"""

from __future__ import annotations

import gc
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.native.native_subjects import native_stream
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
from benchmarks.tables import as_text
from edgefold.devices.boards.board import load_board
from edgefold.devices.budget.budget import judge
from edgefold.devices.budget.checks import Demand
from edgefold.devices.memory.process import ProcessMemory
from edgefold.devices.profile.latency import Timer
from edgefold.export.native.toolchain.compilers import find_compiler
from edgefold.runtime import BackendError, Stream, load_manifest
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.clock.row_clock import SensorFeed
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

QUESTION = "What does a row of the general model of sensors cost, now and after a million rows?"
BOARD = "raspberry-pi-zero-2-w"
SEASON, N_ROWS, WINDOW, WARM_UP, N_FED = 288, 10_080, 128, 100, 5_000
FIRST = 100
MEMORY_BYTES = 64 << 20
"""Asked of the board."""


class Feed:
    """Rows of a day's season with noise, made beforehand, in turn."""

    def __init__(self) -> None:
        t = np.arange(N_ROWS)
        values = 10 * np.sin(2 * np.pi * t / SEASON) + np.random.default_rng(0).normal(size=N_ROWS)
        columns = (values, np.ones(N_ROWS), np.full(N_ROWS, SEASON), t % SEASON)
        self._rows = np.stack(columns, 1)[:, None]
        self._at = 0

    def next(self) -> Any:
        """One row, (1, 4)."""
        self._at = (self._at + 1) % N_ROWS
        return self._rows[self._at]

    def fold(self, stream: Stream, n: int) -> None:
        """Step so many rows."""
        for _ in range(n):
            stream.step(self.next())


def grow(stream: Stream, feed: Feed, last: int, folder: Path) -> tuple[dict[int, Path], list[Any]]:
    """Step to the last size; snapshots at the first and the last, and memory along the way."""
    memory, samples = ProcessMemory(), []
    paths = {n: folder / f"{n}.npz" for n in (FIRST, last)}
    for size in sorted({FIRST, 1000, 10_000, 100_000, last} & set(range(last + 1))):
        while stream.n_points < size:
            feed.fold(stream, min(20_000, size - stream.n_points))
            progress(f"rows: {stream.n_points:,} of {last:,}", size == last)
        gc.collect()
        samples.append({"n_rows": size, "needed_bytes": memory.read().needed_bytes})
        if size in paths:
            stream.save(paths[size])
    return paths, samples


def take_turns(
    streams: dict[str, Stream], feed: Feed, paths: dict[int, Path], n_rounds: int
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Windows of timed rows of each backend from each state, in shuffled turns."""
    cases = [(backend, size) for backend in streams for size in paths]
    timers = {case: Timer(WINDOW * n_rounds) for case in cases}
    medians = {case: np.zeros(n_rounds) for case in cases}
    noise, order = Noise(), np.random.default_rng(0)
    for turn in range(n_rounds):
        for index in order.permutation(len(cases)).tolist():
            backend, size = case = cases[index]
            stream = streams[backend]
            stream.restore(paths[size])
            feed.fold(stream, WARM_UP)
            for _ in range(WINDOW):
                x = feed.next()
                timers[case].time(lambda x=x, stream=stream: stream.step(x))  # type: ignore[misc]
            medians[case][turn] = np.median(timers[case].taken_ns[-WINDOW:])
        noise.sample()
        progress(f"round {turn + 1} of {n_rounds}", turn + 1 == n_rounds)
    rows = []
    for (backend, size), timer in timers.items():
        ratio = np.median(medians[backend, size] / medians[backend, FIRST])
        row = {"backend": backend, "n_rows": size, "ratio": float(ratio)}
        rows.append(row | spread(timer.taken_ns))
    return rows, noise.summary()


def around_us(longest: int) -> float:
    """Median time of clock, season and alarms of a row, in microseconds."""
    sensor, watch, taken = SensorFeed(longest), Watch(), []
    for row in range(N_FED):
        value = float(np.sin(row / 40))
        began_ns = time.perf_counter_ns()
        sensor.rows(300.0 * row, value, dated=True)
        sensor.commit()
        watch.see(value, 0.5, 0.0, -1.0, 0, value, sensor.place)
        taken.append(time.perf_counter_ns() - began_ns)
    return float(np.median(taken) / 1000)


def measure(bundle: Path, last: int, n_rounds: int) -> dict[str, Any]:
    """All of it."""
    manifest, feed = load_manifest(bundle), Feed()
    data: dict[str, Any] = {
        "state_bytes": manifest.memory_plan["state_bytes"],
        "weight_bytes": (bundle / "weights.bin").stat().st_size,
        "around_us": around_us(1440),
        "board": BOARD,
    }
    data["fits"] = judge(manifest, load_board(BOARD), Demand(memory_bytes=MEMORY_BYTES)).verdict
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        streams = {"onnxruntime": stack.enter_context(Stream.open(bundle, "onnxruntime"))}
        try:
            native = native_stream(bundle, find_compiler(None), folder / "native")
            streams["native"] = stack.enter_context(native)
        except BackendError as error:
            data["no_native"] = str(error)
        fastest = list(streams.values())[-1]
        paths, data["memory"] = grow(fastest, feed, last, folder)
        take_turns(streams, feed, paths, 2)  # warm-up
        data["times"], data["noise"] = take_turns(streams, feed, paths, n_rounds)
    return data


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project."""
    bounds = {"onnxruntime": 300, "native": 60}
    demands = []
    for row in data["times"]:
        n, backend = f"{row['n_rows']:,}", row["backend"]
        if row["n_rows"] == FIRST:
            demands.append(
                at_most(f"a row on {backend}, median", 1e6 * row["median_s"], bounds[backend], "µs")
            )
        else:
            change = 100 * abs(row["ratio"] - 1)
            demands.append(at_most(f"change of its time to {n} rows on {backend}", change, 5, "%"))
    first, last = (data["memory"][at]["needed_bytes"] for at in (1, -1))
    return [
        *demands,
        at_most("growth of needed memory from 1,000 rows on", (last - first) / 1024, 64, "KiB"),
        at_most("state of a sensor", data["state_bytes"] / 1e3, 150, "kB"),
        at_most("weights", data["weight_bytes"] / 1e6, 1.5, "MB"),
    ]


def main() -> None:
    """Measure and record."""
    parser = arguments(__doc__ or "", "sensor_cost")
    parser.add_argument("--bundle", type=Path, help="default: the one that is shipped")
    parser.add_argument("--rows", type=int, default=1_000_000, help="default 1,000,000")
    parser.add_argument("--rounds", type=int, default=60, help="rounds of turns; default 60")
    args = parser.parse_args()
    before = conditions()
    bundle = args.bundle or shipped_bundle()
    data = measure(bundle, 20_000 if args.quick else args.rows, 8 if args.quick else args.rounds)
    finish(args, "sensor_cost", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
