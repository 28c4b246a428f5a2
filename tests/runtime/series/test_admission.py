"""Wrong times and true pauses: what the history is afterwards."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import DataError, PaceError, SnapshotError
from edgefold.runtime.series.features import SeriesFeatures
from edgefold.runtime.series.spec import DAY_S, YEAR_S, SeriesSpec

WEEK_S = 7 * DAY_S
WEEKLY = SeriesSpec(clock="date", step=WEEK_S, season=YEAR_S)
N_CLEAN = 60
Rows = list[tuple[float, float]]


def value_at(row: int) -> float:
    return float(300 + row / 40 + 3 * np.sin(row / 8.3) + 0.01 * ((row * 7919) % 101))


def clean(first: int, stop: int, shift_s: float = 0.0) -> Rows:
    return [(row * WEEK_S + shift_s, value_at(row)) for row in range(first, stop)]


def feed(features: SeriesFeatures, rows: Iterable[tuple[float, float]]) -> list[bool]:
    """Push every row; True for one that was taken."""
    taken = []
    for time, value in rows:
        try:
            features.push(time, value)
            taken.append(True)
        except DataError:
            taken.append(False)
    return taken


def fresh(stop: int = N_CLEAN) -> SeriesFeatures:
    features = SeriesFeatures(WEEKLY, 1e6)
    assert all(feed(features, clean(0, stop)))
    return features


def history(features: SeriesFeatures) -> dict[str, bytes]:
    """What the features are computed from."""
    arrays = features.arrays()
    head = int(arrays["series_position"][0])
    return {
        "values": np.roll(arrays["series_ring"], -head).tobytes(),
        "time": arrays["series_last_time"].tobytes(),
        "x": features.features(features.last_time + WEEK_S).tobytes(),
    }


def same_history(features: SeriesFeatures, stop: int) -> bool:
    return history(features) == history(fresh(stop))


def ahead(n_steps: float, n: int = 1, value: float = 300.0) -> Rows:
    """Rows that come n_steps after the last clean one and follow each other."""
    return [((N_CLEAN - 1 + n_steps + k) * WEEK_S, value) for k in range(n)]


# Times that are too far ahead --------------------------------------------------------------------


@pytest.mark.parametrize("n_steps", [4, 5, 20, 886, 1000, 1001, 5000])
@pytest.mark.parametrize("n", [1, 2, 3, 10])
def test_after_rows_from_the_future_the_history_is_as_if_they_had_never_come(
    n_steps: int, n: int
) -> None:
    features = fresh()
    feed(features, ahead(n_steps, n))
    assert all(feed(features, clean(N_CLEAN, N_CLEAN + 3)))
    assert same_history(features, N_CLEAN + 3)


@pytest.mark.parametrize("n_steps", range(1, 1001, 7))
def test_a_row_that_is_too_early_costs_two_good_rows_at_most(n_steps: int) -> None:
    features = fresh()
    feed(features, [((N_CLEAN + n_steps) * WEEK_S, value_at(N_CLEAN))])  # for row N_CLEAN
    taken = feed(features, clean(N_CLEAN + 1, N_CLEAN + 6))
    assert all(taken[2:])
    if n_steps >= 3:
        assert all(taken)


def test_wrong_years_that_differ_are_all_taken_back() -> None:
    features = fresh()
    for n_steps in (886, 950, 300, 20):
        feed(features, ahead(n_steps))
    assert all(feed(features, clean(N_CLEAN, N_CLEAN + 3)))
    assert same_history(features, N_CLEAN + 3)


def test_a_true_pause_loses_no_row_and_no_history() -> None:
    """Nights without rows: each one is bridged, as a gap always was."""
    features = SeriesFeatures(SeriesSpec(clock="number", step=1.0, season=24.0), 1e6)
    rows = [(t, np.sin(t / 24)) for t in map(float, range(240)) if t % 24 >= 8]
    assert all(feed(features, rows))
    assert features.ready
    ring = np.roll(features.arrays()["series_ring"], -features.arrays()["series_position"][0])
    np.testing.assert_array_equal(ring[-16:], [v for _, v in rows[-16:]])


def test_rows_of_a_gap_that_come_late_are_taken_once() -> None:
    features = fresh()
    gap, behind = clean(N_CLEAN, N_CLEAN + 10), clean(N_CLEAN + 10, N_CLEAN + 20)
    assert all(feed(features, behind))
    assert all(feed(features, gap))  # the backlog of the pause
    assert not any(feed(features, behind))
    assert all(feed(features, clean(N_CLEAN + 20, N_CLEAN + 30)))


def test_a_late_row_does_not_cost_the_history_after_a_pause() -> None:
    features = fresh()
    behind = clean(N_CLEAN + 50, N_CLEAN + 120)
    assert all(feed(features, behind[:-5]))
    for late in ((N_CLEAN, 300.0), (N_CLEAN + 30, 300.0)):
        feed(features, [(late[0] * WEEK_S, late[1])])
        assert all(feed(features, behind[-5:-4])) or late[0] != N_CLEAN
    assert all(feed(features, behind[-4:]))
    whole = fresh()
    feed(whole, behind)
    assert history(features) == history(whole)


# Times that go back ------------------------------------------------------------------------------


@pytest.mark.parametrize("back_s", [YEAR_S, 52 * WEEK_S, 40 * YEAR_S, 10.3 * WEEK_S])
def test_a_clock_set_back_for_good_goes_on_at_the_third_row(back_s: float) -> None:
    features, rows = fresh(), clean(N_CLEAN, N_CLEAN + 80, -back_s)
    assert feed(features, rows[:5]) == [False, False, True, True, True]
    assert features.ready and features.last_time == rows[4][0]
    assert all(feed(features, rows[5:]))
    values = history(fresh(N_CLEAN + 80))["values"]
    assert history(features)["values"] == values  # no row is missing in it


def test_other_rows_at_old_times_start_history_over() -> None:
    features = fresh()
    rows = [(-(100 - k) * WEEK_S, 9e3 + k) for k in range(60)]
    assert feed(features, rows[:3]) == [False, False, True]
    assert not features.ready
    assert all(feed(features, rows[3:]))
    assert features.ready


@pytest.mark.parametrize("start", [0, 30, 55, 57])
def test_an_old_batch_is_refused_whole_and_learning_goes_on(start: int) -> None:
    features = fresh()
    taken = feed(features, clean(start, N_CLEAN + 10))
    assert taken == [False] * (N_CLEAN - start) + [True] * 10
    assert same_history(features, N_CLEAN + 10)


def test_a_long_stream_that_is_sent_again_from_its_start_is_refused_whole() -> None:
    spec = SeriesSpec(clock="number", step=1.0)
    features = SeriesFeatures(spec, 1e6)
    rows = [(float(t), value_at(t)) for t in range(12_000)]  # more than the table of rows holds
    assert all(feed(features, rows))
    assert not any(feed(features, rows))
    assert all(feed(features, [(12_000.0, 1.0)]))


@pytest.mark.parametrize("time", [-3e9, 5 * WEEK_S + 1, (N_CLEAN - 1) * WEEK_S])
def test_single_rows_of_the_past_change_nothing(time: float) -> None:
    features = fresh()
    assert feed(features, [(time, 1.0)]) == [False]
    assert all(feed(features, clean(N_CLEAN, N_CLEAN + 3)))
    assert same_history(features, N_CLEAN + 3)


@pytest.mark.parametrize("time", [-1e9, 886 * WEEK_S, 5000 * WEEK_S, -20 * WEEK_S, 30 * WEEK_S])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_first_rows_that_are_wrong_leave_nothing_behind(time: float, n: int) -> None:
    features = SeriesFeatures(WEEKLY, 1e6)
    feed(features, [(time + k * WEEK_S, 5e3) for k in range(n)])
    taken = feed(features, clean(0, N_CLEAN))
    assert all(taken[2:])
    assert same_history(features, N_CLEAN)


# Mixtures ----------------------------------------------------------------------------------------

FAR = st.one_of(st.floats(4, 3000), st.floats(-3000, -4))


@st.composite
def wrong_rows(draw: st.DrawFn) -> Rows:
    """1 to 3 rows with wrong times, relative to the newest good one, alone or in a run."""
    n = draw(st.integers(1, 3))
    if draw(st.booleans()):
        start = draw(FAR)
        return [(start + k, draw(st.floats(-500, 500))) for k in range(n)]
    return [(draw(FAR), draw(st.floats(-500, 500))) for _ in range(n)]


@pytest.mark.long
@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(wrong_rows(), st.integers(4, 9)), max_size=6), st.integers(0, 5))
def test_after_any_mixture_of_wrong_times_every_good_row_is_kept_and_nothing_else(
    mixture: list[tuple[Rows, int]], cut: int
) -> None:
    features, newest = fresh(), N_CLEAN - 1
    sizes = {name: array.nbytes for name, array in features.arrays().items()}
    for index, (wrong, n_good) in enumerate(mixture):
        feed(features, [((newest + steps) * WEEK_S, value) for steps, value in wrong])
        if index == cut:  # a restart in the middle of it
            again = SeriesFeatures(WEEKLY, 1e6)
            again.load(features.arrays())
            features = again
        assert all(feed(features, clean(newest + 1, newest + 1 + n_good)))
        newest += n_good
        assert same_history(features, newest + 1)
    assert {name: array.nbytes for name, array in features.arrays().items()} == sizes


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.floats(-2000, 2000), st.floats(-500, 500)), max_size=40))
def test_after_anything_at_all_the_third_good_row_is_taken(rows: Rows) -> None:
    """After more than 7 wrong rows, which may look like another pace, the fifth."""
    features = fresh()
    feed(features, [((N_CLEAN + steps) * WEEK_S, value) for steps, value in rows])
    n_refused = 2 if len(rows) <= 7 else 4
    assert all(feed(features, clean(N_CLEAN, N_CLEAN + 20))[n_refused:])
    assert np.isfinite(features.arrays()["series_ring"]).all()


def test_where_every_second_time_is_wrong_every_second_row_is_learned() -> None:
    features, chance = fresh(), np.random.default_rng(0)
    for row in range(N_CLEAN, N_CLEAN + 100):
        feed(features, [((row + chance.uniform(4, 3000)) * WEEK_S, 300.0)])
        assert feed(features, clean(row, row + 1)) == [True]
    assert same_history(features, N_CLEAN + 100)


# Pace --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_s", [3600.0, DAY_S, 0.45 * WEEK_S, 1.6 * WEEK_S, YEAR_S])
def test_a_pace_that_is_not_the_bundles_is_an_error_at_the_seventh_row(step_s: float) -> None:
    features = SeriesFeatures(WEEKLY, 1e6)
    feed(features, [(k * step_s, 300.0) for k in range(6)])
    assert not features.pace_is_known
    with pytest.raises(PaceError):
        features.admit(6 * step_s, 300.0)
    assert not features.pace_is_known and not features.ready


@pytest.mark.parametrize("step", [0.6, 1.0, 1.4])
def test_holes_jitter_and_a_wrong_first_time_are_not_another_pace(step: float) -> None:
    steps = [0.0, 500.0, 500.0 + step, 503.0 + step, 504.0 + step, 504.9 + step, 506.0 + step]
    features = SeriesFeatures(WEEKLY, 1e6)
    feed(features, [(s * WEEK_S, 300.0) for s in steps])
    assert not features.pace_is_known  # two of six intervals are too long
    feed(features, [((506 + k * step) * WEEK_S, 300.0) for k in (2, 3)])
    assert features.pace_is_known


@pytest.mark.parametrize("factor", [0.1, 4.0])
def test_a_pace_that_changes_is_refused_until_it_returns(factor: float) -> None:
    features = fresh()
    time, rows = (N_CLEAN - 1) * WEEK_S, []
    for _ in range(60):
        time += factor * WEEK_S
        rows.append((time, 300.0))
    assert not any(feed(features, rows)[16:])
    later = [(time + k * WEEK_S, 300.0) for k in range(1, 40)]
    taken = feed(features, later)
    assert all(taken[2:])
    assert features.ready


def test_a_row_less_than_half_a_step_after_the_newest_is_refused() -> None:
    features = fresh()
    newest = features.last_time
    assert feed(features, [(newest + 0.49 * WEEK_S, 300.0)]) == [False]
    assert feed(features, [(newest + 0.51 * WEEK_S, 300.0)]) == [True]


# Snapshots ---------------------------------------------------------------------------------------


def damaged() -> Iterable[tuple[str, Array]]:
    arrays = fresh().arrays()
    for name, array in arrays.items():
        yield name, array[:0] if array.ndim else np.zeros(2)
        yield name, array.astype("U8")
    for prefix in ("series_", "series_parked_"):
        yield f"{prefix}ring", np.full_like(arrays["series_ring"], np.nan)
        yield f"{prefix}position", np.array([0, -1])
        yield f"{prefix}position", np.array([1000, 3])
        yield f"{prefix}stretch", np.array([0.0, 99.0])
    yield "series_last_time", np.array(np.nan)
    yield "series_stretch", np.array([np.inf, 1.0])
    yield "series_seen_since", np.array([np.nan, 1.0])
    yield "series_pace", np.full_like(arrays["series_pace"], -1.0)


@pytest.mark.parametrize(("name", "array"), list(damaged()))
def test_a_damaged_array_is_refused_and_changes_nothing(name: str, array: Array) -> None:
    features = fresh()
    before = history(features)
    with pytest.raises(SnapshotError):
        features.load(features.arrays() | {name: array})
    assert history(features) == before
    assert all(feed(features, clean(N_CLEAN, N_CLEAN + 3)))


@pytest.mark.parametrize("missing", sorted(fresh().arrays()))
def test_an_array_that_is_missing_is_refused(missing: str) -> None:
    arrays = fresh().arrays()
    del arrays[missing]
    with pytest.raises(SnapshotError):
        fresh().load(arrays)


def test_a_restart_at_any_row_changes_nothing() -> None:
    rows = [*ahead(886, 2), *clean(N_CLEAN, N_CLEAN + 4), *clean(20, 25), *ahead(5000, 2)]
    rows += [*clean(N_CLEAN + 4, N_CLEAN + 8), *clean(N_CLEAN + 8, N_CLEAN + 20, -YEAR_S)]
    whole = fresh()
    feed(whole, rows)
    for n in range(len(rows)):
        first, second = fresh(), SeriesFeatures(WEEKLY, 1e6)
        feed(first, rows[:n])
        second.load(first.arrays())
        feed(second, rows[n:])
        for (name, one), other in zip(
            second.arrays().items(), whole.arrays().values(), strict=True
        ):
            np.testing.assert_array_equal(one, other, err_msg=name)
