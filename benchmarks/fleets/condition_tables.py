"""How fast is a model conditioned on tables larger than memory, and what do kills cost?

    rows as Parquet ──> reading only
                    ──> edgefold condition --processes 1 ─┐
                    ──> edgefold condition --processes 2 ─┴─ the same states, to the bit?
    a part of them  ──> edgefold condition, and --scheduler: dask with two workers
    a part of them  ──> edgefold condition while a process is killed 50 times

Rows are x, y and one of 8 sites, written in row groups of 2^20 rows; the model is the shipped
gp-tiny. The peak of a process's resident memory is VmHWM of /proc, read ten times a second. What
`edgefold condition` takes includes the start of its processes and the writing of the states.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import arguments, at_least, at_most, conditions, finish, progress
from benchmarks.tables import as_text
from edgefold.fleets import open_lake, read_batches
from tests.fleets.dask_cluster import dask_cluster

QUESTION = "How fast is a model conditioned on tables larger than memory, and what do kills cost?"
N_ROWS, N_QUICK = 100_000_000, 1_000_000
N_SITES, N_KILLS = 8, 50
FILE_ROWS, GROUP_ROWS = 1 << 23, 1 << 20
SAMPLE_S = 0.1
MOST_MB = 300
LEAST_SPEED_UP = 1.7
MOST_READING = 0.1
"""The most of a row's time, on one process, that reading may take."""


@dataclass
class Watched:
    """Holds what was seen of a command: how long it took, and the peak of each kind of process.

    Attributes:
        wall_s: From the start to the end.
        parent_bytes: The peak of the command's own process.
        worker_bytes: The highest peak of a process that it started.
    """

    wall_s: float = 0.0
    parent_bytes: int = 0
    worker_bytes: int = 0


@dataclass
class Killer:
    """Kills the eldest process of a command now and then, until it has killed enough.

    Of several processes each then lives for some times `every_s`, so that all of them work.

    Attributes:
        n: The number of kills.
        every_s: The mean time between two kills.
        n_killed: The number of processes that were killed.
    """

    n: int
    every_s: float
    n_killed: int = 0
    random: random.Random = field(default_factory=lambda: random.Random(0))
    due_s: float | None = None

    def kill(self, workers: list[int]) -> None:
        """Kill the eldest of the workers, if it is time."""
        now = time.monotonic()
        if not workers or self.n_killed >= self.n or (self.due_s is not None and now < self.due_s):
            return
        if self.due_s is not None:  # not at once: first something must run
            os.kill(min(workers, key=began_ticks), signal.SIGKILL)
            self.n_killed += 1
        self.due_s = now + self.every_s * self.random.uniform(0.5, 1.5)


def began_ticks(process_id: int) -> int:
    """Return when a process began, in ticks since the start of the machine; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def write_rows(folder: Path, n_rows: int, seed: int = 0) -> Path:
    """Write a lake of rows, file by file and row group by row group, and return its folder."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    rng = np.random.default_rng(seed)
    schema = pa.schema({"x": pa.float64(), "y": pa.float64(), "site": pa.int32()})
    folder.mkdir(parents=True)
    for start in range(0, n_rows, FILE_ROWS):
        with ParquetWriter(folder / f"part-{start // FILE_ROWS:03}.parquet", schema) as writer:
            for first in range(start, min(start + FILE_ROWS, n_rows), GROUP_ROWS):
                n = min(GROUP_ROWS, n_rows - first)
                x, site = rng.uniform(-2, 2, n), rng.integers(0, N_SITES, n, np.int32)
                y = np.sin(2 * x + site) + rng.normal(0, 0.1, n)
                table = pa.table([x, y, site], schema=schema)
                writer.write_table(table, row_group_size=GROUP_ROWS)
    return folder


def reading_s(lake: Path) -> float:
    """Return how long it takes to read all rows, with their sites as numbers of groups."""
    began_s = time.perf_counter()
    opened = open_lake([lake], ["x", "y", "site"])
    for file in opened.files:
        for batch in read_batches(opened, file):
            batch.numbers("x"), batch.numbers("y"), batch.codes("site")
    return time.perf_counter() - began_s


