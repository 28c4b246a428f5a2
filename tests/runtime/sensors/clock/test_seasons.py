"""Which season a stream has: the calendar's from the first rows on, or one that is found."""

from __future__ import annotations

import math

import numpy as np
import pytest

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.sensors.clock.row_clock import SensorFeed
from edgefold.runtime.sensors.clock.season_search import SeasonSearch

DAY = 86400.0
START = 1.7e9 // DAY * DAY


def wave(n: int, length: float, noise: float = 0.3, seed: int = 0) -> FloatArray:
    """A season of two harmonics, in noise."""
    turns = 2 * math.pi * np.arange(n) / length
    random = np.random.default_rng(seed)
    values: FloatArray = np.sin(turns) + 0.6 * np.cos(2 * turns) + noise * random.normal(size=n)
    return values


def searched(values: FloatArray, end: int = 0) -> SeasonSearch:
    """A search in values that fill a ring; the newest one lies before the place `end`."""
    n, search = len(values), SeasonSearch()
    search.ring = np.roll(values, end).astype(np.float32)
    search.lend(n)
    search.search(n, end, n)
    return search


def fed(values: FloatArray, pace: float, dated: bool, start: float = START) -> SensorFeed:
    feed = SensorFeed(1440)
    for n, value in enumerate(values.tolist()):
        feed.rows(start + pace * n, value, dated)
        feed.commit()
    return feed


@pytest.mark.parametrize(
    ("pace", "length"),
    [(60, 1440), (300, 288), (3600, 24), (DAY, 7), (7 * DAY, 52), (30.4369 * DAY, 12), (10, 0)],
)
def test_dated_rows_begin_with_the_season_of_the_calendar(pace: float, length: int) -> None:
    feed = fed(np.random.default_rng(0).normal(size=10), pace, True)
    assert feed.season == length


def test_numbers_have_no_season_before_one_is_found() -> None:
    assert fed(wave(40, 24), 3600, False).season == 0


