"""How much memory does the whole process take, and how soon is the first prediction there?

The paper's size, untrained, float32, one thread; files in the page cache. Three contenders, each in
fresh processes, in turns:

    edgefold           Stream.open, two updates, a query; then every step of the bundle
    edgefold command   `edgefold run BUNDLE --input rows.csv --output -`, 40 rows
    pytorch            import torch, load the same weights, update, refresh, query; then more of it

    spawn ──> interpreter ──> imports ──> open ──> first prediction printed ──> more ──> exit
    └───────────── time to the first prediction ─────────────┘                     │
    └──────── memory that is needed, read every 3 ms; peak of what is resident ─────┘

Judged is what a process needs: anonymous and shared memory, which the kernel cannot take back. It
keeps no peak of that, so this process reads it all along; a rise of less than 3 ms may be missed.
The peak of resident memory (ru_maxrss of wait4) counts clean pages of files too, as many as the
page cache happens to hold in one piece: it is recorded beside, as information. It would include
this process, were that larger, so nothing heavy is imported here.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.record import (
    ROOT,
    Requirement,
    arguments,
    at_most,
    conditions,
    finish,
    progress,
)
from benchmarks.subjects import Subject, untrained
from benchmarks.tables import as_text
from edgefold.runtime.backends.needed_memory import needed_bytes

QUESTION = "How much memory does the process take, and how soon does it predict?"
HERE = Path(__file__).parent
PERIOD_S = 0.003
T = TypeVar("T")


def commands(subject: Subject) -> dict[str, tuple[list[str], str]]:
    """Return each contender's command, and the start of the line with its first prediction."""
    rows = subject.run.parent / "rows.csv"
    lines = [f"{i / 10 - 2},{math.sin(i / 5):.4f}" for i in range(40)]
    rows.write_text("\n".join(["x,y", *lines, ""]))
    python, bundle = sys.executable, str(subject.bundle)
    command = [str(Path(python).with_name("edgefold")), "run", bundle]
    return {
        "edgefold": ([python, str(HERE / "first_edgefold.py"), bundle], "prediction"),
        "edgefold command": ([*command, "--input", str(rows), "--output", "-"], "2,"),
        "pytorch": ([python, str(HERE / "first_torch.py"), str(subject.run)], "prediction"),
    }


def needed(folder: Path) -> int:
    """Return the memory that the process of a procfs folder needs; 0 when it has ended."""
    return needed_bytes(folder) or 0


@contextmanager
def watched(child: subprocess.Popen[str], read: Callable[[Path], T]) -> Iterator[list[T]]:
    """Yield readings of a process's procfs folder: a list that grows while the block lasts."""
    readings: list[T] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(PERIOD_S):
            readings.append(read(Path(f"/proc/{child.pid}")))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        done.set()
        thread.join()


def ended(child: subprocess.Popen[str], start_s: float) -> dict[str, float]:
    """Wait for a process that was started at `start_s`: its time and its resident peak."""
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return {
        "whole_s": time.perf_counter() - start_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "resident_peak_bytes": usage.ru_maxrss * 1024,
    }


def run_once(command: list[str], first: str) -> dict[str, Any]:
    """Run a process; its time to the line that begins with `first`, its whole time, its memory."""
    start_s = time.perf_counter()
    child = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert child.stdout is not None
    first_s, line = None, ""
    with watched(child, needed) as readings:
        for line in child.stdout:
            if first_s is None and line.startswith(first):
                first_s = time.perf_counter() - start_s
    child.stdout.close()
    used = ended(child, start_s)
    if child.returncode or first_s is None:
        raise RuntimeError(f"{' '.join(command)} gave no prediction, exit {child.returncode}.")
    return {
        "first_s": first_s,
        **used,
        "needed_bytes": max(readings, default=0),
        "last_line": line.strip(),
    }


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Median and range of the repeats."""
    summary: dict[str, Any] = {"n": len(runs), "last_line": runs[-1]["last_line"]}
    for key in ("first_s", "whole_s", "cpu_s", "needed_bytes", "resident_peak_bytes"):
        values = [run[key] for run in runs]
        summary[key] = statistics.median(values)
        summary[f"{key}_range"] = [min(values), max(values)]
    return summary


def imported_by_command(subject: Subject) -> list[str]:
    """Which training libraries the `edgefold` command has loaded after streaming."""
    code = (
        "import sys; from edgefold.cli.main import main; main(sys.argv[1:]); "
        "print('imported', *sorted({'torch','onnx','matplotlib','safetensors'} & set(sys.modules)))"
    )
    command, _ = commands(subject)["edgefold command"]
    done = subprocess.run(
        [sys.executable, "-c", code, *command[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[-1].split()[1:]


def measure(n_repeats: int) -> dict[str, Any]:
    """All contenders in turns, after one untimed run each."""
    with untrained("paper") as subject:
        runs: dict[str, list[dict[str, Any]]] = {name: [] for name in commands(subject)}
        for repeat in range(-1, n_repeats):
            for name, (command, first) in commands(subject).items():
                run = run_once(command, first)
                if repeat >= 0:
                    runs[name].append(run)
            progress(f"repeat {repeat + 1} of {n_repeats}", repeat + 1 == n_repeats)
        imported = set(imported_by_command(subject))
    summaries = {name: summarise(own) for name, own in runs.items()}
    imported |= set(summaries["edgefold"].pop("last_line").split()[1:])
    return {"contenders": summaries, "imported": sorted(imported)}


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """The bounds of the project, on the most that was needed and the median time of the repeats."""
    by_name = data["contenders"]
    theirs = by_name["pytorch"]["needed_bytes_range"][0]
    found = []
    for name in ("edgefold", "edgefold command"):
        peak = by_name[name]["needed_bytes_range"][1]
        found += [
            at_most(f"needed memory, {name}", peak / 1e6, 50, "MB"),
            at_most(f"needed memory beside PyTorch's, {name}", peak / theirs * 100, 100 / 3, "%"),
            at_most(f"start to first prediction, {name}", by_name[name]["first_s"], 0.6, "s"),
        ]
    names = ", ".join(data["imported"]) or "none"
    found.append(
        Requirement(
            "training libraries imported on the device path", names, "none", names == "none"
        )
    )
    return found


def main() -> None:
    """Measure and record."""
    parser = arguments(__doc__ or "", "process")
    parser.add_argument("--repeats", type=int, default=9, help="runs of each; default 9")
    args = parser.parse_args()
    before = conditions()
    data = measure(2 if args.quick else args.repeats)
    finish(args, "process", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
