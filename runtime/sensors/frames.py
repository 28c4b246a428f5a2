"""Tables of pandas in and out, without a need for pandas: who gives one has loaded it.

Series                one sensor without a name
DataFrame             each column of numbers is a sensor; a column `series` names it
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from edgefold.runtime.errors import DataError
from edgefold.runtime.sensors.forecasts import Forecast

if TYPE_CHECKING:
    from edgefold.runtime.sensors.sensors import Sensors

NUMBERS = "iufb"
"""Kinds of numpy's types that are numbers."""
BANDS = ("mean", "q05", "q10", "q25", "q50", "q75", "q90", "q95")
NAMES = ("time", "value", *BANDS, "log_density", "p_value", "alarm", "event")
REFUSED = "refused"


def run_frame(sensors: Sensors, data: Any) -> Any:
    """Take each row of a Series or a DataFrame; see `Sensors.run`."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.Series):
        rows = _series(sensors, data)
        return pandas.DataFrame(rows, columns=list(NAMES), index=data.index)
    if pandas is not None and isinstance(data, pandas.DataFrame):
        times, columns = _columns(data)
        index, table = [], []
        for i, at in enumerate(data.index):
            for name, values in columns.items():
                table.append((name, *_row(sensors, times[i], values[i], name)))
                index.append(at)
        return pandas.DataFrame(table, columns=["series", *NAMES], index=index)
    raise DataError(f"run() got {type(data).__name__}; give a Series or a DataFrame of pandas.")


def _series(sensors: Sensors, data: Any) -> list[tuple[Any, ...]]:
    times = _index(data)
    return [_row(sensors, time, value, "") for time, value in zip(times, data, strict=True)]


def _index(data: Any) -> list[Any]:
    """The times that an index tells; None for each row of an index that only counts."""
    kind = data.index.dtype.kind
    if kind == "M" or hasattr(data.index.dtype, "tz"):
        return list(data.index)
    if kind in "iuf" and type(data.index).__name__ != "RangeIndex":
        return [float(time) for time in data.index]
    return [None] * len(data)


def _columns(data: Any) -> tuple[list[Any], dict[str, list[Any]]]:
    """The times, and the values of each column of numbers by its name."""
    times = _index(data)
    dates = [name for name, dtype in data.dtypes.items() if dtype.kind == "M"]
    if times and times[0] is None and dates:
        times = list(data[dates[0]])
    columns = {
        str(name): list(data[name])
        for name, dtype in data.dtypes.items()
        if dtype.kind in NUMBERS and dtype.kind != "b"
    }
    if not columns:
        raise DataError("the DataFrame has no column of numbers; give one for each sensor.")
    return times, columns


def _row(sensors: Sensors, time: Any, value: Any, name: str) -> tuple[Any, ...]:
    """The fields of a row and its forecast."""
    number = float("nan") if value is None or value != value else float(value)
    try:
        found = sensors.step(time, number, name)
    except DataError:
        return (time, number, *[float("nan")] * (len(BANDS) + 2), False, REFUSED)
    return (time, number, *told(found))


def told(found: Forecast) -> tuple[Any, ...]:
    """What is written of a forecast: its band, scores, alarm and event."""
    band = (getattr(found, name) for name in BANDS)
    return (*band, found.log_density, found.p_value, found.alarm, found.event)
