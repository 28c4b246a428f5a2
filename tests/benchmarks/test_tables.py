from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.headline import headline
from benchmarks.record import (
    RECORDS,
    Requirement,
    arguments,
    at_least,
    at_most,
    conditions,
    finish,
    read_records,
    spread,
    write_record,
)
from benchmarks.table import Table
from benchmarks.tables import RESULTS, as_text, results_page, with_block


def test_the_page_of_results_is_what_the_records_give() -> None:
    expected = results_page(read_records(RECORDS))
    assert RESULTS.read_text() == expected, "run `python -m benchmarks tables`"


def test_no_record_in_the_repository_is_a_smoke_run() -> None:
    assert not [name for name, record in read_records(RECORDS).items() if record["quick"]]


def test_every_record_is_printed_with_its_requirements_and_conditions() -> None:
    for record in read_records(RECORDS).values():
        text = as_text(record)
        assert record["conditions"]["cpu_model"] in text
        assert all(r["what"] in text for r in record["requirements"])


def test_the_readmes_block_is_replaced_and_nothing_else() -> None:
    readme = "# A\n\n<!-- results:start -->\nold\n<!-- results:end -->\n\nB\n"
    new = with_block(readme, "| t |")
    assert new == "# A\n\n<!-- results:start -->\n| t |\n<!-- results:end -->\n\nB\n"
    assert with_block(new, "| t |") == new
    assert with_block("# A\n", "| t |") == "# A\n"


def test_a_missing_record_leaves_its_rows_out() -> None:
    assert headline({}) == ""
    records = read_records(RECORDS)
    for name in records:
        headline({name: records[name]})


def test_a_table_is_aligned_markdown() -> None:
    lines = (
        Table(["a", "n"], [["long name", "1"], ["b", "1,000"]], "A note.").markdown().split("\n")
    )
    assert lines[0] == "| a         |     n |"
    assert lines[1] == "| --------- | ----: |"
    assert lines[3] == "| b         | 1,000 |"
    assert lines[-1] == "A note."


def test_requirements_say_whether_they_are_met() -> None:
    assert at_most("t", 69.96, 70, "µs") == Requirement("t", "70 µs", "<= 70 µs", True)
    assert not at_most("t", 70.1, 70, "µs").met
    assert at_least("r", 76_543.2, 50_000, "points/s").measured == "76,543 points/s"
    assert not at_least("r", float("nan"), 1, "x").met
    assert not at_most("r", float("nan"), 1, "x").met


def test_spread_is_told_in_seconds() -> None:
    found = spread(np.arange(1, 102) * 1000)
    assert found["n"] == 101 and found["median_s"] == pytest.approx(51e-6)
    assert found["p10_s"] < found["median_s"] < found["p90_s"]


def parsed(*options: str) -> argparse.Namespace:
    return arguments("Doc.", "growth").parse_args(options)


@pytest.mark.parametrize(("options", "written"), [(["--quick"], False), ([], True)])
def test_a_smoke_run_leaves_no_record(
    options: list[str], written: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.record.RECORDS", tmp_path)
    row = {"n_points": 10, "median_s": 1e-5, "needed_bytes": 4e7}
    data = {"edgefold": [row], "pytorch": [row]}
    finish(parsed(*options), "growth", "What?", conditions(), data, [], as_text)
    assert (tmp_path / "growth.json").exists() == written


def test_a_record_carries_its_conditions(tmp_path: Path) -> None:
    path = tmp_path / "r" / "growth.json"
    data: dict[str, list[float]] = {"edgefold": [], "pytorch": []}
    args = parsed("--quick", "--record", str(path))
    finish(args, "growth", "What?", conditions(), data, [at_most("t", 1.0, 2, "s")], as_text)
    record = read_records(path.parent)["growth"]
    assert record["conditions"]["versions"]["numpy"]
    assert len(record["conditions"]["load_average_after"]) == 3
    assert record["quick"] and record["requirements"][0]["met"]
    assert f"Validity: {record['validity']['verdict']}" in as_text(record)
    assert "start" not in record["conditions"] and record["validity"]["blocks"][0]["before"]
    write_record(path, {**record, "schema": 99})
    with pytest.raises(ValueError, match="schema 99"):
        read_records(path.parent)
    assert json.loads(path.read_text())["schema"] == 99
