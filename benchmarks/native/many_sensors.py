"""How much does a row cost where one process serves many sensors?

    steps of several streams: bundles of 1, 4 and 16 streams take turns, a block of rows each
        round  1  │ 1, C │ 1, Stream │ 4, C │ 4, Stream │ 16, C │ 16, Stream │  2  │ ...

    a fleet: one program in C, each sensor with a clock, seasons and alarms of its own
        round  1  │ row 1 of sensor 1, 2, ... 10,000 │  2  │ row 2 of each │ ...

A row of several streams costs what a step takes, divided by the number of streams. C is a loop of
`edgefold_sensors_step`; Stream is `Stream.step` on the same C, from Python. The fleet is the engine
for seasons of up to 168 slots (`edgefold build --longest-season 168`); all its sensors begin at
once, so that all search for a season in the same round, and the slowest round is one of those.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.native.native_speed import Repeat, from_python, ratio, take_turns
from benchmarks.record import (
    ROOT,
    Requirement,
    arguments,
    at_most,
    conditions,
    finish,
    progress,
    spread,
)
from benchmarks.tables import as_text
from edgefold.export.native.generator import generate
from edgefold.export.native.toolchain.compilers import (
    MATHEMATICS,
    Compiler,
    compile_library,
    compile_objects,
    find_compiler,
    run_compiler,
)
from edgefold.export.shorter_seasons import shorten_seasons
from edgefold.runtime import Stream
from edgefold.runtime.backends.native.backend import NativeBackend
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

QUESTION = "How much does a row cost where one process serves many sensors?"
STREAMS = (1, 4, 16)
SEASON, N_WARM, LONGEST = 288, 600, 168
N_SENSORS, N_ROWS = 10_000, 300
MOST_US, MOST_BYTES = 15, 80_000
HERE = Path(__file__).parent


def bundle_of(n_streams: int, folder: Path) -> Path:
    """Return the general model of sensors as a bundle whose step serves so many streams."""
    if n_streams == 1:
        return shipped_bundle()
    bundle = folder / f"streams-{n_streams}"
    command = [sys.executable, "-m", "edgefold.cli.main", "export"]
    command += [str(ROOT / "checkpoints" / "sensors"), "--streams", str(n_streams)]
    done = subprocess.run(
        [*command, "--out", str(bundle)], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{n_streams} streams are not exported: {done.stderr.strip()[-400:]}")
    return bundle


def loop_in_c(library: Path) -> Repeat:
    """Return what serves n rows of each stream in C, after some that make the state an old one."""
    functions = ctypes.CDLL(str(library))

    def serve(n: int) -> None:
        status = functions.serve(ctypes.c_long(n))
        if status:
            raise RuntimeError(f"a step returns {status}")

    functions.serve_begin()
    serve(N_WARM)
    return serve


def loop_in_python(stream: Stream, n_streams: int) -> Repeat:
    """Return what steps a stream n times from Python, with the rows that C has, but for noise."""
    t, lag = np.arange(SEASON)[:, None], 7 * np.arange(n_streams)
    values = 10 * np.sin(2 * np.pi * (t + lag) / SEASON)
    values += np.random.default_rng(0).uniform(0, 3, size=values.shape)
    ones = np.ones_like(values)
    rows = np.stack([values, ones, ones * SEASON, ones * t], -1)  # (SEASON, B, 4)
    at = 0

    def step() -> None:
        nonlocal at
        stream.step(rows[at])
        at = (at + 1) % SEASON

    for _ in range(N_WARM):
        step()
    return from_python(step)


def measure_streams(
    compiler: Compiler, folder: Path, counts: Sequence[int], n_rounds: int
) -> list[dict[str, Any]]:
    """Time steps of several streams, all in turns; return times of a row and sensor."""
    contenders: dict[str, Repeat] = {}
    own = {"batched_rows.c": (HERE / "batched_rows.c").read_text()}
    with ExitStack() as stack:
        for n in counts:
            progress(f"{n} streams: exported and compiled")
            bundle, place = bundle_of(n, folder), folder / f"library-{n}"
            place.mkdir()
            files = {**generate(bundle, "sensors").files, **own}
            library = compile_library(files, compiler, place)
            manifest = load_manifest(bundle)
            opened = Stream(manifest, NativeBackend(manifest, library, {}), {}, buffered=False)
            contenders[f"{n} c"] = loop_in_c(library)
            contenders[f"{n} stream"] = loop_in_python(stack.enter_context(opened), n)
        progress("timed")
        taken = take_turns(contenders, n_rounds)
    rows = []
    for n in counts:
        row: dict[str, Any] = {"n_streams": n}
        for kind in ("c", "stream"):
            times, alone = taken[f"{n} {kind}"] / n, taken[f"{counts[0]} {kind}"] / counts[0]
            row[kind] = {**spread(times), **ratio(times, alone)}
        rows.append(row)
    return rows


def measure_fleet(
    compiler: Compiler, folder: Path, n_sensors: int, n_rounds: int
) -> dict[str, Any]:
    """Compile and run the program of many sensors, and return what it printed."""
    bundle, place = folder / f"sensors-{LONGEST}", folder / "fleet"
    shorten_seasons(shipped_bundle(), LONGEST, bundle)
    place.mkdir()
    own = {"fleet.c": (HERE / "fleet.c").read_text()}
    files = {**generate(bundle, "sensors").files, **own}
    objects = compile_objects(files, compiler, place, ("-D_POSIX_C_SOURCE=200809L",))
    program = str(place / "fleet")
    run_compiler([*compiler.command, *map(str, objects), MATHEMATICS, "-o", program])
    progress(f"{n_sensors:,} sensors, {n_rounds} rows of each")
    command = [program, str(n_sensors), str(n_rounds)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rounds_s = np.array(re.findall(r"^round (\d+)$", printed, re.MULTILINE), float) / 1e9
    found = {word: int(n) for word, n in re.findall(r"^([a-z]+) (\d+)$", printed, re.MULTILINE)}
    return {
        "n_sensors": n_sensors,
        "n_rounds": n_rounds,
        "longest_season": LONGEST,
        "row_us": 1e6 * float(np.median(rounds_s)) / n_sensors,
        "mean_row_us": 1e6 * float(rounds_s.mean()) / n_sensors,
        "processor_row_us": found["processor"] / 1e3 / n_sensors / n_rounds,
        "slowest_round_s": float(rounds_s.max()),
        "slowest_round": int(rounds_s.argmax()) + 1,
        "sensor_bytes": found["sensor"],
        "shared_bytes": found["shared"],
        "resident_bytes": found["resident"],
        "n_refused": found["refused"],
    }


def measure(counts: Sequence[int], n_rounds: int, n_sensors: int, n_rows: int) -> dict[str, Any]:
    """Measure steps of several streams, by their number, and the fleet."""
    compiler = find_compiler(None)
    with tempfile.TemporaryDirectory(prefix="edgefold-") as place:
        folder = Path(place)
        streams = measure_streams(compiler, folder, counts, n_rounds)
        fleet = measure_fleet(compiler, folder, n_sensors, n_rows)
    progress("", last=True)
    told = [compiler.title, " ".join(compiler.flags)]
    return {"compiler": told, "streams": streams, "fleet": fleet}


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """Return the project's demands on many sensors."""
    last, fleet = data["streams"][-1], data["fleet"]
    what = f"a row and sensor of {last['n_streams']} streams in C"
    return [
        at_most(what, 1e6 * last["c"]["median_s"], MOST_US, "µs"),
        at_most(
            "memory of a sensor of the fleet", fleet["sensor_bytes"] / 1e3, MOST_BYTES / 1e3, "kB"
        ),
        at_most("rows that the fleet refused", fleet["n_refused"], 0, ""),
    ]


def main() -> None:
    """Measure, print, record."""
    parser = arguments(__doc__ or "", "many_sensors")
    parser.add_argument("--rounds", type=int, default=201, help="rounds of turns; default 201")
    parser.add_argument("--sensors", type=int, default=N_SENSORS, help="default 10,000")
    parser.add_argument("--rows", type=int, default=N_ROWS, help="rows of each; default 300")
    args = parser.parse_args()
    before = conditions()
    if args.quick:
        data = measure(STREAMS[:1], 7, 100, 60)
    else:
        data = measure(STREAMS, args.rounds, args.sensors, args.rows)
    finish(args, "many_sensors", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
