"""How many bytes does a loop write, next to what `edgefold budget --flash` predicts?

The general model of sensors learns 100,000 rows in a process of its own, in three settings:

    a file, a snapshot every 100 rows, no output
    a file, a snapshot every 1,000 rows, and an output
    messages with a journal, a snapshot every 1,000 rows, and an output

Measured are the pages that Linux counts for the process (write_bytes in /proc/self/io). Predicted
is the same, from the bundle's manifest and the settings; nothing of it was fitted to these runs.
Rows come as fast as the loop takes them, so the prediction gets the rate that was reached.

    python -m benchmarks flash --folder /var/tmp

The folder must lie on a disk: files in memory (tmpfs) count no bytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.record import ROOT, Requirement, arguments, at_most, conditions, finish, progress
from benchmarks.tables import as_text
from benchmarks.usage.flash_child import N_SENSORS, SYNC_S, WINDOW, message_of, values
from edgefold.devices.budget.flash import DAY_S, FILE, MQTT, FlashDemand, judge_flash
from edgefold.runtime.bundle.manifest_file import load_manifest
from edgefold.runtime.sensors.shipped_bundle import shipped_bundle
from edgefold.runtime.sources.journal import FILE_BYTES

QUESTION = "How many bytes does a loop write, compared with what its budget predicts?"
N_ROWS = 100_000
BOUND_PERCENT = 10.0
SETTINGS = (
    ("a file, no output", "file", 100, False),
    ("a file, with an output", "file", 1000, True),
    ("messages with a journal, with an output", "journal", 1000, True),
)


def measure(kind: str, n: int, every: int, has_output: bool, place: Path | None) -> dict[str, Any]:
    """Return what a loop wrote, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="edgefold-flash-", dir=place) as folder:
        words = [kind, folder, str(n), str(every), str(int(has_output))]
        command = [sys.executable, "-m", "benchmarks.usage.flash_child", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    if not found["written_bytes"]:
        sys.exit("no bytes are counted there; name a folder on a disk with --folder.")
    return found


def predicted(kind: str, n: int, every: int, has_output: bool, taken_s: float) -> dict[str, float]:
    """Return the predicted bytes of a run of `n` rows, by part."""
    row = next(values(1))
    message = message_of(0, *row)
    demand = FlashDemand(
        flash_bytes=32 * 10**9,
        rate_hz=n / taken_s,
        source=MQTT if kind == "journal" else FILE,
        n_streams=N_SENSORS if kind == "journal" else 1,
        message_bytes=len(message.topic) + len(message.payload),
        row_bytes=len(",".join(row)),
        has_output=has_output,
        window=WINDOW,
    )
    manifest = load_manifest(shipped_bundle("sensors"))
    budget = judge_flash(manifest, demand, (every, SYNC_S), (), ())
    days, asked = taken_s / DAY_S, budget.asked
    return {
        "snapshots": asked.snapshot_bytes * days,
        "output": asked.output_bytes * days,
        "journal": asked.journal_bytes * days,
        "once": 2 * FILE_BYTES if kind == "journal" else 0,
        "a_snapshot": budget.snapshot_file_bytes,
        "a_row": budget.output_row_bytes,
    }


def off_by(run: dict[str, Any]) -> float:
    """Return how far the prediction is from the measured bytes, as a share of these."""
    parts = run["predicted"]
    total = sum(parts[name] for name in ("snapshots", "output", "journal", "once"))
    return float(total / run["measured"]["written_bytes"] - 1)


def main() -> None:
    """Measure, print, record."""
    parser = arguments(__doc__ or "", "flash")
    parser.add_argument("--folder", type=Path, help="on the disk; default that of temporary files")
    args = parser.parse_args()
    before = conditions()
    n = 3000 if args.quick else N_ROWS
    runs = []
    for name, kind, every, has_output in SETTINGS:
        measured = measure(kind, n, every, has_output, args.folder)
        own = predicted(kind, n, every, has_output, measured["taken_s"])
        run = {"name": name, "every": every, "measured": measured, "predicted": own}
        runs.append(run)
        progress(f"{name}: {measured['written_bytes']:,} bytes, {off_by(run):+.1%}", True)
    requirements: list[Requirement] = [
        at_most(f"{run['name']}: prediction off by", 100 * abs(off_by(run)), BOUND_PERCENT, "%")
        for run in runs
    ]
    finish(args, "flash", QUESTION, before, {"n_rows": n, "runs": runs}, requirements, as_text)


if __name__ == "__main__":
    main()
