import json
import math

import numpy as np
import pytest

from edgefold.runtime.errors import DataError, SnapshotError
from edgefold.runtime.series.features import SeriesFeatures, scaling, series_points
from edgefold.runtime.series.spec import DAY_S, YEAR_S, SeriesSpec

WEEK_S = 7 * DAY_S
WEEKLY = SeriesSpec(clock="date", step=WEEK_S, season=YEAR_S, lags=3)
PLAIN = SeriesSpec(clock="number", step=1.0, lags=2, level=True)


def filled(spec: SeriesSpec, values: np.ndarray) -> SeriesFeatures:
    features = SeriesFeatures(spec)
    for row, value in enumerate(values.tolist()):
        features.push(row * spec.step, value)
    return features


def test_features_are_changes_and_the_phase_of_the_season() -> None:
    values = np.random.default_rng(0).normal(size=80).cumsum()
    features = filled(WEEKLY, values)
    time = 80 * WEEK_S
    x = features.features(time)
    phase = 2 * math.pi * time / YEAR_S
    expected = [values[-1] - values[-2], values[-2] - values[-3], values[-3] - values[-4]]
    expected += [values[80 - 52] - values[80 - 53]]
    for h in (1, 2, 3):
        expected += [math.sin(h * phase), math.cos(h * phase)]
    assert x.shape == (1, WEEKLY.n_inputs) == (1, len(WEEKLY.names))
    np.testing.assert_allclose(x[0], expected, atol=1e-9)  # a phase of 1e8 s in float64


def test_predictions_come_back_as_values() -> None:
    features = filled(WEEKLY, np.arange(60.0))
    assert features.target(61.5).tolist() == [[2.5]]
    assert features.last_value + 2.5 == 61.5


def test_x_and_y_do_not_grow_with_the_trend() -> None:
    points = series_points(PLAIN, np.arange(5000.0), 1e3 * np.arange(5000.0))
    assert np.abs(points.x).max() < 2e4  # the level is the mean of the last 32 rows
    assert np.abs(points.y).max() == 1e3
    np.testing.assert_array_equal(points.last + points.y[:, 0], points.value)


def test_the_limit_bounds_x() -> None:
    spec = SeriesSpec(clock="number", step=1.0, lags=3, limit=2.0)
    features = filled(spec, np.array([0.0, 0.0, 0.0, 1e9]))
    assert features.features(4.0).tolist() == [[2.0, 0.0, 0.0]]


def test_the_clock_counts_years_not_52_weeks() -> None:
    spec = SeriesSpec(clock="date", step=WEEK_S, season=YEAR_S, season_lags=0, harmonics=1)
    points = series_points(spec, np.arange(2000) * WEEK_S, np.zeros(2000))
    sine = points.x[:, spec.names.index("season_sin_1")]
    n_rises = np.count_nonzero((sine[:-1] < 0) & (sine[1:] >= 0))
    assert n_rises == round((2000 - spec.n_rows) * WEEK_S / YEAR_S)


def test_memory_stays_the_same_however_long_the_stream() -> None:
    features = filled(PLAIN, np.arange(40.0))
    before = {name: a.nbytes for name, a in features.arrays().items()}
    buffer = features.features(40.0)
    for row in range(40, 5040):
        features.features(float(row))
        features.push(float(row), math.sin(row))
    assert {name: a.nbytes for name, a in features.arrays().items()} == before
    assert features.features(5040.0) is buffer


def test_a_gap_is_held_before_and_interpolated_after() -> None:
    features = filled(PLAIN, np.arange(32.0))
    assert features.n_missing(32.0) == 0
    assert features.n_missing(34.0) == 2
    assert features.features(34.0)[0, :2].tolist() == [0.0, 0.0]
    features.push(34.0, 34.0)
    assert features.features(35.0)[0, :2].tolist() == [1.0, 1.0]
    features.push(1034.0, 7.0)  # a gap longer than the ring costs no more than the ring
    assert features.last_value == 7.0


def test_one_row_that_jumps_is_refused_and_spoils_nothing() -> None:
    features = SeriesFeatures(PLAIN, max_change=100.0)
    for time in np.arange(40.0).tolist():
        features.push(time, time)
    x = features.features(40.0).copy()
    for time, value in [(1e12, 40.0), (40.0, 1e30), (40.0, -1e308), (40.0, 1e308), (39.0, 1.0)]:
        with pytest.raises(DataError):
            features.push(time, value)
    np.testing.assert_array_equal(features.features(40.0), x)
    features.push(40.0, 40.0)
    features.push(41.0, 41.0)
    assert features.ready and features.last_time == 41.0
    assert np.isfinite(features.arrays()["series_ring"]).all()


