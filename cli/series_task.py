"""From a CSV file to the series task: the features are read off the training part alone."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from edgefold.cli.series_options import read

if TYPE_CHECKING:
    from edgefold.train.tasks.series import SeriesTask

DAY_S = 86400.0


def series_task(args: argparse.Namespace, kept: dict[str, Any] | None = None) -> SeriesTask:
    """The task of the file that the options name.

    Args:
        args: The command's options.
        kept: The task of the run that is resumed: what the options leave open is taken from it,
            and the task must come out the same.

    Raises:
        DataError: The file is no clean series, too short, or not the one of the run.
    """
    from edgefold.runtime.errors import DataError
    from edgefold.runtime.series.features import SeriesSpec, scaling, series_points
    from edgefold.runtime.series.held_out import HELD_OUT
    from edgefold.train.tasks.series import SeriesTask

    series = read(args, kept)
    n_training = int((1 - HELD_OUT) * len(series.values))
    times, values = series.times[:n_training], series.values[:n_training]
    try:
        if kept and args.season is None:
            spec = SeriesSpec.from_json(kept["features"])
        else:
            spec = SeriesSpec.of_series(times, values, series.clock, _season(args, series.clock))
        points = series_points(spec, times, values)
    except DataError as error:
        raise DataError(f"{args.csv}, training part: {error}") from error
    description: dict[str, Any] = {
        "features": spec.to_json(),
        **scaling(points.x, points.y),
        "file": args.csv.name,
        "columns": list(series.columns),
        "held_out": HELD_OUT,
        "n_training_rows": n_training,
        "gaps": args.gaps or (kept or {}).get("gaps", "refuse"),
    }
    try:
        task = SeriesTask(points.x, points.y, description)
    except ValueError as error:
        raise DataError(f"{args.csv}: {error}") from error
    described = task.describe()
    changed = [name for name in kept or {} if described.get(name) != (kept or {})[name]]
    if changed:
        raise DataError(
            f"{args.csv} and these options give another task than the run was started with "
            f"({', '.join(changed)} differ); resume with the same file and options, or start "
            "another run with another --out."
        )
    return task


def _season(args: argparse.Namespace, clock: str) -> float | str:
    """What --season asks for, in units of the clock."""
    if args.season is None:
        return "auto"
    return args.season * (DAY_S if clock == "date" else 1.0) or "none"
