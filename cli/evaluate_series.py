"""A series model's forecasts beside the baselines', over the rows that training never saw.

    first part: learned in chunks ──> each held-out row: predict, score, learn

Whether PyTorch or the runtime makes the model's forecasts is the caller's choice; everything else
here needs numpy alone.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefold.cli.output_file import write_output
from edgefold.cli.series_file import read
from edgefold.runtime import DataError, Stream
from edgefold.runtime.baselines import Forecast, baselines, score, table
from edgefold.runtime.series import SeriesPoints, SeriesSpec, series_points

FloatArray = NDArray[np.float64]
Forecaster = Callable[[FloatArray, FloatArray, int], tuple[FloatArray, FloatArray]]
"""(x, y, n_training) -> mean and std of y after the first n_training points, (n, 1) each."""
HELD_OUT = 0.2
"""Share of the rows that is scored where the task does not say it."""
SETTLED = 2.0
"""Standard errors from which on a difference between two forecasts counts as shown."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A series' points, of which the first `n_training` are only learned."""

    spec: SeriesSpec
    points: SeriesPoints
    n_training: int

    @property
    def came(self) -> FloatArray:
        """Changes that came in the held-out part, (n,)."""
        return self.points.y[self.n_training :, 0]


def held_out(args: argparse.Namespace, task: dict[str, Any]) -> HeldOut:
    """The points of the series that the options or the task name, split as training split them.

    Raises:
        DataError: The file is no clean series, or not of the kind the model was trained for.
    """
    spec = SeriesSpec.from_json(task["features"])
    series = read(args, task)
    if series.clock != spec.clock:
        raise DataError(
            f"{args.csv}: its times are {series.clock}s, the model was trained with {spec.clock}s; "
            "give a series of the same kind."
        )
    step = float(np.median(np.diff(series.times)))
    if not 0.5 < step / spec.step < 1.5:
        raise DataError(
            f"{args.csv}: a row comes every {step:g}, the model was trained for {spec.step:g} "
            f"(in {'seconds' if spec.clock == 'date' else 'units of its times'}); resample it."
        )
    first = int((1 - task.get("held_out", HELD_OUT)) * len(series.values))
    if args.csv.name == task.get("file") and first < task["n_training_rows"]:
        raise DataError(
            f"{args.csv}: the rows to score begin at row {first + 1}, and training saw "
            f"{task['n_training_rows']} rows of this file; give the whole file."
        )
    try:
        points = series_points(spec, series.times, series.values)
    except DataError as error:
        raise DataError(f"{args.csv}: {error}") from error
    return HeldOut(spec, points, int((points.time < series.times[first]).sum()))


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
        from edgefold.cli.plot_forecasts import draw_forecasts
    part = held_out(args, task)
    points, n_training = part.points, part.n_training
    mean, std = forecast(points.x, points.y, n_training)
    name = args.folder.resolve().name
    forecasts = {name: Forecast(mean[:, 0], std[:, 0])}
    forecasts |= baselines(points, n_training, part.spec.season_rows, task)
    came = part.came
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


def verdict(came: FloatArray, forecasts: dict[str, Forecast]) -> list[str]:
    """Who has the lowest error and who the best likelihood, and whether the rows settle it."""
    squared = {name: (came - f.mean) ** 2 for name, f in forecasts.items()}
    surprise = {
        name: 0.5 * squared[name] / f.std**2 + np.log(f.std) for name, f in forecasts.items()
    }
    lines = []
    for what, losses in (("lowest RMSE", squared), ("highest log-likelihood", surprise)):
        best, second = sorted(losses, key=lambda name: float(losses[name].mean()))[:2]
        lead = losses[second] - losses[best]
        if not lead.any():  # two perfect forecasts of a constant series
            lines.append(f"{what}: {best} and {second} alike")
            continue
        if losses is squared:
            ratio = math.sqrt(float(losses[best].mean() / losses[second].mean()))
            margin = f"{100 * (1 - ratio):.1f} % below {second}"
        else:
            margin = f"{lead.mean():.3f} nats a row above {second}"
        lines.append(f"{what}: {best}, {margin} ({_certainty(lead)})")
    return lines


def _certainty(lead: FloatArray) -> str:
    """How sure a lead is, given what it was in each row."""
    n = len(lead)
    if n == 1:
        return "one row does not settle it"
    error = float(lead.std()) / math.sqrt(n)
    if not error:
        return "the same in every row"
    distance = float(lead.mean()) / error
    settled = "" if distance >= SETTLED else f"; {n} rows do not settle it"
    return f"{distance:.1f} standard errors{settled}"
