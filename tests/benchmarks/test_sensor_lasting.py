"""The oracle of what lasts, and the scores of schedules: by formulas and cases known by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.alarms.lasting_plants import FAULTS, Fault, Plant, height, oracle, plants, tops
from benchmarks.alarms.sensor_lasting import found_share
from benchmarks.alarms.sensor_lasting_table import sensor_lasting
from benchmarks.alarms.sensor_schedules import (
    KINDS,
    N_DAY,
    Schedule,
    over_plants,
    plant_with_schedule,
    scored,
)
from benchmarks.alarms.sensor_schedules_table import sensor_schedules


def test_the_oracle_of_a_drift_is_the_best_likelihood_ratio_over_all_beginnings() -> None:
    plant, fault = Plant(0.8, "normal", False), Fault("drift", 0.5)
    x = plant.healthy(np.random.default_rng(0), 12)
    e = x[1:] - plant.phi * x[:-1]
    slope = fault.by * plant.scale
    for row in range(len(e)):
        ratios = [0.0]
        for begin in range(row + 1):
            k = np.arange(1, row - begin + 2)
            mean = slope * (k - plant.phi * (k - 1))
            ratios.append(float((mean * e[begin : row + 1] - mean**2 / 2).sum()))
        assert oracle(plant, fault, x[None])[0, row] == pytest.approx(max(ratios))


@pytest.mark.parametrize("name", ["quiet, x 0.3", "noisy, x 3", "rhythm, phi - 0.5"])
def test_the_oracle_of_other_faults_is_a_cusum(name: str) -> None:
    plant, fault = Plant(0.8, "laplace", False), FAULTS[name]
    x = plant.healthy(np.random.default_rng(1), 50)
    e, before = x[1:] - plant.phi * x[:-1], x[:-1]

    def log(e: float, size: float = 1.0) -> float:
        return -math.sqrt(2) * abs(e) / size - math.log(size)

    height = 0.0
    for row in range(len(e)):
        one = (
            log(e[row], fault.by) if fault.kind == "size" else log(e[row] - fault.by * before[row])
        )
        height = max(height + one - log(e[row]), 0.0)
        assert oracle(plant, fault, x[None])[0, row] == pytest.approx(height, abs=1e-9)


def test_an_oracle_finds_its_fault_and_a_lower_rate_needs_a_greater_height() -> None:
    plant, fault = Plant(0.5, "normal", False), FAULTS["noisy, x 3"]
    low, high = (height(plant, fault, rate, np.random.default_rng(2)) for rate in (1e-3, 1e-4))
    assert 0 < low < high
    random = np.random.default_rng(3)
    x = plant.healthy(random, 100)
    y = plant.faulty(fault, random, float(x[-1]), 60)
    assert oracle(plant, fault, np.concatenate([x, y])[None])[0, -60:].max() > high


def test_tops_are_the_highest_of_each_excursion() -> None:
    statistic = np.array([[0.0, 1.0, 3.0, 0.0, 0.0, 2.0, 1.0], [4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 5.0]])
    assert sorted(tops(statistic).tolist()) == [2.0, 3.0, 4.0, 5.0]


def test_plants_are_of_each_kind_and_a_course_is_daily() -> None:
    kinds = plants()
    assert len(set(kinds)) == len(kinds) == 16
    assert kinds[1].course(96)[:48] == pytest.approx(kinds[1].course(96)[48:])
    assert not kinds[0].course(96).any()


def test_shares_count_those_found_soon_enough() -> None:
    assert found_share([0, 29, 30, None], 30) == 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_schedules_are_drawn_with_their_jumps_and_one_missing_day(kind: str) -> None:
    schedule = plant_with_schedule(kind, np.random.default_rng(4))
    changes = np.abs(np.diff(schedule.values))
    rows = np.array([row for row, _ in schedule.jumps])
    assert np.median(changes[rows - 1]) > 4 * np.median(changes)
    assert (schedule.left_out is None) == (kind == "irregular")
    if schedule.left_out is not None:
        day = schedule.left_out // N_DAY
        assert not any(row // N_DAY == day for row, _ in schedule.jumps)


def test_scores_of_a_schedule_are_those_counted_by_hand() -> None:
    jumps = [(row, n) for n, row in enumerate((100, 200, 300, 400, 500))]
    schedule = Schedule(np.zeros(2000), jumps, 700)
    found = scored(schedule, {102: "value", 405: "level shift", 506: "value", 705: "absent"})
    assert found == {"n_jumps": 2, "n_alarmed": 1, "found": True, "others": {"value": 1}}
    missed = scored(schedule, {709: "absent", 703: "value", 900: "drift"})
    assert missed == {"n_jumps": 2, "n_alarmed": 0, "found": False, "others": {"drift": 1}}
    both = over_plants([found, missed])
    assert both["alarmed"] == 0.25
    assert both["found"] == 0.5
    data = {"kinds": {"nights": both}, "rate": 1e-4, "n_days": 35, "n_times": 3}
    (table,) = sensor_schedules(data)
    assert table.rows[0][3:6] == ["25.0 %", "2", "50.0 %"]


def test_the_table_of_what_lasts_has_shares_beside_the_oracle() -> None:
    told = {"n": 4, "found": [0.5, 1.0, 1.0], "oracle": [1.0, 1.0, 1.0], "named": {"drift": 4}}
    data = {
        "within": [30, 100, 300],
        "rate": 1e-4,
        "faults": {"drift of 1": told},
        "plants_beside_rate": 1.0,
        "sensors": [{}],
        "n_clean_rows": 10_000,
        "events": {"value": 1},
        "beside_rate": 1.0,
    }
    faults, events = sensor_lasting(data)
    assert faults.rows == [
        ["drift of 1", "100, 100, 100", "50, 100, 100", "50, 100, 100", "drift 4"]
    ]
    assert events.rows[-1] == ["all", "1", "1.00"]
