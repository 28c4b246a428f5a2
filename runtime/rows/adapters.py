"""Rows of a file as model points: what a line's numbers mean to a bundle's task.

Reading lines is `edgefold.runtime.rows.csv_reader`'s part, running the model `edgefold.runtime.loop.loop`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgefold.runtime.errors import DataError
from edgefold.runtime.manifest import Manifest
from edgefold.runtime.rows.csv_reader import Columns, PointColumns, Row, SeriesColumns
from edgefold.runtime.series.features import SeriesFeatures, SeriesSpec

FloatArray = NDArray[np.float64]
MAX_CHANGE = 1e6
"""A series' value further than this from the last one, in scale units of y, is a jump."""


class RowAdapter(Protocol):
    """Makes model points of rows. No row is history before `learned`."""

    columns: Columns

    def header(self) -> str:
        """Column names of the row as it is written out, comma-separated."""

    def inputs(self, row: Row) -> FloatArray | None:
        """x, (1, X), or None while history is too short; raises DataError for a bad row."""

    def outputs(self, row: Row) -> FloatArray:
        """y, (1, Y)."""

    def values(self, row: Row) -> tuple[float, ...]:
        """The row's Y values as the user knows them."""

    def to_values(self, mean: FloatArray) -> list[float]:
        """Predicted means (Y,) in the same terms."""

    def learned(self, row: Row) -> None:
        """The row is history now; raises DataError for a bad row and changes nothing."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a snapshot must keep."""

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `arrays` gave."""


class SeriesRows:
    """Rows (time, value); the features are computed from history."""

    def __init__(self, features: SeriesFeatures, time: str | None, value: str | None):
        self._features = features
        self.columns: Columns = SeriesColumns(time, value, features.spec.clock)

    def header(self) -> str:
        return "time,value"

    def inputs(self, row: Row) -> FloatArray | None:
        features = self._features
        features.admit(*row.numbers)
        return features.features(row.numbers[0]) if features.ready else None

    def outputs(self, row: Row) -> FloatArray:
        return self._features.target(row.numbers[1])

    def values(self, row: Row) -> tuple[float, ...]:
        return row.numbers[1:]

    def to_values(self, mean: FloatArray) -> list[float]:
        return [self._features.to_value(mean.item())]

    def learned(self, row: Row) -> None:
        self._features.push(*row.numbers)

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self._features.arrays()

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._features.load(arrays)


class PointRows:
    """Rows x1..xX,y1..yY, which are points as they stand."""

    def __init__(self, n_inputs: int, n_outputs: int, columns: Sequence[str] | None = None):
        self._n_inputs = n_inputs
        self._names = PointColumns(n_inputs, n_outputs, columns)
        self.columns: Columns = self._names

    def header(self) -> str:
        return self._names.wish

    def inputs(self, row: Row) -> FloatArray | None:
        return np.array([row.numbers[: self._n_inputs]])

    def outputs(self, row: Row) -> FloatArray:
        return np.array([row.numbers[self._n_inputs :]])

    def values(self, row: Row) -> tuple[float, ...]:
        return row.numbers[self._n_inputs :]

    def to_values(self, mean: FloatArray) -> list[float]:
        values: list[float] = mean.tolist()
        return values

    def learned(self, row: Row) -> None:
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
    """How rows become points of this bundle: as its task says.

    Args:
        manifest: The bundle's.
        time: A series' column of times, if it is not called so.
        value: A series' column of values, if it is not called so.
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
    if time or value:
        raise DataError(
            f"{manifest.path} is no series: its rows are x1..x{manifest.n_inputs},"
            f"y1..y{manifest.n_outputs}; give --columns instead of --time and --value."
        )
    return PointRows(manifest.n_inputs, manifest.n_outputs, columns)
