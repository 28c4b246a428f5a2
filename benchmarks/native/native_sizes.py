"""Does a bundle, as C, fit a microcontroller, and how many instructions does a step take?

For `gp-tiny` (chunk 8, 8 targets, as for a small board) and the recurrent example:

    part     a firmware that predicts, learns, saves and loads, linked with the part's flash and RAM
    machine  the golden stream replayed under qemu: error, instructions of each call, stack

Sizes are of the linked file. Instructions are counted by the emulated machine's own counter
(`qemu -icount shift=0`); they are not cycles of a board, and no board was measured.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import (
    ROOT,
    Requirement,
    arguments,
    at_most,
    conditions,
    finish,
    progress,
)
from benchmarks.tables import as_text
from benchmarks.usage.examples import export as export_example
from edgefold.devices.boards.board import load_microcontroller
from edgefold.devices.budget.microcontroller import INSTRUCTIONS_PER_FLOP, STACK_BYTES

QUESTION = "Does a bundle, as C, fit a microcontroller, and how many instructions does a step take?"
NAMES = ("gp-tiny", "gru")
RAM_BYTES = 64 * 1024  # what gp-tiny was made for
CALLS = {
    "update": "update",
    "refresh": "refresh",
    "query of one target": "query_one",
    "query of several targets": "query",
}
FIRMWARE = """
#include "edgefold_{name}.h"
#include "machine.h"

static struct edgefold_{name} stream;
volatile double sensor_x[1], sensor_y[1], shown;

static size_t keep(void *to, const void *bytes, size_t n)
{{
    (void)to;
    for (size_t i = 0; i < n; i++)
        shown = ((const unsigned char *)bytes)[i];
    return n;
}}

static size_t recall(void *from, void *bytes, size_t n)
{{
    (void)from;
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)sensor_x[0];
    return n;
}}

int main(void)
{{
    edgefold_{name}_init(&stream);
    edgefold_{name}_load(&stream, recall, NULL, NULL, 0);
    for (;;) {{
        const double x[1] = {{sensor_x[0]}}, y[1] = {{sensor_y[0]}};
        edgefold_{name}_query(&stream, 1, x);
        shown = stream.prediction_mean[0];
        edgefold_{name}_update(&stream, x, y);
        edgefold_{name}_save(&stream, keep, NULL, NULL, 0);
    }}
}}
"""


def bundle_of(name: str, folder: Path) -> Path:
    """Write one of the bundles."""
    from edgefold.export.bundle import ExportConfig, export_bundle
    from edgefold.train.checkpoints import load_model

    if name == "gru":
        export_example(name, folder, 200)
        return folder / name
    model, config = load_model(ROOT / "checkpoints" / name)
    sizes = ExportConfig(chunk=8, targets=8, parity_steps=200)
    export_bundle(model, config["task"], folder / name, sizes)
    return folder / name


def link(machine: Any, sources: dict[str, str], folder: Path) -> Path:
    """Write sources and link them; a warning of the compiler is an error."""
    folder.mkdir()
    for file, text in sources.items():
        (folder / file).write_text(text)
    command = [*machine.compile_command(sources, "firmware.elf"), "-Werror"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "firmware.elf"


def sizes(part: Any, bundle: Path, folder: Path) -> dict[str, Any]:
    """Return the memory of a part that the linked firmware takes."""
    from edgefold.export.native.generator import generate
    from edgefold.export.native.toolchain.elf_sizes import sizes_of

    native = generate(bundle)
    main = FIRMWARE.format(name=native.name)
    sources = {**native.files, **part.sources(), "main.c": main}
    found = sizes_of([link(part, sources, folder)])
    profile = load_microcontroller(part.name)
    return {
        "part": part.name,
        "flash_bytes": found.code + found.constants,
        "constants_bytes": native.weight_bytes,
        "ram_bytes": found.variables,
        "arena_bytes": native.arena_bytes,
        "stack_bytes": STACK_BYTES,
        "part_flash_bytes": profile.flash_bytes.value,
        "part_ram_bytes": profile.ram_bytes.value,
    }


def replay(machine: Any, bundle: Path, folder: Path) -> dict[str, Any]:
    """Replay the golden stream under emulation; what it printed, as numbers."""
    from edgefold.export.native.firmware_project import replay_sources

    program = link(machine, replay_sources(bundle, machine), folder)
    done = subprocess.run(machine.run_command(str(program)), capture_output=True, text=True)
    printed = done.stdout + done.stderr
    error = re.search(r"(?:PASS|FAIL): largest error (\S+) of (\S+),", printed)
    assert error, printed
    work = json.loads((bundle / "manifest.json").read_text())["memory_plan"]["graphs"]
    calls = {
        CALLS[call]: int(n)
        for call, n in re.findall(r"instructions of (.+): (\d+) on average", printed)
        if CALLS.get(call) in work
    }
    stack = re.search(r"stack: (\d+) bytes", printed)
    return {
        "machine": machine.name,
        "processor": machine.target.name,
        "passed": done.returncode == 0,
        "error": float(error[1]),
        "tolerance": float(error[2]),
        "instructions": calls,
        "flop": {call: work[call]["work"]["flop"] for call in calls},
        "stack_bytes": int(stack[1]) if stack else 0,
    }


def requirements(data: dict[str, Any]) -> list[Requirement]:
    """The bounds that `edgefold budget` and the preset rest on."""
    replays = [row for bundle in data.values() for row in bundle["replays"]]
    n_passed = sum(row["passed"] for row in replays)
    ram = max(row["ram_bytes"] for row in data["gp-tiny"]["parts"])
    found = [
        at_most("RAM of gp-tiny with 8 kB of stack", ram / 1024, RAM_BYTES / 1024, "KiB"),
        Requirement(
            "golden streams replayed within their tolerance",
            f"{n_passed} of {len(replays)}",
            "all",
            n_passed == len(replays),
        ),
        at_most(
            "stack of a replay", max(row["stack_bytes"] for row in replays), STACK_BYTES, "bytes"
        ),
    ]
    for kind, software in (("an FPU", False), ("software floats", True)):
        worst = max(
            row["instructions"][call] / row["flop"][call]
            for row in replays
            if (row["processor"] in ("cortex-m0plus", "riscv32")) == software
            for call in row["instructions"]
        )
        bound = INSTRUCTIONS_PER_FLOP["none" if software else "single"]
        found.append(at_most(f"instructions for an operation, with {kind}", worst, bound, ""))
    return found


def main() -> None:
    """Link, replay, print, record."""
    parser = arguments(__doc__ or "", "native_sizes")
    args = parser.parse_args()
    before = conditions()
    from edgefold.export.native.toolchain.machines import EMULATED, PARTS

    data: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="edgefold-") as place:
        folder = Path(place)
        for name in NAMES:
            bundle = bundle_of(name, folder)
            parts, replays = [], []
            for part in PARTS:
                progress(f"{name}: linking for {part.name}", True)
                parts.append(sizes(part, bundle, folder / f"{name}-{part.name}"))
            for machine in (EMULATED[0], EMULATED[3]) if args.quick else EMULATED:
                progress(f"{name}: replaying on {machine.name}", True)
                replays.append(replay(machine, bundle, folder / f"{name}-{machine.name}"))
            data[name] = {"parts": parts, "replays": replays}
    finish(args, "native_sizes", QUESTION, before, data, requirements(data), as_text)


if __name__ == "__main__":
    main()
