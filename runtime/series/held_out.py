"""A series of which the last part is scored."""

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
"""Share of the rows that is scored where nothing else is said."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A series' points, of which the first `n_training` are only learned.

    Attributes:
        spec: The features.
        points: Of the real rows.
        n_training: Points before the first one that is scored.
        report: What was mended in the file.
        path: The file.
    """

    spec: SeriesSpec
    points: SeriesPoints
    n_training: int
    report: SeriesReport
    path: Path

    @property
    def came(self) -> FloatArray:
        """Changes that came in the held-out part, (n,)."""
        return self.points.y[self.n_training :, 0]


def held_out(options: SeriesOptions, task: dict[str, Any]) -> HeldOut:
    """The points of the series that the options or the task name, split as training split them.

    Raises:
        DataError: The file is no clean series, or not of the kind the model was trained for, or
            none of the rows to score gives a point.
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
    """Count the points before the first row that is scored.

    Args:
        points: Of the whole series.
        times: Of its rows, (n,).
        first: The row's place.

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
