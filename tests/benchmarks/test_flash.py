from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.record import RECORDS, ROOT
from benchmarks.usage.flash import BOUND_PERCENT, N_ROWS, SETTINGS, off_by, predicted
from benchmarks.usage.flash_table import flash
from edgefold.runtime.sources.journal import BLOCK, FILE_BYTES


def test_the_recorded_bytes_were_predicted_within_the_bound() -> None:
    record = json.loads((RECORDS / "flash.json").read_text())
    assert not record["quick"] and record["data"]["n_rows"] == N_ROWS
    assert [run["name"] for run in record["data"]["runs"]] == [name for name, *_ in SETTINGS]
    for run in record["data"]["runs"]:
        assert abs(off_by(run)) * 100 < BOUND_PERCENT, run["name"]
    assert len(flash(record["data"])[0].rows) == len(SETTINGS)


def test_a_loop_with_messages_writes_the_files_that_are_predicted(tmp_path: Path) -> None:
    """Lengths of files and of groups, which no file system changes; pages are not asserted."""
    words = ["journal", str(tmp_path), "600", "200", "1"]
    command = [sys.executable, "-m", "benchmarks.usage.flash_child", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    own = predicted("journal", 600, 200, True, found["taken_s"])
    assert round(own["journal"]) == 60 * BLOCK
    assert found["journal_bytes"] == 61 * BLOCK  # the first snapshot ends a group of one message
    assert abs(found["snapshot_bytes"] / own["a_snapshot"] - 1) < 0.01
    assert abs(found["output_bytes"] / 600 / own["a_row"] - 1) < 0.1  # the first rows are short
    assert {path.stat().st_size for path in tmp_path.glob("*.journal.*")} == {FILE_BYTES}
