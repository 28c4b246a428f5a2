"""Measure a bundle on this machine; printing and drawing live elsewhere.

    start ──> libraries ──> open ──> warm-up ─┬─> blocks of updates ──┬─> chunks, refreshes, queries
    memory    memory        memory   memory   │  │ Stream.update, timed │
                       the window starts here ┘  │ bare graph, timed    └─> peaks, growth, files
                                                 │ memory sample
                                                 └ a few untimed updates

Stream.update and the bare graph take turns, so that the noise meets both alike. Nothing is
timed while memory is read; the untimed updates behind a reading let the caches settle. Energy is
measured apart, in rounds of its own (`measure_energy`). What only the report or the energy needs is
imported at the end, so that the memory shown is the on-device path's.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.devices.machine.machine import read_machine
from edgefold.devices.memory.monitor import monitor_memory
from edgefold.devices.memory.process import MemoryReading, ProcessMemory

if TYPE_CHECKING:
    from edgefold.devices.profile.latency import Latency, TimeArray
    from edgefold.runtime import Stream

SCHEMA = 1
WARM_UP = 200
BLOCK = 100
SETTLE = 5
N_SAMPLES = 50  # readings of memory along the updates, at most
N_FILES = 8  # of the mapped files, in the record
N_POINTS = 997  # distinct points, used in turn


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What is asked: numbers of updates and queries, arrivals a second, certainty of energy.

    Attributes:
        energy_error: Standard error over energy at which its measurement ends.
        energy_limit_s: When it ends at the latest.
        power_replay: A recording of power that stands for a sensor.
    """

    n_updates: int = 10_000
    n_queries: int = 1_000
    rate_hz: float = 50.0
    backend: str = "auto"
    threads: int = 1
    memory_limit: int | None = None
    engine_cache: str | None = None
    cuda_graphs: bool = True
    energy_error: float = 0.05
    energy_limit_s: float = 120.0
    power_replay: str | None = None


