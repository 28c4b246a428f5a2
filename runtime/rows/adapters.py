"""Turn rows of a file into model points, as a bundle's task says.

Lines are read in `edgefold.runtime.rows.csv_reader`; the model runs in `edgefold.runtime.loop`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.manifest import Manifest
from edgefold.runtime.rows.csv_columns import Columns, PointColumns, Row, SeriesColumns
from edgefold.runtime.rows.row_format import kept_columns, kept_format
from edgefold.runtime.series.features import SeriesFeatures
from edgefold.runtime.series.spec import SeriesSpec

MAX_CHANGE = 1e6
"""A series' value further than this from the last one, in scale units of y, is a jump."""


class RowAdapter:
    """Turns rows x1..xX,y1..yY into model points; a filter's rows have no y.

    Attributes:
        columns: The columns that are read.
        header: Column names of the row as it is written out.
    """

    def __init__(self, columns: Columns, n_inputs: int):
        self.columns, self._n_inputs = columns, n_inputs
        self.header = columns.defaults

    @property
    def is_dated(self) -> bool:
        """Whether a row's first number is a date, in seconds since 1970."""
        return False

    @property
    def pace_is_known(self) -> bool:
        """Whether rows come as often as the model was trained for, where that matters."""
        return True

    def inputs(self, row: Row) -> FloatArray | None:
        """Return x, (1, X), or None while history is too short; DataError for a bad row."""
        return np.array([row.numbers[: self._n_inputs]])

    def outputs(self, row: Row) -> FloatArray:
        """Return y, (1, Y)."""
        return np.array([self.values(row)])

    def values(self, row: Row) -> tuple[float, ...]:
        """Return the row's Y values as the user knows them."""
        return row.numbers[self._n_inputs :]

    def to_values(self, y: FloatArray) -> FloatArray:
        """Bring predicted y, (..., Y), into the same terms."""
        return y

    def commit(self, row: Row) -> None:
        """Make the row history; for a bad row raise DataError and change nothing."""

    def arrays(self) -> dict[str, Array]:
        """Return what a snapshot must keep."""
        return {}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore what `arrays` returned."""


class SeriesRows(RowAdapter):
    """Turns rows (time, value) into points; the features are computed from history."""

    def __init__(self, features: SeriesFeatures, columns: SeriesColumns):
        super().__init__(columns, 1)
        self._features = features

    @property
    def is_dated(self) -> bool:
        return self._features.spec.clock == "date"

    @property
    def pace_is_known(self) -> bool:
        return self._features.pace_is_known

    def inputs(self, row: Row) -> FloatArray | None:
        features = self._features
        features.admit(*row.numbers)
        can_predict = features.ready and features.pace_is_known
        return features.features(row.numbers[0]) if can_predict else None

    def outputs(self, row: Row) -> FloatArray:
        return self._features.target(row.numbers[1])

    def to_values(self, y: FloatArray) -> FloatArray:
        return self._features.last_value + y

    def commit(self, row: Row) -> None:
        self._features.push(*row.numbers)

    def arrays(self) -> dict[str, Array]:
        return self._features.arrays()

    def load(self, arrays: Mapping[str, Array]) -> None:
        self._features.load(arrays)


def adapter_for(
    manifest: Manifest,
    time: str | None = None,
    value: str | None = None,
    columns: Sequence[str] | None = None,
    format: Mapping[str, Any] | None = None,
) -> RowAdapter:
    """Choose how rows become points of this bundle.

    Args:
        manifest: The bundle's.
        time: A series' column of times, if it is not called "time".
        value: A series' column of values, if it is not called "value".
        columns: The X + Y columns of points, if they are not called x1..xX, y1..yY.
        format: Settings of `RowFormat` in the place of those that the task keeps. The names of the
            columns that it keeps are taken where the input has them.

    Raises:
        DataError: A bundle of several streams, or columns named for the other kind of rows, or a
            form of dates for a bundle whose times are numbers.
    """
    if manifest.n_streams != 1:
        raise DataError(
            f"{manifest.path} was exported with --streams {manifest.n_streams}: it takes one row "
            "of each sensor at the same moment, which only Python can give. Export it again with "
            "--streams 1; `edgefold run --streams N` then serves N sensors with it."
        )
    written = kept_format(manifest.task, format or {})
    if manifest.task.get("name") == "series":
        spec = manifest.task.get("features")
        if not isinstance(spec, dict):
            raise DataError(
                f"the task of {manifest.path} names no features; train and export it again."
            )
        if columns:
            raise DataError(
                f"{manifest.path} is a series: its rows are time,value; name them with --time and "
                "--value instead of --columns."
            )
        features = SeriesFeatures(
            SeriesSpec.from_json(spec), MAX_CHANGE * manifest.scaling_y.scale[0]
        )
        clock = features.spec.clock
        if clock == "number" and written.time_format:
            raise DataError(
                f"{manifest.path} was trained with times that are numbers; leave --time-format out."
            )
        names = kept_columns(manifest.task)
        return SeriesRows(features, SeriesColumns(time, value, clock, written, names))
    n_outputs = 0 if manifest.is_filter else manifest.n_outputs
    points = PointColumns(manifest.n_inputs, n_outputs, columns, written)
    if time or value:
        raise DataError(
            f"{manifest.path} is not a series bundle: its rows are {points.wish}; give --columns "
            "instead of --time and --value."
        )
    return RowAdapter(points, manifest.n_inputs)
