"""Take a Series or a DataFrame of pandas, and make such tables of forecasts or scores.

pandas is not required: a program that gives such a table has imported pandas already.

Series                one sensor without a name
DataFrame             each column of numbers is a sensor; `series` names it in the result
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.sensors.scored_rows import Times
from edgefold.runtime.sensors.tables.sensor_table import SensorTable, are_dates, require_forward

NUMBERS = "iuf"
"""The letters by which numpy marks its types of numbers: signed, unsigned and floating point."""


class PandasTable(SensorTable):
    """Holds the columns of a Series or a DataFrame.

    The times are those of the index, else of the first column of dates; else rows only count.

    Raises:
        DataError: The table has no column of numbers or two of one name, or its rows go from new
            to old.
    """

    def __init__(self, data: Any):
        self._pandas, self._index = sys.modules["pandas"], data.index
        self.is_frame = not isinstance(data, self._pandas.Series)
        self._labels, self.n_rows = data.index, len(data.index)
        if self.is_frame:
            self._read_frame(data)
        else:
            self.columns = {"": _numbers(data)}
        self.times, self.dated = _times_of(self._labels)
        labels = self._labels
        if self.times is not None and labels.is_monotonic_decreasing:
            remedy = "data.sort_index(), or data.sort_values() by the column of dates"
            require_forward(self.times, remedy)

    def _read_frame(self, data: Any) -> None:
        names = [name for name, dtype in data.dtypes.items() if dtype.kind in NUMBERS]
        if not data.columns.is_unique or len({*map(str, names)}) < len(names):
            raise DataError("two columns of the DataFrame have one name; give each its own.")
        if not names:
            raise DataError("the DataFrame has no column of numbers; give one for each sensor.")
        self.columns = {str(name): _numbers(data[name]) for name in names}
        dates = [name for name, dtype in data.dtypes.items() if dtype.kind == "M"]
        if dates and _times_of(self._labels)[0] is None:
            self._labels = self._pandas.Index(data[dates[0]])

    def label(self, at: int) -> str:
        """Return the label of a row."""
        return str(self._labels[at])

    def forecasts(self, found: Mapping[str, Array]) -> Any:
        """Return a DataFrame; that of a Series has the same index."""
        table = self._pandas.DataFrame(dict(found), copy=False)
        if not self.is_frame:
            return table.set_axis(self._index)
        n, n_all = self.n_rows, len(table)
        labels = np.arange(n) if self.times is None else self._labels
        table.insert(0, "series", np.repeat(np.array([*self.columns], object), n))
        table.insert(1, "time", self._pandas.Index(labels).take(np.arange(n_all) % max(n, 1)))
        return table

    def scores(self, found: Mapping[str, Sequence[Any]]) -> Any:
        """Return a DataFrame."""
        return self._pandas.DataFrame(dict(found))


def _numbers(column: Any) -> FloatArray:
    try:
        values: FloatArray = column.to_numpy(dtype=np.float64, na_value=math.nan)
    except (TypeError, ValueError) as error:
        raise DataError(f"the Series is not one of numbers ({error}); give float values.") from None
    return values


def _times_of(index: Any) -> tuple[Times, bool | None]:
    """Return the times that an index holds, and whether they are dates.

    Dates become seconds since 1970. Both are None if the index only counts rows or names them.
    """
    if hasattr(index, "to_timestamp"):  # periods
        index = index.to_timestamp()
    kind = index.dtype.kind
    if kind == "M" or hasattr(index.dtype, "tz"):
        moments = index.to_numpy(dtype="datetime64[ns]")
        return (moments - np.datetime64(0, "s")) / np.timedelta64(1, "s"), True
    if kind in NUMBERS and type(index).__name__ != "RangeIndex":
        return index.to_numpy(dtype=np.float64), None
    if are_dates(index[0] if len(index) else None):
        return list(index), True
    return None, None
