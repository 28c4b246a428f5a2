"""Is the memory that a bundle needs predicted, whatever the state of the page cache?

All shipped bundles (both presets, one of them with a wide chunk, and the models of checkpoints/, in
every precision) and all example bundles, each in fresh processes of two kinds: a Python program
that runs every step, and `edgefold run` on 40 rows. Three states of the page cache:

    written    copies of numpy and onnxruntime, written in blocks of 1 MiB before each process: the
               page cache holds them in large blocks, as after an installation
    dropped    the same copies, dropped from the page cache before each process, which faults them
               in again in small blocks
    warm       the environment's own libraries, as they lie; an untimed process ran before

    spawn ──> imports ──> open ──> steps ──┬──> pages of files dropped ──> steps ──> exit
    └── needed (read every 3 ms), VmHWM ───┘    (Python program)             └ which came back

At the end four loops of the series model run beside each other; Pss of smaps_rollup shares a page
among the processes that map it. This process imports nothing heavy.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.memory.budget import PRECISIONS, SOURCES
from benchmarks.memory.process import PERIOD_S, needed, watched
from benchmarks.record import ROOT, Requirement, arguments, at_most, conditions, finish, progress
from benchmarks.subjects import EXAMPLES
from benchmarks.tables import as_text
from edgefold.runtime.backends.needed_memory import KIB
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.stream.memory_estimate import PYTHON, RUN, footprint

QUESTION = "Is needed memory predicted in every state of the page cache?"
STATES = ("written", "dropped", "warm")
LIBRARIES = ("numpy", "numpy.libs", "onnxruntime")
FITTED = ("kalman", "rls")
"""The constants of the process and the runtime were read with these; all others test them."""
QUICK = ("gru", "series-co2, float32")
LOOPS = 4
BLOCK = 1 << 20
SILERO = """
import sys
from pathlib import Path
from edgefold.export.importing.imported_bundle import import_bundle
from examples.silero_vad import CONFIG, installed_model
import_bundle(installed_model(), Path(sys.argv[1]), CONFIG)
"""


def sources() -> dict[str, list[str]]:
    """The command that writes each bundle, without its last word, the place."""
    command = [sys.executable, "-m", "edgefold.cli.main", "export"]
    steps = ["--parity-steps", "512"]  # enough for the wide chunk; memory does not depend on them
    found = {
        f"{name}, {precision}": [
            *(*command, *source, *steps, "--precision", precision, "--accept-loss", "--out")
        ]
        for name, source in SOURCES.items()
        for precision in PRECISIONS
    }
    for name, model in EXAMPLES.items():
        found[name] = [*command, f"{ROOT}/examples/{name}.py:{model}", *steps, "--out"]
    return found | {"silero_vad": [sys.executable, "-c", SILERO]}


# States of the page cache -------------------------------------------------------------------------


def write_copies(folder: Path) -> None:
    """Copy the libraries in large blocks, onto the disk, with the times that their .pyc expect.

    Of copies that are there, only what is mapped is written again.
    """
    import numpy

    site = Path(numpy.__file__).parents[2]
    for source in (p for name in LIBRARIES for p in (site / name).rglob("*") if p.is_file()):
        target = folder / source.relative_to(site)
        if "tests" in source.parts or (target.exists() and ".so" not in target.suffixes):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        with source.open("rb") as given, target.open("wb", buffering=0) as written:
            while block := given.read(BLOCK):
                written.write(block)
            if ".so" in target.suffixes:
                os.fsync(written.fileno())  # dirty pages are never dropped
        shutil.copystat(source, target)


def drop(folder: Path) -> None:
    """Drop the libraries below a folder from the page cache."""
    for path in folder.rglob("*.so*"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def environment(copies: Path | None) -> dict[str, str]:
    """This process's, with the copies before the installed libraries."""
    found = {**os.environ, "OMP_NUM_THREADS": "1"}
    if copies:
        rest = found.get("PYTHONPATH")
        found["PYTHONPATH"] = os.pathsep.join([str(copies), *([rest] if rest else [])])
    return found


