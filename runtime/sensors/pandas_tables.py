"""Take tables of pandas row by row and return the forecasts as a table of pandas.

pandas is not required: a program that gives such a table has imported pandas already.

Series                one sensor without a name
DataFrame             each column of numbers is a sensor; `series` names it in the result
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from edgefold.runtime.errors import DataError
from edgefold.runtime.sensors.forecasts import BAND, ROW_NAMES, Forecast

NUMBERS = "iuf"
"""The letters by which numpy marks its types of numbers: signed, unsigned and floating point."""
REFUSED = "refused"

Step = Callable[[Any, float, str], Forecast]
"""Takes a time, a value and the name of a sensor, as `Sensors.step` does."""


def run_frame(step: Step, data: Any) -> Any:
    """Give each row of a Series or DataFrame to `step`, and return the forecasts as a DataFrame.

    `Sensors.run` describes both tables and the errors.
    """
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.Series):
        rows = [_row(step, time, n, "") for time, n in zip(_index(data), data, strict=True)]
        return pandas.DataFrame(rows, columns=list(ROW_NAMES), index=data.index)
    if pandas is not None and isinstance(data, pandas.DataFrame):
        times, columns = _columns(data)
        index, table = [], []
        for i, at in enumerate(data.index):
            for name, values in columns.items():
                table.append((name, *_row(step, times[i], values[i], name)))
                index.append(at)
        return pandas.DataFrame(table, columns=["series", *ROW_NAMES], index=index)
    raise DataError(f"run() got {type(data).__name__}; give a Series or a DataFrame of pandas.")


def _index(data: Any) -> list[Any]:
    """Return the times that a table's index holds; a None for each row if it only counts rows."""
    kind = data.index.dtype.kind
    if kind == "M" or hasattr(data.index.dtype, "tz"):
        return list(data.index)
    if kind in "iuf" and type(data.index).__name__ != "RangeIndex":
        return [float(time) for time in data.index]
    return [None] * len(data)


def _columns(data: Any) -> tuple[list[Any], dict[str, list[Any]]]:
    """Return the times of a DataFrame's rows, and the values of each column of numbers by name."""
    if not data.columns.is_unique:
        raise DataError("two columns of the DataFrame have one name; give each its own.")
    times = _index(data)
    dates = [name for name, dtype in data.dtypes.items() if dtype.kind == "M"]
    if times and times[0] is None and dates:
        times = list(data[dates[0]])
    columns = {
        str(name): list(data[name]) for name, dtype in data.dtypes.items() if dtype.kind in NUMBERS
    }
    if not columns:
        raise DataError("the DataFrame has no column of numbers; give one for each sensor.")
    return times, columns


def _row(step: Step, time: Any, value: Any, name: str) -> tuple[Any, ...]:
    """Give a row to `step` and return the row of the result, in the order of `ROW_NAMES`.

    These are time, value, mean, quantiles, log_density, p_value, alarm and event. For a row that
    `step` refuses, all numbers of the forecast are NaN, and the event is "refused".
    """
    try:
        number = float(value)
    except TypeError:  # None, and pandas' NA
        number = math.nan
    try:
        found = step(time, number, name)
    except DataError:
        return (time, number, *[math.nan] * (len(BAND) + 2), False, REFUSED)
    band = (getattr(found, name) for name in BAND)
    return (time, number, *band, found.log_density, found.p_value, found.alarm, found.event)
