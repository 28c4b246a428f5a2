"""What lasts is found, named, measured and learned, at the allowed rate for alike excursions."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.sensors.alarms.alarms import Watch
from edgefold.runtime.sensors.alarms.lasting import LONGEST, N_FIRST, Excursion, Lasting
from edgefold.runtime.sensors.alarms.slot_place import SlotPlace
from edgefold.runtime.sensors.alarms.verdict import AlarmVerdict

N_HEALTHY, RATE = 3000, 1e-4


def autoregression(e: FloatArray, phi: float = 0.8, before: float = 0.0) -> FloatArray:
    """Values of an AR(1) with the noise e."""
    x = np.empty(len(e))
    for row, noise in enumerate(e.tolist()):
        before = x[row] = phi * before + noise
    return x


def drawn(law: str, n: int, seed: int) -> FloatArray:
    random = np.random.default_rng(seed)
    return random.normal(size=n) if law == "normal" else random.laplace(size=n) / math.sqrt(2)


def follow(
    lasting: Lasting, values: Iterable[float], allowed: float = RATE
) -> list[list[Excursion]]:
    return [see(lasting, float(value), allowed=allowed) for value in values]


def see(
    lasting: Lasting,
    value: float,
    usual: float = 0.0,
    season: int = 0,
    n_missing: int = 0,
    allowed: float = RATE,
) -> list[Excursion]:
    """The excursions that are too high at the next row."""
    n_found = lasting.see(value, usual, season, n_missing, math.log(allowed))
    return [lasting.found(at) for at in range(n_found)]


def openings(found: list[list[Excursion]]) -> int:
    """The number of excursions that became too high; several at once count once each."""
    signs = [{one.sign for one in row} for row in found]
    return sum(len(now - before) for before, now in zip([set[int](), *signs], signs, strict=False))


def healthy(seed: int = 0, phi: float = 0.8) -> tuple[Lasting, FloatArray]:
    lasting, values = Lasting(), autoregression(drawn("normal", N_HEALTHY, seed), phi)
    follow(lasting, values)
    return lasting, values


def with_fault(kind: str, last: float, n: int, seed: int = 1) -> FloatArray:
    e = drawn("normal", n, seed)
    if kind == "drift":
        return autoregression(e, before=last) + 0.4 * np.arange(1, n + 1)
    if kind == "rhythm":
        return autoregression(e, 0.1, last)
    return autoregression({"quiet": 0.3, "noisy": 3.0}[kind] * e, before=last)


# The guarantee -----------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["normal", "laplace"])
def test_sums_open_at_the_allowed_rate_where_excursions_are_alike(law: str) -> None:
    """The share of rows stays below 2 times what the seven sums are allowed.

    40 openings are expected of each sum at most, so that chance stays far below the bound. There
    may be far fewer: a sum must also exceed all excursions before.
    """
    allowed, n = 1e-3, 40_000
    values = autoregression(drawn(law, N_FIRST + n, 5))
    lasting = Lasting()
    follow(lasting, values[:N_FIRST], allowed)
    assert openings(follow(lasting, values[N_FIRST:], allowed)) < 2 * 7 * allowed * n


def test_excursions_that_do_not_stay_alike_break_the_guarantee() -> None:
    """The assumption is needed: bursts that grow without end open sums again and again."""
    n, allowed, every = 4000, 1e-4, 400
    lengths = 4 * 1.6 ** (np.arange(n) // every)
    growing = np.where(np.arange(n) % every < lengths, 4.0, 1.0) * drawn("normal", n, 6)
    lasting = Lasting()
    follow(lasting, drawn("normal", N_FIRST, 7), allowed)
    assert openings(follow(lasting, growing, allowed)) > 2 * 7 * allowed * n


def test_a_first_guess_of_the_law_is_followed_by_what_the_stream_shows() -> None:
    calm, lively = Lasting(), Lasting()
    follow(calm, drawn("normal", N_HEALTHY, 0))
    bursts = np.where(np.arange(N_HEALTHY) % 200 < 20, 4.0, 1.0) * drawn("normal", N_HEALTHY, 0)
    follow(lively, bursts)
    noisy = 6
    assert lively.log_rarity(noisy, 20.0) > calm.log_rarity(noisy, 20.0) + 5.0


# Faults ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["drift", "rhythm", "quiet", "noisy"])
def test_a_fault_is_found_named_and_dated(kind: str) -> None:
    lasting, values = healthy()
    found = follow(lasting, with_fault(kind, float(values[-1]), LONGEST))
    at = next(row for row, excursions in enumerate(found) if excursions)
    assert found[at][0].event == kind
    assert -20 <= at - found[at][0].n_since <= at  # it began some rows before the fault at most


def test_sizes_are_those_of_the_faults() -> None:
    lasting, values = healthy()
    last = lasting.copy()
    rows = with_fault("drift", float(values[-1]), 100)
    drift = follow(last, rows)[-1][0]
    assert drift.size == pytest.approx(0.4 * drift.n_since, abs=6.0)  # x has a deviation of 1.7
    quiet = follow(lasting.copy(), with_fault("quiet", float(values[-1]), 100))[-1][-1]
    assert quiet.event == "quiet"
    assert quiet.size == pytest.approx(0.3, abs=0.1)


def test_a_season_and_missing_rows_are_no_fault() -> None:
    lasting, season = Lasting(), 48
    course = 20.0 * np.sin(2 * np.pi * np.arange(N_HEALTHY) / season)
    values = course + autoregression(drawn("normal", N_HEALTHY, 3))
    random = np.random.default_rng(4)
    found = [
        see(lasting, value, usual, season, int(random.random() < 0.1))
        for value, usual in zip(values.tolist(), course.tolist(), strict=True)
    ]
    assert openings(found) < 2 * 7 * RATE * N_HEALTHY


def test_what_has_lasted_for_long_becomes_usual() -> None:
    lasting, values = healthy()
    rows = follow(lasting, with_fault("noisy", float(values[-1]), 4 * N_FIRST))
    assert any(rows[: LONGEST + 1])
    assert not any(rows[4 * LONGEST :])


def test_numbers_beyond_all_measure_do_not_stop_it() -> None:
    lasting, values = healthy()
    random = np.random.default_rng(7)
    follow(lasting, random.choice([0.0, 1e30, -1e30, 1e-300, 1e200, -1e308], 2000))
    follow(lasting, np.tile(values, 3))
    assert np.isfinite(lasting.numbers()).all()


# In the watch ------------------------------------------------------------------------------------


def watch_values(watch: Watch, values: Iterable[float]) -> list[AlarmVerdict]:
    """Verdicts on values whose forecasts know nothing: so only what lasts can be found."""
    return [
        watch.see(float(value), 0.9, float(value), -1.0, 0, math.nan, SlotPlace())
        for value in values
    ]


@pytest.mark.parametrize("kind", ["drift", "rhythm", "quiet", "noisy"])
def test_an_incident_is_alarmed_once_and_named_while_it_lasts(kind: str) -> None:
    watch, values = Watch(), autoregression(drawn("normal", N_HEALTHY, 0))
    assert not [verdict for verdict in watch_values(watch, values) if verdict.alarm]
    verdicts = watch_values(watch, with_fault(kind, float(values[-1]), 200))
    at = [row for row, verdict in enumerate(verdicts) if verdict.alarm]
    assert len(at) == 1
    assert verdicts[at[0]].event == kind
    assert verdicts[at[0] + 1].event == kind


def test_a_young_sensor_is_not_alarmed_by_what_lasts() -> None:
    watch, values = Watch(), autoregression(drawn("normal", N_FIRST - LONGEST - 50, 0))
    watch_values(watch, values)
    verdicts = watch_values(watch, with_fault("drift", float(values[-1]), LONGEST))
    assert any(verdict.event == "drift" for verdict in verdicts)
    assert not any(verdict.alarm for verdict in verdicts)


def test_a_snapshot_goes_on_with_the_same_bits() -> None:
    values = autoregression(drawn("normal", N_HEALTHY, 0))
    rows = np.concatenate([values, with_fault("drift", float(values[-1]), 200)])
    one, other = Watch(), Watch()
    watch_values(one, rows[:3050])
    other.load({name: array.copy() for name, array in one.arrays().items()})
    assert watch_values(one, rows[3050:]) == watch_values(other, rows[3050:])


def test_a_snapshot_of_an_older_version_goes_on() -> None:
    """Older versions kept four tails and twelve numbers, and nothing of what lasts."""
    watch = Watch()
    watch_values(watch, drawn("normal", 500, 8))
    arrays = watch.arrays()
    tails = np.concatenate([arrays["tails"], arrays["tails"][-1:]])
    n, guard, balance, *incident = arrays["watch"][:9].tolist()
    older = [n, guard, balance, 0.5, 1.1, *incident[:-1], 0.0, incident[-1]]
    kept = {"habits": arrays["habits"], "gaps": arrays["gaps"], "tails": tails}
    fresh = Watch()
    fresh.load(Watch.converted({**kept, "watch": np.array(older)}))
    resumed = fresh.arrays()
    assert np.array_equal(resumed["tails"], arrays["tails"])
    assert np.array_equal(resumed["watch"][:9], arrays["watch"][:9])
    assert np.array_equal(resumed["lasting"], Watch().arrays()["lasting"])