# Processes ----------------------------------------------------------------------------------------


def watch_run(command: list[str], copies: Path | None, marker: str = "") -> dict[str, Any]:
    """Run a process; the most that it needs and VmHWM, until it prints the marker or ends."""
    child = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(copies),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    line = ""
    with watched(child, needed_and_peak) as readings:
        for line in child.stdout:
            if marker and line.startswith(marker):
                time.sleep(3 * PERIOD_S)
                break
    *_, line = [line, *child.stdout]  # the last one tells what came after the marker
    _, errors = child.communicate()
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}: {errors[-500:]}")
    most = [max(kind) for kind in zip(*readings, strict=True)] or [0, 0]
    return {"needed": most[0], "looks": most[1], "last": line}


def needed_and_peak(folder: Path) -> tuple[int, int]:
    """Return the memory that a procfs folder's process needs, and its VmHWM; 0 without one."""
    return needed(folder), field(folder / "status", "VmHWM")


def field(path: Path, name: str) -> int:
    """Bytes of one line of a procfs file; 0 where there is none."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * KIB for line in lines if line.startswith(f"{name}:")), 0)


def rows_of(manifest: Manifest, path: Path) -> Path:
    """Some forty rows that are predicted, as `edgefold run` takes them."""
    if manifest.task.get("name") == "series":
        lines = (ROOT / "data" / "co2_weekly.csv").read_text().splitlines()[:400]
    else:
        names = [f"x{i + 1}" for i in range(manifest.n_inputs)]
        names += [] if manifest.is_filter else [f"y{i + 1}" for i in range(manifest.n_outputs)]
        names = [name[0] if names.count(f"{name[0]}2") == 0 else name for name in names]
        rows = ((math.sin(i / 5 + j) for j in range(len(names))) for i in range(40))
        lines = [",".join(names), *(",".join(f"{v:.4f}" for v in row) for row in rows)]
    path.write_text("\n".join([*lines, ""]))
    return path


def commands(bundle: Path) -> dict[str, tuple[list[str], str]]:
    """Return each program's command, and the line after which its memory is not read any more."""
    child = str(Path(__file__).with_name("memory_child.py"))
    rows = rows_of(load_manifest(bundle), bundle.with_suffix(".csv"))
    run = [sys.executable, "-m", "edgefold.cli.main", "run", str(bundle)]
    run += ["--backend", "onnxruntime", "--input", str(rows), "--output", "-"]
    return {PYTHON: ([sys.executable, child, str(bundle)], "steps"), RUN: (run, "")}


def measure_bundle(bundle: Path, copies: Path, n_repeats: int) -> dict[str, Any]:
    """Every program in every state."""
    found: dict[str, Any] = {}
    for state in STATES:
        place = None if state == "warm" else copies
        found[state] = {}
        for program, (command, marker) in commands(bundle).items():
            if state == "warm":
                watch_run(command, place, marker)
            runs = []
            for _ in range(n_repeats):
                if state == "written":
                    write_copies(copies)
                elif state == "dropped":
                    drop(copies)
                runs.append(watch_run(command, place, marker))
            own = {f"{key}_bytes": [r[key] for r in runs] for key in ("needed", "looks")}
            if program == PYTHON:
                own["files"] = [json.loads(run["last"]) for run in runs]
            found[state][program] = own
    return found


