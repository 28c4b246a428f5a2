import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgefold.cli.text.forecasts import table
from edgefold.runtime.errors import DataError
from edgefold.runtime.series.features import SeriesPoints, scaling, series_points
from edgefold.runtime.series.forecasters import FLOOR, LeastSquares, baselines
from edgefold.runtime.series.scores import SeriesForecast, score
from edgefold.runtime.series.series_file import read_series
from edgefold.runtime.series.spec import SeriesSpec

DATA = Path(__file__).parents[3] / "data"


def weekly_co2() -> tuple[SeriesPoints, int, int]:
    series = read_series(DATA / "co2_weekly.csv")
    split = int(0.8 * len(series.values))
    spec = SeriesSpec.of_series(series.times[:split], series.values[:split], series.clock)
    points = series_points(spec, series.times, series.values)
    return points, int((points.time < series.times[split]).sum()), spec.season_rows


def test_held_out_co2_scores_as_measured_elsewhere() -> None:
    points, n_training, season_rows = weekly_co2()
    scales = scaling(points.x[:n_training], points.y[:n_training])
    forecasts = baselines(points, n_training, season_rows, scales)
    found = {name: score(points.y[n_training:], f) for name, f in forecasts.items()}
    assert found["persistence"].n == 457
    assert found["persistence"].rmse == pytest.approx(0.513, abs=5e-4)
    assert found["seasonal naive"].rmse == pytest.approx(0.664, abs=6e-4)
    assert found["least squares"].rmse < 0.384
    assert 0.85 < found["least squares"].coverage_90 < 0.95
    lines = table(points.y[n_training:], forecasts).splitlines()
    assert [line.split("  ")[0] for line in lines[1:]] == [
        "least squares",
        "persistence",
        "seasonal naive",
    ]


def test_no_forecast_sees_the_value_it_forecasts_or_a_later_one() -> None:
    points, n_training, season_rows = weekly_co2()
    scales = scaling(points.x[:n_training], points.y[:n_training])
    changed = points.y.copy()
    changed[n_training + 100 :] = 1e3
    other = replace(points, y=changed)
    ours = baselines(points, n_training, season_rows, scales)
    theirs = baselines(other, n_training, season_rows, scales)
    for name, forecast in ours.items():
        np.testing.assert_array_equal(forecast.mean[:101], theirs[name].mean[:101])
        np.testing.assert_array_equal(forecast.std[:101], theirs[name].std[:101])


def test_least_squares_equals_ridge_regression() -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(300, 4)), random.normal(size=300)
    squares = LeastSquares(4, forget=1.0, ridge=2.0)
    for row in range(300):
        squares.update(x[row], y[row])
    whole = np.column_stack([x, np.ones(300)])
    weights = np.linalg.solve(whole.T @ whole + 2 * np.eye(5), whole.T @ y)
    mean, _ = squares.predict(x[:1])
    assert mean == pytest.approx(whole[0] @ weights, abs=1e-9)  # float64 over 300 updates


def test_least_squares_follows_a_change_when_it_forgets() -> None:
    random = np.random.default_rng(1)
    x = random.normal(size=(4000, 2))
    y = x[:, 0] * np.where(np.arange(4000) < 3000, 1.0, -1.0)
    forgets, remembers = LeastSquares(2, forget=0.99), LeastSquares(2, forget=1.0)
    for row in range(4000):
        forgets.update(x[row], y[row])
        remembers.update(x[row], y[row])
    one = np.array([1.0, 0.0])
    assert forgets.predict(one)[0] == pytest.approx(-1, abs=1e-3)  # 0.99**1000 = 4e-5
    assert remembers.predict(one)[0] > 0.3


