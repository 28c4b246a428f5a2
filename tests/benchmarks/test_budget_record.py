from __future__ import annotations

import json

import pytest

from benchmarks.memory.memory_states import STATES, off_by
from benchmarks.record import RECORDS, read_records
from benchmarks.subjects import EXAMPLES
from benchmarks.tables import PAGES, page_of

SHIPPED = ("small, untrained", "paper, untrained", "gp-small", "gp-paper", "series-co2")
PRECISIONS = ("float32", "float16", "int8")


def test_the_recorded_predictions_keep_their_bounds() -> None:
    record = json.loads((RECORDS / "budget.json").read_text())
    assert not record["quick"]
    found = {(one["name"], one["precision"]) for one in record["data"]["subjects"]}
    assert {(name, precision) for name in SHIPPED for precision in PRECISIONS} <= found
    for one in record["data"]["subjects"]:
        graphs = one["activations"].values()
        counted = max(graph["measured_bytes"] for graph in graphs)
        assert counted <= max(graph["predicted_bytes"] for graph in graphs) <= 1.5 * counted


def test_needed_memory_is_predicted_within_5_percent_in_every_state_of_the_page_cache() -> None:
    record = json.loads((RECORDS / "memory_states.json").read_text())
    assert not record["quick"]
    subjects = {one["name"]: one for one in record["data"]["subjects"]}
    shipped = {f"{name}, {precision}" for name in SHIPPED for precision in PRECISIONS}
    assert shipped | set(EXAMPLES) | {"silero_vad"} <= set(subjects)
    for one in subjects.values():
        assert set(one["states"]) == set(STATES)
        assert off_by(one) < 0.05, one["name"]
    loops = record["data"]["loops"]
    needed, predicted = sum(loops["needed_bytes"]), loops["predicted"]["needed_bytes"]
    assert predicted == pytest.approx(needed, rel=0.05)
    assert sum(loops["pss_bytes"]) < loops["predicted"]["looks_like_bytes"][1]


@pytest.mark.parametrize("name", ["memory_states", "budget"])
def test_the_page_on_budgets_shows_what_the_records_hold(name: str) -> None:
    page = PAGES[name].read_text()
    assert f"<!-- {name}:start -->" in page
    assert page == page_of(name, page, read_records())
