"""Take tables of pandas column by column, and return forecasts or scores as tables of pandas.

pandas is not required: a program that gives such a table has imported pandas already.

Series                one sensor without a name
DataFrame             each column of numbers is a sensor; `series` names it in the result

Sensors do not depend on each other, so all rows of a column come before the next column: the model
then takes up each sensor's state once, and not once a row.
"""

from __future__ import annotations

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np

from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.dates import is_date
from edgefold.runtime.sensors.backtest import BacktestScore, HorizonScores
from edgefold.runtime.sensors.engine import ScoredRow
from edgefold.runtime.sensors.forecasts import BAND

NUMBERS = "iuf"
"""The letters by which numpy marks its types of numbers: signed, unsigned and floating point."""
FIGURES = ("value", *BAND, "log_density", "p_value")
"""The names of the columns of numbers of the result of `run_table`."""
REFUSED = "refused"
EVERY, QUIET_S = 1000, 2.0
"""The number of rows between two reports of the progress, and the seconds before the first line."""

Take = Callable[[Any, float, str, "bool | None"], ScoredRow]
"""Takes a time, a value, the name of a sensor and whether times are dates, as `Sensors.step`."""
Progress = Callable[[int, int], object]
"""Is called with the number of rows that are done and the number of all rows of all columns."""


@dataclass
class _Table:
    """Holds the columns of a table of pandas.

    Attributes:
        columns: The values of each sensor by its name, (n,) each.
        times: The time of each row as `Sensors.step` takes it; None where rows only count.
        dated: Whether times are dates; None if the first one shows it.
        labels: The times as the result shows them: an index of pandas.
        is_frame: Whether the table is a DataFrame, whose result names the sensors.
    """

    columns: dict[str, Array]
    times: list[Any] | None
    dated: bool | None
    labels: Any
    is_frame: bool

    @property
    def n_rows(self) -> int:
        """Return the number of rows of each column."""
        return len(self.labels)


def _table_of(data: Any, call: str) -> _Table:
    """Read a Series or DataFrame; `call` is the name of the caller's method, for messages.

    Raises:
        DataError: The data is no such table, has no column of numbers or two of one name, or its
            rows go from new to old.
    """
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.Series):
        columns, labels = {"": _numbers(data)}, data.index
    elif pandas is not None and isinstance(data, pandas.DataFrame):
        names = [name for name, dtype in data.dtypes.items() if dtype.kind in NUMBERS]
        if not data.columns.is_unique or len({*map(str, names)}) < len(names):
            raise DataError("two columns of the DataFrame have one name; give each its own.")
        if not names:
            raise DataError("the DataFrame has no column of numbers; give one for each sensor.")
        columns, labels = {str(name): _numbers(data[name]) for name in names}, data.index
        dates = [name for name, dtype in data.dtypes.items() if dtype.kind == "M"]
        if dates and _times_of(labels)[0] is None:
            labels = pandas.Index(data[dates[0]])
    else:
        found = type(data).__name__
        raise DataError(f"{call}() got {found}; give a Series or a DataFrame of pandas.")
    times, dated = _times_of(labels)
    if times and labels.is_monotonic_decreasing and not labels.is_monotonic_increasing:
        raise DataError(
            "the rows go from new to old, and a stream goes from old to new; give "
            "data.sort_index(), or data.sort_values() by the column of dates."
        )
    return _Table(columns, times, dated, labels, not isinstance(data, pandas.Series))


def _numbers(column: Any) -> Array:
    try:
        values: Array = column.to_numpy(dtype=np.float64, na_value=math.nan)
    except (TypeError, ValueError) as error:
        raise DataError(f"the Series is not one of numbers ({error}); give float values.") from None
    return values


def _times_of(index: Any) -> tuple[list[Any] | None, bool | None]:
    """Return the times that an index holds, and whether they are dates.

    Dates become seconds since 1970. Both are None if the index only counts rows or names them.
    """
    if hasattr(index, "to_timestamp"):  # periods
        index = index.to_timestamp()
    kind = index.dtype.kind
    if kind == "M" or hasattr(index.dtype, "tz"):
        moments = index.to_numpy(dtype="datetime64[ns]")
        return ((moments - np.datetime64(0, "s")) / np.timedelta64(1, "s")).tolist(), True
    if kind in NUMBERS and type(index).__name__ != "RangeIndex":
        return index.to_numpy(dtype=np.float64).tolist(), None
    first = index[0] if len(index) else None
    if isinstance(first, date) or (isinstance(first, str) and is_date(first)):
        return list(index), True
    return None, None


