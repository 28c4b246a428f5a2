"""Do models of events stay as fast, as small and as good along a stream that never ends?

Each run of the task `hawkes` is exported, and its bundle follows one simulated stream of a million
events without a reset:

    events    0 ─── 100 ─── 1e3 ─── 1e4 ─── 1e5 ─── 1e6
              at each: a snapshot, the memory that the process needs, and the mean log-likelihood
              of the last events beside the exact one, which the simulator knows
    time      round:  │ snapshot at 1e4 │ snapshot at 100 │ ...   in shuffled order
                        restored into one stream: some untimed steps, then timed ones

    python -m benchmarks endless_events runs/hawkes-a runs/hawkes-b
"""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import (
    Requirement,
    arguments,
    at_most,
    conditions,
    finish,
    progress,
    spread,
)
from benchmarks.tables import as_text
from edgefold.devices.memory.process import ProcessMemory
from edgefold.export.bundle import ExportConfig, export_bundle
from edgefold.runtime import Stream

QUESTION = "Do models of events stay as fast, as small and as good along an endless stream?"
SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
N_ROUNDS, N_UNTIMED, N_TIMED = 30, 10, 40
N_SCORED = 20_000
FLAT = 1.1
MOST_GROWTH_KB = 64.0
"""A few pages, which the allocator of Python may take at any time."""
MOST_BEHIND_NATS = 0.05

Events = NDArray[np.float64]


def simulated(n_events: int, setting: Any) -> tuple[Events, NDArray[np.float64]]:
    """One stream of (gap, mark), (N, 2), and the exact log-likelihood of each event, (N,), nats.

    The same process as the task's, one event at a time: parts of the stream cannot be drawn side by
    side.
    """
    rates, decay = setting.rates.numpy(), setting.decay
    jumps = setting.caused.numpy() * decay
    random, total = np.random.default_rng(0), float(rates.sum())
    excited = np.zeros(setting.n_marks)
    events, exact = np.empty((n_events, 2)), np.empty(n_events)
    for index in range(n_events):
        own, other, place = random.random(3)
        gap, sum_excited = -np.log1p(-own) / total, float(excited.sum())
        left = 1.0 + decay * np.log1p(-other) / sum_excited if sum_excited > 0 else 0.0
        if left > 0:
            gap = min(gap, -np.log(left) / decay)
        faded = np.exp(-decay * gap)
        intensity = rates + excited * faded
        cumulated = intensity.cumsum()
        mark = int((place * cumulated[-1] >= cumulated[:-1]).sum())
        compensator = total * gap + sum_excited * (1.0 - faded) / decay
        exact[index] = np.log(intensity[mark]) - compensator
        events[index] = gap, mark
        excited = excited * faded + jumps[mark]
    return events, exact


def follow(run: Path, events: Events, exact: NDArray[np.float64], sizes: list[int]) -> Any:
    """Return the scores of a run's bundle along the stream."""
    from edgefold.train.checkpoints import load_model

    model, config = load_model(run)
    found: list[dict[str, Any]] = []
    memory = ProcessMemory()
    told = np.ones(len(events))  # every page is there before memory is read
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        bundle = Path(folder) / "bundle"
        export_bundle(model, config["task"], bundle, ExportConfig(parity_steps=200))
        with Stream.open(bundle, "onnxruntime") as stream:
            for row in events[:500]:  # what the first steps allocate
                stream.step(row)
            stream.reset()
            begin = 0
            for size in sizes:
                for index in range(begin, size):
                    told[index] = stream.step(events[index]).log_likelihood.item()
                begin = size
                stream.save(Path(folder) / f"{size}.npz")
                gc.collect()
                last = slice(max(0, size - N_SCORED), size)
                found.append(
                    {
                        "n_events": size,
                        "needed_bytes": memory.read().needed_bytes,
                        "log_likelihood": float(told[last].mean()),
                        "exact": float(exact[last].mean()),
                    }
                )
                progress(f"{run.name}: {size:,} of {sizes[-1]:,} events", size == sizes[-1])
            times = take_turns(stream, events, {n: Path(folder) / f"{n}.npz" for n in sizes})
    for at in found:
        at["step"] = times[at["n_events"]]
    return {"model": config["model"], "training": config["training"], "at": found}


def take_turns(stream: Stream, events: Events, paths: dict[int, Path]) -> dict[int, Any]:
    """By size, the spread of a step from its snapshot."""
    taken: dict[int, list[int]] = {size: [] for size in paths}
    order = np.random.default_rng(0)
    for _ in range(N_ROUNDS):
        for size in order.permutation(list(paths)).tolist():
            stream.restore(paths[size])
            for index, row in enumerate(events[: N_UNTIMED + N_TIMED]):
                start = time.perf_counter_ns()
                stream.step(row)
                if index >= N_UNTIMED:
                    taken[size].append(time.perf_counter_ns() - start)
    return {size: spread(own) for size, own in taken.items()}


def requirements(runs: dict[str, Any]) -> list[Requirement]:
    """Flat in time and memory, and as near to the exact likelihood as at the start."""
    found = []
    for name, own in runs.items():
        first, last = own["at"][0], own["at"][-1]
        n = f"{last['n_events']:,}"
        slower = last["step"]["median_s"] / first["step"]["median_s"]
        found.append(at_most(f"{name}: a step at {n} events to one at 100", slower, FLAT, ""))
        grown = (last["needed_bytes"] - own["at"][1]["needed_bytes"]) / 1e3
        found.append(at_most(f"{name}: memory grown since 1,000", grown, MOST_GROWTH_KB, "kB"))
        behind = last["exact"] - last["log_likelihood"]
        found.append(
            at_most(f"{name}: behind the exact one at {n}", behind, MOST_BEHIND_NATS, "nats")
        )
    return found


def main() -> None:
    """Simulate, follow and record."""
    from edgefold.train.checkpoints import read_config
    from edgefold.train.tasks.events.hawkes import HawkesSetting

    parser = arguments(__doc__ or "", "endless_events")
    parser.add_argument("runs", type=Path, nargs="+", help="runs of the task hawkes")
    args = parser.parse_args()
    sizes = [n for n in SIZES if n <= (1_000 if args.quick else SIZES[-1])]
    before = conditions()
    settings = [read_config(run)["task"]["setting"] for run in args.runs]
    if any(setting != settings[0] for setting in settings):
        parser.error("the runs learned different processes; give those of one process")
    progress(f"simulating {sizes[-1]:,} events", last=True)
    events, exact = simulated(sizes[-1], HawkesSetting(**settings[0]))
    runs = {run.name: follow(run, events, exact, sizes) for run in args.runs}
    data = {"setting": settings[0], "n_scored": N_SCORED, "runs": runs}
    finish(args, "endless_events", QUESTION, before, data, requirements(runs), as_text)


if __name__ == "__main__":
    main()
