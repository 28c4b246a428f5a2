"""How much does it cost to build TensorRT's engines ahead of time, and how large are they?

Untrained presets in every precision, built by TensorRT-RTX for compute capability 8.6 without a
GPU. TensorRT on a board also times kernels while it builds, and takes longer: this says nothing of
it. Two views:

    graph      parse and build in one process, after an untimed one; no cache
    command    `edgefold engine`, a fresh process with an empty cache, then one that finds all

    spawn ──> imports ──> manifest verified ──> graph after graph ──> table ──> exit
    └───────────────── whole time, and the kernel's peak of resident memory ──────┘
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.memory.process import ended
from benchmarks.record import ROOT, arguments, conditions, finish, progress, spread
from benchmarks.tables import as_text

QUESTION = "What does it cost to build engines ahead of time?"
CAPABILITY = "8.6"
PRESETS = ("small", "paper")
PRECISIONS = ("float32", "float16", "int8")


def edgefold(*words: str) -> list[str]:
    """The command in this Python."""
    return [sys.executable, "-m", "edgefold.cli.main", *words]


def run_once(command: list[str]) -> dict[str, float]:
    """Run a process to its end; its time and its peak."""
    start_s = time.perf_counter()
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    said = child.stderr.read()
    child.stderr.close()
    used = ended(child, start_s)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}: {said}")
    return used


def build_commands(bundle: Path) -> dict[str, dict[str, float]]:
    """`edgefold engine` on an empty cache, and again on the filled one."""
    with tempfile.TemporaryDirectory(prefix="edgefold-") as cache:
        command = edgefold("engine", str(bundle), "--compute-capability", CAPABILITY)
        command += ["--cache", cache]
        return {"built": run_once(command), "cached": run_once(command)}


def build_graphs(bundle: Path, n_repeats: int) -> dict[str, Any]:
    """Every graph of a bundle, in turns; time and size."""
    from edgefold.runtime.backends.base import EngineOptions
    from edgefold.runtime.backends.tensorrt.builder import build_plan
    from edgefold.runtime.backends.tensorrt.variant import find_variant
    from edgefold.runtime.bundle.manifest_file import load_manifest

    manifest = load_manifest(bundle)
    variant = find_variant("tensorrt_rtx")
    options = EngineOptions(compute_capabilities=(CAPABILITY,))
    taken_ns: dict[str, list[int]] = {name: [] for name in manifest.graphs}
    sizes = {}
    for repeat in range(-1, n_repeats):
        for name, graph in manifest.graphs.items():
            start = time.perf_counter_ns()
            plan = build_plan(variant, bundle / graph.file, options).plan
            if repeat >= 0:
                taken_ns[name].append(time.perf_counter_ns() - start)
            sizes[name] = len(plan)
    return {name: {**spread(taken_ns[name]), "n_bytes": sizes[name]} for name in sizes}


def measure(n_repeats: int, presets: tuple[str, ...], precisions: tuple[str, ...]) -> list[Any]:
    """Every preset in every precision."""
    found = []
    for preset in presets:
        for precision in precisions:
            progress(f"{preset}, {precision}")
            with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
                bundle = Path(folder) / "bundle"
                words = ["cmanp", "--preset", preset, "--parity-steps", "256"]
                words += ["--precision", precision, "--out", str(bundle)]
                run_once(edgefold("export", *words))
                found.append(
                    {
                        "preset": preset,
                        "precision": precision,
                        "bundle_bytes": sum(f.stat().st_size for f in bundle.iterdir()),
                        "commands": build_commands(bundle),
                        "graphs": build_graphs(bundle, n_repeats),
                    }
                )
    return found


def main() -> None:
    """Measure and record."""
    parser = arguments(__doc__ or "", "engine_build")
    parser.add_argument("--repeats", type=int, default=5, help="builds of each; default 5")
    args = parser.parse_args()
    if find_spec("tensorrt_rtx") is None:
        print("nothing was measured: tensorrt-rtx is not installed (x86-64)", file=sys.stderr)
        return
    before = conditions()
    before["versions"]["tensorrt_rtx"] = version("tensorrt_rtx")
    if args.quick:
        subjects = measure(1, PRESETS[:1], PRECISIONS[:1])
    else:
        subjects = measure(args.repeats, PRESETS, PRECISIONS)
    data = {"compute_capability": CAPABILITY, "subjects": subjects}
    finish(args, "engine_build", QUESTION, before, data, [], as_text)  # the project set no bound


if __name__ == "__main__":
    main()
