"""Turn rows of a file into model points, as a bundle's task says.

Lines are read in `edgefold.runtime.rows.csv_reader`; the model runs in `edgefold.runtime.loop`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.arrays import FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.manifest import Manifest
from edgefold.runtime.rows.csv_columns import Columns, PointColumns, Row, SeriesColumns
from edgefold.runtime.series.features import SeriesFeatures
from edgefold.runtime.series.spec import SeriesSpec

MAX_CHANGE = 1e6
"""A series' value further than this from the last one, in scale units of y, is a jump."""


class RowAdapter(Protocol):
    """Turns rows into model points."""

    columns: Columns
    header: tuple[str, ...]
    """Column names of the row as it is written out."""

    def inputs(self, row: Row) -> FloatArray | None:
        """Return x, (1, X), or None while history is too short; DataError for a bad row."""

    def outputs(self, row: Row) -> FloatArray:
        """Return y, (1, Y)."""

    def values(self, row: Row) -> tuple[float, ...]:
        """Return the row's Y values as the user knows them."""

    def to_values(self, y: FloatArray) -> FloatArray:
        """Bring predicted y, (..., Y), into the same terms."""

    def commit(self, row: Row) -> None:
        """Make the row history; for a bad row raise DataError and change nothing."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return what a snapshot must keep."""

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `arrays` returned."""


class SeriesRows:
    """Rows (time, value); the features are computed from history."""

    header: tuple[str, ...] = ("time", "value")

    def __init__(self, features: SeriesFeatures, time: str | None, value: str | None):
        self._features = features
        self.columns: Columns = SeriesColumns(time, value, features.spec.clock)

    def inputs(self, row: Row) -> FloatArray | None:
        features = self._features
        features.admit(*row.numbers)
        return features.features(row.numbers[0]) if features.ready else None

    def outputs(self, row: Row) -> FloatArray:
        return self._features.target(row.numbers[1])

    def values(self, row: Row) -> tuple[float, ...]:
        return row.numbers[1:]

    def to_values(self, y: FloatArray) -> FloatArray:
        return self._features.last_value + y

    def commit(self, row: Row) -> None:
        self._features.push(*row.numbers)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._features.arrays()

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._features.load(arrays)


class PointRows:
    """Rows x1..xX,y1..yY, whose numbers are the points; a filter's rows have no y."""

    def __init__(self, n_inputs: int, n_outputs: int, columns: Sequence[str] | None = None):
        self._n_inputs = n_inputs
        self.columns: Columns = PointColumns(n_inputs, n_outputs, columns)
        self.header = self.columns.defaults

    def inputs(self, row: Row) -> FloatArray | None:
        return np.array([row.numbers[: self._n_inputs]])

    def outputs(self, row: Row) -> FloatArray:
        return np.array([row.numbers[self._n_inputs :]])

    def values(self, row: Row) -> tuple[float, ...]:
        return row.numbers[self._n_inputs :]

    def to_values(self, y: FloatArray) -> FloatArray:
        return y

    def commit(self, row: Row) -> None:
        pass

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        pass


def adapter_for(
    manifest: Manifest,
    time: str | None = None,
    value: str | None = None,
    columns: Sequence[str] | None = None,
) -> RowAdapter:
    """Choose how rows become points of this bundle.

    Args:
        manifest: The bundle's.
        time: A series' column of times, if it is not called "time".
        value: A series' column of values, if it is not called "value".
        columns: The X + Y columns of points, if they are not called x1..xX, y1..yY.

    Raises:
        DataError: A bundle of several streams, or columns named for the other kind of rows.
    """
    if manifest.n_streams != 1:
        raise DataError(
            f"{manifest.path} serves {manifest.n_streams} streams at once and the loop reads one; "
            "export it again with --streams 1, or call Stream from Python."
        )
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
        max_change = MAX_CHANGE * manifest.scaling_y.scale[0]
        return SeriesRows(SeriesFeatures(SeriesSpec.from_json(spec), max_change), time, value)
    adapter = PointRows(manifest.n_inputs, 0 if manifest.is_filter else manifest.n_outputs, columns)
    if time or value:
        raise DataError(
            f"{manifest.path} is not a series bundle: its rows are {adapter.columns.wish}; give "
            "--columns instead of --time and --value."
        )
    return adapter
