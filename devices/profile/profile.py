"""Measure a bundle on this machine: latency, memory and energy of its steps.

    start ──> libraries ──> open ──> warm-up ─┬─> blocks of updates ──┬─> the other calls
    memory    memory        memory   memory   │  │ Stream.update, timed │
                       the window starts here ┘  │ bare graph, timed    └─> peaks, growth, files
                                                 │ memory sample
                                                 └ a few untimed updates

    ... energy ──> pages of files dropped ──> steps ──> which of them came back (`to run well`)

Stream.update (Stream.step of a filter) and its bare graph take turns, so that noise affects both
alike. Nothing is timed while memory is sampled or the machine's condition is read, which is done
around each block; the untimed calls after that let the caches settle. Energy is measured in rounds
of its own (`measure_energy`). What only the report or the energy needs is imported at the end, so
that the memory shown is that of a device's own path.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgefold.devices.host import Host
from edgefold.devices.machine.build_conditions import read_build_conditions
from edgefold.devices.machine.machine import read_machine
from edgefold.devices.machine.validity import ValidityWatch
from edgefold.devices.memory.monitor import monitor_memory
from edgefold.devices.memory.process import MemoryReading, ProcessMemory
from edgefold.devices.profile.record import (
    FilePages,
    MeasuredBundle,
    MeasuredMemory,
    MemorySample,
    MemoryStage,
    MemoryToRunWell,
    PredictedMemory,
    ProfileOptions,
)
from edgefold.runtime.backends.registry import info_of
from edgefold.runtime.errors import BackendError, MeterError
from edgefold.runtime.record_fields import as_json

if TYPE_CHECKING:
    from edgefold.devices.profile.calls import TimedCall
    from edgefold.devices.profile.latency import Latency, Timeline, Timer
    from edgefold.runtime import Stream

SCHEMA = 1
WARM_UP = 200
BLOCK = 100
SETTLE = 5
N_SAMPLES = 50  # readings of memory along the updates, at most
N_AFTER_DROP = 300  # arrivals that bring pages of files back
N_FILES = 8  # of the mapped files, in the record


class Measurement:
    """Measures one bundle: `run` opens it, times its calls, measures its energy and memory."""

    def __init__(
        self,
        bundle: str,
        options: ProfileOptions,
        progress: Callable[[str], None],
        expect_hash: str | None = None,
    ):
        self._bundle, self._options, self._progress = bundle, options, progress
        self._expect_hash = expect_hash
        self._host = Host()
        self._watch = ValidityWatch(self._host.root)
        self._memory = ProcessMemory(self._host.root / "proc")
        on_cpu = options.backend != "auto" and info_of(options.backend).device == "cpu"
        self._survey = monitor_memory(not on_cpu, self._host)
        self._stages: list[MemoryStage] = []
        self._samples: list[MemorySample] = []

    def run(self) -> dict[str, Any]:
        """Measure everything and return the whole record as plain JSON.

        Raises:
            EdgefoldError: The bundle does not open or a step failed.
            MeterError: Memory cannot be read.
        """
        self._stage("Python")
        import numpy  # noqa: F401

        info = info_of(self._options.backend)
        if info.needs_onnxruntime or info.device == "gpu":
            with suppress(BackendError):  # where it is missing, the open says so, or needs none
                import edgefold.runtime.backends.onnxruntime_session  # noqa: F401

        self._stage("libraries")
        machine = read_machine(self._host.root)
        start_s = time.perf_counter()
        with self._open() as stream:
            open_s = time.perf_counter() - start_s
            self._stage("opening")
            peak_open = self._memory.resident_peak_bytes()
            latencies, updates = self._calls(stream)
            with self._watch.block("energy"):
                energy = self._energy(stream)
            record: dict[str, Any] = as_json(
                {
                    "schema": SCHEMA,
                    "bundle": _describe(stream, self._bundle, open_s),
                    "options": self._options,
                    "latency": latencies,
                    "timeline": updates,
                    "memory": self._measured_memory(stream, peak_open),  # drops pages: last
                    "energy": energy,
                    "validity": self._watch.validity(is_on_gpu(stream.backend_report)),
                    "conditions": _conditions(machine, stream),
                }
            )
            from edgefold.runtime.checking.step_times import keep_times

            keep_times(stream, self._cache())
            return record

    def _cache(self) -> Path | None:
        return Path(self._options.engine_cache) if self._options.engine_cache else None

    def _open(self) -> Stream:
        from edgefold.runtime import EngineOptions, Stream

        options = self._options
        return Stream.open(
            self._bundle,
            options.backend,
            options.threads,
            memory_limit=options.memory_limit,
            engine=EngineOptions(
                self._cache(),
                conditions=read_build_conditions,
                cuda_graphs=options.cuda_graphs,
                progress=self._progress,
                wait=options.gpu_wait,
            ),
            expect_hash=self._expect_hash,
        )

    def _stage(self, name: str) -> MemoryReading:
        reading = self._memory.read()
        self._stages.append(MemoryStage(name, reading.needed_bytes, reading.file_bytes))
        return reading

    # Latency --------------------------------------------------------------------------------------

    def _calls(self, stream: Stream) -> tuple[list[Latency], Timeline]:
        """Time every call; return all latencies, and the first call's quantiles over the run."""
        from edgefold.devices.profile.calls import ProfilePoints, calls_of
        from edgefold.devices.profile.latency import Timer, summarise, timeline

        options, points = self._options, ProfilePoints(stream.manifest)
        calls = calls_of(stream, points, options.n_updates, options.n_queries)
        timers = [Timer(call.n) for call in calls]
        for _ in range(WARM_UP):
            calls[0].before()
            calls[0].run()
            calls[-1].before()
            calls[-1].run()
        for call in calls:
            call.before()
            call.run()
        gc.collect()
        self._stage("first steps")
        self._window_note = self._memory.start_window()
        with self._watch.block(calls[0].name):
            self._arrivals(calls[0], calls[1], timers)
        self._progress("timing the other calls")
        for call, timer in zip(calls[2:], timers[2:], strict=True):
            with self._watch.block(call.name):
                for _ in range(SETTLE):
                    call.before()
                    call.run()
                for _ in range(call.n):
                    call.before()
                    timer.time(call.run)
        self._peak_bytes = self._memory.resident_peak_bytes()
        self._files = self._memory.files()
        self._surveyed = self._survey.read()
        self._stage("the run")
        return (
            [
                summarise(call.name, call.what, call.n_points, timer.taken_ns, options.rate_hz)
                for call, timer in zip(calls, timers, strict=True)
            ],
            timeline(timers[0].taken_ns),
        )

    def _arrivals(self, whole: TimedCall, bare: TimedCall, timers: list[Timer]) -> None:
        """Time arriving points and their bare graph in turn, and sample memory between them.

        Args:
            whole: The call of the stream that an arriving point makes.
            bare: The same step as a graph only, without the work of the stream around it.
            timers: Timers of all calls; the first takes `whole`, the second `bare`.
        """
        every = max(BLOCK, whole.n // N_SAMPLES)
        self._sample(0)
        for start in range(0, whole.n, BLOCK):
            n = min(BLOCK, whole.n - start)
            for _ in range(SETTLE):
                whole.before()
                whole.run()
            for _ in range(n):
                whole.before()
                timers[0].time(whole.run)
            for _ in range(n):
                timers[1].time(bare.run)
            if (start + n) // every > start // every or start + n == whole.n:
                self._sample(start + n)
                self._progress(f"timing updates: {start + n:,} of {whole.n:,}")

    def _sample(self, n_updates: int) -> None:
        self._survey.poll()
        reading = self._memory.read()
        self._samples.append(MemorySample(n_updates, reading.needed_bytes, reading.file_bytes))

    # Memory and energy ----------------------------------------------------------------------------

    def _measured_memory(self, stream: Stream, peak_open: int) -> MeasuredMemory:
        needed = [sample.needed_bytes for sample in self._samples]
        readings = [*(stage.needed_bytes for stage in self._stages), *needed]
        return MeasuredMemory(
            plan=stream.manifest.memory_plan,
            buffers_bytes=stream.buffer_bytes,
            stages=self._stages,
            samples=self._samples,
            needed_bytes=max(readings),
            n_readings=len(readings),
            needed_growth_bytes=needed[-1] - needed[0],
            to_run_well=self._to_run_well(stream, max(readings)),
            predicted=_predicted(stream),
            files=FilePages(
                sum(file.touched_bytes for file in self._files),
                sum(file.resident_bytes for file in self._files),
                sum(file.mapped_bytes for file in self._files),
                self._files[:N_FILES],
            ),
            resident_peak_open_bytes=peak_open,
            resident_peak_bytes=self._peak_bytes,
            window_note=self._window_note or "since the warm-up",
            survey=self._surveyed,
        )

    def _to_run_well(self, stream: Stream, needed_bytes: int) -> MemoryToRunWell:
        """Measure the memory with which a loop does not wait for files, or return why that failed.

        The result is `needed_bytes`, which the kernel cannot take back, plus the used file pages.
        """
        from edgefold.devices.memory.reclaim import working_files
        from edgefold.devices.profile.calls import ProfilePoints, calls_of

        calls = calls_of(stream, ProfilePoints(stream.manifest), 1, 1)
        arrival = calls[0] if stream.manifest.is_filter else calls[-1]

        def run() -> None:
            for _ in range(N_AFTER_DROP):
                arrival.before()
                arrival.run()

        try:
            files = working_files(run)
        except MeterError as error:
            return MemoryToRunWell(reason=str(error))
        return MemoryToRunWell(
            (needed_bytes + files.least_bytes, needed_bytes + files.most_bytes), files.kept_bytes
        )

    def _energy(self, stream: Stream) -> dict[str, Any]:
        """Measure the joules above idle of each step, or return the reason why there are none."""
        from edgefold.devices.power.probe import probe_sensors
        from edgefold.devices.profile.calls import ProfilePoints, calls_of
        from edgefold.devices.profile.energy import EnergyOptions, measure_energy

        options = self._options

        def prepared(call: TimedCall) -> Callable[[], None]:
            def run() -> None:
                call.before()
                call.run()

            return run

        calls = calls_of(stream, ProfilePoints(stream.manifest), 1, 1)
        return measure_energy(
            {c.name: prepared(c) for c in calls if c.name in ("update", "step", "query")},
            EnergyOptions(options.energy_error, options.energy_limit_s, options.power_replay),
            self._progress,
            probe=partial(probe_sensors, self._host, is_on_gpu(stream.backend_report)),
        )


def is_on_gpu(report: Mapping[str, Any]) -> bool:
    """Return whether a backend runs on a GPU, by the `device` in its report."""
    return "cpu" not in report["device"].lower()


def _predicted(stream: Stream) -> PredictedMemory:
    """Return the memory that `edgefold budget` predicts for a Python program on this machine."""
    from edgefold.runtime.stream.memory_estimate import footprint

    estimate = footprint(stream.manifest, stream.backend_report["name"])
    return PredictedMemory(
        estimate.needed_bytes,
        estimate.to_run_well_bytes,
        estimate.looks_like_bytes,
        complete=not estimate.unmeasured,
    )


def _describe(stream: Stream, path: str, open_s: float) -> MeasuredBundle:
    manifest = stream.manifest
    return MeasuredBundle(
        path=path,
        hash=manifest.bundle_hash,
        model=manifest.model,
        precision=manifest.precision["name"],
        task=manifest.task.get("name"),
        n_streams=manifest.n_streams,
        n_inputs=manifest.n_inputs,
        n_outputs=manifest.n_outputs,
        chunk=manifest.chunk,
        targets=manifest.targets,
        keeps=manifest.keeps,
        versions=manifest.versions,
        open_s=open_s,
    )


def _onnxruntime_version() -> str | None:
    """Return the version of the imported package; onnxruntime-gpu has other metadata."""
    try:
        from edgefold.runtime.backends.onnxruntime_session import onnxruntime
    except BackendError:
        return None
    return str(onnxruntime.__version__)


def _conditions(machine: Any, stream: Stream) -> dict[str, Any]:
    """Return the conditions of a profile: the `Machine` at its start, the backend, the versions."""
    import platform
    from datetime import datetime, timezone
    from importlib.metadata import version

    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        **as_json(machine),
        "backend": stream.backend_report,
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "onnxruntime": _onnxruntime_version(),
        "edgefold": version("edgefold"),
        "gc_enabled": gc.isenabled(),
        "n_warm_up": WARM_UP,
    }