class Points:
    """Points in the bundle's raw units, one after the other, in fixed buffers.

    Spread evenly over +-sqrt(3) scale units (mean 0, variance 1) by the golden ratio's multiples:
    numpy.random would bring 6 MB of libraries into the process that is measured.
    """

    def __init__(self, stream: Stream):
        import numpy as np

        manifest = stream.manifest
        self._one = manifest.n_streams == 1

        def draw(n: int, scaling: Any, seed: float) -> Any:
            columns = len(scaling.shift)
            index = np.arange(manifest.n_streams * n * columns).reshape(-1, n, columns)
            unit = (index * 0.6180339887498949 + seed) % 1.0
            raw = (unit - 0.5) * 12**0.5 * scaling.scale + scaling.shift
            return raw[0] if self._one else raw

        self._x = draw(N_POINTS, manifest.scaling_x, 0.0)
        self._y = draw(N_POINTS, manifest.scaling_y, 0.5)
        self.chunk = (
            draw(manifest.chunk, manifest.scaling_x, 0.25),
            draw(manifest.chunk, manifest.scaling_y, 0.75),
        )
        self.targets = draw(manifest.targets, manifest.scaling_x, 0.3)
        self._index = 0
        self.turn()

    def turn(self) -> None:
        """Go to the next point: x (1, X) and y (1, Y), streams leading if there are several."""
        self._index = (self._index + 1) % N_POINTS
        rows = slice(self._index, self._index + 1)
        self.x = self._x[rows] if self._one else self._x[:, rows]
        self.y = self._y[rows] if self._one else self._y[:, rows]


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Memory after some calls of update."""

    n_updates: int
    owned_bytes: int
    file_bytes: int


class Measurement:
    """One pass over a bundle. `run` does everything in the order of the module's timeline."""

    def __init__(self, bundle: str, options: ProfileOptions, progress: Callable[[str], None]):
        self._bundle, self._options, self._progress = bundle, options, progress
        self._memory = ProcessMemory()
        self._survey = monitor_memory(may_use_gpu=options.backend != "onnxruntime")
        self._stages: list[dict[str, Any]] = []
        self._samples: list[MemorySample] = []

    def run(self) -> dict[str, Any]:
        """The whole record, as plain JSON.

        Raises:
            EdgefoldError: The bundle does not open or a step failed.
            MeterError: Memory cannot be read.
        """
        self._stage("Python and the command")
        import numpy  # noqa: F401

        import edgefold.runtime.backends.onnxruntime_session  # noqa: F401

        self._stage("numpy and onnxruntime")
        machine = read_machine()
        start_s = time.perf_counter()
        with self._open() as stream:
            open_s = time.perf_counter() - start_s
            self._stage("bundle opened")
            peak_open = self._memory.resident_peak_bytes()
            latencies, updates = self._steps(stream)
            energy = self._energy(stream)
            return {
                "schema": SCHEMA,
                "bundle": _describe(stream, self._bundle, open_s),
                "options": asdict(self._options),
                "latency": [asdict(latency) for latency in latencies],
                "timeline": updates,
                "memory": self._memory_record(stream, peak_open),
                "energy": energy,
                "conditions": _conditions(machine, stream),
            }

    def _open(self) -> Stream:
        from edgefold.runtime import EngineOptions, Stream

        options = self._options
        cache = Path(options.engine_cache) if options.engine_cache else None
        return Stream.open(
            self._bundle,
            options.backend,
            options.threads,
            memory_limit=options.memory_limit,
            engine=EngineOptions(cache, cuda_graphs=options.cuda_graphs, progress=self._progress),
        )

    def _stage(self, name: str) -> MemoryReading:
        reading = self._memory.read()
        self._stages.append({"name": name, **asdict(reading)})
        return reading

    # Latency --------------------------------------------------------------------------------------

    def _steps(self, stream: Stream) -> tuple[list[Latency], dict[str, Any]]:
        """Time every step; returns the latencies and the timeline of Stream.update."""
        from edgefold.devices.profile.latency import Timer

        n_updates, n_queries = self._options.n_updates, self._options.n_queries
        names = ("update", "update_bare", "condition", "refresh", "query", "query_wide", "row")
        counts = (n_updates, n_updates, max(20, n_queries // 10), *[n_queries] * 4)
        timers = {name: Timer(n) for name, n in zip(names, counts, strict=True)}
        points = Points(stream)

        def row() -> None:
            stream.query(points.x)
            stream.update(points.x, points.y)

        for _ in range(WARM_UP):
            row()
            points.turn()
        stream.query(points.targets)
        stream.condition(*points.chunk)
        gc.collect()
        self._stage("warmed up")
        self._window_note = self._memory.start_window()
        self._updates(stream, points, timers["update"], timers["update_bare"])
        self._progress("timing chunks, refreshes and queries")
        for _ in range(counts[2]):
            timers["condition"].time(lambda: stream.condition(*points.chunk))
        for _ in range(n_queries):
            points.turn()
            stream.update(points.x, points.y)
            timers["refresh"].time(stream.refresh)
        for _ in range(n_queries):
            points.turn()
            timers["query"].time(lambda: stream.query(points.x))
        for _ in range(n_queries):
            timers["query_wide"].time(lambda: stream.query(points.targets))
        for _ in range(n_queries):
            points.turn()
            timers["row"].time(row)
        self._peak_bytes = self._memory.resident_peak_bytes()
        self._files = self._memory.files()
        self._surveyed = self._survey.read()
        self._stage("run ended")
        return self._summaries(stream, {name: t.taken_ns for name, t in timers.items()})

    def _updates(self, stream: Stream, points: Points, whole: Any, bare: Any) -> None:
        """Updates, bare updates and memory samples in turn."""
        name = stream.manifest.of_step("update")[0].name
        n_updates = self._options.n_updates
        every = max(BLOCK, n_updates // N_SAMPLES)
        self._sample(0)
        for start in range(0, n_updates, BLOCK):
            n = min(BLOCK, n_updates - start)
            for _ in range(SETTLE):
                stream.update(points.x, points.y)
            for _ in range(n):
                points.turn()
                whole.time(lambda: stream.update(points.x, points.y))
            for _ in range(n):
                bare.time(lambda: stream.run_step(name))
            if (start + n) // every > start // every or start + n == n_updates:
                self._sample(start + n)
                self._progress(f"timing updates: {start + n:,} of {n_updates:,}")

    def _sample(self, n_updates: int) -> None:
        self._survey.poll()
        self._samples.append(MemorySample(n_updates, **asdict(self._memory.read())))

    def _summaries(
        self, stream: Stream, taken: dict[str, TimeArray]
    ) -> tuple[list[Latency], dict[str, Any]]:
        from edgefold.devices.profile.latency import summarise, timeline

        chunk, targets = stream.manifest.chunk, stream.manifest.targets
        what = {
            "update": ("Stream.update, 1 point", 1),
            "update_bare": ("update graph alone", 1),
            "condition": (f"Stream.condition, {chunk} points", chunk),
            "refresh": ("Stream.refresh", 0),
            "query": ("Stream.query, 1 target, memory fresh", 1),
            "query_wide": (f"Stream.query, {targets} targets, memory fresh", targets),
            "row": ("predict, then learn: query with refresh, update", 1),
        }
        rate_hz = self._options.rate_hz
        return (
            [summarise(name, *what[name], ns, rate_hz) for name, ns in taken.items()],
            asdict(timeline(taken["update"])),
        )

    # Memory and energy ----------------------------------------------------------------------------

    def _memory_record(self, stream: Stream, peak_open: int) -> dict[str, Any]:
        owned = [sample.owned_bytes for sample in self._samples]
        read = [*(stage["owned_bytes"] for stage in self._stages), *owned]
        kinds = ("touched_bytes", "resident_bytes", "mapped_bytes")
        return {
            "plan": stream.manifest.memory_plan,
            "buffers_bytes": stream.buffer_bytes,
            "stages": self._stages,
            "samples": [asdict(sample) for sample in self._samples],
            "owned_peak_bytes": max(read),
            "n_readings": len(read),
            "owned_growth_bytes": owned[-1] - owned[0],
            "files": {
                **{kind: sum(getattr(file, kind) for file in self._files) for kind in kinds},
                "largest": [asdict(file) for file in self._files[:N_FILES]],
            },
            "resident_peak_open_bytes": peak_open,
            "resident_peak_bytes": self._peak_bytes,
            "window_note": self._window_note or "since the warm-up",
            "survey": asdict(self._surveyed),
        }

    def _energy(self, stream: Stream) -> dict[str, Any]:
        """Joules above idle per step, or the reason why there is no figure."""
        from edgefold.devices.profile.energy import EnergyOptions, measure_energy

        points, options = Points(stream), self._options

        def update() -> None:
            points.turn()
            stream.update(points.x, points.y)

        return measure_energy(
            {"update": update, "query": lambda: stream.query(points.x)},
            EnergyOptions(options.energy_error, options.energy_limit_s, options.power_replay),
            self._progress,
            gpu_first="cpu" not in stream.backend_report["device"].lower(),
        )


def _describe(stream: Stream, path: str, open_s: float) -> dict[str, Any]:
    manifest = stream.manifest
    return {
        "path": path,
        "hash": manifest.bundle_hash,
        "model": manifest.model,
        "precision": manifest.precision["name"],
        "task": manifest.task.get("name"),
        "n_streams": manifest.n_streams,
        "n_inputs": manifest.n_inputs,
        "n_outputs": manifest.n_outputs,
        "chunk": manifest.chunk,
        "targets": manifest.targets,
        "versions": manifest.versions,
        "open_s": open_s,
    }


def _conditions(machine: Any, stream: Stream) -> dict[str, Any]:
    """What everything was measured on; the load is that of the start."""
    import platform
    from datetime import datetime, timezone
    from importlib.metadata import version

    from edgefold.runtime.backends.onnxruntime_session import onnxruntime

    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **asdict(machine),
        "backend": stream.backend_report,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "onnxruntime": onnxruntime.__version__,  # onnxruntime-gpu has other metadata
        "edgefold": version("edgefold"),
        "gc_enabled": gc.isenabled(),
        "n_warm_up": WARM_UP,
    }
