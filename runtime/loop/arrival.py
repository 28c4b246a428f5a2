"""Convert a row of the input to the arrays that a model takes.

An adapter does the conversion for one sensor. This module holds the adapter for rows of plain
points; `edgefold.runtime.loop.adapters` holds those for series and events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.rows.csv_columns import Columns, Row

NO_OUTPUTS = np.empty((1, 0))


def nothing() -> None:
    """Do nothing; it is the `Arrival.commit` of rows that need no history."""


@dataclass(slots=True)
class Arrival:
    """Holds one row in the form that a model takes.

    Attributes:
        x: The inputs, (1, X); None while too few rows have come to compute them.
        y: The outputs, (1, Y); the empty `NO_OUTPUTS` without x, or for a filter.
        values: The row's Y values in the input's units, with which predictions are compared.
        commit: Function that adds the row to the sensor's history, from which later inputs are
            computed; for a bad row it raises DataError and changes nothing.
    """

    x: FloatArray | None
    y: FloatArray
    values: tuple[float, ...] = ()
    commit: Callable[[], None] = nothing


class RowAdapter:
    """Converts rows x1..xX,y1..yY to model points; a filter's rows have no y.

    Args:
        columns: The columns of the input that are read.
        n_inputs: Number of inputs (X).

    Attributes:
        columns: The columns of the input that are read.
        header: Names of the row's own columns in the output.
        words: For each output column that shows words instead of numbers: the word of each number,
            such as the name of a class.
        notes: Sentences for a person that say what the newest row changed, such as a new season.
        has_line: Whether each row of the output begins with the row's line number in the input.
        stream: Name of the output column that names the sensor, where there are several.
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
        """Return whether a row's first number is a date, in seconds since 1970."""
        return False

    @property
    def newest_time(self) -> float:
        """Return the time of the newest row, which is its first number; NaN for rows without times.

        It is NaN before the first row, too.
        """
        return math.nan

    @property
    def pace_is_known(self) -> bool:
        """Return whether it is known that rows come as often as the model was trained for.

        It is always True for models that need no regular rows.
        """
        return True

    @property
    def settings(self) -> Mapping[str, Any]:
        """Return by name the settings that must stay the same when a later run continues."""
        return {}

    def take(self, row: Row) -> Arrival:
        """Convert a row to the form that the model takes; raise DataError for a bad row."""
        n = self._n_inputs
        values = row.numbers[n:]
        y = np.array([values]) if values else NO_OUTPUTS
        return Arrival(np.array([row.numbers[:n]]), y, values)

    def to_values(self, y: FloatArray) -> FloatArray:
        """Convert predicted y, (..., Y), to values of the input; call it before `Arrival.commit`.

        A series' model, for example, predicts the change since the last value.
        """
        return y

    def arrays(self) -> dict[str, Array]:
        """Return the arrays, by name, that a snapshot must keep of the sensor's history."""
        return {}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore the sensor's history from the arrays that `arrays` returned."""