@pytest.mark.parametrize("length", [12, 24, 37, 60, 96, 288, 731])
def test_a_season_is_found_in_numbers(length: int) -> None:
    assert fed(wave(3072, length), 1.0, False).season == pytest.approx(length, abs=1 + length // 30)


@pytest.mark.parametrize("phi", [0.5, 0.8, 0.9, 0.97])
def test_the_length_of_a_season_in_slow_noise_is_found_to_the_slot(phi: float) -> None:
    """Over two turns such noise decides between neighbours; over many turns the season does."""
    random, noise = np.random.default_rng(3), [0.0]
    for e in random.normal(size=2400).tolist():
        noise.append(phi * noise[-1] + e)
    wide = 3 / math.sqrt(1 - phi**2)
    season = wide * np.sin(2 * math.pi * np.arange(2400) / 48)
    assert fed(season + np.array(noise[1:]), 1.0, False).season == 48


def test_a_short_season_is_found_soon() -> None:
    assert fed(wave(100, 24, noise=0.1), 1.0, False).season == 24


@pytest.mark.parametrize("seed", range(4))
def test_few_huge_values_among_missing_ones_have_no_season(seed: int) -> None:
    random = np.random.default_rng(seed)
    values = 20 + 3 * wave(3600, 24, seed=seed)
    hit = random.random(3600) < 0.1
    values[hit] = 1e18 * random.choice([-1, 1], hit.sum())
    values[random.random(3600) < 0.7] = math.nan
    assert searched(values).best() == 0
    assert fed(values, 3600, True).season == 24


def test_a_week_replaces_a_day_that_repeats_worse() -> None:
    random = np.random.default_rng(0)
    week = random.normal(size=168)
    values = np.tile(week, 12) + 0.1 * random.normal(size=168 * 12)
    assert fed(values, 3600, True).season == 168
    day = np.tile(week[:24], 84) + 0.1 * random.normal(size=168 * 12)
    assert fed(day, 3600, True).season == 24


def test_the_season_of_the_calendar_stays_where_nothing_repeats() -> None:
    assert fed(np.cumsum(np.random.default_rng(0).normal(size=2000)), 3600, True).season == 24


@pytest.mark.parametrize("kind", ["noise", "walk", "steps", "constant", "spikes"])
def test_what_does_not_repeat_has_no_season(kind: str) -> None:
    random = np.random.default_rng(1)
    noise = random.normal(size=3072)
    values = {
        "noise": noise,
        "walk": np.cumsum(noise),
        "steps": np.repeat(random.normal(size=99), random.integers(32, 80, 99))[:3072] + noise / 9,
        "constant": np.full(3072, 7.0),
        "spikes": noise + 1e12 * (random.random(3072) < 0.003),
    }[kind]
    assert searched(values).best() == 0


def test_spikes_and_gaps_do_not_hide_a_season() -> None:
    values = wave(2048, 48)
    values[np.random.default_rng(1).random(2048) < 0.004] = 1e15
    values[700:900] = math.nan
    values[np.random.default_rng(0).random(2048) < 0.2] = math.nan
    assert searched(values).best() == 48


def test_of_a_season_and_its_multiples_the_season_is_found() -> None:
    profile = np.random.default_rng(3).normal(size=24)
    values = np.tile(profile, 128) + 0.2 * np.random.default_rng(4).normal(size=3072)
    assert searched(values).best() == 24


def test_the_phase_of_a_day_is_that_of_the_clock() -> None:
    feed = SensorFeed(1440)
    for hour in range(100):
        if hour % 7 == 3:
            continue  # a row that is missing
        x = feed.rows(START + 3600 * hour, 1.0, True)
        feed.commit()
        if hour > 6:
            assert x[:, 2].tolist() == [24] * len(x)
            assert x[-1, 3] == hour % 24
            assert ((x[1:, 3] - x[:-1, 3]) % 24 == 1).all()


def test_the_phase_follows_a_calendar_that_is_no_whole_number_of_slots() -> None:
    pace = 7 * 60.0  # 205.7 in a day
    feed = SensorFeed(1440)
    for n in range(3000):
        x = feed.rows(START + pace * n, 1.0, True)
        feed.commit()
        if n > 6:
            apart = x[0, 3] - (pace * n % DAY) / DAY * 206
            assert abs((apart + 103) % 206 - 103) < 3


def test_after_a_long_gap_the_phase_has_gone_on() -> None:
    for dated in (True, False):
        feed = fed(wave(480, 24), 3600, dated)
        assert feed.season == 24
        before = feed.rows(START + 3600 * 480, 0.0, dated)[-1, 3]
        x = feed.rows(START + 3600 * (480 + 24 * 40), 0.0, dated)
        assert 230 < len(x) <= 257
        assert x[-1, 3] == before
        assert ((x[1:, 3] - x[:-1, 3]) % 24 == 1).all()


def test_another_pace_forgets_seasons_in_slots() -> None:
    feed = fed(wave(480, 24), 3600, True)
    start = START + 3600 * 480
    for n in range(100):
        feed.rows(start + 600 * n, 0.0, True)
        feed.commit()
    assert feed.season == 144


def test_a_season_is_found_where_gaps_pass_over_the_slots_of_a_look() -> None:
    feed, values = SensorFeed(1440), wave(1200, 24, noise=0.1)
    for n in range(1200):
        if (n + 1) % 16 > 3:  # slots 48, 96, 160, 256 and so on are missing
            feed.rows(float(n), float(values[n]), False)
            feed.commit()
    assert feed.season == 24


def test_the_longest_season_can_be_judged() -> None:
    values = np.tile(np.random.default_rng(0).normal(size=1440), 3)
    assert fed(values, 60, False).season == 1440


def test_the_season_of_the_calendar_stays_through_many_gaps() -> None:
    random, feed = np.random.default_rng(0), SensorFeed(1440)
    for n in np.flatnonzero(random.random(1000) < 0.4).tolist():
        feed.rows(START + 300 * n, float(random.normal()), True)
        feed.commit()
        if n > 300:
            assert feed.season == 288


def test_a_score_is_the_mean_correlation_at_one_and_two_lags() -> None:
    """Computed by its definition, without a Fourier transform, for single slots (not means)."""
    values = np.float32(wave(90, 17, seed=5)).astype(float)
    values[[3, 40, 41]] = math.nan
    search = searched(values, end=31)
    known, held = ~np.isnan(values), values.copy()
    held[known] = np.clip(held[known], *np.quantile(held[known], (0.005, 0.995)))
    for i in np.flatnonzero(~known):
        held[i] = held[i - 1]
    held -= held.mean()
    is_pair = known[1:] & known[:-1]
    white = held[1:] - (held[1:] @ held[:-1]) / (held @ held) * held[:-1]
    white -= (white * is_pair).sum() / is_pair.sum()
    bound = 4.0 * np.abs(white * is_pair).sum() / is_pair.sum()
    white = np.clip(white, -bound, bound) * is_pair

    def sums(lag: int) -> tuple[float, int]:
        n = len(white) - lag
        return white[:n] @ white[lag:], int((is_pair[:n] & is_pair[lag:]).sum())

    size = sums(0)[0] / sums(0)[1]
    for lag in range(1, search.n_lags):
        if lag >= 5 * 4:  # below, means of 4 slots have no score
            break
        both = [sums(lag), sums(2 * lag)]
        score = sum(total for total, _ in both) / sum(n for _, n in both) / size
        assert search.score_at(lag) == pytest.approx(max(score, 0.0), abs=1e-9)


def test_values_of_any_size_have_the_same_season() -> None:
    values = wave(400, 24)
    for factor in (1e-30, 1.0, 1e29):
        assert searched(values * factor).best() == 24


def test_asked_lags_have_a_score_only_where_chance_does_not_explain_it() -> None:
    search = SeasonSearch()
    search.ring, search.asked = wave(400, 24).astype(np.float32), [24, 31, 0]
    search.lend(400)
    search.search(400, 0, 400)
    assert search.likely[0] == search.score_at(24) > 0.5 and search.likely[1:] == [0.0, 0.0]
    search.release()
    assert len(search._waves) == 0


@pytest.mark.parametrize("factor", [1.0, 1 / 3, 1e-7])
def test_of_lengths_that_repeat_equally_the_shortest_is_the_season(factor: float) -> None:
    """Rounding, which the factor changes, does not decide."""
    day = np.random.default_rng(1).normal(size=12)
    assert searched(np.tile(day, 30) * factor).best() == 12