def test_a_jump_that_the_next_row_follows_starts_history_anew() -> None:
    for first, second in [((5e4, 1.0), (5e4 + 1, 2.0)), ((40.0, 1e4), (41.0, 1e4))]:
        features = SeriesFeatures(PLAIN, max_change=100.0)
        for time in range(40):
            features.push(float(time), float(time))
        with pytest.raises(DataError, match="if the next row follows it"):
            features.admit(*first)
        again = SeriesFeatures(PLAIN, max_change=100.0)
        again.load(features.arrays())  # a jump survives a snapshot
        for one in (features, again):
            one.admit(*second)
            assert not one.ready
            one.push(*second)
            assert (one.last_time, one.last_value) == second
            for row in range(1, PLAIN.n_rows):
                one.push(second[0] + row, second[1])
            assert one.ready


@pytest.mark.parametrize("first", [(1e12, 0.0), (0.0, 1e30), (0.0, 1e100)])
def test_a_first_row_that_is_absurd_gives_way_to_the_next_two(first: tuple[float, float]) -> None:
    features = SeriesFeatures(PLAIN, max_change=100.0)
    features.push(*first)
    with pytest.raises(DataError):
        features.push(1.0, 1.0)
    features.push(2.0, 2.0)
    features.push(3.0, 3.0)
    assert (features.last_time, features.last_value) == (3.0, 3.0)


def test_rows_that_come_again_in_order_are_not_taken_twice() -> None:
    features = filled(PLAIN, np.arange(40.0))
    for time in range(10, 40):
        with pytest.raises(DataError, match="learned before"):
            features.push(float(time), float(time))
    assert features.last_time == 39.0


@pytest.mark.parametrize("time", [31.0, 30.0, math.nan, math.inf])
def test_a_row_out_of_order_is_refused_and_changes_nothing(time: float) -> None:
    features = filled(PLAIN, np.arange(32.0))
    before = features.arrays()
    with pytest.raises(DataError):
        features.push(time, 1.0)
    with pytest.raises(DataError):
        features.features(time)
    with pytest.raises(DataError, match="not finite"):
        features.push(32.0, math.nan)
    after = features.arrays()
    for name in ("ring", "position", "last_time", "parked_ring", "seen"):
        np.testing.assert_array_equal(after[f"series_{name}"], before[f"series_{name}"])


def test_features_before_enough_history_say_how_much_is_needed() -> None:
    features = filled(WEEKLY, np.arange(10.0))
    assert not features.ready
    with pytest.raises(DataError, match="needs 53 rows of history and has 10"):
        features.features(10 * WEEK_S)


def test_save_and_load_go_on_as_if_never_stopped() -> None:
    values = np.random.default_rng(1).normal(size=100)
    whole, first = filled(WEEKLY, values), filled(WEEKLY, values[:70])
    second = SeriesFeatures(WEEKLY)
    second.load({name: array.copy() for name, array in first.arrays().items()})
    for row in range(70, 100):
        second.push(row * WEEK_S, values[row])
    np.testing.assert_array_equal(second.features(100 * WEEK_S), whole.features(100 * WEEK_S))
    assert second.last_time == whole.last_time


def test_arrays_of_another_series_are_refused() -> None:
    features = filled(PLAIN, np.arange(40.0))
    with pytest.raises(SnapshotError, match="another bundle"):
        features.load(SeriesFeatures(WEEKLY).arrays())
    with pytest.raises(SnapshotError, match="nothing"):
        features.load({})
    damaged = features.arrays() | {"series_position": np.array([99, 1])}
    with pytest.raises(SnapshotError, match="damaged"):
        features.load(damaged)
    assert features.last_value == 39.0


def test_the_specification_survives_json() -> None:
    for spec in (WEEKLY, PLAIN):
        assert SeriesSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    with pytest.raises(DataError, match="unknown settings \\['colour'\\]"):
        SeriesSpec.from_json(WEEKLY.to_json() | {"colour": 1})
    with pytest.raises(DataError, match="lacks \\['step'\\]"):
        SeriesSpec.from_json({"clock": "date"})
    with pytest.raises(DataError):
        SeriesSpec.from_json({"clock": "date", "step": "fast"})


