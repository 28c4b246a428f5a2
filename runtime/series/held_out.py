"""Split a series into a part that is only learned and a last part that is scored (held out)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.series.durations import elapsed
from edgefold.runtime.series.features import SeriesPoints, series_points
from edgefold.runtime.series.options import SeriesOptions
from edgefold.runtime.series.pace import FASTEST, SLOWEST
from edgefold.runtime.series.report_text import passed_over
from edgefold.runtime.series.series_file import SeriesReport
from edgefold.runtime.series.spec import SeriesSpec

HELD_OUT = 0.2
"""The share of the rows that is scored if the task names none."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Holds the points of a series; the first `n_training` are only learned, the others scored.

    Attributes:
        spec: The features of the series.
        points: The points of the rows that are in the file, without missing ones.
        n_training: The number of points before the first one that is scored.
        report: The counts of what was mended in the file.
        path: The path of the file.
    """

    spec: SeriesSpec
    points: SeriesPoints
    n_training: int
    report: SeriesReport
    path: Path

    @property
    def came(self) -> FloatArray:
        """Return the true changes from each value to the next in the held-out part, (n,)."""
        return self.points.y[self.n_training :, 0]


def held_out(options: SeriesOptions, task: dict[str, Any]) -> HeldOut:
    """Read the series that the options or the task name, and split it as training did.

    Args:
        options: The options that name the file and say how it is read.
        task: The description of the trained task, from a run or a bundle.

    Raises:
        DataError: The file does not hold a clean series, or not one of the kind that the model was
            trained for, or none of the rows to score gives a point.
    """
    spec = SeriesSpec.from_json(task["features"])
    path, series = options.path(task), options.read(task)
    if series.clock != spec.clock:
        raise DataError(
            f"{path}: its times are {series.clock}s, the model was trained with {spec.clock}s; "
            "give a series of the same kind."
        )
    step = float(np.median(np.diff(series.times)))
    if not FASTEST < step / spec.step < SLOWEST:
        pace, trained = elapsed(step, spec.clock), elapsed(spec.step, spec.clock)
        raise DataError(
            f"{path}: a row comes every {pace}, the model was trained for {trained}; resample "
            f"it to {trained}."
        )
    first = int((1 - task.get("held_out", HELD_OUT)) * len(series.values))
    if path.name == task.get("file"):
        n_trained = int(task["n_training_rows"])
        if "format" not in task and series.report.n_gaps:
            # Until version 0.2 missing rows were filled in and counted; drop with the next version.
            places = np.rint((series.times - series.times[0]) / spec.step)
            n_trained = min(int(np.searchsorted(places, n_trained)), len(places) - 1)
            first = max(first, n_trained)
        if first < n_trained:
            raise DataError(
                f"{path}: the rows to score begin at row {first + 1}, and training saw "
                f"{n_trained} rows of this file; give the whole file."
            )
    try:
        points = series_points(spec, series.times, series.values)
        n_training = points_before(points, series.times, first)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    return HeldOut(spec, points, n_training, series.report, path)


def points_before(points: SeriesPoints, times: FloatArray, first: int) -> int:
    """Return how many points come before the first row that is scored.

    Args:
        points: The points of the whole series.
        times: The times of the series' rows, (n,).
        first: The place of the first row that is scored, from 0 on.

    Raises:
        DataError: No point is left to be scored.
    """
    n = int((points.time < times[first]).sum())
    if n == len(points.time):
        why = passed_over(points.n_passed_over) or "the rows behind its last long pause are too few"
        raise DataError(
            f"none of the last {len(times) - first:,} rows, which are to be scored, gives a point "
            f"({why}). Give a longer series, or one whose rows come at one pace."
        )
    return n
