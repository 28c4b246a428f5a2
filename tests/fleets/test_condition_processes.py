"""States are the same to the bit on any number of processes, also if these are killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgefold.fleets.work.crew import Crew
from tests.fleets.conftest import conditioned, contents, write_table

pytest.importorskip("pyarrow", reason="lakes need the parquet extra")


@pytest.mark.one_case
@pytest.mark.parametrize("options", [{"processes": 2}, {"processes": 9, "batch_rows": 37}])
def test_states_are_the_same_to_the_bit_on_any_number_of_processes(
    options: dict[str, Any], gp_bundle: Path, lake_folder: Path, one_process: Path, tmp_path: Path
) -> None:
    conditioned(gp_bundle, lake_folder, tmp_path / "out", **options)
    assert contents(tmp_path / "out") == contents(one_process)


def test_states_are_the_same_to_the_bit_after_kills(
    gp_bundle: Path,
    lake_folder: Path,
    one_process: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attend, killed = Crew.attend, list[int]()

    def kill_and_attend(crew: Crew, *words: Any) -> None:
        if len(killed) < 4 and len(crew.process_ids) == 2:
            killed.append(crew.process_ids[len(killed) % 2])
            os.kill(killed[-1], signal.SIGKILL)
        attend(crew, *words)

    monkeypatch.setattr(Crew, "attend", kill_and_attend)
    done = conditioned(gp_bundle, lake_folder, tmp_path / "out", processes=2)
    assert len(killed) == done.n_deaths == 4
    assert contents(tmp_path / "out") == contents(one_process)


@pytest.mark.long
def test_memory_does_not_grow_with_a_row_group(
    gp_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns of a row group of 6 million rows take 96 MB; a process holds a batch of them."""
    attend, peaks = Crew.attend, list[int]()

    def attend_and_see(crew: Crew, *words: Any) -> None:
        attend(crew, *words)
        for process_id in crew.process_ids:
            lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
            peaks.extend(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))

    monkeypatch.setattr(Crew, "attend", attend_and_see)
    highest_kb = []
    for n in (100_000, 6_000_000):
        x = np.random.default_rng(0).uniform(-2, 2, n)
        lake = write_table(tmp_path / f"{n}.parquet", {"x": x, "y": x[::-1]}, row_group_size=n)
        out = tmp_path / f"{n}.npz"
        conditioned(gp_bundle, lake, out, by="", filter="x > 1.99")  # reading is all the work
        highest_kb.append(max(peaks))
        peaks.clear()
    assert highest_kb[1] - highest_kb[0] < 24_000  # two buffers, pages and a batch vary
