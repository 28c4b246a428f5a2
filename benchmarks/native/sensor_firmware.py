"""Does a sensor run on a microcontroller as on a PC, in how much memory and how many instructions?

    series ──> engine in C, here ──> rows with answers ──> flash of a firmware ──> emulated machine
                                                            the same answers?  instructions, stack

For the general model with seasons of up to 168 and of up to 1,440 rows, on each emulated
microcontroller. Forecasts are compared as shares of the band from the 5 % to the 95 % quantile.
Sums in another order and joined products change the last bits of float32, which a forecast
remembers; with -DEDGEFOLD_SAME_BITS every machine computes the same. Machines with software floats
take 78 rows of each series, as emulation of all takes hours. Instructions are counted by the
emulated machine's own counter; no board was measured.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.native.recorded_sensors import host_library, recorded, rows_of
from benchmarks.record import Requirement, arguments, at_most, conditions, finish, progress
from benchmarks.tables import as_text

QUESTION = (
    "Does a sensor run on a microcontroller as on a PC, in how much memory and how many "
    "instructions?"
)
SERIES = ("nyc_jfk_temp", "nab_nyc_taxi", "pv_serf_east_15min", "nab_machine_temperature")
N_ROWS, N_SOFTWARE, N_QUICK = 2500, 78, 160
LONGEST = (168, 1440)
RAM_BYTES = {168: 110_000, 1440: 190_000}
"""The most RAM that a sensor, the shared block and the stack may take together."""
SAME_BITS = "same bits"
ARITHMETIC = {"default": (), SAME_BITS: ("-DEDGEFOLD_SAME_BITS",)}
"""Flags by the arithmetic that they choose, here and on the machines."""
SOFTWARE = ("cortex-m0plus", "riscv32")
INSTRUCTIONS = r"instructions of (.+): (\d+) on average, (\d+) at most, of (\d+)"
BYTES = r"^(stack of rows|stack|sensor|shared|snapshot): (\d+) bytes"
COMPARED = r"compared: (\d+), largest difference: (\d+)e-9 .*: ([\d ]+)$"


def replay(machine: Any, sources: dict[str, str], folder: Path, *flags: str) -> dict[str, Any]:
    """Link a replay for a machine, run it under emulation, and return what it printed."""
    from edgefold.export.native.toolchain.elf_sizes import sizes_of

    folder.mkdir()
    for file, text in sources.items():
        (folder / file).write_text(text)
    command = [*machine.compile_command(sources, "firmware.elf"), "-Werror", *flags]
    subprocess.run(command, cwd=folder, check=True)
    run = machine.run_command(str(folder / "firmware.elf"))
    done = subprocess.run(run, capture_output=True, text=True)
    printed = done.stdout + done.stderr
    compared, others = re.search(COMPARED, printed, re.MULTILINE), re.search(r"(\d+) deci", printed)
    assert compared and others, printed
    size = sizes_of([folder / "firmware.elf"])
    return {
        "machine": machine.name,
        "processor": machine.target.name,
        "passed": done.returncode == 0,
        "n_others": int(others[1]),
        "n_compared": int(compared[1]),
        "largest": int(compared[2]) * 1e-9,
        "n_beyond": [int(n) for n in compared[3].split()],
        "code_bytes": size.code,
        "instructions": {
            what: {"mean": int(mean), "most": int(most), "n": int(n)}
            for what, mean, most, n in re.findall(INSTRUCTIONS, printed)
        },
        "bytes": {what: int(n) for what, n in re.findall(BYTES, printed, re.MULTILINE)},
    }


def measure(folder: Path, series: Path, n_rows: int, machines: tuple[Any, ...]) -> dict[str, Any]:
    """Replay on all machines, for all longest seasons."""
    from edgefold.export.native.generator import generate
    from edgefold.export.native.sensors.sensor_replay import sensor_replay_sources
    from edgefold.export.shorter_seasons import shorten_seasons
    from edgefold.runtime.sensors.shipped_bundle import shipped_bundle

    data: dict[str, Any] = {}
    for longest in LONGEST:
        bundle = shipped_bundle()
        if longest < max(LONGEST):
            bundle = folder / f"sensors-{longest}"
            shorten_seasons(shipped_bundle(), longest, bundle)
        native = generate(bundle, "sensors")
        for arithmetic, flags in ARITHMETIC.items():
            if arithmetic == SAME_BITS and longest > min(LONGEST):
                continue  # the same code in longer loops
            work = folder / f"{longest}-{arithmetic}".replace(" ", "-")
            library = host_library(native, work / "host", *flags)
            rows = [recorded(library, rows_of(series / f"{name}.csv", n_rows)) for name in SERIES]
            replays = []
            for machine in machines:
                n = min(n_rows, N_SOFTWARE) if machine.target.name in SOFTWARE else n_rows
                sources = sensor_replay_sources(native, machine, [one[:n] for one in rows], n_rows)
                progress(f"{longest}, {arithmetic}: {machine.name}, {n} rows of each series")
                printed = replay(machine, sources, work / machine.target.name, *flags)
                replays.append({**printed, "n_rows": n * len(SERIES)})
                progress(f"{replays[-1]}", last=True)
            data[f"{longest}, {arithmetic}"] = {
                "longest": longest, "arithmetic": arithmetic, "replays": replays,
            }  # fmt: skip
    return data


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """Return the project's demands on a sensor in firmware."""
    found = []
    for title, one in data.items():
        replays = one["replays"]
        ram = max(ram_bytes(row) for row in replays)
        found.append(at_most(f"{title}: RAM", ram / 1e3, RAM_BYTES[one["longest"]] / 1e3, "kB"))
        n, others = (sum(row[what] for row in replays) for what in ("n_compared", "n_others"))
        found.append(at_most(f"{title}: decisions that differ, of {n:,}", others, 0, ""))
        largest = max(row["largest"] for row in replays)
        found.append(at_most(f"{title}: largest difference of a forecast", largest, 1e-5, "band"))
    return found


def ram_bytes(row: dict[str, Any]) -> int:
    """Return the bytes of a sensor, the shared block and the stack."""
    return int(sum(row["bytes"][what] for what in ("sensor", "shared", "stack")))


def main() -> None:
    """Replay, print, record."""
    parser = arguments(__doc__ or "", "sensor_firmware")
    parser.add_argument("--series", type=Path, required=True, help="folder of files time,value")
    args = parser.parse_args()
    before = conditions()
    from edgefold.export.native.toolchain.machines import EMULATED

    machines = tuple(machine for machine in EMULATED if not machine.target.is_linux)
    n_rows = N_QUICK if args.quick else N_ROWS
    with tempfile.TemporaryDirectory(prefix="edgefold-") as place:
        data = measure(Path(place), args.series, n_rows, machines[:1] if args.quick else machines)
    finish(args, "sensor_firmware", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
