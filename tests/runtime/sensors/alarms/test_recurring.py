"""Jumps that recur are expected, their absence is alarmed, and chance is neither."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.alarms.recurring import N_JUMPS, Recurring
from edgefold.runtime.sensors.alarms.slot_place import SlotPlace

N_DAY, UP, DOWN, SIZE = 96, 30, 70, 12.0
Days = Callable[[int], bool]


def working(day: int) -> bool:
    return day % 7 < 5


def always(day: int) -> bool:
    return True


def plant(days: Days, n_days: int, seed: int = 0, jitter: int = 0) -> FloatArray:
    """Noise with a level that is higher from UP to DOWN on some days."""
    random = np.random.default_rng(seed)
    values = random.normal(size=n_days * N_DAY)
    for day in filter(days, range(n_days)):
        up, down = (at + int(random.integers(-jitter, jitter + 1)) for at in (UP, DOWN))
        values[day * N_DAY + up : day * N_DAY + down] += SIZE
    return values


def follow(recurring: Recurring, values: FloatArray, first: int = 0) -> list[int]:
    """The rows, counted from the first one given, in which a jump was absent."""
    return [
        row
        for row, value in enumerate(values.tolist())
        if recurring.see(value, 0, SlotPlace(N_DAY, N_DAY, first + row), False)
    ]


def known(days: Days, n_days: int, **options: int) -> Recurring:
    recurring = Recurring()
    follow(recurring, plant(days, n_days, **options))
    return recurring


@pytest.mark.parametrize(("days", "n_days"), [(working, 3), (always, 3), (working, 12)])
def test_a_jump_is_expected_after_three_of_its_kind(days: Days, n_days: int) -> None:
    recurring = known(days, n_days)
    morning = plant(days, n_days + 1)[n_days * N_DAY : n_days * N_DAY + UP + 1]
    follow(recurring, morning, n_days * N_DAY)
    assert days(n_days) or n_days == 12  # also on a Saturday, when the forecast expects it
    assert recurring.explains(SIZE)
    assert not recurring.explains(3 * SIZE)


def test_a_jump_at_another_time_is_not_expected() -> None:
    recurring = known(always, 10)
    follow(recurring, plant(always, 11)[10 * N_DAY : 10 * N_DAY + 50], 10 * N_DAY)
    assert not recurring.explains(SIZE)


def test_two_jumps_are_none_that_recur() -> None:
    recurring = known(always, 2)
    follow(recurring, plant(always, 3)[2 * N_DAY : 2 * N_DAY + UP + 1], 2 * N_DAY)
    assert not recurring.explains(SIZE)


@pytest.mark.parametrize("jitter", [0, 1])
@pytest.mark.parametrize(("days", "missing"), [(working, 24), (always, 25)])
def test_a_jump_that_does_not_come_is_absent_once_and_soon(
    days: Days, missing: int, jitter: int
) -> None:
    recurring = known(days, missing, jitter=jitter)
    found = follow(recurring, plant(lambda day: False, 1, seed=9), missing * N_DAY)
    assert len(found) == 2  # the way up and the way down
    assert 0 < found[0] - UP <= 8
    assert 0 < found[1] - DOWN <= 8


def test_a_weekend_is_not_absent() -> None:
    assert not follow(Recurring(), plant(working, 42))


def test_what_comes_in_a_gap_or_while_the_sensor_is_stuck_is_not_absent() -> None:
    for n_missing, is_stuck in ((20, False), (0, True)):
        recurring = known(always, 25)
        first = 25 * N_DAY + UP - 5 + n_missing
        for row in range(20):
            place = SlotPlace(N_DAY, N_DAY, first + row)
            assert not recurring.see(0.0, n_missing * (row == 0), place, is_stuck)


def test_a_plant_that_often_leaves_one_out_is_not_alarmed() -> None:
    random = np.random.default_rng(4)
    comes = random.random(70) < 0.6
    assert len(follow(Recurring(), plant(lambda day: bool(comes[day]), 70))) <= 2


def test_jumps_by_chance_are_seldom_expected_and_never_due() -> None:
    random = np.random.default_rng(5)
    n = 40 * N_DAY
    values = random.normal(size=n) + np.cumsum((random.random(n) < 0.02) * random.normal(0, 15, n))
    recurring, explained, n_jumps = Recurring(), 0, 0
    for row, value in enumerate(values.tolist()):
        assert not recurring.see(value, 0, SlotPlace(N_DAY, N_DAY, row), False)
        if row and abs(value - values[row - 1]) > 10:
            n_jumps += 1
            explained += recurring.explains(abs(value - values[row - 1]))
    assert n_jumps > 20
    assert explained <= 0.2 * n_jumps


def test_another_cycle_forgets_all() -> None:
    recurring = known(always, 10)
    recurring.see(0.0, 0, SlotPlace(24, 24, 10 * N_DAY), False)
    assert not recurring.explains(SIZE)
    assert recurring.numbers()[-2 * N_JUMPS : -N_JUMPS].tolist() == [-1.0] * N_JUMPS


def test_a_snapshot_goes_on_with_the_same_answers() -> None:
    one, other = known(always, 25), Recurring()
    other.take(one.numbers())
    rest = plant(lambda day: False, 1, seed=9)
    assert follow(one, rest, 25 * N_DAY) == follow(other, rest, 25 * N_DAY) != []


def test_a_snapshot_after_each_row_changes_no_answer() -> None:
    """So what the search for the next slot spares is never an answer."""
    days = plant(lambda day: day not in (23, 26), 28, jitter=1)
    one, other = Recurring(), Recurring()
    for row, value in enumerate(days.tolist()):
        place = SlotPlace(N_DAY, N_DAY, row - 5 * N_DAY)  # times before 1970 have slots below 0
        copied = Recurring()
        copied.take(other.numbers())
        other = copied
        is_absent = one.see(value, 0, place, False)
        assert other.see(value, 0, place, False) == is_absent
    assert one.numbers().tolist() == other.numbers().tolist()


# In the watch ------------------------------------------------------------------------------------


def alarms(values: FloatArray) -> list[tuple[int, str]]:
    """Alarms of rows that are forecast as N(0, 1) at any time: no forecast learns the schedule."""
    watch, found = Watch(1e-3), list[tuple[int, str]]()
    for row, value in enumerate(values.tolist()):
        p_value, density = math.erfc(abs(value) / math.sqrt(2)), -0.5 * value**2 - 0.9189
        place = SlotPlace(N_DAY, N_DAY, row)
        verdict = watch.see(value, p_value, 0.0, density, 0, 0.0, place)
        if verdict.alarm:
            found.append((row, verdict.event))
    return found


def test_short_events_are_alarmed_until_they_recur_and_a_spike_elsewhere_is() -> None:
    values = np.random.default_rng(1).normal(size=20 * N_DAY)
    values[10 * N_DAY + UP :: N_DAY] += SIZE  # one row a day, from the tenth day on
    values[18 * N_DAY + 60] += SIZE
    found = dict(alarms(values))
    first = [10 * N_DAY + UP + N_DAY * day for day in range(3)]
    later = [10 * N_DAY + UP + N_DAY * day for day in range(3, 10)]
    assert found.get(first[0]) == "value"
    assert not [row for row in later if row in found]
    assert found.get(18 * N_DAY + 60) == "value"
