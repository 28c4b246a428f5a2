"""A series model's forecasts beside the baselines', over the rows that training never saw.

    first part: learned in chunks ──> each held-out row: predict, score, learn

Whether PyTorch or the runtime makes the model's forecasts is the caller's choice; everything else
here needs numpy alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from edgefold.cli.files import write_output
from edgefold.cli.text.forecasts import table, verdict
from edgefold.runtime import Stream
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.rows.series_file import SeriesReport
from edgefold.runtime.series.forecasters import baselines
from edgefold.runtime.series.held_out import held_out
from edgefold.runtime.series.report_text import mended
from edgefold.runtime.series.scores import Forecast, score

Forecaster = Callable[[FloatArray, FloatArray, int], tuple[FloatArray, FloatArray]]
"""(x, y, n_training) -> mean and std of y after the first n_training points, (n, 1) each."""


def stream_bundle(
    stream: Stream, x: FloatArray, y: FloatArray, n_training: int
) -> tuple[FloatArray, FloatArray]:
    """A bundle's forecasts: see Forecaster."""
    stream.reset()
    stream.condition(x[:n_training], y[:n_training])
    mean, std = np.empty((2, len(x) - n_training, 1))
    for row in range(n_training, len(x)):
        here = slice(row, row + 1)
        prediction = stream.query(x[here])
        mean[row - n_training], std[row - n_training] = prediction.mean[0], prediction.std[0]
        stream.update(x[here], y[here])
    return mean, std


def evaluate_series(
    args: argparse.Namespace, task: dict[str, Any], forecast: Forecaster
) -> dict[str, Any]:
    """Print the table of the held-out part and who wins, draw the picture, return the scores.

    Raises:
        DataError: See `held_out`.
    """
    if args.plot:  # before the work: matplotlib may be missing
        from edgefold.cli.plots.forecasts import draw_forecasts
    part = held_out(args, task)
    points, n_training = part.points, part.n_training
    mean, std = forecast(points.x, points.y, n_training)
    name = args.folder.resolve().name
    forecasts = {name: Forecast(mean[:, 0], std[:, 0])}
    forecasts |= baselines(points, n_training, part.spec.season_rows, task)
    came = part.came
    if part.report != SeriesReport():
        print(f"{args.csv}: {mended(part.report)}")
    print(f"{args.csv}: one step ahead over the last {len(came)} rows, after {n_training} points")
    print(table(came, forecasts))
    print("least squares: a linear autoregression on the same features, learned as it streams\n")
    print("\n".join(verdict(came, forecasts)))
    scores = {n: score(came, f).to_json() for n, f in forecasts.items()}
    if args.plot:
        format = args.plot.suffix.lower().removeprefix(".")
        picture = draw_forecasts(format, args.csv.name, part, forecasts[name], scores[name])
        write_output(args.plot, picture)
        print(f"written  {args.plot}")
    return {
        "csv": args.csv.name,
        "n_training_points": n_training,
        "model": name,
        "scores": scores,
    }
