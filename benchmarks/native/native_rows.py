"""Does the C program of a bundle do what `edgefold run` does, a million rows long, and in how much?

For each bundle the same rows, some of them bad, go through `edgefold run --backend native` and
through its program. Outputs must have the same bytes, snapshots the same record and state. Then the
program is killed again and again at random moments, and the last run must end as the whole one did.

    rows.csv ──> edgefold run --backend native ──> output, snapshot ─┐
        └──────> edgefold-NAME-run ──────────────> output, snapshot ─┴─> the same?
                 │ anonymous memory, peak: read all along │

Bundles are named, or are the examples and the shipped model of one input, each exported anew.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import ROOT, Requirement, arguments, at_most, conditions, finish, progress
from benchmarks.subjects import EXAMPLES
from benchmarks.tables import as_text
from edgefold.devices.memory.process import ProcessMemory
from edgefold.export.native.loop_program import program_sources
from edgefold.export.native.toolchain.compilers import compile_program, find_compiler
from edgefold.runtime.bundle.manifest import Manifest
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.errors import MeterError

QUESTION = "Does the program of a bundle do what `edgefold run` does, and in how much memory?"
PERIOD_S = 0.02
SETTLED = 5
"""After this part of the run memory may not grow any more: a snapshot was written."""
KILLED_ROWS = 5000
BAD = ("oops", "NA", "1e12", "inf", '"', "1_0", "", "1e200")
COMMAND = [sys.executable, "-m", "edgefold.cli.main"]


@dataclass(frozen=True, slots=True)
class Run:
    """Speed and memory of a run of the program.

    Attributes:
        rows_per_s: Of the whole process.
        peak_bytes: The most that was resident, the program's own file included.
        settled_bytes, end_bytes: Anonymous memory after a fifth of the run, and at the last look.
    """

    rows_per_s: float
    peak_bytes: int
    settled_bytes: int
    end_bytes: int


def write_rows(manifest: Manifest, path: Path, n: int) -> None:
    """Rows around the scaling of a bundle; one in thirty cannot be used."""
    chance, draws = random.Random(5), np.random.default_rng(5)
    n_outputs = 0 if manifest.is_filter else manifest.n_outputs
    x, y = manifest.scaling_x, manifest.scaling_y
    shift, scale = [*x.shift, *y.shift[:n_outputs]], [*x.scale, *y.scale[:n_outputs]]
    names = [f"x{i + 1}" for i in range(manifest.n_inputs)] + [
        f"y{i + 1}" for i in range(n_outputs)
    ]
    with path.open("w") as file:
        file.write(",".join(names) + "\n")
        for _ in range(n):
            numbers = np.array(shift) + np.array(scale) * draws.normal(size=len(names))
            row = [f"{number:.6g}" for number in numbers]
            kind = chance.randrange(60)
            if kind == 0:
                row[chance.randrange(len(row))] = chance.choice(BAD)
            elif kind == 1:
                row += ["7"]
            file.write(",".join(row) + "\n")


def words_of(folder: Path, name: str, every: int) -> list[str]:
    """The options of a run that writes NAME.csv and NAME.npz."""
    return [
        *("--input", str(folder / "rows.csv"), "--output", str(folder / f"{name}.csv")),
        *("--snapshot", str(folder / f"{name}.npz"), "--every", str(every)),
    ]


def run_program(program: Path, words: list[str], n: int) -> Run:
    """Run the program to its end and watch its memory."""
    start_s, needed, peak = time.monotonic(), [0], 0
    with subprocess.Popen([program, *words], stderr=subprocess.DEVNULL) as process:
        memory = ProcessMemory(pid=process.pid)
        while process.poll() is None:
            with suppress(MeterError):  # it may end at any moment
                reading = memory.read()
                if reading.needed_bytes:
                    needed.append(reading.needed_bytes)
                    peak = memory.resident_peak_bytes() or peak
            time.sleep(PERIOD_S)
    assert process.returncode == 0
    return Run(n / (time.monotonic() - start_s), peak, needed[len(needed) // SETTLED], needed[-1])


def kept(snapshot: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The loop's record, but for the output's name, and all other arrays."""
    with np.load(snapshot) as archive:
        arrays = {name: archive[name] for name in archive.files}
    record = json.loads(arrays.pop("extra.loop").tobytes())
    record["output"].pop("name")
    del arrays["record"]
    return record, {name: array.tobytes() for name, array in arrays.items()}


