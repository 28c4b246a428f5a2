"""What the benchmark of the aggregate in SQL judges, and how it tells it."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.usage import sql_aggregate
from benchmarks.usage.sql_aggregate_table import sql_aggregate as tables

QUERIES = sql_aggregate.QUERIES


def runs(time_s: float, n_processes: int, peak_bytes: int) -> list[dict[str, Any]]:
    return [
        {"time_s": part * time_s, "n_processes": n_processes, "peak_bytes": peak_bytes}
        for part in (0.9, 1.0, 5.0)
    ]


@pytest.fixture
def data() -> dict[str, Any]:
    facts = {"n_rows": 10_000_000, "n_sites": 1000, "n_turns": 3, "work_mem": "64MB"}
    sizes = {"state_bytes": 27_016, "table_bytes": 522_000_000, "postgres": "15.20 (Debian)"}
    one = {name: {"0": runs(8, 1, 30_000_000), "1": runs(4, 2, 100_000_000)} for name in QUERIES}
    return {**facts, **sizes, "queries": one}


def test_rows_and_memory_of_one_process_are_judged(data: dict[str, Any]) -> None:
    assert sql_aggregate.rows_per_s(data, "cmanp(x, y)") == 1_250_000
    assert all(requirement.met for requirement in sql_aggregate.requirements(data))
    data["queries"]["cmanp(x, y)"]["0"] = runs(21, 1, 0)
    data["queries"]["cmanp(x, y) of each site"]["0"] = runs(8, 1, 50_000_000)
    assert not any(requirement.met for requirement in sql_aggregate.requirements(data))


def test_the_table_has_a_row_for_each_number_of_processes(data: dict[str, Any]) -> None:
    (table,) = tables(data)
    assert len(table.rows) == 2 * len(QUERIES)
    assert table.rows[0] == ["avg(x)", "1", "8 s", "1.25 million", "30.0 MB"]
    assert table.rows[1][1:] == ["2", "4 s", "2.50 million", "100.0 MB"]
    assert "PostgreSQL 15.20, work_mem 64MB" in table.note and "27,016 bytes" in table.note


def test_workers_are_found_below_other_nodes_of_a_plan() -> None:
    gather = {"Node Type": "Gather", "Workers Launched": 3, "Plans": [{"Node Type": "Seq Scan"}]}
    plan = {"Node Type": "Aggregate", "Plans": [gather]}
    kinds = [node["Node Type"] for node in sql_aggregate.nodes(plan)]
    assert kinds == ["Aggregate", "Gather", "Seq Scan"]
