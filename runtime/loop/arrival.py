"""A row that has come as a model takes it, and the adapters that make it of a row of the input."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.rows.csv_columns import Columns, Row

NO_OUTPUTS = np.empty((1, 0))


def nothing() -> None:
    """Do nothing: rows without history have none to keep."""


@dataclass(slots=True)
class Arrival:
    """A row as a model takes it.

    Attributes:
        x: The inputs, (1, X); None while history is too short for them.
        y: The outputs, (1, Y); `NO_OUTPUTS` without x, or for a filter.
        values: The row's Y values as the user knows them.
        commit: Makes the row history; for a bad row it raises DataError and changes nothing.
    """

    x: FloatArray | None
    y: FloatArray
    values: tuple[float, ...] = ()
    commit: Callable[[], None] = nothing


class RowAdapter:
    """Turns rows x1..xX,y1..yY into model points; a filter's rows have no y.

    Attributes:
        columns: The columns that are read.
        header: Column names of the row as it is written out.
        words: The words that are written instead of a prediction's numbers, by column.
        notes: Sentences for a person on what the newest row changed of its sensor.
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
        """Return by name the settings that must not change from run to run."""
        return {}

    def take(self, row: Row) -> Arrival:
        """Return a row as the model takes it; DataError for a bad row."""
        n = self._n_inputs
        values = row.numbers[n:]
        y = np.array([values]) if values else NO_OUTPUTS
        return Arrival(np.array([row.numbers[:n]]), y, values)

    def to_values(self, y: FloatArray) -> FloatArray:
        """Bring predicted y, (..., Y), into the user's terms, before the row becomes history."""
        return y

    def arrays(self) -> dict[str, Array]:
        """Return what a snapshot must keep."""
        return {}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Restore what `arrays` returned."""