def run_table(take: Take, data: Any, progress: Progress | None) -> Any:
    """Give each row of a Series or DataFrame to `take`, and return the forecasts as a DataFrame.

    `Sensors.run` describes both tables, the errors and the warning.
    """
    table = _table_of(data, "run")
    pandas, n = sys.modules["pandas"], table.n_rows
    n_all = n * len(table.columns)
    figures, alarms = np.full((n_all, len(FIGURES)), math.nan), np.zeros(n_all, np.bool_)
    events = np.full(n_all, "", object)
    for at, row in enumerate(_rows(take, table, progress)):
        figures[at, 0] = row.value
        alarms[at], events[at] = row.alarm, row.event
        if row.is_known:
            figures[at, 1 : 1 + len(BAND)] = row.mean, *row.quantiles
        if row.is_scored:
            figures[at, -2:] = row.log_density, row.p_value
    found = pandas.DataFrame(figures, columns=list(FIGURES), copy=False)
    found["alarm"], found["event"] = alarms, events
    if not table.is_frame:
        return found.set_axis(data.index)
    labels = np.arange(n) if table.times is None else table.labels
    found.insert(0, "series", np.repeat(np.array([*table.columns], object), n))
    found.insert(1, "time", pandas.Index(labels).take(np.arange(n_all) % n))
    return found


def score_table(
    take: Take,
    ahead: Callable[[str], tuple[int, tuple[FloatArray, FloatArray] | None]],
    horizons: tuple[int, ...],
    data: Any,
    skip: int,
    progress: Progress | None,
) -> Any:
    """Give each row of a table to `take`, and return scores of all horizons as a DataFrame.

    Args:
        take: As for `run_table`.
        ahead: Function that returns, for the sensor of the row that was taken last, the number of
            slots learned so far, and the means and quantiles at each horizon; None for these two
            where there is no forecast yet.
        horizons: The numbers of slots ahead; one season is scored besides.
        data: The table; `Sensors.backtest` describes it, the result and the errors.
        skip: The number of each sensor's first rows that are not scored.
        progress: As for `run_table`.
    """
    table = _table_of(data, "backtest")
    pandas, rows = sys.modules["pandas"], _rows(take, table, progress)
    found: list[tuple[str, str | int, BacktestScore]] = []
    for name in table.columns:
        scores = HorizonScores(horizons)
        for number in range(table.n_rows):
            row = next(rows)
            if row.event != REFUSED:
                slot, known = ahead(name)
                scores.add(row, slot, known, number >= skip)
        found += [(name, horizon, score) for horizon, score in scores.result()]
    result = pandas.DataFrame([score for *_, score in found], columns=list(BacktestScore._fields))
    result.insert(0, "horizon", [horizon for _, horizon, _ in found])
    if table.is_frame:
        result.insert(0, "series", [name for name, *_ in found])
    return result


def _rows(take: Take, table: _Table, progress: Progress | None) -> Iterator[ScoredRow]:
    """Give all rows to `take`, one column after the other; a refused row has only its value.

    At the end a warning counts the rows that were refused.
    """
    said = progress or TerminalProgress()
    n, n_done, n_refused, first = table.n_rows, 0, 0, ""
    n_all = n * len(table.columns)
    for name, column in table.columns.items():
        times: list[Any] = [None] * n if table.times is None else table.times
        for at, (moment, value) in enumerate(zip(times, column.tolist(), strict=True)):
            try:
                row = take(moment, value, name, table.dated)
            except DataError as error:
                row = _refused(value)
                n_refused += 1
                whose = f"{name}, row {at}" if name else f"row {at}"
                first = first or f"{whose} ({table.labels[at]}): {error}"
            n_done += 1
            if n_done % EVERY == 0 or n_done == n_all:
                said(n_done, n_all)
            yield row
    if n_refused:
        warnings.warn(
            f"{n_refused:,} of {n_all:,} rows were refused, and have the event 'refused'. The "
            f"first is {first}",
            stacklevel=5,
        )


def _refused(value: float) -> ScoredRow:
    return ScoredRow(math.nan, value, False, math.nan, [], 0.0, 1.0, 0, 0, False, REFUSED, 0, 0.0)


@dataclass
class TerminalProgress:
    """Writes the progress on standard error, if that is a terminal and the work takes seconds.

    Attributes:
        clock: Function that returns a time in seconds.
    """

    clock: Callable[[], float] = time.monotonic
    _start_s: float | None = field(default=None, init=False)

    def __call__(self, n_done: int, n_all: int) -> None:
        """Write how many of all rows are done, and the time that the others will take."""
        now_s = self.clock()
        if self._start_s is None:
            self._start_s, self._n_first = now_s, n_done
        passed_s, n_timed = now_s - self._start_s, n_done - self._n_first
        if passed_s < QUIET_S or not n_timed or not sys.stderr.isatty():
            return
        left_s = passed_s / n_timed * (n_all - n_done)
        end = "\n" if n_done == n_all else ""
        text = f"\r{n_done:,} of {n_all:,} rows, {left_s:,.0f} s left "
        print(text, end=end, file=sys.stderr, flush=True)
