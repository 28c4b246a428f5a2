"""The comparison on M4-Hourly: the CRPS by hand, and a run on two small series."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.sensors import sensor_m4
from benchmarks.sensors.sensor_m4 import MASSES, OneSeries, beside, crps_of
from benchmarks.sensors.sensor_m4_table import sensor_m4 as table
from benchmarks.sensors.sensors_scores import Z, quantiles_at


def test_the_crps_of_a_normal_is_that_of_its_formula() -> None:
    """The CRPS of N(0, 1) at 0 is (sqrt(2) - 1) / sqrt(pi) = 0.2337; 100 levels find it to 1 %."""
    assert crps_of(quantiles_at(MASSES, Z), 0.0) == pytest.approx(0.2337, rel=0.01)
    assert crps_of(np.full(len(MASSES), 3.0), 5.0) == pytest.approx(2.0)


def test_only_series_of_both_are_compared() -> None:
    ours = {"a": OneSeries(1.0, 2.0, 0.9), "b": OneSeries(3.0, 0.0, 0.9)}
    found = beside(ours, {"a": (2.0, 1.0), "c": (1.0, 1.0)})
    assert found is not None
    assert (found["n"], found["crps_median"], found["nats_median"]) == (1, 0.5, 1.0)
    assert beside(ours, {"c": (1.0, 1.0)}) is None


@pytest.mark.long
def test_series_are_scored_and_set_beside_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    rows = {"H1": 10 + draw.normal(size=360), "H2": draw.normal(size=360)}  # logarithms, or not
    lines = [",".join([name, *(f"{v:.4f}" for v in values), ""]) for name, values in rows.items()]
    (tmp_path / "Hourly-train.csv").write_text("\n".join(["V1,V2", *lines]))
    peers = ["series,method,crps,logpdf,n", "H1,laplace,0.06,0.9,300", "H2,laplace,0.6,-1.5,300"]
    (tmp_path / "results_m4_hourly.csv").write_text("\n".join(peers))
    record = tmp_path / "record.json"
    monkeypatch.setattr(sys, "argv", ["sensor_m4", str(tmp_path), "--record", str(record)])
    sensor_m4.main()
    data = json.loads(record.read_text())["data"]
    one, other = (data["series"][name] for name in rows)
    # Noise of deviation 1 has a CRPS of 0.564 if it is known; its logarithm at 10 a tenth of that.
    assert 0.05 < one["crps"] < 0.07 and 0.5 < other["crps"] < 0.7
    assert one["log_density"] - other["log_density"] == pytest.approx(np.log(10), abs=0.2)
    assert data["peers"]["laplace"]["n"] == 2
    assert "| laplace " in table(data)[0].markdown()