@pytest.mark.parametrize(
    "settings",
    [
        {"step": 0.0},
        {"step": math.nan},
        {"lags": 0},
        {"season": 1.5},
        {"season": 4.0, "harmonics": 3},
        {"season": 4.0, "harmonics": 1, "season_lags": 4},
        {"limit": 0.0},
        {"clock": "sundial"},
    ],
)
def test_impossible_specifications_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(DataError):
        SeriesSpec.from_json({"clock": "number", "step": 1.0} | settings)


def test_a_specification_is_read_off_the_series() -> None:
    times = np.arange(300) * WEEK_S
    values = np.sin(times / YEAR_S)
    weekly = SeriesSpec.of_series(times, values, "date")
    assert (weekly.step, weekly.season, weekly.season_rows) == (WEEK_S, YEAR_S, 52)
    assert not weekly.level
    plain = SeriesSpec.of_series(np.arange(300.0), values, "number")
    assert plain.season is None
    assert plain.level
    assert SeriesSpec.of_series(times, values, "date", season="none").season is None
    hourly = SeriesSpec.of_series(np.arange(300) * 3600.0, values, "date")
    assert hourly.season_rows == 24
    quarterly = SeriesSpec.of_series(np.arange(60) * 91 * DAY_S, values[:60], "date")
    assert (quarterly.season_rows, quarterly.harmonics) == (4, 2)
    with pytest.raises(DataError, match="needs dates"):
        SeriesSpec.of_series(np.arange(300.0), values, "number", season="year")
    with pytest.raises(DataError, match="unknown"):
        SeriesSpec.of_series(times, values, "date", season="moon")


def test_too_short_a_series_is_refused() -> None:
    with pytest.raises(DataError, match="need 53"):
        series_points(WEEKLY, np.arange(50) * WEEK_S, np.zeros(50))


def test_scaling_standardises_and_leaves_constants_alone() -> None:
    x = np.column_stack([np.arange(10.0), np.full(10, 3.0)])
    found = scaling(x, x[:, :1])
    assert found["x_shift"] == [4.5, 3.0]
    assert found["x_scale"][1] == 1.0
    scaled = (x - found["x_shift"]) / found["x_scale"]
    np.testing.assert_allclose(scaled.std(axis=0), [1.0, 0.0])


@pytest.mark.parametrize("seed", range(5))
def test_the_scale_of_gaussian_changes_is_their_standard_deviation(seed: int) -> None:
    y = np.random.default_rng(seed).normal(3.0, 2.0, (1500, 1))
    assert scaling(y, y)["y_scale"][0] == pytest.approx(y.std(), rel=0.02)  # their scatter


def test_few_jumps_do_not_widen_the_scale_of_y() -> None:
    y = np.random.default_rng(0).normal(0.0, 1.0, (1500, 1))
    calm = scaling(y, y)["y_scale"][0]
    y[::200] += 100.0  # 8 of 1,500
    found = scaling(y, y)
    assert y.std() > 7 and found["y_scale"][0] == pytest.approx(calm, rel=0.03)
    assert found["x_scale"][0] == pytest.approx(y.std())


def test_changes_that_are_almost_all_the_same_keep_a_scale() -> None:
    y = np.zeros((1000, 1))
    y[:3] = 5.0
    assert scaling(y, y)["y_scale"] == pytest.approx([y.std() / 20])
    assert scaling(y, 0 * y)["y_scale"] == [1.0]


def test_one_absurd_value_does_not_blow_up_limit_and_scales() -> None:
    values = np.random.default_rng(0).normal(size=1000).cumsum()
    wrong = values.copy()
    wrong[500] = 1e6
    times, found = np.arange(1000.0), []
    for rows in (values, wrong):
        spec = SeriesSpec.of_series(times, rows, "number", "none", level=False)
        points = series_points(spec, times, rows)
        found.append((spec.limit or 0.0, scaling(points.x, points.y)))
    (limit, clean), (wrong_limit, robust) = found
    assert wrong_limit < 6 * limit
    assert robust["y_scale"] == pytest.approx(clean["y_scale"], rel=0.02)
    assert (np.array(robust["x_scale"]) < 6 * np.array(clean["x_scale"])).all()
