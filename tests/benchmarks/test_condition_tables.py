"""The benchmark of conditioning on tables: its rows, what it sees of processes, its table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pq = pytest.importorskip("pyarrow.parquet", reason="lakes need the parquet extra")

from benchmarks.fleets.condition_tables import (  # noqa: E402
    Killer,
    Watched,
    as_form,
    began_ticks,
    children_of,
    peak_bytes,
    reading_s,
    same_states,
    smaller_groups,
    write_rows,
)
from benchmarks.fleets.condition_tables_table import condition_tables  # noqa: E402


def test_rows_are_those_of_their_seed_in_row_groups_of_any_length(tmp_path: Path) -> None:
    lake = write_rows(tmp_path / "one", 1000)
    smaller = smaller_groups(lake, tmp_path / "smaller", 300)
    assert pq.read_table(lake).equals(pq.read_table(smaller))
    (path,) = smaller.iterdir()
    assert pq.ParquetFile(path).num_row_groups == 4
    assert reading_s(lake) > 0


def test_processes_are_seen_and_killed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in children_of(os.getpid()) and peak_bytes(child.pid) > 0
        assert began_ticks(child.pid) > began_ticks(1) > 0
        killer = Killer(1, 0.0)
        for _ in range(3):  # the first call lets something run before
            killer.kill([child.pid])
        assert killer.n_killed == 1 and child.wait() == -signal.SIGKILL
        assert peak_bytes(child.pid) == 0
    finally:
        child.kill()
        child.communicate()


def test_states_are_compared_by_their_arrays(tmp_path: Path) -> None:
    for name, value in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "s.npz", x=np.array(value))
    assert same_states(tmp_path / "a", tmp_path / "b")
    assert not same_states(tmp_path / "a", tmp_path / "c")
    (tmp_path / "b" / "more.csv").touch()
    assert not same_states(tmp_path / "a", tmp_path / "b")


def test_the_table_shows_rows_a_second_and_what_differs() -> None:
    seen = as_form(Watched(2.0, 10**8, 2 * 10**8))
    names = ("processes_1", "processes_2", "calm", "killed", "dask")
    data = {
        **{"n_rows": 1000, "n_part": 100, "n_bytes": 10**9, "reading_s": 0.5},
        **dict.fromkeys(names, seen),
        "killed": {**seen, "n_killed": 50, "n_runs": 2},
        **{"same_on_two": True, "same_after_kills": False, "same_on_dask": True},
    }
    (table,) = condition_tables(data)
    assert table.rows[0] == ["reading only", "1,000", "0.5 s", "2,000", "-"]
    assert table.rows[4] == ["two processes, 50 kills", "200", "2.0 s", "100", "200 MB"]
    assert "not all the same: kills" in table.note
