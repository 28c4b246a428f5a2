"""How much do float16 and int8 cost, and how much do they save?

Every shipped model in every precision, exported by the command, one thread of onnxruntime's CPU:

    size         weights on disk, and memory as the plan counts it
    likelihood   the change that export measured against float32, on the same draws
    needed       memory that fresh processes need while they run every step, in turns
    times        refresh and queries of all bundles in turns, so that only ratios are compared

What is resident, with clean pages of files, is recorded beside (ru_maxrss of wait4): it would
include this process, were that larger, so nothing heavy is imported before the last part.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.memory.budget import PRECISIONS
from benchmarks.memory.process import run_once
from benchmarks.record import (
    ROOT,
    Requirement,
    arguments,
    at_most,
    conditions,
    finish,
    progress,
)
from benchmarks.tables import as_text

QUESTION = "What do float16 and int8 cost, and what do they save?"
MODELS = ("gp-small", "gp-paper", "series-co2")
QUICK = ("series-co2",)
MAX_LOSS = {"float16": 0.02, "int8": 0.05}
"""Nats a target; what export allows unless told otherwise."""
GRAPHS = {"refresh": 3, "query": 10, "query_one": 20, "update": 20}
"""Steps that are timed, and how often in one round."""

Place = tuple[str, str]
EVERY_STEP = """
import sys
from edgefold.runtime import Stream
with Stream.open(sys.argv[1], backend="onnxruntime") as stream:
    columns = stream.manifest.n_inputs
    row = [[0.25] * columns]
    stream.update(row, [[0.5]])
    print("prediction", stream.query(row).mean[0, 0], flush=True)
    stream.condition(row * 64, [[0.5]] * 64)
    for _ in range(300):  # consolidates as well
        stream.update(row, [[0.5]])
    stream.query(row * stream.manifest.targets)
"""


def export(model: str, precision: str, place: Path) -> None:
    """Write a bundle by the command, in another process, whatever its precision costs."""
    command = [str(Path(sys.executable).with_name("edgefold")), "export"]
    command += [str(ROOT / "checkpoints" / model), "--precision", precision, "--accept-loss"]
    subprocess.run(
        [*command, "--out", str(place)],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def described(place: Path) -> dict[str, Any]:
    """Return what a bundle's manifest says of its size and its precision."""
    from edgefold.runtime.bundle.manifest_file import load_manifest

    manifest = load_manifest(place)
    return {
        "weights_bytes": manifest.weights["n_bytes"],
        "planned_bytes": manifest.memory_plan["total_bytes"],
        "cache_bytes": manifest.memory_plan["cache_bytes"],
        "found": manifest.precision,
    }


def peaks(bundles: dict[Place, Path], n_repeats: int) -> dict[Place, list[dict[str, Any]]]:
    """Processes that run every step, in turns, after an untimed run each."""
    found: dict[Place, list[dict[str, Any]]] = {key: [] for key in bundles}
    for repeat in range(-1, n_repeats):
        for key, place in bundles.items():
            run = run_once([sys.executable, "-c", EVERY_STEP, str(place)], "prediction")
            if repeat >= 0:
                found[key].append(run)
        progress(f"memory, repeat {repeat + 1} of {n_repeats}", repeat + 1 == n_repeats)
    return found


def times(bundles: dict[Place, Path], n_rounds: int) -> tuple[dict[Place, Any], Any]:
    """Times of each bundle's graphs, all in turns; and the machine's noise."""
    from benchmarks.rounds import Step, interleave
    from benchmarks.subjects import points
    from edgefold.runtime import Stream

    groups: dict[str, list[Step]] = {}
    with ExitStack() as stack:
        for (model, precision), place in bundles.items():
            stream = stack.enter_context(Stream.open(place, backend="onnxruntime"))
            stream.condition(*points(64, stream.manifest.n_inputs))
            stream.query(points(1, stream.manifest.n_inputs)[0])
            groups[f"{model} {precision}"] = [
                Step(name, partial(stream.run_step, name), n_timed, 1)
                for name, n_timed in GRAPHS.items()
            ]
        interleave(groups, 2)  # warm-up
        taken, noise = interleave(groups, n_rounds)
    return {key: taken[" ".join(key)] for key in bundles}, noise


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Export everything, then measure sizes, peaks and times."""
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        bundles: dict[Place, Path] = {}
        for model in QUICK if args.quick else MODELS:
            for precision in PRECISIONS:
                progress(f"exporting {model} in {precision}")
                place = bundles[model, precision] = Path(folder) / f"{model}-{precision}"
                export(model, precision, place)
        peak = peaks(bundles, 2 if args.quick else args.repeats)
        about = {key: described(place) for key, place in bundles.items()}
        taken, noise = times(bundles, 5 if args.quick else args.rounds)
    subjects = [
        {
            "name": model,
            "precision": precision,
            **about[model, precision],
            **{
                kind: statistics.median(run[kind] for run in peak[model, precision])
                for kind in ("needed_bytes", "resident_peak_bytes")
            },
            "times": taken[model, precision],
        }
        for model, precision in bundles
    ]
    return {"subjects": subjects, "noise": noise}


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """The loss that each narrow precision may cost, on the worst kind of task."""
    return [
        at_most(
            f"{subject['name']}: loss of log-likelihood in {subject['precision']}",
            -min(subject["found"]["log_likelihood_change"].values()),
            MAX_LOSS[subject["precision"]],
            "nats",
        )
        for subject in data["subjects"]
        if subject["precision"] in MAX_LOSS
    ]


def main() -> None:
    """Measure and record."""
    parser = arguments(__doc__ or "", "precision")
    parser.add_argument("--rounds", type=int, default=60, help="rounds of all graphs; default 60")
    parser.add_argument("--repeats", type=int, default=5, help="processes of each; default 5")
    args = parser.parse_args()
    before = conditions()
    data = measure(args)
    finish(args, "precision", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
