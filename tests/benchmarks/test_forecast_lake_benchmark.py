"""The benchmark of lakes: its rows, its comparisons and its tables."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fleets.forecast_lake import (
    N_FILES,
    n_same_alone,
    row_us,
    same_results,
    write_sensors,
)
from benchmarks.fleets.forecast_lake_table import forecast_lake
from edgefold.cli.main import main

pytestmark = pytest.mark.usefixtures("compiled_sensors")


@pytest.mark.long
def test_results_are_compared_with_each_other_and_with_single_sensors(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    lake = write_sensors(tmp_path / "lake", 3, 70)
    assert len(list(lake.iterdir())) == N_FILES
    out = tmp_path / "out"
    assert main(["forecast", str(lake), "--out", str(out), "--processes", "1"]) == 0
    assert n_same_alone(lake, out, 3) == (3, 3)
    other = tmp_path / "other"
    shutil.copytree(out, other)
    assert same_results(out, other)
    (other / "alarms.csv").write_text("x")
    assert not same_results(out, other)
    for part in (out / "forecasts").iterdir():
        table = parquet.read_table(part)
        parquet.write_table(table.set_column(2, "value", table["mean"]), part)
    assert n_same_alone(lake, out, 3) == (0, 3)


@pytest.mark.long
def test_a_row_is_timed() -> None:
    times = row_us()
    assert times["rows_us"] > 0 and times["step_us"] > 0


def test_the_tables_say_what_was_equal() -> None:
    seen = {"wall_s": 10.0, "parent_bytes": 2e8, "worker_bytes": 3e8}
    data: dict[str, Any] = {
        **{"n_sensors": 100, "n_rows": 2000, "n_bytes": 5e6, "result_bytes": 2e7},
        **dict.fromkeys(("processes_1", "processes_2", "resumed"), seen),
        "killed": {**seen, "n_killed": 4},
        **{"same_on_two": True, "same_after_a_stop": True, "same_after_kills": False},
        **{"n_alone": 20, "n_same_alone": 20, "census_s": 0.1, "n_shards": 9, "n_shards_kept": 4},
        **{"step_us": 27.0, "rows_us": 21.3, "in_c": 1.0},
    }
    rates, times = forecast_lake(json.loads(json.dumps(data)))
    assert rates.rows[0] == ["one process", "10.0 s", "20,000", "300 MB"]
    assert "not all the same: kills" in str(rates.note) and "21.3 µs" in times.rows[1][1]