def conditioned(
    lake: Path,
    out: Path,
    *words: str,
    disturb: Callable[[list[int]], None] = lambda workers: None,
) -> Watched:
    """Run `edgefold condition` on a lake, and watch its processes.

    Args:
        lake: The lake.
        out: Where the states go.
        words: Further options.
        disturb: Receives the numbers of the command's processes ten times a second.
    """
    command = ["condition", "gp-tiny", str(lake), "--x", "x", "--y", "y", "--by", "site"]
    command += ["--out", str(out), "--backend", "onnxruntime", *words]
    return watched(command, out, disturb)


def watched(
    words: Sequence[str],
    out: Path,
    disturb: Callable[[list[int]], None],
    stop: Callable[[], bool] = lambda: False,
) -> Watched:
    """Run a command of edgefold, and watch its processes.

    Args:
        words: The command and its options.
        out: Where its results go; its messages go beside it.
        disturb: Receives the numbers of the command's processes ten times a second.
        stop: Returns whether the command is killed now.
    """
    seen, began_s = Watched(), time.perf_counter()
    with (out.with_name(f"{out.name}.log")).open("w+b") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "edgefold.cli.main", *words], stdout=log, stderr=log
        )
        while process.poll() is None:
            workers = children_of(process.pid)
            seen.parent_bytes = max(seen.parent_bytes, peak_bytes(process.pid))
            seen.worker_bytes = max(seen.worker_bytes, *map(peak_bytes, workers), 0)
            disturb(workers)
            if stop():
                process.kill()
                process.wait()
                return seen
            time.sleep(SAMPLE_S)
        seen.wall_s = time.perf_counter() - began_s
        if process.returncode:
            log.seek(0)
            raise RuntimeError(f"edgefold {words[0]} failed: {log.read().decode()[-600:]}")
    return seen


def children_of(process_id: int) -> list[int]:
    """Return the numbers of the processes that a process started."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(place.read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        if parent == process_id:
            found.append(int(place.parent.name))
    return found


def peak_bytes(process_id: int) -> int:
    """Return the peak of a process's resident memory; 0 if it has ended."""
    try:
        status = Path(f"/proc/{process_id}/status").read_text()
    except OSError:
        return 0
    lines = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return 1024 * int(lines[0].split()[1]) if lines else 0


def same_states(one: Path, other: Path) -> bool:
    """Return whether two folders hold the same states, to the bit."""
    names = sorted(path.name for path in one.iterdir())
    if names != sorted(path.name for path in other.iterdir()):
        return False
    for name in names:
        if not name.endswith(".npz"):
            if (one / name).read_bytes() != (other / name).read_bytes():
                return False
            continue
        with np.load(one / name) as a, np.load(other / name) as b:
            if a.files != b.files or any(a[k].tobytes() != b[k].tobytes() for k in a.files):
                return False
    return True


