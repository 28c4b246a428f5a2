"""Rows of a sensor become rows of the model, whatever comes."""

from __future__ import annotations

import contextlib
import math
import random

import numpy as np
import pytest

from edgefold.runtime.errors import DataError, SnapshotError
from edgefold.runtime.sensors.clock.row_clock import SensorFeed
from edgefold.runtime.sensors.clock.row_slots import MOST_MISSING

HOUR = 3600.0


def feed_of(n: int = 60) -> SensorFeed:
    """A feed that has seen n rows, one an hour; they are no dates."""
    feed = SensorFeed(48)
    for i in range(n):
        feed.rows(HOUR * i, float(i % 5), False)
        feed.commit()
    return feed


def test_a_row_is_its_value_and_that_it_was_measured() -> None:
    x = feed_of(20).rows(HOUR * 20, 3.5, False)
    np.testing.assert_array_equal(x, [[3.5, 1, 0, 0]])


def test_missing_slots_come_before_the_row() -> None:
    feed = feed_of(20)
    x = feed.rows(HOUR * 23, 3.5, False)
    np.testing.assert_array_equal(x[:, :2], [[0, 0], [0, 0], [0, 0], [3.5, 1]])
    assert feed.n_missing == 3


def test_a_long_gap_is_cut_short() -> None:
    x = feed_of(20).rows(HOUR * 900, 3.5, False)
    assert len(x) == MOST_MISSING + 1


def test_a_row_without_value_is_a_slot_that_was_not_measured() -> None:
    np.testing.assert_array_equal(feed_of(20).rows(HOUR * 20, math.nan, False), [[0, 0, 0, 0]])


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e31, -1e300])
def test_values_that_no_float32_bears_are_refused(value: float) -> None:
    with pytest.raises(DataError):
        feed_of(20).rows(HOUR * 20, value, False)


def test_a_row_that_is_not_kept_changes_nothing() -> None:
    feed, other = feed_of(), feed_of()
    feed.rows(HOUR * 77, 9.0, False)
    with pytest.raises(DataError):
        feed.rows(HOUR * 61, 1e31, False)
    np.testing.assert_array_equal(
        feed.rows(HOUR * 60, 1.0, False), other.rows(HOUR * 60, 1.0, False)
    )
    feed.commit()
    other.commit()
    for name, array in feed.arrays().items():
        np.testing.assert_array_equal(array, other.arrays()[name])


def test_a_season_of_the_calendar_is_said_to_be_a_guess_until_values_show_one() -> None:
    feed, values, notes = SensorFeed(1440), np.tile([0.0, 1, 5, 2, 3, 1, 0, 0], 20), list[str]()
    for n, value in enumerate(values):
        feed.rows(1_700_000_000 + HOUR * n, float(value), True)
        feed.commit()
        notes += feed.notes
    first, *others = notes
    assert first.startswith("season of 24 slots, a day (by the calendar")
    assert others[0] == "season of 8 slots"
    assert not any("by the calendar" in note for note in others)


def test_notes_tell_of_gaps_paces_and_seasons_once() -> None:
    feed = feed_of(0)
    values, notes = np.tile([0.0, 1, 5, 2, 3, 1, 0, 0], 20), list[str]()
    for n, value in enumerate(values):
        feed.rows(HOUR * n + 50 * HOUR * (n > 120), float(value), False)
        feed.commit()
        notes += feed.notes
    assert notes == ["season of 8 slots", "50 rows are missing (180000 in units of its times)"]
    for n in range(60):
        feed.rows(HOUR * 300 + n, 0.0, False)
        feed.commit()
        notes += feed.notes
    assert any("every 1 in units" in note for note in notes[2:])


def hostile_rows(chance: random.Random, n: int) -> list[tuple[float, float]]:
    """Rows of a minute each: half of them wrong in one of many ways."""
    rows, now = [], 1.7e9
    for _ in range(n):
        now += 60
        time, value = now, chance.gauss(20, 1)
        if chance.random() < 0.5:
            value = chance.choice([value, math.nan, math.inf, 1e300, -1e29, 1e18])
            time = chance.choice(
                [
                    *(now, now - 60, now - chance.uniform(0, 1e6), now + chance.uniform(0, 1e6)),
                    *(now * chance.uniform(0, 1e3), 253402300799.0, 0.0, math.nan, math.inf, 1e99),
                ]
            )
            now += chance.choice([0, 0, 0, 0, 6e2, 6e4, 6e6, -60, -3600, -1e7])
        rows.append((time, value))
    return rows


