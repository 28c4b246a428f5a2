"""Which models the buyer's plot shows, and which of them are on its front."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.models.family_plots import costs_and_scores, front


def test_the_front_holds_what_no_cheaper_or_equally_cheap_one_reaches() -> None:
    points = {"a": (1.0, 0.5), "b": (2.0, 0.4), "c": (2.0, 0.9), "d": (3.0, 0.9), "e": (4.0, 1.0)}
    assert front(points) == ["a", "c", "e"]


def test_a_point_needs_both_records_of_the_same_preset() -> None:
    def cost(seconds: float) -> dict[str, Any]:
        return {"arrival": {"median_s": seconds}}

    def run(model: str, preset: str, nats: float) -> dict[str, Any]:
        scores = {kernel: {"log_likelihood": nats} for kernel in ("rbf", "matern52")}
        return {"model": model, "preset": preset, "scores": scores}

    times = {"100": cost(1.0), "1000": cost(2.0)}
    sizes = {"100": {"needed_bytes": 10}, "1000": {"needed_bytes": 20}}
    model = {"preset": "paper", "times": times, "sizes": sizes}
    family = {"models": {"cnp": model, "np": model, "bnp": model | {"times": {}}}}
    runs = [run("cnp", "paper", 0.2), run("cnp", "paper", 0.4), run("np", "small", 1.0)]
    found = costs_and_scores([family], {"runs": [*runs, run("bnp", "paper", 1.0)]})
    assert list(found) == ["cnp, paper"]
    expected = {"nats": 0.3, "arrival_s": 2.0, "needed_bytes": 20}
    assert found["cnp, paper"] == pytest.approx(expected)  # a mean of two float64 numbers
