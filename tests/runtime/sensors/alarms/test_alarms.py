"""Alarms of one sensor: found soon, named, at the stated rate, and learned."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest

from edgefold.runtime.errors import SnapshotError
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.alarms.run_lengths import Runs
from edgefold.runtime.sensors.alarms.tail_probability import Tail
from edgefold.runtime.sensors.alarms.verdict import AlarmVerdict


def see(watch: Watch, value: float, power: float = 1.0, n_missing: int = 0) -> AlarmVerdict:
    """Watch a value that was forecast as N(0, 1); with a power, by wrong p-values."""
    p_value = math.erfc(abs(value) / math.sqrt(2)) ** power
    log_density = -0.5 * value**2 - 0.9189
    return watch.see(value, p_value, 0.0, log_density, n_missing)


def follow(watch: Watch, values: Iterable[float], power: float = 1.0) -> list[AlarmVerdict]:
    return [see(watch, float(value), power) for value in values]


def alarms(verdicts: list[AlarmVerdict]) -> list[str]:
    return [verdict.event for verdict in verdicts if verdict.alarm]


def watched(rate: float = 1e-4, n: int = 600, seed: int = 0) -> Watch:
    """A watch that has seen clean rows."""
    watch = Watch(rate)
    follow(watch, np.random.default_rng(seed).normal(size=n))
    return watch


def noise(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=n)


@pytest.mark.parametrize("power", [1.0, 0.5, 2.0])
@pytest.mark.parametrize("rate", [1e-2, 1e-3])
def test_alarms_come_at_the_stated_rate_even_if_p_values_are_wrong(
    rate: float, power: float
) -> None:
    verdicts = follow(Watch(rate), noise(30_000), power)
    found = len(alarms(verdicts)) / (rate * len(verdicts))
    assert 1 / 3 < found < 3


def test_a_heavy_tail_is_learned() -> None:
    values = np.random.default_rng(2).standard_t(2, 20_000)
    found = alarms(follow(Watch(1e-3), values)[2000:])
    assert len(found) < 3 * 18


@pytest.mark.parametrize("sign", [1, -1])
def test_a_spike_is_alarmed_at_once_and_once(sign: int) -> None:
    watch = watched()
    assert see(watch, sign * 8.0)[:2] == (True, "value")
    assert not alarms(follow(watch, noise(50)))


def test_a_large_error_is_no_alarm_where_the_forecast_was_wide() -> None:
    assert not watched().see(9.0, 0.26, 0.0, -3.6).alarm
    assert watched().see(9.0, 0.01, 0.0, -6.0)[:2] == (True, "value")


@pytest.mark.parametrize("sign", [1, -1])
def test_one_alarm_lowers_the_allowed_rate_little_and_three_lower_it_much(sign: int) -> None:
    def alarmed_after(n_alarms: int, size: float) -> bool:
        watch = watched(n=2000)
        for _ in range(n_alarms):
            assert see(watch, sign * 9.0).alarm
            follow(watch, noise(40))
        return see(watch, sign * size).alarm

    assert alarmed_after(0, 4.6)
    assert alarmed_after(1, 5.6) and alarmed_after(2, 9.0)
    assert not alarmed_after(3, 7.0)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_level_shift_is_named_within_five_rows_and_then_learned(sign: int) -> None:
    watch = watched()
    verdicts = follow(watch, sign * 8 + noise(5))
    assert alarms(verdicts) == ["value"]
    assert verdicts[4].event == "level shift"
    assert not alarms(follow(watch, noise(300)))  # the forecast follows


def test_a_level_shift_that_the_forecast_does_not_follow_is_not_alarmed_for_ever() -> None:
    watch = watched(1e-3)
    found = alarms(follow(watch, 6 + noise(1000)))
    assert len(found) <= 12
    assert not alarms(follow(watch, 6 + noise(300, seed=3)))


def test_a_stuck_sensor_is_named_within_thirty_rows_and_alarmed_once() -> None:
    watch = watched()
    verdicts = follow(watch, [0.3] * 100)
    at = [row for row, verdict in enumerate(verdicts) if verdict.alarm]
    assert len(at) == 1
    assert at[0] < 30
    assert {verdict.event for verdict in verdicts[at[0] :]} == {"stuck"}


def test_a_sensor_that_sleeps_is_not_stuck_at_night_but_at_noon() -> None:
    watch, days = Watch(), noise(48 * 40).reshape(40, 48)
    days[:, :20] = -1.0
    for day in days[:10]:
        follow(watch, day)
    assert not [verdict for day in days[10:] for verdict in follow(watch, day) if verdict.event]
    assert "stuck" in alarms(follow(watch, days[0]) + follow(watch, [0.5] * 30))


def test_a_quantised_sensor_is_not_stuck() -> None:
    verdicts = follow(Watch(), np.round(noise(5000)))
    assert "stuck" not in alarms(verdicts)


def test_a_noisy_sensor_is_named() -> None:
    events = {verdict.event for verdict in follow(watched(), 3 * noise(40))}
    assert "noisy" in events or "value" in events


def test_a_gap_is_named_where_the_sensor_has_none_and_not_where_it_often_has() -> None:
    assert see(watched(), 0.1, n_missing=30)[:2] == (True, "gap")
    watch = watched()
    for value in noise(300):
        see(watch, value, n_missing=3)
    assert see(watch, 0.1, n_missing=4)[:2] == (False, "")


def test_rows_without_a_forecast_or_a_value_are_quiet() -> None:
    watch = watched()
    assert watch.see(1e6, 1.0, 0.0, 0.0)[:2] == (False, "")
    assert watch.see(math.nan, 1.0, 0.0, 0.0)[:2] == (False, "")
    assert watch.see(1.0, 0.5, math.nan, math.nan)[:2] == (False, "")


def test_a_loaded_watch_goes_on_as_an_uninterrupted_one() -> None:
    values = np.round(noise(1200) * np.where(np.arange(1200) % 300 < 30, 6, 1), 1)
    one, other = Watch(1e-2), Watch(1e-2)
    follow(one, values[:700])
    kept = one.arrays()
    other.load({name: array.copy() for name, array in kept.items()})
    assert follow(one, values[700:]) == follow(other, values[700:])
    sizes = {name: array.shape for name, array in kept.items()}
    assert sizes == {name: array.shape for name, array in Watch().arrays().items()}


def test_whatever_comes_the_watch_stays_finite_and_finds_the_next_spike() -> None:
    watch, random = watched(), np.random.default_rng(4)
    hostile = random.choice([0.0, 1e18, -1e18, 1e308, -1e308, 5e-324, 1.0], 5000)
    for value in hostile:
        watch.see(value, float(random.random() ** 20), 0.0, -1e9, int(random.integers(3)))
    follow(watch, noise(3000))
    assert all(np.isfinite(array).all() for array in watch.arrays().values() if array.ndim == 2)
    assert see(watch, 60.0).alarm


def test_a_damaged_watch_is_refused_and_changes_nothing() -> None:
    watch, kept = watched(), Watch().arrays()
    before = watch.arrays()
    with pytest.raises(SnapshotError):
        watch.load({**kept, "watch": np.full_like(kept["watch"], math.nan)})
    assert all(np.array_equal(before[n], a, equal_nan=True) for n, a in watch.arrays().items())


@pytest.mark.parametrize("rate", [0.0, -1.0, 0.5, math.nan])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate is"):
        Watch(rate)


def test_a_tail_that_rarely_moves_keeps_a_level() -> None:
    random, tail = np.random.default_rng(5), Tail()
    moves = random.random(20_000) < 0.01
    for moved, size in zip(moves, random.exponential(size=20_000), strict=True):
        tail.see(float(1 + size) if moved else 1e-6)
    assert 1.0 < tail.level < 8.0
    assert tail.see(3.0) > 1e-5


def test_a_longer_run_is_rarer() -> None:
    runs = Runs()
    runs.rows += 1000.0
    rarities = [runs.longer() for _ in range(40)]
    assert all(later < sooner for sooner, later in pairwise(rarities))