def measure(folder: Path, n_rows: int, n_part: int, n_kills: int) -> dict[str, Any]:
    """Run all that the module's docstring draws, and return its figures."""
    progress(f"{n_rows:,} rows are written ...")
    lake = write_rows(folder / "lake", n_rows)
    n_bytes = sum(path.stat().st_size for path in lake.iterdir())
    data: dict[str, Any] = {"n_rows": n_rows, "n_part": n_part, "n_bytes": n_bytes}
    progress("reading only ...")
    data["reading_s"] = reading_s(lake)
    for n in (1, 2):
        progress(f"{n_rows:,} rows on {n} processes ...")
        seen = conditioned(lake, folder / f"states-{n}", "--processes", str(n))
        data[f"processes_{n}"] = as_form(seen)
    data["same_on_two"] = same_states(folder / "states-1", folder / "states-2")
    shutil.rmtree(lake)
    part = write_rows(folder / "part", n_part, seed=1)
    units = ("--unit-rows", str(max(1, n_part // 200)))
    # A row group of a unit each, so that a kill costs little.
    smaller = smaller_groups(part, folder / "smaller", max(1, n_part // 200))
    progress(f"{n_part:,} rows without kills ...")
    seen = conditioned(smaller, folder / "calm", "--processes", "2", *units)
    data["calm"] = as_form(seen)
    progress(f"{n_part:,} rows, and {n_kills} kills ...")
    data["killed"], data["same_after_kills"] = killed_runs(
        smaller, folder, units, n_kills, seen.wall_s
    )
    progress(f"{n_part:,} rows on two workers of dask ...")
    (folder / "dask").mkdir()
    with dask_cluster(folder / "dask") as cluster:
        words = ("--scheduler", cluster.address, *units)
        data["dask"] = as_form(conditioned(smaller, folder / "by-dask", *words))
        data["dask"]["worker_bytes"] = max(peak_bytes(worker.pid) for worker in cluster.workers)
    data["same_on_dask"] = same_states(folder / "calm", folder / "by-dask")
    progress("done", last=True)
    return data


def killed_runs(
    lake: Path, folder: Path, units: Sequence[str], n_kills: int, calm_s: float
) -> tuple[dict[str, Any], bool]:
    """Condition on a lake while processes are killed, again and again until all kills are done.

    Args:
        lake: The lake.
        folder: Its folder `calm` holds the states that were not disturbed.
        units: The options on units.
        n_kills: The number of kills.
        calm_s: How long the command takes without kills.

    Returns:
        What was seen of all runs together, and whether all states are the same to the bit.
    """
    tiny = write_rows(folder / "tiny", 1000)
    start_s = conditioned(tiny, folder / "start").wall_s  # a process must come to work
    killer, n_runs, all_same = Killer(n_kills, max(calm_s / n_kills, start_s)), 0, True
    total = Watched()
    while killer.n_killed < n_kills:
        out = folder / f"killed-{n_runs}"
        seen = conditioned(lake, out, "--processes", "2", *units, disturb=killer.kill)
        all_same &= same_states(folder / "calm", out)
        total.wall_s += seen.wall_s
        total.worker_bytes = max(total.worker_bytes, seen.worker_bytes)
        n_runs += 1
    form = {**as_form(total), "n_killed": killer.n_killed, "n_runs": n_runs}
    return form, all_same


def smaller_groups(lake: Path, out: Path, n_rows: int) -> Path:
    """Write the rows of a lake again in row groups of other lengths, and return the folder."""
    from pyarrow.parquet import ParquetFile, ParquetWriter

    out.mkdir()
    for path in sorted(lake.iterdir()):
        with ParquetFile(path) as read, ParquetWriter(out / path.name, read.schema_arrow) as writer:
            for batch in read.iter_batches(n_rows):
                writer.write_batch(batch, row_group_size=n_rows)
    return out


def as_form(seen: Watched) -> dict[str, Any]:
    """Return what was seen of a command as JSON."""
    return {
        "wall_s": seen.wall_s,
        "parent_bytes": seen.parent_bytes,
        "worker_bytes": seen.worker_bytes,
    }


def main() -> None:
    """Measure, and write the record."""
    parser = arguments(__doc__ or "", "condition_tables")
    parser.add_argument("--rows", type=int, help=f"rows of the table (default {N_ROWS:,})")
    parser.add_argument(
        "--part", type=int, help="rows of the smaller table for dask and kills (default a tenth)"
    )
    parser.add_argument("--kills", type=int, help=f"kills of processes (default {N_KILLS})")
    parser.add_argument("--folder", type=Path, help="where the tables lie (default a new one)")
    args = parser.parse_args()
    run(args)


def run(args: argparse.Namespace) -> None:
    """Measure as the command line asks, judge the figures, and write the record."""
    n_rows = args.rows or (N_QUICK if args.quick else N_ROWS)
    n_part = args.part or math.ceil(n_rows / 10 if n_rows >= 10_000_000 else n_rows)
    n_kills = args.kills or (5 if args.quick else N_KILLS)
    before = conditions(threads=2)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        data = measure(Path(folder), n_rows, n_part, n_kills)
    one, two = (data[f"processes_{n}"] for n in (1, 2))
    equal = [data[name] for name in ("same_on_two", "same_after_kills", "same_on_dask")]
    requirements = [
        at_least("states equal to the bit: two processes, kills, dask", sum(equal), 3, "of 3"),
        at_least("kills", data["killed"]["n_killed"], n_kills, ""),
        at_most(
            "peak of a process's memory",
            max(one["worker_bytes"], two["worker_bytes"]) / 1e6,
            MOST_MB,
            "MB",
        ),
        at_least(
            "two processes against one", one["wall_s"] / two["wall_s"], LEAST_SPEED_UP, "times"
        ),
        at_most("share of reading", data["reading_s"] / one["wall_s"], MOST_READING, ""),
    ]
    finish(args, "condition_tables", QUESTION, before, data, requirements, as_text)


if __name__ == "__main__":
    main()
