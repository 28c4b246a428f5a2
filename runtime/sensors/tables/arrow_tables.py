"""Take tables and columns of Arrow, and make tables of Arrow of forecasts or scores.

pyarrow is not required: a program that gives such a table has imported pyarrow already.

Array, ChunkedArray   one sensor without a name
Table, RecordBatch    each column of numbers is a sensor; `series` names it in the result
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


class ArrowTable(SensorTable):
    """Holds the columns of a table of Arrow.

    The times are those of the first column of timestamps or dates, else of the first column of
    texts that are dates; else rows only count.

    Raises:
        DataError: The table has no column of numbers or two of one name, or its rows go from new
            to old.
    """

    def __init__(self, data: Any):
        arrow = self._arrow = sys.modules["pyarrow"]
        self.is_frame = isinstance(data, (arrow.Table, arrow.RecordBatch))
        self.n_rows = len(data)
        self._labels: Any = None
        self.times, self.dated = None, None
        if not self.is_frame:
            if not _is_number(data.type):
                raise DataError(f"the column is of {data.type}, and not of numbers.")
            self.columns = {"": _numbers(data)}
            return
        names = data.schema.names
        if len({*names}) < len(names):
            raise DataError("two columns of the table have one name; give each its own.")
        columns = {name: data[name] for name in names}
        self.columns = {
            name: _numbers(column) for name, column in columns.items() if _is_number(column.type)
        }
        if not self.columns:
            raise DataError("the table has no column of numbers; give one for each sensor.")
        self._labels = _labels_of(columns.values())
        if self._labels is not None:
            self.times, self.dated = _seconds(self._labels), True
            require_forward(self.times, "data.sort_by() the column of dates")

    def label(self, at: int) -> str:
        """Return the time of a row; its number if it has none."""
        return str(at if self._labels is None else self._labels[at])

    def forecasts(self, found: Mapping[str, Array]) -> Any:
        """Return a Table; a number that does not exist is null, and times keep their type."""
        arrow, n, n_sensors = self._arrow, self.n_rows, len(self.columns)
        columns = {name: arrow.array(column, from_pandas=True) for name, column in found.items()}
        if not self.is_frame:
            return arrow.table(columns)
        series = np.repeat(np.array([*self.columns], object), n)
        own = arrow.array(np.arange(n)) if self._labels is None else self._labels
        chunks = own.chunks if isinstance(own, arrow.ChunkedArray) else [own]
        times = arrow.chunked_array(chunks * n_sensors, own.type)
        return arrow.table(
            {"series": arrow.array(series, arrow.string()), "time": times, **columns}
        )

    def scores(self, found: Mapping[str, Sequence[Any]]) -> Any:
        """Return a Table; a number that does not exist is null."""
        arrow = self._arrow
        return arrow.table(
            {
                name: arrow.array(column, from_pandas=True)
                for name, column in as_texts(found).items()
            }
        )


def _is_number(kind: Any) -> bool:
    types = sys.modules["pyarrow"].types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


def _numbers(column: Any) -> FloatArray:
    double = sys.modules["pyarrow"].float64()
    values = column.cast(double, safe=False)
    if hasattr(values, "combine_chunks"):
        values = values.combine_chunks()
    found: FloatArray = values.to_numpy(zero_copy_only=False)
    return found


def _labels_of(columns: Any) -> Any:
    """Return the column of times among the columns of a table, or None."""
    types = sys.modules["pyarrow"].types
    texts = None
    for column in columns:
        if types.is_timestamp(column.type) or types.is_date(column.type):
            return column
        is_text = types.is_string(column.type) or types.is_large_string(column.type)
        if texts is None and is_text and len(column) and are_dates(column[0].as_py()):
            texts = column
    return texts


def _seconds(column: Any) -> Times:
    """Return a column's times in seconds since 1970, NaN where there is none; or its texts."""
    arrow = sys.modules["pyarrow"]
    kind = column.type
    if arrow.types.is_date(kind):
        kind = arrow.timestamp("s" if arrow.types.is_date32(kind) else "ms")
    if not arrow.types.is_timestamp(kind):
        texts: list[Any] = column.to_pylist()
        return texts
    counts = column.cast(kind).cast(arrow.int64())
    seconds = seconds_since_1970(np.asarray(counts.fill_null(0)), kind.unit)
    seconds[np.asarray(column.is_null())] = np.nan
    return seconds