def test_uneven_times_have_a_mean_and_no_news_of_it() -> None:
    chance, feed, time = random.Random(0), SensorFeed(48), 0.0
    for _ in range(400):
        time += chance.expovariate(0.1)
        feed.rows(time, 1.0, False)
        feed.commit()
        assert not feed.is_irregular or not feed.notes
    assert feed.is_irregular
    assert 5 < feed.pace < 20  # the mean of 31 steps, each of 10 in the mean


@pytest.mark.parametrize("seed", range(20))
def test_after_hostile_rows_a_stream_recovers_within_200(seed: int) -> None:
    chance, feed = random.Random(seed), SensorFeed(1440)
    rows = hostile_rows(chance, 400)
    now = chance.choice([rows[-1][0], 1.7e9, 1.6e9, 1.8e9])
    now = now if math.isfinite(now) and abs(now) < 1e12 else 1.7e9
    taken = []
    for time, value in rows + [(now + 60 * k, 20.0) for k in range(1, 300)]:
        try:
            x = feed.rows(time, value, True)
        except DataError:
            taken.append(0)
            continue
        assert np.isfinite(x.astype(np.float32)).all()
        assert len(x) <= 1440
        assert (x[:, 3] < np.maximum(x[:, 2], 1)).all()
        feed.commit()
        taken.append(len(x))
    assert taken[-99:] == [1] * 99
    assert feed.pace == 60
    assert all(array.nbytes < 50_000 for array in feed.arrays().values())


def test_a_restored_feed_goes_on_as_the_first_one() -> None:
    chance = random.Random(5)
    rows = hostile_rows(chance, 600)
    feed = other = SensorFeed(48)
    for n, (time, value) in enumerate(rows):
        if n % 100 == 99:
            other = SensorFeed(48)
            other.load(feed.arrays())
        found = []
        for one in (feed, other) if other is not feed else (feed,):
            try:
                found.append(one.rows(time, value, True).tobytes())
                one.commit()
            except DataError as error:
                found.append(str(error).encode())
        assert len(set(found)) == 1
    for name, array in feed.arrays().items():
        assert array.tobytes() == other.arrays()[name].tobytes()


def test_a_prepared_row_that_is_dropped_changes_nothing() -> None:
    """Copies share the ring of values, also where a new pace makes one of them forget it."""
    chance, feed, time = random.Random(2), SensorFeed(48), 1.7e9
    for n in range(700):
        time += (60 if n // 150 % 2 else 7) * (1 + (chance.random() < 0.05) * chance.randrange(400))
        before = feed.arrays()
        with contextlib.suppress(DataError):
            feed.rows(time, chance.gauss(0, 1), True)
            dropped = feed.prepared()
            for name, array in feed.arrays().items():
                assert array.tobytes() == before[name].tobytes(), f"{name} at row {n}"
            feed.commit()
            for name, array in feed.arrays().items():
                assert array.tobytes() == dropped.arrays()[name].tobytes(), f"{name} at row {n}"


@pytest.mark.parametrize("pace", [1e-300, 1e-12, 60.0, 1e200])
def test_places_of_huge_times_are_whole_numbers_of_float64(pace: float) -> None:
    feed = SensorFeed(48)
    for time in (0.0, pace, 2 * pace, 3 * pace, 1e300, 1e300 + 1e285, -1e300):
        with contextlib.suppress(DataError):
            feed.rows(time, 1.0, True)
            assert all(abs(number) <= 2**52 for number in feed.place)
            feed.commit()


@pytest.mark.parametrize("told_pace", [0.0, -1.0, math.inf])
def test_snapshots_of_a_pace_that_no_sensor_has_are_refused(told_pace: float) -> None:
    damaged = feed_of().arrays()
    damaged["told_pace"][0] = told_pace
    with pytest.raises(SnapshotError):
        SensorFeed(48).load(damaged)


def test_snapshots_of_another_longest_season_are_refused() -> None:
    feed = feed_of()
    with pytest.raises(SnapshotError):
        SensorFeed(1440).load(feed.arrays())
    with pytest.raises(SnapshotError):
        feed.load({})
    damaged = feed.arrays()
    damaged["season"][1] = -5
    with pytest.raises(SnapshotError):
        feed.load(damaged)
