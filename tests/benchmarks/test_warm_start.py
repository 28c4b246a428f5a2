"""The figures of warm starts, on sensors whose rows are known."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.alarms.warm_start import BOUND, compared, made_up, requirements, summary
from benchmarks.alarms.warm_start_table import warm_start


def rows(*log_density: float | None, alarms: int, hits: list[bool]) -> dict[str, Any]:
    within = [number is not None for number in log_density if number is not None]
    return {"log_density": log_density, "alarms": alarms, "within": within, "hits": hits}


def test_a_row_counts_where_both_have_scored_it_and_within_bounds() -> None:
    cold = rows(None, -1.0, -1e8, 2.0, alarms=3, hits=[True, False])
    warm = rows(None, -0.5, 1.0, None, alarms=1, hits=[True, True])
    told = compared(cold, warm)
    assert told["gain"] == pytest.approx((0.5 + BOUND) / 2)
    assert told["alarms"] == {"cold": 3, "warm": 1}
    assert told["hits"] == {"cold": 1, "warm": 2} and told["n_hits"] == 2


def test_families_are_summed_up_and_judged() -> None:
    cold = rows(-1.0, alarms=2, hits=[True, True])
    warm = rows(-0.8, alarms=1, hits=[True, False])
    sensors = [{**compared(cold, warm), "name": "a", "steady": steady} for steady in (True, False)]
    told = summary(sensors)
    assert told["n"] == 2 and told["n_steady"] == 1
    assert told["worst"] == told["gain"] == pytest.approx(0.2)
    assert told["cold"]["alarms"] == 2.0 and told["warm"]["steady_hits"] == 0.5
    met = {one.what: one.met for one in requirements({"kinds": {"real": told}})}
    assert met == {
        "real: false alarms, warm divided by cold": True,
        "real: log density, warm less cold": True,
        "real: the same, of the worst sensor": True,
        "real: hits lost of steady sensors": False,
    }
    family = {"kind": "real", "name": "all", **told}
    data = {"n_rows": 300, "rate": 1e-4, "kinds": {"real": told}, "families": [family]}
    kinds, families = warm_start(data)
    assert len(kinds.rows) == len(families.rows) == 1


def test_a_seed_names_a_made_up_sensor() -> None:
    pytest.importorskip("torch", reason="the families are those of the training")
    one, same, other = (made_up("tide", number) for number in (1, 1, 2))
    assert (one.values == same.values).all() and not (one.values == other.values).all()