def same(folder: Path, one: str, other: str) -> bool:
    """Return whether two runs have written the same bytes, and the same snapshot."""
    outputs = ["cmp", "-s", *(str(folder / f"{name}.csv") for name in (one, other))]
    is_same = subprocess.run(outputs, check=False).returncode == 0
    return is_same and kept(folder / f"{one}.npz") == kept(folder / f"{other}.npz")


def kill(program: Path, manifest: Manifest, folder: Path, n_kills: int) -> bool:
    """Kill and resume the program at random moments; whether all chains end as a whole run."""
    folder.mkdir()
    write_rows(manifest, folder / "rows.csv", KILLED_ROWS)
    whole_s = (
        KILLED_ROWS / run_program(program, words_of(folder, "whole", 100), KILLED_ROWS).rows_per_s
    )
    chance, killed, chain = random.Random(0), 0, 0
    while killed < n_kills or not chain:
        words = words_of(folder, f"chain{chain}", 100)
        with subprocess.Popen([program, *words], stderr=subprocess.DEVNULL) as process:
            if killed < n_kills:
                time.sleep(chance.uniform(0, 0.7 * whole_s))
                process.kill()
        killed += process.returncode == -9
        if process.returncode == 0:
            if not same(folder, f"chain{chain}", "whole"):
                return False
            chain += 1
    return True


def measure(bundle: Path, folder: Path, n: int, n_kills: int) -> dict[str, Any]:
    """Run both over the same rows, compare, and kill the program."""
    manifest, every = load_manifest(bundle), max(100, n // 50)
    write_rows(manifest, folder / "rows.csv", n)
    built = folder / "c"
    built.mkdir()
    program = compile_program(program_sources(bundle), find_compiler(), built)
    environment = {**os.environ, "EDGEFOLD_CACHE": str(folder / "cache")}
    subprocess.run([*COMMAND, "build", str(bundle)], env=environment, check=True)
    run = run_program(program, words_of(folder, "program", every), n)
    start_s = time.monotonic()
    words = [*words_of(folder, "python", every), "--backend", "native"]
    subprocess.run([*COMMAND, "run", str(bundle), *words], env=environment, check=True)
    python_s = time.monotonic() - start_s
    counters = kept(folder / "program.npz")[0]["counters"]
    return {
        "n_rows": n,
        **{name: counters[name] for name in ("rows", "malformed", "missing")},
        "same": same(folder, "program", "python"),
        **asdict(run),
        "python_rows_per_s": n / python_s,
        "file_bytes": program.stat().st_size,
        "n_kills": n_kills,
        "same_after_kills": kill(program, manifest, folder / "kills", n_kills),
    }


def requirements(found: dict[str, Any]) -> list[Requirement]:
    """Return the project's demands on every program."""
    listed = []
    for name, own in found.items():
        for what in ("same", "same_after_kills"):
            told = "as edgefold run" if what == "same" else f"after {own['n_kills']} kills"
            listed.append(Requirement(f"{name}: {told}", str(own[what]), "True", own[what]))
        growth = (own["end_bytes"] - own["settled_bytes"]) / 1024
        listed.append(at_most(f"{name}: growth of anonymous memory", growth, 0, "KiB"))
        bound = 10 if name == "gp-paper" else 6
        listed.append(at_most(f"{name}: peak", own["peak_bytes"] / 1e6, bound, "MB"))
    return listed


def exported(folder: Path) -> dict[str, Path]:
    """The examples and the shipped model of one input, as bundles."""
    models = {name: f"{ROOT}/examples/{name}.py:{kind}" for name, kind in EXAMPLES.items()}
    bundles = {}
    for name, model in {"gp-small": f"{ROOT}/checkpoints/gp-small", **models}.items():
        bundles[name] = folder / name
        command = [*COMMAND, "export", model, "--out", str(bundles[name])]
        subprocess.run(command, check=True, capture_output=True)
    return bundles


def main() -> None:
    """Compare and write the record."""
    parser = arguments(__doc__, "native_rows")
    parser.add_argument("bundles", nargs="*", type=Path, help="default: gp-small and the examples")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--kills", type=int, default=200)
    args = parser.parse_args()
    before, found = conditions(), {}
    n, n_kills = (2000, 5) if args.quick else (args.rows, args.kills)
    with tempfile.TemporaryDirectory(prefix="edgefold-") as name:
        bundles = {path.name: path for path in args.bundles} or exported(Path(name))
        for title, bundle in bundles.items():
            progress(f"{title} ...")
            with tempfile.TemporaryDirectory(dir=name) as folder:
                found[title] = measure(bundle, Path(folder), n, n_kills)
            progress(f"{title}: {found[title]}", last=True)
    finish(args, "native_rows", QUESTION, before, found, requirements(found), as_text)


if __name__ == "__main__":
    main()
