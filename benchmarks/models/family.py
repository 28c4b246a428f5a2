"""How much does each model of the papers cost on a device, after 100, 1,000 and 10,000 points?

Every model of the registry at its published size (`--preset` takes another, and keeps a record of
its own), untrained, float32, one thread:

    export     in a process of its own: parameters, bytes of the bundle and of the state
    memory     needed memory of a process that learns N points, predicts and goes on
    time       condition, update of 1, refresh, query of 1 and 50, an arrival (predict, then
               update), after each N, in turns within one process

A model that keeps points is exported anew for each N, with a buffer of N points that overwrites the
oldest. A cell that takes more than ten minutes or more memory than the machine has is marked so.
Exponents are fitted between the sizes and set beside what the papers state
(`paper_claims`). Records are kept model by model: a run that was interrupted goes on,
`--fresh` measures anew, `--models` chooses.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.memory.process import needed, watched
from benchmarks.record import (
    IMAGES,
    RECORDS,
    ROOT,
    Requirement,
    arguments,
    at_most,
    conditions,
    finish,
    progress,
    record_name,
)
from benchmarks.tables import as_text

QUESTION = "What does every model cost as its stream grows?"
SIZES = (100, 1_000, 10_000)
LIMIT_S = 600.0
FLAT = 1.05


class TooMuchError(Exception):
    """A cell beyond ten minutes or the machine's memory; the text says which."""


def child(*words: str, watch: bool = False) -> tuple[Any, int]:
    """Run a child: its JSON, and the most memory that it needed where that is watched."""
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    command = [sys.executable, "-m", "benchmarks.models.family_child", *words]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=limit
        )
        peak = 0
        try:
            if watch:
                with watched(process, needed) as readings:
                    out, _ = process.communicate(timeout=LIMIT_S)
                peak = max(readings, default=0)
            else:
                out, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise TooMuchError(f"over {LIMIT_S / 60:.0f} minutes") from None
        errors.seek(0)
        said = errors.read()
    if process.returncode:
        memory = ("MemoryError", "bad_alloc", "allocate memory", "Failed to allocate")
        if process.returncode < 0 or any(word in said for word in memory):
            raise TooMuchError(f"over {most / 1e9:.0f} GB")
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{said[-2000:]}")
    return json.loads(out.splitlines()[-1]), peak


def measure(model: str, preset: str, sizes: tuple[int, ...]) -> dict[str, Any]:
    """All of one model's cells."""
    found: dict[str, Any] = {"preset": preset, "sizes": {}, "times": {}}
    with tempfile.TemporaryDirectory(prefix="edgefold-family-") as folder:
        bundles: list[tuple[Path, int]] = []
        for n in sizes:
            bundle = Path(folder) / str(n)
            cell: dict[str, Any] = {}
            found["sizes"][str(n)] = cell
            try:
                first = found["sizes"][str(sizes[0])]
                if bundles and not first["grows"]:
                    bundle = bundles[0][0]
                    cell |= {key: first[key] for key in first if key != "needed_bytes"}
                else:
                    progress(f"{model}: export for {n:,} points")
                    cell |= child("export", model, preset, str(n), str(bundle))[0]
                progress(f"{model}: memory at {n:,} points")
                used, cell["needed_bytes"] = child("memory", str(bundle), str(n), watch=True)
                cell |= used
                bundles.append((bundle, n))
            except TooMuchError as reason:
                cell["not_run"] = str(reason)
        progress(f"{model}: times")
        for group in (bundles, *([pair] for pair in bundles)):
            try:  # together if they can, else each by itself
                rows, _ = child("time", *(f"{bundle}={n}" for bundle, n in group))
            except TooMuchError as reason:
                if len(group) == 1:
                    found["sizes"][str(group[0][1])]["not_run"] = str(reason)
                continue
            found["times"] |= {str(row["n_points"]): row for row in rows}
            if group is bundles:
                break
    progress(f"{model}: done", last=True)
    return found


def requirements(models: dict[str, Any]) -> list[Requirement]:
    """CMANP's figures are flat."""
    own = models.get("cmanp")
    if own is None or len(own["times"]) < 2:
        return []
    found = []
    for kind in ("update", "query_1", "query_50"):
        medians = [row[kind]["median_s"] for row in own["times"].values()]
        found.append(
            at_most(f"CMANP's {kind}, most over least", max(medians) / min(medians), FLAT, "")
        )
    memory = [cell["needed_bytes"] for cell in own["sizes"].values()]
    found.append(at_most("CMANP's memory, most over least", max(memory) / min(memory), FLAT, ""))
    exports = {
        name: cell["export_s"]
        for name, model in models.items()
        for cell in [next(iter(model["sizes"].values()))]
        if "export_s" in cell
    }
    slowest = max(exports, key=lambda name: exports[name])
    found.append(at_most(f"slowest export ({slowest})", exports[slowest], 30, "s"))
    return found


def variant_of(preset: str) -> str:
    """Return the record's variant: the published sizes have the plain name."""
    return "" if preset == "paper" else preset


def _record(
    args: argparse.Namespace,
    before: dict[str, Any],
    kept: dict[str, Any],
    show: Callable[[dict[str, Any]], str],
) -> dict[str, Any]:
    """Write what is known so far, in the registry's order; returns the record's data."""
    from edgefold.train.models.registry import MODELS

    models = {name: kept[name] for name in MODELS if name in kept}
    data = {"models": models}
    variant = variant_of(args.preset)
    question = QUESTION if not variant else f"{QUESTION[:-1]}, preset {variant}?"
    finish(args, "family", question, before, data, requirements(models), show, variant)
    return data


def main() -> None:
    """Measure what is not recorded yet, then table and plots."""
    from edgefold.train.models.registry import learners

    parser = arguments(__doc__ or "", "family")
    parser.add_argument("--models", nargs="+", choices=learners(), help="default: all")
    parser.add_argument("--preset", default="paper", help="default paper")
    parser.add_argument("--points", type=int, nargs="+", help="N; default 100 1000 10000")
    parser.add_argument("--fresh", action="store_true", help="measure again what is recorded")
    args: argparse.Namespace = parser.parse_args()
    before = conditions()
    path = args.record or RECORDS / f"{record_name('family', variant_of(args.preset))}.json"
    kept: dict[str, Any] = {}
    if path.exists() and not args.quick:
        kept = json.loads(path.read_text())["data"]["models"]
    chosen = args.models or learners()
    sizes = args.points or (SIZES[:2] if args.quick else SIZES)
    missing = [model for model in chosen if args.fresh or model not in kept]
    for model in missing:
        kept[model] = measure(model, args.preset, sizes)
        _record(args, before, kept, lambda record: f"{len(record['data']['models'])} recorded")
    data = _record(args, before, kept, as_text)
    if not args.quick and args.preset == "paper":
        from benchmarks.models.family_plots import draw_growth

        draw_growth(data, IMAGES / "family.png")


if __name__ == "__main__":
    main()
