"""What every kind of rows has: how a row becomes points of a model, and what is written of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.rows.csv_columns import Columns, Row


class RowAdapter:
    """Turns rows x1..xX,y1..yY into model points; a filter's rows have no y.

    Attributes:
        columns: The columns that are read.
        header: Column names of the row as it is written out.
        words: By name of a number that a prediction tells, what is written instead of it.
        notes: What the newest row changed of its sensor, for a person to read.
        has_line: Whether the output names each row's line of the input.
        stream: The output's column that names the sensor, where there are several.
    """

    words: Mapping[str, Sequence[str]] = MappingProxyType({})
    notes: Sequence[str] = ()
    has_line = True
    stream = "stream"

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

    @property
    def settings(self) -> Mapping[str, Any]:
        """What must not change from run to run, by name."""
        return {}

    def inputs(self, row: Row) -> FloatArray | None:
        """Return x, (n, X), or None while history is too short; DataError for a bad row.

        The last is the row's own; a filter takes a step for each, the others before it.
        """
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

    def keep_missing(self, n: int) -> None:
        """Make the first n of `inputs` history, where the row itself is refused."""

    def arrays(self) -> dict[str, Array]:
        """Return what a snapshot must keep."""
        return {}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore what `arrays` returned."""
