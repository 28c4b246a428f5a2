"""Define what a table is for Sensors, whichever library it is of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.dates import is_date
from edgefold.runtime.sensors.scored_rows import Times

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


class SensorTable(ABC):
    """Holds the columns of a table, and makes tables of the same library.

    Attributes:
        columns: The values of each sensor by its name, (n,) each; NaN where none is.
        times: The time of each row; None where rows only count.
        dated: Whether times are dates; None if the first one shows it.
        is_frame: Whether the table has named columns, so that the result names the sensors.
        n_rows: The number of rows of each column.
    """

    columns: Mapping[str, FloatArray]
    times: Times
    dated: bool | None
    is_frame: bool
    n_rows: int

    @abstractmethod
    def label(self, at: int) -> str:
        """Return the time of a row as messages show it."""

    @abstractmethod
    def forecasts(self, found: Mapping[str, Array]) -> Any:
        """Return a table of columns, each with all rows of the first sensor, then of the next.

        For a table with named columns, the result has the columns series and time before these.
        """

    @abstractmethod
    def scores(self, found: Mapping[str, Sequence[Any]]) -> Any:
        """Return a table of these columns."""


def require_forward(times: Times, remedy: str) -> None:
    """Refuse times that go from new to old; `remedy` says how to sort the table.

    Raises:
        DataError: No time is later than the one before, and one is earlier.
    """
    if times is None or len(times) < 2:
        return
    if isinstance(times, list):
        pairs = [*pairwise(times)]
        is_backward = all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)
    else:
        steps = np.diff(times)
        is_backward = bool((steps <= 0).all() and (steps < 0).any())
    if is_backward:
        raise DataError(
            f"the rows go from new to old, and a stream goes from old to new; give {remedy}."
        )


def are_dates(first: object) -> bool:
    """Return whether texts or objects are dates, by the first one."""
    return isinstance(first, date) or (isinstance(first, str) and is_date(first))


def as_texts(found: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Return columns, as texts where one mixes texts with numbers: these libraries cannot."""
    return {
        name: [*map(str, column)] if any(isinstance(each, str) for each in column) else column
        for name, column in found.items()
    }


def seconds_since_1970(counts: Array, unit: str) -> FloatArray:
    """Return dates in seconds as `datetime.timestamp` rounds them.

    Args:
        counts: Whole numbers of units since 1970, (n,) of int64.
        unit: "s", "ms", "us" or "ns".
    """
    if unit != "ns":
        seconds: FloatArray = counts / PER_SECOND[unit]
        return seconds
    # A double holds no date in ns, and microseconds exactly.
    return counts // 1000 / 10**6 + counts % 1000 / 10**9
