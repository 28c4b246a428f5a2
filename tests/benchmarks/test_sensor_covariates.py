"""The benchmark of covariates: its sensors, its figures, and a table of a real one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.sensors import sensor_covariates as benchmark
from benchmarks.sensors.path_scores import ROWS
from benchmarks.sensors.sensor_covariates_table import sensor_covariates
from edgefold.runtime import Sensors


@pytest.mark.parametrize("kind", list(benchmark.MADE))
def test_sensors_are_made_up_with_covariates(kind: str) -> None:
    plant = benchmark.MADE[kind](np.random.default_rng(0), 500)
    assert plant.values.shape == plant.times.shape == (500,)
    assert len(plant.covariates) == 500 and np.isfinite(plant.covariates).all()
    assert plant.covariates.std(0).min() > 0


@pytest.mark.long
def test_losses_are_told_of_made_up_and_real_sensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "N_ROWS", 900)
    plant = benchmark.switch(np.random.default_rng(1), 900)
    rows = zip(plant.times, plant.values, plant.covariates[:, 0], strict=True)
    lines = [f"{time:.0f},{value:.4f},{on:.0f}" for time, value, on in rows]
    (tmp_path / "real.csv").write_text("\n".join(["time,value,switch", *lines]) + "\n")
    data = benchmark.measure(tmp_path, 1) | {"rows_ahead": list(ROWS)}
    assert data["real"]["real"]["ratios"]["row"][0] < 1.0
    assert len(data["made"]["room"]["ratios"]["known"]) == benchmark.N_AHEAD
    assert len(benchmark.requirements(data)) == 5
    (table,) = sensor_covariates(data)
    text = table.markdown()
    assert "| switch" in text and "| real" in text


@pytest.mark.long
def test_a_sensor_with_its_switch_is_better_than_alone() -> None:
    with Sensors.open() as sensors:
        plant = benchmark.switch(np.random.default_rng(2), 900)
        found = benchmark.scored(sensors, "one", plant)
    assert found["ratios"]["row"][0] < 0.95 and found["n_origins"] == len(range(539, 852, 49))
