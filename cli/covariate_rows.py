"""Give the rows of a table to the model with its covariates: the columns of `--with`.

    line ──> covariates, and a row for each sensor ──> CovariateSensor.step
                         └> rows without a value wait; those after the last value are forecast

A covariate is another column of the table whose value is known beside a sensor's value. Lines at
the end of a table that have covariates and no value say what the covariates will be.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from edgefold.runtime.rows.csv_columns import Row
from edgefold.runtime.rows.sensor_columns import SensorsRow

if TYPE_CHECKING:
    from edgefold.runtime.arrays import FloatArray
    from edgefold.runtime.rows.csv_reader import BadRow
    from edgefold.runtime.sensors.covariates import CovariateSensor
    from edgefold.runtime.sensors.sensors import Sensors

MOST_WAITING = 1440
"""The most rows without a value that wait for the end of the table: the model's longest season."""


@dataclass(slots=True)
class CovariateRow:
    """Holds a row of a sensor, and the covariates of its line, (K,)."""

    row: Row
    covariates: FloatArray


@dataclass(slots=True)
class RowsAfter:
    """Holds the rows after a sensor's last value.

    Attributes:
        rows: Pairs of the rows ahead, counted in slots from the last value, and the row.
        covariates: Those of each slot, (n, K); NaN where no row says them.
        n_far: The number of rows that come too late to be forecast, or at no slot of their own.
    """

    rows: list[tuple[int, Row]] = field(default_factory=list)
    covariates: FloatArray = field(default_factory=lambda: np.zeros((0, 1)))
    n_far: int = 0

    @property
    def known(self) -> tuple[int, int]:
        """Return in how many slots a covariate is known, and which slot is the last of these."""
        slots = np.flatnonzero(np.isfinite(self.covariates).any(1)) + 1
        return len(slots), int(slots[-1]) if len(slots) else 0


class CovariateRows:
    """Steps the sensors of a table with the covariates of each line.

    Args:
        names: The columns of the covariates.
        sensors: The opened model.

    Attributes:
        names: The columns of the covariates.
        waiting: For each sensor's column, the rows without a value since its last value.
        unknown: For each covariate, how many cells are empty or hold no number.
        bad: For each covariate with a cell that holds no number, the first one's line and reason.
    """

    def __init__(self, names: Sequence[str], sensors: Sensors):
        self.names, self._sensors = tuple(names), sensors
        self.waiting: dict[str, deque[CovariateRow]] = {}
        self.unknown = dict.fromkeys(self.names, 0)
        self.bad: dict[str, BadRow] = {}
        self._each: dict[str, CovariateSensor] = {}

    def of(self, line: SensorsRow) -> FloatArray:
        """Return the covariates of a line, (K,); NaN where a cell holds none, and count these."""
        parts, found = dict(line.parts), np.full(len(self.names), math.nan)
        for place, name in enumerate(self.names):
            part = parts[name]
            if isinstance(part, Row):
                found[place] = part.numbers[1]
            else:
                self.bad.setdefault(name, part)
            self.unknown[name] += not math.isfinite(found[place])
        return found

    def ready(self, column: str, row: Row, covariates: FloatArray) -> Iterator[CovariateRow]:
        """Yield the rows that the model takes now: one without a value waits for the next value."""
        waiting = self.waiting.setdefault(column, deque())
        waiting.append(CovariateRow(row, covariates))
        has_value = row.numbers[1] == row.numbers[1]
        while waiting and (has_value or len(waiting) > MOST_WAITING):
            yield waiting.popleft()

    def sensor(self, name: str) -> CovariateSensor:
        """Return the sensor of this name with its covariates."""
        from edgefold.runtime.sensors.covariates import CovariateSensor

        if name not in self._each:
            self._each[name] = CovariateSensor(self._sensors, name, len(self.names))
        return self._each[name]

    def coming(self, column: str, name: str, last_time: float) -> RowsAfter:
        """Return the rows after a sensor's last value, by how many slots after it they come.

        Args:
            column: The sensor's column.
            name: The name under which the model knows it.
            last_time: The time of its last value.
        """
        pace = self._sensors.feed(name).pace
        by_slot, waiting = dict[int, CovariateRow](), self.waiting.get(column, ())
        for one in waiting:
            ahead = (one.row.numbers[0] - last_time) / pace
            if 0.5 < ahead < MOST_WAITING + 0.5:  # not so if the pace is not known
                by_slot.setdefault(round(ahead), one)
        covariates = np.full((max(by_slot, default=0), len(self.names)), math.nan)
        for slot, one in by_slot.items():
            covariates[slot - 1] = one.covariates
        rows = [(slot, by_slot[slot].row) for slot in sorted(by_slot)]
        return RowsAfter(rows, covariates, len(waiting) - len(rows))
