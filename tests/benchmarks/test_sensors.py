"""How forecasts of sensors are scored, and which faults are injected: no model is run here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.alarms.sensor_faults import (
    WITHIN,
    eligible,
    first_alarms,
    found_share,
    is_steady,
    longest_run,
    rates_of,
    with_fault,
)
from benchmarks.alarms.sensor_faults_table import sensor_faults as fault_tables
from benchmarks.alarms.sensor_hostile import HOUR_S, RATES, hostile_row
from benchmarks.sensors import sensors
from benchmarks.sensors.sensors_peers import PEERS, Given, _at_levels, of_normals
from benchmarks.sensors.sensors_plots import N_SHOWN, shown
from benchmarks.sensors.sensors_run import Followed, SensorFile, read_sensor, taken, targets
from benchmarks.sensors.sensors_scores import (
    LEAST_NATS,
    LEVELS,
    Told,
    Z,
    crps,
    first_scored,
    floored,
    gains,
    geometric_mean,
    normal_around,
    persistence,
    quantum_of,
    ratio,
    scores_of,
)
from benchmarks.sensors.sensors_table import sensors as tables

RANDOM = np.random.default_rng


def followed(values: np.ndarray, season: int = 0) -> Followed:
    """A series whose forecasts are those of persistence."""
    n, told = len(values), persistence(values)
    log_density, p_value = np.full(n, -1.0), np.full(n, 0.5)
    told = Told(np.nan_to_num(told.mean), np.nan_to_num(told.quantiles), log_density, p_value)
    quantiles = np.repeat(told.quantiles[:, None], 4, 1).astype(np.float32)
    none = np.full((n, 7), np.nan)
    floor = Told(told.mean, none, told.log_density - 0.1, told.p_value)
    slots = np.arange(n)
    seasons = np.full(n, season)
    alarms = (np.arange(n) == n - 5).astype(np.int64)
    return Followed(
        values, slots, told, floor, quantiles, quantiles[..., 3], (1, 4, 16), seasons, alarms,
        [""] * n, 0,
    )  # fmt: skip


def test_the_crps_of_a_point_is_its_absolute_error() -> None:
    values = RANDOM(0).normal(size=20)
    points = np.repeat(RANDOM(1).normal(size=20)[:, None], len(LEVELS), 1)
    np.testing.assert_allclose(crps(values, points), abs(values - points[:, 0]), rtol=1e-12)


def test_the_crps_is_least_for_the_true_quantiles() -> None:
    values = RANDOM(0).normal(size=4000)
    scores = {spread: crps(values, np.tile(spread * Z, (4000, 1))).mean() for spread in (0.5, 1, 2)}
    assert min(scores, key=lambda spread: scores[spread]) == 1


def test_persistence_knows_nothing_of_the_row_that_it_forecasts() -> None:
    values = RANDOM(0).normal(size=60).cumsum()
    for horizon in (1, 4):
        whole = persistence(values, horizon)
        values_after = values.copy()
        values_after[40:] += 100
        other = persistence(values_after, horizon)
        rows = slice(horizon, 41)
        np.testing.assert_array_equal(whole.mean[rows], other.mean[rows])
        np.testing.assert_array_equal(whole.quantiles[rows], other.quantiles[rows])


def test_a_normal_around_the_truth_holds_what_it_says() -> None:
    values = RANDOM(0).normal(size=6000)
    told = normal_around(np.zeros(6000), values)
    rows = slice(1000, None)
    scores = scores_of(values[rows], told.of(rows), told.of(rows))
    assert scores["holds_90"] == pytest.approx(0.9, abs=0.02)  # 5,000 rows
    assert scores["holds_50"] == pytest.approx(0.5, abs=0.03)
    assert scores["nats"] == pytest.approx(-1.42, abs=0.03)
    assert scores["gain"] == 0


def test_bands_are_told_from_p_values_where_there_are_no_quantiles() -> None:
    p_value, values = np.linspace(0, 1, 1001), np.zeros(1001)
    told = Told(values, np.full((1001, 7), np.nan), values, p_value)
    scores = scores_of(values, told, persistence(values))
    assert scores["holds_90"] == pytest.approx(0.9, abs=2e-3)
    assert "crps" not in scores


def test_no_row_counts_for_less_than_the_floor() -> None:
    found = floored(np.array([-1e9, np.nan, -np.inf, -2.0]))
    assert found.tolist() == [LEAST_NATS, LEAST_NATS, LEAST_NATS, -2.0]


@pytest.mark.parametrize(
    ("n", "season", "first"), [(1000, 0, 300), (100, 0, 85), (1000, 288, 576), (1440, 1440, 432)]
)
def test_the_longest_warm_up_counts(n: int, season: int, first: int) -> None:
    assert first_scored(n, season) == first


def test_a_quantum_is_found_where_there_is_one() -> None:
    values = RANDOM(0).normal(size=2000)
    assert quantum_of(np.round(values, 1)) == pytest.approx(0.1)
    assert quantum_of(np.round(values)) == pytest.approx(1.0)
    assert quantum_of(values) == 0
    assert quantum_of(np.zeros(10)) == 0


def test_the_mass_of_a_quantum_is_that_of_the_density_where_it_is_small() -> None:
    values = np.round(RANDOM(0).normal(size=2000), 2)
    given = Given(values, 0, 1800, quantum_of(values))
    told = of_normals(given, np.zeros(200), np.ones(200))
    np.testing.assert_allclose(told.log_mass, told.log_density + np.log(0.01), atol=1e-4)


def test_gains_are_means_over_series_with_their_bootstrap() -> None:
    rows = {name: RANDOM(seed).normal(mean, 1, 2000) for seed, (name, mean) in
            enumerate({"a": 0.5, "b": 0.1, "c": -0.2}.items())}  # fmt: skip
    found = gains(rows)
    assert (found.wins, found.n) == (2, 3)
    assert found.low < found.mean < found.high
    assert found.high - found.low < 0.1  # 6,000 rows
    assert found.worst == pytest.approx(rows["c"].mean())


def test_ratios_have_a_geometric_mean() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1)
    assert np.isnan(geometric_mean([]))
    assert ratio(0, 0) == 1
    assert ratio(1, 0) == np.inf


def test_a_row_is_a_target_only_if_nothing_is_missing_before_it() -> None:
    slots = np.array([0, 1, 2, 4, 5, 6])
    assert targets(slots, 2).tolist() == [2, -1, -1, 5, -1, -1]


def test_series_are_read_and_taken_by_the_feed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    hours = [f"2020-01-{1 + h // 24:02d}T{h % 24:02d}:00:00,{h % 24}" for h in range(24 * 14)]
    path.write_text("\n".join(["time,value", *hours, "2020-01-15T00:00:00,", hours[0]]))
    series = read_sensor(path)
    assert (len(series.values), series.dated) == (24 * 14 + 1, True)
    found = taken(series, 1440)
    assert len(found.values) == 24 * 14  # the last one is late
    assert (found.season, found.first) == (24, 100)


def test_every_series_and_horizon_stands_in_the_tables() -> None:
    values = 10 + np.sin(np.arange(600) * 2 * np.pi / 24) + 0.1 * RANDOM(0).normal(size=600)
    ours = followed(values, 24)
    series = SensorFile("a", np.arange(600.0), values, False, "0")
    found = sensors.series_record(series, ours, None)
    assert sorted(found["ahead"], key=int) == ["4", "16", "24"]
    assert found["ahead"]["24"]["season_ago"] == pytest.approx(found["ahead"]["24"]["persistence"])
    nats = {"a": np.full(420, 0.1)}
    data: dict[str, Any] = {"series": {"a": found}, "over_all": sensors.summary({"a": found}, nats)}
    peer = {**found["shipped"], "ahead": {"4": {"crps": 1.0, "crps_beside": 2.0}}, "start": 500}
    peer |= {"seconds": 1.0}
    data["peers"] = sensors.beside_peers({"a": {"peers": {"ets": peer}}}, {"a": ours})
    for table in tables(data):
        assert {len(row) for row in table.rows} == {len(table.header)}
    assert data["over_all"]["over_base"]["mean"] == pytest.approx(0.1)
    assert all(r.met for r in sensors.requirements(data) if "worst" in r.what)


def test_a_panel_shows_the_last_alarm_or_else_where_values_move() -> None:
    values = np.zeros(2000)
    values[1000:1200] = RANDOM(0).normal(size=200)
    ours = followed(values)
    assert shown(ours).stop == 2000  # an alarm stands at 1995
    quiet = replace(ours, alarms=np.zeros(2000, np.int64))
    rows = shown(quiet)
    assert rows.start <= 1000 and rows.stop >= 1200
    assert rows.stop - rows.start == N_SHOWN


def test_peers_that_are_recorded_are_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[str] = []

    def peer(name: str, *_: object) -> dict[str, Any]:
        run.append(name)
        return {"mae": 1.0}

    monkeypatch.setattr(sensors, "_peer", peer)
    monkeypatch.setattr(sensors, "_lacking", lambda python: ["fracast"])
    path = tmp_path / "peers.json"
    values = RANDOM(0).normal(size=300)
    series = SensorFile("a", np.arange(300.0), values, False, "digest")
    sensors.run_peers([series], 1440, "python", path)
    assert run == [peer for peer in PEERS if peer != "fracast"]
    sensors.run_peers([series], 1440, "python", path)
    assert len(run) == len(PEERS) - 1
    changed = SensorFile("a", np.arange(300.0), values, False, "another")
    sensors.run_peers([changed], 1440, "python", path)
    assert len(run) == 2 * (len(PEERS) - 1)
    assert json.loads(path.read_text())["data"]["a"]["digest"] == "another"


def test_levels_of_a_peer_are_those_of_ours() -> None:
    deciles = np.arange(1, 10) / 10
    found = _at_levels(deciles[None] * 1.0, deciles.tolist())
    np.testing.assert_allclose(found[0, 1:6], LEVELS[1:6])
    assert found[0, 0] < 0.1 < 0.9 < found[0, 6]


@pytest.mark.parametrize("kind", WITHIN)
def test_a_fault_begins_at_its_row(kind: str) -> None:
    values = RANDOM(0).normal(size=60)
    faulty = with_fault(kind, values, 7.0, 1.0, 0.5, RANDOM(1))
    assert faulty[0] != values[0]
    if kind.startswith("spike"):
        assert abs(faulty[0] - values[0]) == pytest.approx(8)
        np.testing.assert_array_equal(faulty[1:], values[1:])
    if kind == "stuck":
        assert set(faulty) == {7.0}


def test_a_steady_sensor_has_no_jumps_and_a_restless_one_no_runs() -> None:
    values = RANDOM(0).normal(size=4000)
    assert is_steady(values)
    assert not is_steady(values + 30 * (np.arange(4000) % 200 == 0))
    assert longest_run(np.array([1.0, 1, 1, 2, 3, 3])) == 2
    assert longest_run(values) == 0


def test_faults_found_too_late_are_not_found() -> None:
    faults = [{"kind": "stuck", "at": at, "events": ["stuck"]} for at in (3, 29, 30, None)]
    one: dict[str, Any] = {
        "faults": faults,
        "steady": False,
        "restless": True,
        "n_first": 2,
        "n_scored": 100,
        "alarms": {},
    }
    assert found_share([one], "stuck")["share"] == 0.5
    assert eligible([one], "stuck") == [one]
    assert eligible([one], "drift") == []
    one["alarms"] = {str(rate): {"value": 1, "stuck": 2} for rate in RATES}
    assert rates_of([one]) == {str(rate): 0.03 for rate in RATES}
    shares = {kind: found_share([one], kind) for kind in WITHIN}
    data = {"steady": shares, "all": shares, "within": WITHIN, "rates": rates_of([one])}
    first = first_alarms([one, one | {"n_first": 0}])
    assert first == 1.0
    data |= {"first": first, "steady_first": 2.0}
    for table in fault_tables(data | {"steady_rates": rates_of([one])}):
        assert {len(row) for row in table.rows} == {len(table.header)}


def test_hostile_rows_are_of_every_kind() -> None:
    random = RANDOM(0)
    rows = np.array([hostile_row(random, HOUR_S * 100, 1.0) for _ in range(2000)])
    times, values = rows.T
    assert np.isnan(times).any() and np.isnan(values).any()
    assert (abs(values) > 1e17).any() and (times > HOUR_S * 1e4).any() and (times < 0).any()
