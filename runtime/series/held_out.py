"""A series of which the last part is scored."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.series.features import SeriesPoints, series_points
from edgefold.runtime.series.options import read
from edgefold.runtime.series.spec import SeriesSpec

HELD_OUT = 0.2
"""Share of the rows that is scored where nothing else is said."""


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
