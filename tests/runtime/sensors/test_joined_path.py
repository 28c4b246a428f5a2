"""Paths that join direct forecasts: their shape, what they pass through, and their limits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.sensors.joined_path import MOST_HORIZONS, AheadCounts, JoinedPath

HORIZONS = (1, 2, 4)


def joined(
    values: FloatArray,
    n_points: int,
    season: int,
    weights: Sequence[float],
    made: FloatArray | None = None,
    age: int = 0,
) -> JoinedPath:
    """A path of one column whose weights are the same at every horizon."""
    path = JoinedPath()
    path.horizons = [*HORIZONS, *[0] * (MOST_HORIZONS - len(HORIZONS))]
    path.n_columns, path.season, path.n_points, path.age = 1, season, n_points, age
    path.values, path.n_ring = values.astype(np.float32), len(values)
    path.weights = np.tile(np.array(weights, np.float32), len(HORIZONS) + 1)
    path.made = np.zeros(len(HORIZONS) + 1, np.float32) if made is None else made
    path.has_shape = True
    path.join()
    return path


def shapes(path: JoinedPath, slots: Sequence[int]) -> list[float]:
    return [path._shape(slot) for slot in slots]


def test_means_of_seasons_are_those_of_the_values_at_a_phase() -> None:
    """A ring of 12 values that hold slots 3 to 14, of a season of 3 that grows by 10 each time."""
    slots = np.arange(3, 15)
    ring = np.zeros(12)
    ring[slots % 12] = 10.0 * (slots // 3) + slots % 3
    ahead = [1, 2, 3, 4, 10]

    def means(*weights: float) -> list[float]:
        return shapes(joined(ring, 15, 3, (0.0, *weights)), ahead)

    assert means(1.0, 0.0, 0.0) == pytest.approx([40, 41, 42, 40, 40])
    assert means(0.0, 0.0, 1.0) == pytest.approx([30, 31, 32, 30, 30])
    assert means(0.0, 1.0, 0.0) == pytest.approx([25, 26, 27, 25, 25])  # of the four that are kept


def test_a_shape_is_the_seasons_as_far_as_they_weigh() -> None:
    day = 5 * np.sin(2 * np.pi * np.arange(96) / 24)

    def shape(season: int, *weights: float) -> list[float]:
        return shapes(joined(day, 96, season, weights), range(1, 24))

    float32 = 1e-6  # 5 times the spacing of float32, in which values and weights are kept
    assert shape(24, 0.0, 0.2, 0.1, 0.1) == pytest.approx(day[:23], abs=float32)
    # Persistence counts less and less from the last horizon on, 4, to a whole season ahead.
    assert shape(24, 0.25, 0.2, 0.1, 0.1)[:4] == pytest.approx(0.75 * day[:4], abs=float32)
    assert set(shape(24, 1.0, 0.0, 0.0, 0.0)) | set(shape(0, 0.0, 1.0, 0.0, 0.0)) == {0.0}


@pytest.mark.parametrize("age", [0, 3])
def test_a_path_passes_through_the_direct_forecasts(age: int) -> None:
    """Forecasts of an old value are those of slots counted from it."""
    made = np.array([1.0, 5.0, -2.0, 7.0], np.float32)
    path = joined(np.random.default_rng(0).normal(size=64), 50, 12, (0.3, 0.2, 0.4, 0.1), made, age)
    for horizon, expected in zip((*HORIZONS, 12), made, strict=True):
        if horizon > age:
            path.forecast_at(horizon - age)
            assert path.forecast[0] == pytest.approx(expected, abs=1e-12)


def test_a_path_without_a_season_is_straight_in_the_logarithm_of_slots() -> None:
    path = joined(np.zeros(64), 50, 0, (0.0,) * 4, np.array([0.0, 0.0, 2.0, 8.0], np.float32))
    path.forecast_at(16)  # between the direct forecasts of 4 and, without a season, 64 slots ahead
    assert path.forecast[0] == pytest.approx(2.0 + 6.0 * math.log(16 / 4) / math.log(64 / 4))


def test_a_path_may_be_joined_again() -> None:
    one = joined(np.arange(64.0), 50, 6, (0.1, 0.5, 0.3, 0.1))
    one.season = 9
    one.join()
    other = joined(np.arange(64.0), 50, 9, (0.1, 0.5, 0.3, 0.1))
    for slot in range(1, 20):
        one.forecast_at(slot)
        other.forecast_at(slot)
        assert one.forecast == other.forecast


def test_forecasts_stay_within_limits() -> None:
    path = joined(np.zeros(64), 50, 0, (0.0,) * 4, np.array([9.0, -9.0, 1.0, 0.0], np.float32))
    path.low, path.high = -2.0, 3.0
    found = []
    for slot in (1, 2, 4):
        path.forecast_at(slot)
        found.append(path.forecast[0])
    assert found == [3.0, -2.0, 1.0]


def test_forecasts_are_kept_after_values_and_grow_old_without() -> None:
    counts = AheadCounts()
    assert counts.see(math.nan, 0, 1) and counts.see(1.0, 24, 1)  # before the first value too
    assert not counts.see(math.nan, 7, 3) and not counts.see(math.nan, 7, 1)
    assert (counts.n_values, counts.season, counts.age) == (1, 24, 4)
    assert counts.see(2.0, 7, 2) and (counts.season, counts.age) == (7, 0)
    assert not counts.is_known(100)
    for _ in range(3):
        counts.see(0.0, 7, 1)
    assert counts.is_known(11) and not counts.is_known(10)
