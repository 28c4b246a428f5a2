"""Take a Series or a DataFrame of polars, and make such tables of forecasts or scores.

polars is not required: a program that gives such a table has imported polars already.

Series                one sensor without a name
DataFrame             each column of numbers is a sensor; `series` names it in the result
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.sensors.scored_rows import Times
from edgefold.runtime.sensors.tables.sensor_table import (
    SensorTable,
    are_dates,
    as_texts,
    require_forward,
    seconds_since_1970,
)


class PolarsTable(SensorTable):
    """Holds the columns of a Series or a DataFrame.

    The times are those of the first column of dates, else of the first column of texts that are
    dates; else rows only count.

    Raises:
        DataError: The table has no column of numbers, or its rows go from new to old.
    """

    def __init__(self, data: Any):
        polars = self._polars = sys.modules["polars"]
        self.is_frame = isinstance(data, polars.DataFrame)
        self.n_rows = len(data)
        self._labels: Any = None
        self.times, self.dated = None, None
        if not self.is_frame:
            if not data.dtype.is_numeric():
                raise DataError(f"the Series is of {data.dtype}, and not of numbers.")
            self.columns = {"": _numbers(data)}
            return
        self.columns = {c.name: _numbers(c) for c in data.get_columns() if c.dtype.is_numeric()}
        if not self.columns:
            raise DataError("the DataFrame has no column of numbers; give one for each sensor.")
        self._labels = _labels_of(data.get_columns())
        if self._labels is not None:
            self.times, self.dated = _seconds(self._labels), True
            require_forward(self.times, "data.sort() by the column of dates")

    def label(self, at: int) -> str:
        """Return the time of a row; its number if it has none."""
        return str(at if self._labels is None else self._labels[at])

    def forecasts(self, found: Mapping[str, Array]) -> Any:
        """Return a DataFrame; a number that does not exist is null, and times keep their type."""
        polars, n, n_sensors = self._polars, self.n_rows, len(self.columns)
        columns = [_column(name, column) for name, column in found.items()]
        if not self.is_frame:
            return polars.DataFrame(columns)
        places = polars.Series(np.tile(np.arange(n), n_sensors))
        own = polars.Series(np.arange(n)) if self._labels is None else self._labels
        series = np.repeat(np.array([*self.columns], object), n).tolist()
        names = polars.Series("series", series, polars.String)
        return polars.DataFrame([names, own.gather(places).alias("time"), *columns])

    def scores(self, found: Mapping[str, Sequence[Any]]) -> Any:
        """Return a DataFrame; a number that does not exist is null."""
        return self._polars.DataFrame([_column(*item) for item in as_texts(found).items()])


def _column(name: str, values: Any) -> Any:
    polars, is_array = sys.modules["polars"], isinstance(values, np.ndarray)
    if is_array and values.dtype.kind == "O":
        column = polars.Series(name, values.tolist(), polars.String)
    else:
        column = polars.Series(name, values if is_array else [*values])
    return column.fill_nan(None) if column.dtype.is_float() else column


def _numbers(column: Any) -> FloatArray:
    double = sys.modules["polars"].Float64
    values: FloatArray = column.cast(double).fill_null(float("nan")).to_numpy()
    return values


def _labels_of(columns: Sequence[Any]) -> Any:
    """Return the column of times among the columns of a table, or None."""
    polars = sys.modules["polars"]
    texts = None
    for column in columns:
        if column.dtype in (polars.Date, polars.Datetime):
            return column
        is_text = column.dtype == polars.String
        if texts is None and is_text and len(column) and are_dates(column[0]):
            texts = column
    return texts


def _seconds(column: Any) -> Times:
    """Return a column's times in seconds since 1970, NaN where there is none; or its texts."""
    polars = sys.modules["polars"]
    if column.dtype == polars.String:
        texts: list[Any] = column.to_list()
        return texts
    if column.dtype == polars.Date:
        column = column.cast(polars.Datetime("ms"))
    counts = column.to_physical().fill_null(0).to_numpy()
    seconds = seconds_since_1970(counts, column.dtype.time_unit)
    seconds[column.is_null().to_numpy()] = np.nan
    return seconds