@contextmanager
def loop_processes(bundle: Path, rows: Path, n: int) -> Iterator[list[int]]:
    """Loops that have taken some rows and wait for the next one; yields their numbers."""
    command = [sys.executable, "-m", "edgefold.cli.main", "run", str(bundle), "--input", "-"]
    command += ["--backend", "onnxruntime", "--output", "-"]
    with ExitStack() as stack:
        children = []
        for _ in range(n):
            child = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(None),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            stack.callback(child.wait)
            stack.callback(child.communicate)  # closes its input, at which it ends
            children.append(child)
        lines = rows.read_text().splitlines(keepends=True)
        for child in children:
            assert child.stdin is not None and child.stdout is not None
            child.stdin.write("".join(lines))
            child.stdin.flush()
            for _ in range(len(lines) // 2):  # as output is written in blocks
                child.stdout.readline()
        yield [child.pid for child in children]


def loops(bundle: Path) -> dict[str, Any]:
    """Four loops beside each other: what each needs, its Pss and its Rss."""
    rows = rows_of(load_manifest(bundle), bundle.with_suffix(".csv"))
    with loop_processes(bundle, rows, LOOPS) as pids:
        rollups = [Path(f"/proc/{pid}/smaps_rollup") for pid in pids]
        return {
            "needed_bytes": [field(path, "Anonymous") for path in rollups],
            "pss_bytes": [field(path, "Pss") for path in rollups],
            "rss_bytes": [field(path, "Rss") for path in rollups],
        }


# The record ---------------------------------------------------------------------------------------


def predict(bundle: Path) -> dict[str, Any]:
    """The three figures of each program."""
    manifest = load_manifest(bundle)
    found = {}
    for program in (PYTHON, RUN):
        one = footprint(manifest, program=program)
        found[program] = {
            "needed_bytes": one.needed_bytes,
            "to_run_well_bytes": one.to_run_well_bytes,
            "looks_like_bytes": one.looks_like_bytes,
        }
    return found


def measure(names: Iterable[str], n_repeats: int) -> dict[str, Any]:
    """All bundles, one after the other, then the loops."""
    given, subjects, beside = sources(), [], None
    with tempfile.TemporaryDirectory(prefix="edgefold-") as folder:
        copies = Path(folder) / "libraries"
        for index, name in enumerate(names):
            progress(f"{index + 1}: {name}")
            bundle = Path(folder) / f"bundle{index}"
            subprocess.run([*given[name], str(bundle)], cwd=ROOT, check=True, capture_output=True)
            measured = measure_bundle(bundle, copies, n_repeats)
            subjects.append({"name": name, "predicted": predict(bundle), "states": measured})
            if name == "series-co2, float32":
                beside = {**loops(bundle), "predicted": _together(bundle)}
            shutil.rmtree(bundle)
    return {"n_repeats": n_repeats, "fitted": FITTED, "subjects": subjects, "loops": beside}


def _together(bundle: Path) -> dict[str, Any]:
    found = footprint(load_manifest(bundle), program=RUN).of(LOOPS)
    return {"needed_bytes": found.needed_bytes, "looks_like_bytes": found.looks_like_bytes}


def off_by(subject: dict[str, Any]) -> float:
    """The largest relative error of a subject's needed memory, over states, programs, processes."""
    errors: list[float] = [
        abs(subject["predicted"][program]["needed_bytes"] / needed - 1)
        for state in subject["states"].values()
        for program, own in state.items()
        for needed in own["needed_bytes"]
    ]
    return max(errors)


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project."""
    fitted = {False: [0.0], True: [0.0]}
    for subject in data["subjects"]:
        fitted[subject["name"] in data["fitted"]].append(100 * off_by(subject))
    found = [
        at_most("needed memory, bundles held out, off by", max(fitted[False]), 5, "%"),
        at_most(
            "needed memory, bundles that gave the constants, off by", max(fitted[True]), 5, "%"
        ),
    ]
    if data["loops"]:
        predicted, needed = data["loops"]["predicted"], sum(data["loops"]["needed_bytes"])
        off = 100 * abs(predicted["needed_bytes"] / needed - 1)
        found.append(at_most(f"needed memory, {LOOPS} loops together, off by", off, 5, "%"))
    return found


def main() -> None:
    """Measure and record."""
    parser = arguments(__doc__ or "", "memory_states")
    parser.add_argument("--repeats", type=int, default=2, help="processes of each; default 2")
    args = parser.parse_args()
    before = conditions()
    data = measure(QUICK if args.quick else sources(), args.repeats)
    finish(args, "memory_states", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
