"""Scores of paths: the figures by hand, and a run on small files of each kind."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from benchmarks.sensors import sensor_paths
from benchmarks.sensors.path_scores import (
    DECILES,
    Paths,
    beside_naive,
    held,
    over_series,
    series_record,
    task_record,
)
from benchmarks.sensors.sensor_paths import m4_series, paths_of
from benchmarks.sensors.sensor_paths_table import draw_holds
from benchmarks.sensors.sensor_paths_table import sensor_paths as tables
from benchmarks.sensors.sensors_scores import Z, quantiles_at


def normal(n: int, n_rows: int = 48, spread: float = 1.0, seed: int = 0) -> Paths:
    """Values of N(0, 1), and forecasts of N(0, spread^2)."""
    draw = np.random.default_rng(seed)
    values, last = draw.normal(size=(n, n_rows)), draw.normal(size=n)
    quantiles = np.tile(spread * Z, (n, n_rows, 1))
    return Paths(values, quantiles, last, draw.normal(size=(n, n_rows)), np.arange(n))


def test_bands_of_the_right_spread_hold_what_they_state() -> None:
    """A share of 4,000 values at 80 % scatters by 0.0063, at 90 % by 0.0047: five times that."""
    of_80, of_90 = (held(normal(4_000, 4), band) for band in ("80", "90"))
    assert of_80 == pytest.approx(0.8, abs=0.032) and of_90 == pytest.approx(0.9, abs=0.024)
    assert held(normal(4_000, 4, spread=0.5), "80").max() < 0.6


def test_what_is_missing_counts_neither_way() -> None:
    paths = normal(3, 2)
    paths.values[0] = math.nan
    paths.values[1:] = 0.0
    assert held(paths, "80").tolist() == [1, 1]


def test_medians_are_set_beside_the_better_naive_forecast() -> None:
    paths = normal(10)
    paths.values[:], paths.last[:], paths.before[:] = 3.0, 1.0, 2.0  # errors of 3, 2 and 1
    assert beside_naive(paths, "5 to 16") == pytest.approx(3.0)
    paths.before[:] = math.nan  # no season
    assert beside_naive(paths, "5 to 16") == pytest.approx(1.5)
    paths.last[:] = 3.0
    assert beside_naive(paths, "5 to 16") is None  # it never errs
    assert beside_naive(normal(10, 30), "25 to 48") is None


def test_quantiles_at_other_levels_lie_on_the_normal() -> None:
    levels = np.array([0.005, *DECILES, 0.995])  # the outermost levels are 0.05 and 0.95
    expected = [2 + 3 * NormalDist().inv_cdf(level) for level in levels]
    assert quantiles_at(levels, 2 + 3 * Z) == pytest.approx(expected, abs=1e-6)


def test_series_and_tasks_are_told_together() -> None:
    every = [normal(200, seed=seed) for seed in range(3)]
    over = over_series([series_record(paths) for paths in every])
    assert over["n_series"] == 3 and len(over["holds"]["80"]) == 48
    assert over["near_80"]["24"] <= 3 and over["worst"]["17 to 48"] >= over["medians"]["17 to 48"]
    task = task_record(every, [range(200), range(200), range(100)], [2.0, 2.0, 2.0])
    assert task["n_origins"] == 500 and task["often"]["n_origins"] == 600
    assert task["often"]["holds"] != task["holds"]
    # The mean |N(0, 1)| is 0.798, over a scale of 2; 24,000 values leave it to 0.004.
    assert task["mase"] == pytest.approx(0.399, abs=0.01)
    assert 0.4 < task["weighted_quantile_loss"] < 1.0


def test_what_came_stands_beside_the_season_before() -> None:
    values = {slot: float(slot) for slot in range(20) if slot != 11}
    quantiles = np.zeros((3, 7))
    paths = paths_of(values, [(12, 9, 2, quantiles), (19, 16, 0, quantiles)], 3)
    assert paths.last.tolist() == [9, 16] and paths.of([19]).last.tolist() == [16]
    assert paths.values[0].tolist()[::2] == [10, 12] and math.isnan(paths.values[0, 1])
    assert paths.before[0].tolist() == [8, 9, 8]
    assert np.isnan(paths.before[1]).all()


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.long
def test_all_kinds_of_files_are_scored_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    wave = 10 + np.sin(2 * np.pi * np.arange(700) / 24) + 0.1 * draw.normal(size=700)
    rows = [f"{k},{v}" for k, v in enumerate(wave[:200])]
    write(tmp_path / "s" / "one.csv", ["time,value", *rows])
    for part, values in (("train", wave[:60]), ("test", wave[60:108])):
        cells = ",".join(f"{value:.3f}" for value in values)
        write(tmp_path / "m4" / f"Hourly-{part}.csv", ["V1,V2", f"H1,{cells}"])
    days = np.datetime64("1970-01-01") + np.arange(700)
    rows = [f"{day},{value}" for day, value in zip(days, wave, strict=True)]
    write(tmp_path / "b.csv", ["date,births", *rows])
    ((series, n),) = m4_series(tmp_path / "m4")
    assert series.name == "H1" and n == 60 and len(series.values) == 108
    record = tmp_path / "record.json"
    words = ["--series", "s", "--m4", "m4", "--births", "b.csv", "--record", "record.json"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["sensor_paths", *words])
    sensor_paths.main()
    data = json.loads(record.read_text())["data"]
    assert data["series"]["series"]["one"]["n_origins"] == len(range(80, 152, 7))
    assert data["tasks"]["m4_hourly"]["n_series"] == 1
    births = data["tasks"]["us_births"]
    assert births["n_origins"] == 20 and births["often"]["n_origins"] == 19 * 30 + 1
    assert len(data["tasks"]["us_births"]["holds"]["80"]) == 30
    text = "\n".join(table.markdown() for table in tables(data))
    assert "M4-Hourly, 80 % band" in text and "| one " in text
    draw_holds(data, tmp_path / "holds.png")
    assert (tmp_path / "holds.png").stat().st_size > 5000
