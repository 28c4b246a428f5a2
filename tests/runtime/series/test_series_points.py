import numpy as np
import pytest

from edgefold.runtime.errors import DataError
from edgefold.runtime.series.features import SeriesFeatures, scaling, series_points
from edgefold.runtime.series.forecasters import baselines
from edgefold.runtime.series.held_out import points_before
from edgefold.runtime.series.spec import SeriesSpec

SEASONAL = SeriesSpec(clock="number", step=1.0, season=12.0, lags=3, harmonics=2)
PLAIN = SeriesSpec(clock="number", step=1.0, lags=2, level=True)


def with_gaps(n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Times and values of a random walk of which a fifth is missing."""
    random = np.random.default_rng(0)
    times = np.flatnonzero(random.random(n) > 0.2).astype(float)
    return times, random.normal(size=n).cumsum()[times.astype(int)]


@pytest.mark.parametrize("spec", [SEASONAL, PLAIN])
def test_points_over_gaps_are_those_of_the_board_and_real_rows_alone(spec: SeriesSpec) -> None:
    times, values = with_gaps()
    points = series_points(spec, times, values)
    np.testing.assert_array_equal(points.time, times[-len(points.time) :])
    np.testing.assert_array_equal(points.value, values[-len(points.time) :])
    np.testing.assert_array_equal(points.last, values[-len(points.time) - 1 : -1])
    board, row = SeriesFeatures(spec), 0
    for time, value in zip(times.tolist(), values.tolist(), strict=True):
        if board.ready:
            np.testing.assert_array_equal(points.x[row], board.features(time)[0])
            assert points.y[row] == board.target(value)
            row += 1
        board.push(time, value)
    assert row == len(points.time)


def test_after_a_pause_that_is_too_long_history_starts_over() -> None:
    times = np.concatenate([np.arange(50.0), np.arange(5000.0, 5050.0)])
    values = np.arange(100.0) ** 2
    points = series_points(SEASONAL, times, values)
    apart = [
        series_points(SEASONAL, times[part], values[part]) for part in (slice(50), slice(50, 100))
    ]
    for name in ("time", "value", "last", "x", "y", "season"):
        whole = np.concatenate([getattr(part, name) for part in apart])
        np.testing.assert_array_equal(getattr(points, name), whole)


def test_too_short_stretches_between_pauses_are_refused() -> None:
    times = np.concatenate([np.arange(10.0) + 10_000 * k for k in range(5)])
    with pytest.raises(DataError, match="need 13"):
        series_points(SEASONAL, times, times)


def test_the_seasonal_forecast_looks_one_season_back_in_time_and_not_in_rows() -> None:
    cycle = np.random.default_rng(1).integers(-50, 50, 12).astype(float)
    times = np.delete(np.arange(200.0), [90, 120, 121, 122, 140])
    values = cycle[times.astype(int) % 12] + 3 * times
    points = series_points(SEASONAL, times, values)
    forecasts = baselines(points, 20, 12, scaling(points.x, points.y))
    error = points.y[20:, 0] - forecasts["seasonal naive"].mean
    behind = np.isin(points.time[20:], [102, 103, 132, 133, 134, 135, 152, 153])
    # One season behind a gap the interpolated rows are used; everywhere else the cycle is exact.
    assert np.abs(error[~behind]).max() < 1e-9 and behind.sum() == 8


def test_rows_at_another_pace_are_counted_and_no_points() -> None:
    times = np.concatenate([np.arange(600.0), 599 + 3.0 * np.arange(1, 201)])
    points = series_points(PLAIN, times, np.sin(times))
    assert points.n_passed_over > 0
    assert len(points.time) + points.n_passed_over == len(times) - PLAIN.n_rows
    assert points_before(points, times, 600) == 600 - PLAIN.n_rows
    with pytest.raises(DataError):
        points_before(points, times, 700)
