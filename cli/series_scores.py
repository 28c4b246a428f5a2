"""Compare a series model with baselines over the rows that training never saw.

    first part: learned in chunks ──> each held-out row: predict, score, learn

Whether PyTorch or the runtime makes the model's forecasts is the caller's choice; everything else
here needs only numpy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.cli.files import write_output
from edgefold.cli.options.flags import options_of
from edgefold.cli.text.forecasts import band_line, beside_error, table, verdict
from edgefold.runtime import Stream
from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.bundle.manifest import n_that_fit
from edgefold.runtime.errors import DataError
from edgefold.runtime.predictions import PredictionKind
from edgefold.runtime.series.forecasters import baselines
from edgefold.runtime.series.held_out import held_out
from edgefold.runtime.series.options import SeriesOptions
from edgefold.runtime.series.report_text import mended, passed_over
from edgefold.runtime.series.scores import SeriesForecast, score
from edgefold.runtime.series.series_file import SeriesReport
from edgefold.runtime.series.spec import SeriesSpec

Forecaster = Callable[[FloatArray, FloatArray, int], tuple[FloatArray, FloatArray]]
"""Takes (x, y, n_training); returns mean and std of y after n_training points, (n, 1) each."""


def is_series(task: Mapping[str, Any]) -> bool:
    """Return whether a task's description says how points are made from a series."""
    features = task.get("features")
    return task.get("name") == "series" or (
        isinstance(features, dict) and {"clock", "step"} <= set(features)
    )


def require_scorable(
    folder: Path, task: Mapping[str, Any], is_filter: bool, kind: PredictionKind
) -> None:
    """Refuse a bundle or a run (at `folder`) that cannot be scored on a series.

    Raises:
        DataError: The model filters, so that it has no update and query; its predictions have no
            mean and deviation; or the description of its task lacks a field.
    """
    if is_filter:
        raise DataError(
            f"{folder} holds a filter, which answers each input and learns no value; a series is "
            "scored by update and query. Score it in a program of your own."
        )
    if type(kind).deviation is PredictionKind.deviation:
        raise DataError(
            f"the predictions of {folder} are {kind.name}, without a mean and a deviation; a "
            "series' scores need both. Score it in a program of your own."
        )
    features = task.get("features")
    lacking = [] if isinstance(features, dict) else ["features"]
    n_inputs = 0 if lacking else SeriesSpec.from_json(task["features"]).n_inputs
    columns = {"x_shift": n_inputs, "x_scale": n_inputs, "y_shift": 1, "y_scale": 1}
    lacking += [name for name, n in columns.items() if not _are_numbers(task.get(name), n)]
    if "file" in task and not isinstance(task.get("n_training_rows"), int):
        lacking.append("n_training_rows")
    if lacking:
        raise DataError(
            f"{folder}'s description of its task lacks {', '.join(lacking)}, or they do not fit "
            "its features; restore it from a copy, or train again."
        )


def _are_numbers(numbers: object, n: int) -> bool:
    return (
        isinstance(numbers, list)
        and len(numbers) == n
        and all(isinstance(number, (int, float)) for number in numbers)
    )


def stream_bundle(
    stream: Stream, x: FloatArray, y: FloatArray, n_training: int
) -> tuple[FloatArray, FloatArray]:
    """Forecast each held-out row with a bundle, then learn it unless the state is full.

    Args:
        stream: The opened bundle.
        x: Inputs of all N rows, (N, X).
        y: Values of all N rows, (N, 1).
        n_training: Number of the first rows, which are learned without a forecast.

    Returns:
        Mean and standard deviation of each held-out y, (N - n_training, 1) each.
    """
    kind = stream.manifest.prediction
    stream.reset()
    n = n_that_fit(stream.room, n_training)
    stream.condition(x[:n], y[:n])
    mean, std = np.empty((2, len(x) - n_training, 1))
    for row in range(n_training, len(x)):
        here = slice(row, row + 1)
        prediction = stream.query(x[here]).tensors
        mean[row - n_training] = kind.center(prediction)[0]
        std[row - n_training] = kind.deviation(prediction)[0]
        if stream.room != 0:
            stream.update(x[here], y[here])
    return mean, std


def evaluate_series(
    args: argparse.Namespace,
    task: dict[str, Any],
    forecast: Forecaster,
    room: int | None = None,
) -> dict[str, Any]:
    """Score a model and its baselines on the held-out rows: print tables, draw, return the scores.

    Args:
        args: Options of the command: the file, the plot and the folder are used.
        task: The description of the run's task.
        forecast: Makes the model's forecasts; see `Forecaster`.
        room: Number of points after which the model learns no more; None for no limit.

    Raises:
        DataError: The held-out rows cannot be read or do not fit the task; see `held_out`.
    """
    if args.plot:  # before the work: matplotlib may be missing
        from edgefold.cli.plots.forecasts import draw_forecasts
    part = held_out(options_of(SeriesOptions, args), task)
    points, n_training = part.points, part.n_training
    mean, std = forecast(points.x, points.y, n_training)
    name = args.folder.resolve().name
    forecasts = {name: SeriesForecast(mean[:, 0], std[:, 0])}
    forecasts |= baselines(points, n_training, part.spec.season_rows, task)
    came = part.came
    if part.report != SeriesReport():
        print(f"{part.path}: {mended(part.report)}")
    if points.n_passed_over:
        print(f"{part.path}: {passed_over(points.n_passed_over)}")
    print(f"{part.path}: one step ahead over the last {len(came)} rows, after {n_training} points")
    print(table(came, forecasts))
    if room is not None and room < len(points.x):
        print(
            f"{name} had room for {room:,} of {len(points.x):,} points: it predicted the rest and "
            "did not learn it. Export with --set when_full=overwrite or a larger --set capacity=N."
        )
    print("least squares: a linear autoregression on the same features, learned as it streams\n")
    scored = {n: score(came, f) for n, f in forecasts.items()}
    lines = (*verdict(came, forecasts), beside_error(scored, name), band_line(scored[name]))
    print("\n".join(line for line in lines if line))
    scores = {n: s.to_json() for n, s in scored.items()}
    if args.plot:
        format = args.plot.suffix.lower().removeprefix(".")
        picture = draw_forecasts(format, part.path.name, part, forecasts[name], scores[name])
        write_output(args.plot, picture)
        print(f"written  {args.plot}")
    return {
        "csv": part.path.name,
        "n_training_points": n_training,
        "model": name,
        "scores": scores,
    }