def test_least_squares_bands_cover_what_they_say() -> None:
    random = np.random.default_rng(2)
    x = random.normal(size=(5000, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.3 * random.normal(size=5000)
    squares = LeastSquares(3, forget=1.0)
    rows = []
    for row in range(5000):
        rows.append(squares.predict(x[row]))
        squares.update(x[row], y[row])
    found = score(y[100:], SeriesForecast(*np.array(rows[100:]).T))
    assert found.coverage_90 == pytest.approx(0.9, abs=0.02)  # 5 standard errors of 4,900 draws
    assert found.rmse == pytest.approx(0.3, rel=0.05)


def test_a_series_without_a_season_has_no_seasonal_forecast() -> None:
    spec = SeriesSpec(clock="number", step=1.0)
    points = series_points(spec, np.arange(200.0), np.random.default_rng(3).normal(size=200))
    forecasts = baselines(points, 100, 0, scaling(points.x, points.y))
    assert sorted(forecasts) == ["least squares", "persistence"]


def test_scores_are_those_of_the_normal_distribution() -> None:
    forecast = SeriesForecast(np.zeros(2), np.full(2, 2.0))
    found = score(np.array([[2.0], [-6.0]]), forecast)
    assert found.rmse == pytest.approx(math.sqrt(20))
    assert found.mae == 4
    assert found.coverage_90 == 0.5
    expected = -0.5 * (1 + 9) / 2 - math.log(2) - 0.5 * math.log(2 * math.pi)
    assert found.log_likelihood == pytest.approx(expected)
    with pytest.raises(DataError, match="2 means"):
        score(np.zeros(3), forecast)


@pytest.mark.parametrize(("forget", "ridge"), [(0.0, 1.0), (1.1, 1.0), (1.0, 0.0)])
def test_impossible_settings_are_refused(forget: float, ridge: float) -> None:
    with pytest.raises(DataError, match="forget"):
        LeastSquares(2, forget, ridge)


def errors_of(squares: LeastSquares, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The errors of forecasts along rows, each learned after its forecast."""
    found = []
    for row in range(len(y)):
        found.append(y[row] - squares.predict(x[row])[0])
        squares.update(x[row], float(y[row]))
    return np.array(found)


def test_a_spike_moves_least_squares_no_further_than_large_noise() -> None:
    random = np.random.default_rng(4)
    x = random.normal(size=(1000, 3))
    y = x @ [1.0, -2.0, 0.5] + 0.1 * random.normal(size=1000)
    y[600] = 1e6
    squares = LeastSquares(3)
    errors = errors_of(squares, x, y)
    assert np.abs(errors[601:]).max() < 0.6  # noise of 0.1, and weights moved by a few hundredths
    assert squares.predict(x[0])[1] > 1e4  # the std does not hide the spike


@pytest.mark.long
def test_a_sensor_that_slept_is_learned_again_at_once() -> None:
    random = np.random.default_rng(5)
    x = random.normal(size=(31_000, 3))
    x[500:30_500] = 0.1
    y = x @ [1.0, -2.0, 0.5] + 0.1 * random.normal(size=31_000)
    y[500:30_500] = 0.0
    x[30_500, 0] += 1e-6  # the first change is tiny, and its value is all noise
    squares = LeastSquares(3)
    errors = errors_of(squares, x, y)
    assert np.trace(squares._p) <= 4 / FLOOR
    assert np.abs(errors[30_500:]).max() < 30
    assert np.sqrt((errors[30_700:] ** 2).mean()) < 0.13


def test_least_squares_follows_noise_that_grows_a_thousandfold() -> None:
    random = np.random.default_rng(6)
    x = random.normal(size=(2000, 2))
    y = x @ [1.0, -1.0] * np.where(np.arange(2000) < 1000, 1e-3, 1.0)
    errors = errors_of(LeastSquares(2, forget=0.98), x, y)
    assert np.abs(errors[-200:]).max() < 0.05


def test_least_squares_learns_after_a_start_without_any_change() -> None:
    x = np.random.default_rng(7).normal(size=(1500, 2))
    y = np.where(np.arange(1500) < 700, 0.0, x @ [1.0, -1.0])
    assert np.abs(errors_of(LeastSquares(2, forget=0.98), x, y)[-100:]).max() < 0.05
