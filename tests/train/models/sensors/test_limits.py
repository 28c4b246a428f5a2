"""Limits are found where values pile up or come near to zero, and only there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from edgefold.train.models.sensors import limits
from edgefold.train.models.sensors.slot import Slot, SlotSeason

Values = Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]
RANDOM = np.random.default_rng


def bounds_after(*parts: Values) -> list[tuple[float | None, float | None]]:
    """Return the bounds of one sensor after each part of its values; None where there is none.

    NaN is a missing value, for which the one before stands in.
    """
    own, newest = limits.initial_limits(1), 0.0
    found = list[tuple[float | None, float | None]]()
    for part in parts:
        for value in part:
            is_there = value == value
            value = value if is_there else newest
            own = limits.learned(own, slot_of(value, newest, is_there))
            newest = value
        low, high = own["bounds"][0].tolist()
        found.append((low if low > -limits.NONE else None, high if high < limits.NONE else None))
    return found


def slot_of(value: float, newest: float, is_there: bool) -> Slot:
    number = torch.zeros(1, 1, dtype=torch.int64)
    one, values = torch.ones(1, 1), torch.tensor([[value], [newest]], dtype=torch.float32)
    season = SlotSeason(number, number, one)
    return Slot(
        *(number, values[:1], one * is_there, one, values[1:], one, season, one, one),
        *(number[..., None], number[..., None]),
    )


def night_and_day(n_days: int, seed: int = 0) -> Values:
    """Power of a plant, with nights of 12 rows a little below zero."""
    sun = np.maximum(np.sin(2 * np.pi * np.arange(24 * n_days) / 24), 0) * 50
    return np.where(sun > 1e-9, sun, -0.05 * RANDOM(seed).random(24 * n_days))


def test_nights_that_pile_up_are_a_limit_after_some_of_them() -> None:
    few, many = bounds_after(night_and_day(3), night_and_day(4, 1))
    assert few == (None, None)
    assert many[0] is not None and -0.05 <= many[0] < 0
    assert many[1] is None


def test_a_rail_is_a_limit_of_the_upper_side() -> None:
    swing = 20 * np.sin(2 * np.pi * np.arange(400) / 20)
    assert bounds_after(np.minimum(swing, 10.0)) == [(None, 10.0)]
    assert bounds_after(-np.minimum(swing, 10.0)) == [(-10.0, None)]
    assert bounds_after(swing) == [(None, None)]


def test_counts_near_zero_have_it_as_a_limit_until_one_is_negative() -> None:
    counts = np.tile([0.05, 30, 200, 90, 8], 12) * RANDOM(0).uniform(0.9, 1.1, 60)
    assert bounds_after(counts, [-3.0], counts[:15], counts) == [
        *((0.0, None), (None, None), (None, None), (0.0, None))
    ]


@pytest.mark.parametrize("step", [0.0, 1.0, 4.0])
def test_a_sensor_that_swings_freely_has_no_limits(step: float) -> None:
    """Noise around a level, as it is and in steps of a scale and of four."""
    values = 40 + 3 * RANDOM(1).normal(size=2000)
    values = np.round(values / step) * step if step else values
    assert bounds_after(values) == [(None, None)]


def test_a_rising_sensor_in_steps_is_not_held_at_a_plateau() -> None:
    values = np.round(np.arange(600) / 40 + RANDOM(2).normal(size=600) * 0.6)
    found = bounds_after(*np.split(values, 60))
    ahead = [part.max() for part in np.split(values, 60)[1:]]
    crossed = [m > high + 0.1 for (_, high), m in zip(found, ahead, strict=False) if high]
    assert not any(crossed)


def test_a_constant_sensor_has_none_and_one_of_two_values_has_both() -> None:
    assert bounds_after([7.0] * 200) == [(None, None)]
    assert bounds_after([0.0, 0.0, 5.0, 5.0, 5.0] * 20) == [(0.0, 5.0)]


def test_a_missing_row_teaches_nothing() -> None:
    values = night_and_day(8)
    holes = np.insert(values, np.arange(0, len(values), 3), np.nan)
    assert bounds_after(holes) == bounds_after(values)


def test_a_false_value_of_long_ago_is_given_up() -> None:
    nights = night_and_day(8)
    years = np.resize(nights, 3900)
    after = bounds_after(nights, [-999.0], nights, years, nights)
    assert [low is not None for low, _ in after] == [True, False, False, False, True]


def test_quantiles_beyond_a_bound_are_moved_to_it() -> None:
    values = torch.tensor([[[-2.0, 1.0, 7.0], [0.5, 3.0, 4.0]], [[-2.0, 1.0, 7.0], [0, 3, 4]]])
    bounds = torch.tensor([[0.0, 5.0], [-limits.NONE, limits.NONE]])
    found = limits.within(values, bounds)
    assert found[0].tolist() == [[0, 1, 5], [0.5, 3, 4]]
    assert torch.equal(found[1], values[1])
    assert limits.within(values[:, 0, :1], bounds).tolist() == [[0], [-2]]
