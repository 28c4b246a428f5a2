"""From times to slots: the pace, gaps, late rows, and clocks that leap."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.sensors.clock.slot_clock import SlotClock


def taken(clock: SlotClock, times: Sequence[float]) -> list[int]:
    """Slots of each time; 0 where it is refused."""
    found = []
    for time in times:
        n_slots = clock.slots(time)
        if n_slots:
            clock.commit(time, n_slots)
        found.append(n_slots)
    return found


def every(pace: float, n: int, start: float = 0.0) -> list[float]:
    return [start + pace * i for i in range(n)]


@pytest.fixture
def clock() -> SlotClock:
    """A clock that has seen 50 rows, one a minute; the last at 2940 s."""
    clock = SlotClock()
    assert taken(clock, every(60, 50)) == [1] * 50
    return clock


def test_the_pace_is_the_usual_difference(clock: SlotClock) -> None:
    assert clock.pace == 60
    assert not clock.is_irregular


def test_slots_that_are_missing_are_counted(clock: SlotClock) -> None:
    assert taken(clock, [2940 + 60 * 5, 2940 + 60 * 6]) == [5, 1]


def test_late_repeated_and_endless_times_are_refused_and_change_nothing(clock: SlotClock) -> None:
    assert taken(clock, [2940, 100, math.nan, math.inf, -math.inf, 2900]) == [0] * 6
    assert taken(clock, [3000]) == [1]


@pytest.mark.parametrize("wrong", [253402300799.0, 1e99, 1e7])
def test_one_time_far_ahead_costs_one_row(clock: SlotClock, wrong: float) -> None:
    assert taken(clock, [wrong, 3000, 3060]) == [0, 1, 1]


def test_a_long_pause_costs_one_row(clock: SlotClock) -> None:
    after = every(60, 5, 2940 + 60 * 5000)
    assert taken(clock, after) == [0, 5001, 1, 1, 1]


def test_after_two_wrong_times_that_agree_the_clock_is_set_back(clock: SlotClock) -> None:
    assert taken(clock, [3e9, 3e9 + 60]) == [0, (3e9 + 60 - 2940) / 60]
    assert taken(clock, every(60, 5, 3000)) == [0, 0, 1, 1, 1]


def test_a_clock_that_is_set_back_goes_on_after_some_rows(clock: SlotClock) -> None:
    found = taken(clock, every(60, 20, 0.0))
    assert found == [0] * 7 + [1] * 13


def test_late_rows_between_good_ones_do_not_set_the_clock_back(clock: SlotClock) -> None:
    times = [t for i in range(20) for t in (3000 + 60 * i, 60 * i)]
    assert taken(clock, times) == [1, 0] * 20


def test_a_first_time_that_is_wrong_is_soon_forgotten() -> None:
    for wrong in (0.0, 253402300799.0):
        clock = SlotClock()
        found = taken(clock, [wrong, *every(60, 30, 1.7e9)])
        assert found[-20:] == [1] * 20
        assert clock.pace == 60


@pytest.mark.parametrize("pace", [20.0, 300.0, 61.0, 86400.0, 1e-3])
def test_a_lasting_change_of_pace_is_learned(clock: SlotClock, pace: float) -> None:
    found = taken(clock, every(pace, 60, 3000))
    assert found[-20:] == [1] * 20
    assert clock.pace == pytest.approx(pace)


def test_rows_that_are_missing_do_not_change_the_pace() -> None:
    chance, clock = random.Random(0), SlotClock()
    times = [t for t in every(300, 600) if chance.random() < 0.5]
    taken(clock, times)
    assert clock.pace == 300
    assert not clock.is_irregular


def test_jitter_is_neither_a_gap_nor_another_pace() -> None:
    chance, clock = random.Random(0), SlotClock()
    times = [t + chance.uniform(-0.25, 0.25) for t in every(1, 500)]
    found = taken(clock, times)
    assert found[40:] == [1] * 460
    assert clock.mean_pace == pytest.approx(1, rel=0.01)


def test_times_that_are_rounded_have_the_mean_pace() -> None:
    clock = SlotClock()
    found = taken(clock, [float(math.floor(1.4 * i)) for i in range(200)])
    assert found[60:] == [1] * 140
    assert clock.pace == pytest.approx(1.4, rel=0.05)


def test_times_without_a_pace_are_a_slot_each() -> None:
    chance, clock, time, times = random.Random(0), SlotClock(), 0.0, []
    for _ in range(300):
        time += chance.expovariate(1)
        times.append(time)
    assert taken(clock, times)[50:] == [1] * 250
    assert clock.is_irregular
    taken(clock, every(1, 60, time + 1))
    assert not clock.is_irregular


def test_a_year_of_months_has_no_gaps() -> None:
    days = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] * 5
    times = [86400.0 * sum(days[:i]) for i in range(60)]
    clock = SlotClock()
    assert taken(clock, times) == [1] * 60


def test_a_restored_clock_goes_on_as_the_first_one(clock: SlotClock) -> None:
    taken(clock, [1e12, 2950, 3001])
    other = SlotClock()
    other.load(clock.arrays()["clock"])
    times = [1e12 + 60, 3050, 3100, 2000, 2060, 2120, 2180, 3160, 9000, 9060]
    assert taken(other, times) == taken(clock, times)
    assert other.arrays()["clock"].tobytes() == clock.arrays()["clock"].tobytes()


@pytest.mark.parametrize(
    ("place", "number"),
    [
        *((place, -math.inf) for place in (0, 1, 2, 3, 4, 5, 6, 7, 8, 39)),
        *((place, math.inf) for place in (0, 1, 4, 7, 8)),
        (0, 0.0),  # a pace of 0
        (6, 1e9),  # slots counted from a time after the newest row
        (7, 1e17),  # more slots than float64 counts
        (9, math.nan),  # a difference is missing among others
    ],
)
def test_a_damaged_snapshot_is_refused(clock: SlotClock, place: int, number: float) -> None:
    array = clock.arrays()["clock"]
    array[place] = number
    with pytest.raises(SnapshotError):
        SlotClock().load(array)
