"""How far are a budget's predictions from measurements on this machine?

Both presets, untrained, one of them with a wide chunk, and the models of checkpoints/, in every
precision. For each bundle:

    activations   live heap memory during one run of each graph, every allocation intercepted
    times         each graph alone, beside the range that a budget gives for this machine's rates

The memory of whole processes is compared by `memory_states`. Counting allocations needs
a C compiler (cc).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.record import (
    ROOT,
    Requirement,
    arguments,
    at_least,
    at_most,
    conditions,
    finish,
    progress,
)
from benchmarks.tables import as_text

QUESTION = "How far are a budget's predictions from measurements?"
HERE = Path(__file__).parent
PRECISIONS = ("float32", "float16", "int8")
SOURCES: dict[str, list[str]] = {
    "small, untrained": ["cmanp", "--preset", "small"],
    "paper, untrained": ["cmanp", "--preset", "paper"],
    "paper, chunk 128": ["cmanp", "--preset", "paper", "--chunk", "128"],
    **{name: [str(ROOT / "checkpoints" / name)] for name in ("gp-small", "gp-paper", "series-co2")},
}
QUICK = ("small, untrained",)
VECTOR_FLOPS = {"avx512f": 64, "avx2": 32, "asimd": 16}
"""Float32 operations a cycle by the widest vectors: they turn a measured rate into a clock."""


@contextmanager
def counter() -> Iterator[Path]:
    """The allocation counter, compiled for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        library = Path(folder) / "count_allocations.so"
        source = HERE / "count_allocations.c"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        yield library


def child(arguments: list[str], preload: Path | None = None) -> dict[str, Any]:
    """Return the answer of `benchmarks.memory.budget_child`."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if preload:
        environment["LD_PRELOAD"] = str(preload)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory.budget_child", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def export(source: list[str], precision: str, place: Path) -> None:
    """Write a bundle in another process."""
    command = [str(Path(sys.executable).with_name("edgefold")), "export", *source]
    command += ["--precision", precision, "--accept-loss", "--parity-steps", "1000"]
    command += ["--out", str(place)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def vector_flops(cpu_info: str) -> int:
    """Float32 operations that this CPU does in a cycle, from the flags of /proc/cpuinfo."""
    flags = set(cpu_info.split())
    found = [n_flop for flag, n_flop in VECTOR_FLOPS.items() if flag in flags]
    if not found:
        sys.exit(f"benchmarks.memory.budget: this CPU has none of {', '.join(VECTOR_FLOPS)}")
    return found[0]


def this_board(ceilings: dict[str, float]) -> Any:
    """This machine as a profile, from its own measured rates."""
    from edgefold.devices.boards.board import Figure, load_board

    board = load_board("x86-64-gateway")
    measured = "measured in this run"
    n_flop = vector_flops(Path("/proc/cpuinfo").read_text())
    clock = Figure(ceilings["flops_per_s"] / n_flop, measured)
    bandwidth = Figure(ceilings["memory_bytes_per_s"], measured)
    per_cycle = Figure(n_flop, measured)
    return replace(
        board,
        cpu=replace(board.cpu, model="this machine", clock_hz=clock, flops_per_cycle=per_cycle),
        memory=replace(board.memory, bandwidth_bytes_per_s=bandwidth),
    )


def subject(
    name: str, precision: str, bundle: Path, library: Path, board: Any, args: Any
) -> dict[str, Any]:
    """Activations and times of one bundle, measured first and predicted then."""
    counted = child(["allocations", str(bundle)], library)
    timed = child(["times", str(bundle), str(args.rounds)])
    from edgefold.devices.budget.roofline import cpu_range
    from edgefold.runtime.bundle.manifest_file import load_manifest

    manifest = load_manifest(bundle)
    plan = manifest.memory_plan["graphs"]
    times = {}
    for graph, measured_s in timed.items():
        taken = cpu_range(plan[graph]["work"], board, manifest.graphs[graph].precision, None)
        times[graph] = {"low_s": taken.low_s, "measured_s": measured_s, "high_s": taken.high_s}
    return {
        "name": name,
        "precision": precision,
        "activations": {
            graph: {
                "predicted_bytes": plan[graph]["activations_bytes"],
                "measured_bytes": n_bytes,
            }
            for graph, n_bytes in counted.items()
        },
        "times": times,
    }


def measure(args: Any) -> dict[str, Any]:
    """All subjects, one after the other."""
    names = QUICK if args.quick else tuple(SOURCES)
    precisions = args.precision or PRECISIONS
    cases = [(name, precision) for name in names for precision in precisions]
    ceilings = child(["ceilings"])
    board = this_board(ceilings)
    subjects = []
    with counter() as library, tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        for index, (name, precision) in enumerate(cases):
            progress(f"{index + 1} of {len(cases)}: {name}, {precision}")
            bundle = Path(folder) / f"{index}" / "bundle"
            bundle.parent.mkdir()
            export(SOURCES[name], precision, bundle)
            subjects.append(subject(name, precision, bundle, library, board, args))
    return {"ceilings": ceilings, "subjects": subjects}


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project, on the worst subject."""
    ratios = []
    inside = outside = 0
    for one in data["subjects"]:
        graphs = one["activations"].values()
        most = max(graph["measured_bytes"] for graph in graphs)
        ratios.append(max(graph["predicted_bytes"] for graph in graphs) / most)
        for graph in one["times"].values():
            kept = graph["low_s"] <= graph["measured_s"] <= graph["high_s"]
            inside, outside = inside + kept, outside + (not kept)
    return [
        at_least("predicted beside counted activations, least", min(ratios), 1, "x"),
        at_most("predicted beside counted activations, most", max(ratios), 1.5, "x"),
        Requirement(
            "graphs whose time lies in its range",
            f"{inside} of {inside + outside}",
            "all",
            not outside,
        ),
    ]


def main() -> None:
    """Measure and record."""
    parser = arguments(__doc__ or "", "budget")
    parser.add_argument("--rounds", type=int, default=100, help="rounds of all graphs; default 100")
    parser.add_argument(
        "--precision", action="append", choices=PRECISIONS, help="only this one; may be repeated"
    )
    args = parser.parse_args()
    before = conditions()
    data = measure(args)
    finish(args, "budget", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
