"""How much memory does a bundle's C program take, compared with `edgefold run`?

The shipped bundles gp-paper and gp-small. Three processes, one after the other:

    program        `edgefold build --program`, a static program: many rows, snapshots, to the end
    onnxruntime    `edgefold run --backend onnxruntime`, 2,000 of these rows
    native         `edgefold run --backend native`, 2,000 of these rows

    start ──> first row ──> a fifth of the rows ──> ... ──> last row ──> exit
                            │ anonymous memory: from here to the end it may not grow
    └── read every 3 ms: VmHWM, VmPeak, anonymous memory ───────────┘

Peak is VmHWM, what was resident, clean pages of the program's own file included. VmPeak is all that
was mapped, touched or not. Every row is predicted and learned, so all weights are read. At the end
the program runs once more, linked with a heap that ends it if its loop asks for memory.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.memory.memory_states import environment, field
from benchmarks.memory.process import watched
from benchmarks.native.native_rows import COMMAND, words_of, write_rows
from benchmarks.native.native_subjects import TRAINED, write_bundle
from benchmarks.record import ROOT, Requirement, arguments, at_most, conditions, finish, progress
from benchmarks.tables import as_text
from edgefold.export.native.loop_program import program_sources
from edgefold.export.native.toolchain.compilers import compile_program, find_compiler
from edgefold.runtime.bundle.manifest_file import load_manifest

QUESTION = "How much memory does the process of a bundle's C program take?"
BOUNDS_MB = {"gp-paper": 10, "gp-small": 6}
PAPER_ROWS, PYTHON_ROWS = 20_000, 2_000
SETTLED = 5
"""After this part of the run memory may not grow any more."""
TRAP = ROOT / "tests" / "export" / "native" / "malloc_trap.c"
FIELDS = {"peak_bytes": "VmHWM", "mapped_bytes": "VmPeak"}


def read_status(folder: Path) -> dict[str, int]:
    """The figures of the process of a procfs folder; 0 when it has ended.

    Anonymous memory is counted page by page: the kernel's own counter (RssAnon) may lag by dozens.
    """
    found = {figure: field(folder / "status", name) for figure, name in FIELDS.items()}
    return {**found, "anonymous_bytes": field(folder / "smaps_rollup", "Anonymous")}


def watch_run(command: Sequence[str]) -> dict[str, int]:
    """Run a process to its end; the most of each figure, and the growth of anonymous memory."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(None),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        with watched(child, read_status) as readings:
            _, errors = child.communicate()
        if child.returncode:
            raise RuntimeError(
                f"{' '.join(command)} ended with {child.returncode}: {errors[-400:]}"
            )
    alive = [reading for reading in readings if reading["anonymous_bytes"]]
    settled = [reading["anonymous_bytes"] for reading in alive[len(alive) // SETTLED :]]
    return {
        **{figure: max(reading[figure] for reading in alive) for figure in alive[0]},
        "growth_bytes": max(settled) - settled[0],
    }


def asked_in_loop(bundle: Path, folder: Path) -> str:
    """Return the words of a program whose heap ends it when its loop asks for memory."""
    compiler = find_compiler(extra=("-Wl,--wrap=run_loop",))
    files = {**program_sources(bundle), TRAP.name: TRAP.read_text()}
    (folder / "trap").mkdir()
    program = compile_program(files, compiler, folder / "trap")
    done = subprocess.run(
        [program, *words_of(folder, "trapped", 100)], capture_output=True, text=True, check=False
    )
    told = [line for line in done.stderr.splitlines() if "asked" in line]
    return told[-1] if told else f"ended with code {done.returncode}"


def measure(name: str, n: int, folder: Path) -> dict[str, Any]:
    """All processes of one bundle."""
    bundle = write_bundle(name, folder)
    manifest, built, cache = load_manifest(bundle), folder / "c", folder / "cache"
    built.mkdir()
    program = compile_program(program_sources(bundle), find_compiler(), built)
    subprocess.run([*COMMAND, "build", str(bundle), "--cache", str(cache)], cwd=ROOT, check=True)
    write_rows(manifest, folder / "rows.csv", n)
    found: dict[str, Any] = {"n_rows": n, "file_bytes": program.stat().st_size}
    progress(f"{name}: the program, {n:,} rows")
    found["program"] = watch_run([str(program), *words_of(folder, "program", max(100, n // 50))])
    write_rows(manifest, folder / "rows.csv", min(n, PYTHON_ROWS))
    for backend in ("onnxruntime", "native"):
        progress(f"{name}: edgefold run, {backend}")
        words = ["env", f"EDGEFOLD_CACHE={cache}", *COMMAND, "run", str(bundle)]
        words += [*words_of(folder, backend, 1000), "--backend", backend]
        found[backend] = watch_run(words)
    found["asked"] = asked_in_loop(bundle, folder)
    return found


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project."""
    found = []
    for name, own in data.items():
        bound, program = BOUNDS_MB[name], own["program"]
        rows = f"{own['n_rows']:,} rows"
        found += [
            at_most(f"{name}: peak of the program", program["peak_bytes"] / 1e6, bound, "MB"),
            at_most(
                f"{name}: growth of anonymous memory, {rows}",
                program["growth_bytes"] / 1024,
                0,
                "KiB",
            ),
            Requirement(
                f"{name}: memory asked for in the loop",
                own["asked"],
                "asked 0 times",
                own["asked"] == "asked 0 times",
            ),
        ]
    return found


def main() -> None:
    """Measure and record."""
    parser = arguments(__doc__ or "", "native_process")
    parser.add_argument("--bundles", nargs="+", choices=list(TRAINED), default=list(TRAINED))
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="of the small model; default 1,000,000"
    )
    args = parser.parse_args()
    before, data = conditions(), {}
    for name in ["gp-small"] if args.quick else args.bundles:
        n = 5_000 if args.quick else PAPER_ROWS if name == "gp-paper" else args.rows
        with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
            data[name] = measure(name, n, Path(folder))
    finish(args, "native_process", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
