"""Would the series settings have been chosen without sight of the held-out part?

Short trainings on the first 64 % of weekly CO2, scored on the next 16 %; the last fifth, which the
published figures are made of, is cut off before anything is computed. Prints one row a trial.

    python checkpoints/recheck_series.py [--steps 1200] [--seed 0]
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

import torch

from edgefold.runtime import SeriesSpec, read_series, series_points
from edgefold.runtime.series.features import scaling
from edgefold.runtime.series.forecasters import baselines
from edgefold.runtime.series.scores import SeriesForecast, score
from edgefold.train import FitConfig, fit, load_model
from edgefold.train.evaluate_series import stream_forecasts
from edgefold.train.models.constant_memory.cmanp import PRESETS, Cmanp
from edgefold.train.tasks.series import SeriesTask

CSV = Path(__file__).parents[1] / "data" / "co2_weekly.csv"
TRIALS = ((3.0, 6), (0.8, 6), (0.5, 6), (0.8, 3))
"""(fourier_std, lags)."""


def trial(fourier_std: float, lags: int, steps: int, seed: int) -> None:
    """Train on the first 64 %, print the scores on the next 16 %."""
    series = read_series(CSV)
    n_known = int(0.8 * len(series.values))  # all that training and choice may see
    n_rows = int(0.64 * len(series.values))
    times, values = series.times[:n_known], series.values[:n_known]
    spec = SeriesSpec.of_series(times[:n_rows], values[:n_rows], series.clock, lags=lags)
    points = series_points(spec, times, values)
    n_training = int((points.time < times[n_rows]).sum())
    x, y = points.x[:n_training], points.y[:n_training]
    task = SeriesTask(x, y, {"features": spec.to_json(), **scaling(x, y)})
    torch.manual_seed(seed)
    shape = dataclasses.replace(
        PRESETS["small"], n_inputs=spec.n_inputs, n_outputs=1, fourier_std=fourier_std
    )
    rate = SeriesTask.training["learning_rate"]
    config = FitConfig(steps, batch=8, learning_rate=rate, seed=seed, threads=1)
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory() as run:
        fit(Cmanp(shape), task, config, Path(run))
        model, _ = load_model(Path(run))
    mean, std = stream_forecasts(model, task.description, points.x, points.y, n_training)
    forecasts = {"model": SeriesForecast(mean[:, 0], std[:, 0])}
    forecasts |= baselines(points, n_training, spec.season_rows, task.description)
    print(f"fourier_std {fourier_std}, {lags} lags, {steps} steps, seed {seed}, ", end="")
    print(f"{time.monotonic() - started_s:.0f} s; {n_training} points, then {len(mean)} scored")
    for name, forecast in forecasts.items():
        s = score(points.y[n_training:], forecast)
        band = f"{100 * s.coverage_90:.1f} %"
        print(f"  {name:16}{s.rmse:.4f}  {s.mae:.4f}  {band}  {s.log_likelihood:.3f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for settings in TRIALS:
        trial(*settings, options.steps, options.seed)
