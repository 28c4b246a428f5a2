from __future__ import annotations

import json

import pytest

from benchmarks.record import RECORDS, read_records
from benchmarks.tables import PAGES, page_of


def test_the_recorded_predictions_keep_their_bounds() -> None:
    record = json.loads((RECORDS / "budget.json").read_text())
    assert not record["quick"]
    found = {(one["name"], one["precision"]) for one in record["data"]["subjects"]}
    for name in ("small, untrained", "paper, untrained", "gp-small", "gp-paper", "series-co2"):
        for precision in ("float32", "float16", "int8"):
            assert (name, precision) in found
    for one in record["data"]["subjects"]:
        predicted = one["predicted"]["owned_bytes"]
        for measured in one["owned_peak_bytes"].values():
            assert predicted == pytest.approx(measured, rel=0.1), one["name"]
        graphs = one["activations"].values()
        counted = max(graph["measured_bytes"] for graph in graphs)
        assert counted <= max(graph["predicted_bytes"] for graph in graphs) <= 1.5 * counted


def test_the_page_on_budgets_shows_what_the_record_holds() -> None:
    page = PAGES["budget"].read_text()
    assert "counted" in page
    assert page == page_of("budget", page, read_records())
