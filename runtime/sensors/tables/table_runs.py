"""Lead the rows of a table through Sensors, column by column, to forecasts or scores.

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
from typing import Any

import numpy as np

from edgefold.runtime.errors import DataError
from edgefold.runtime.sensors.forecasts import BAND
from edgefold.runtime.sensors.scored_rows import RowsTaker, ScoredRows, row_blocks
from edgefold.runtime.sensors.tables.arrow_tables import ArrowTable
from edgefold.runtime.sensors.tables.backtest import BacktestScore, HorizonScores
from edgefold.runtime.sensors.tables.pandas_tables import PandasTable
from edgefold.runtime.sensors.tables.polars_tables import PolarsTable
from edgefold.runtime.sensors.tables.sensor_table import SensorTable

FIGURES = ("value", *BAND, "log_density", "p_value")
"""The names of the columns of numbers of the result of `run_table`."""
REFUSED = "refused"
EVERY, QUIET_S = 1000, 2.0
"""The least number of rows between two reports of the progress, and the seconds before the first
line."""

LIBRARIES: tuple[tuple[str, tuple[str, ...], Callable[[Any], SensorTable]], ...] = (
    ("pandas", ("Series", "DataFrame"), PandasTable),
    ("polars", ("Series", "DataFrame"), PolarsTable),
    ("pyarrow", ("Table", "RecordBatch", "ChunkedArray", "Array"), ArrowTable),
)
"""Libraries, their classes of tables, and what reads them."""

Progress = Callable[[int, int], object]
"""Is called with the number of rows that are done and the number of all rows of all columns."""


def table_of(data: Any, call: str) -> SensorTable:
    """Read a table; `call` is the name of the caller's method, for messages.

    Raises:
        DataError: The data is no table of these libraries, has no column of numbers or two of one
            name, or its rows go from new to old.
    """
    for library, classes, read in LIBRARIES:
        module = sys.modules.get(library)  # a program that has such a table has imported it
        if module is not None and isinstance(data, tuple(getattr(module, c) for c in classes)):
            return read(data)
    raise DataError(
        f"{call}() got {type(data).__name__}; give a Series or a DataFrame of pandas or polars, "
        "or a Table of pyarrow."
    )


def run_table(sensors: RowsTaker, data: Any, progress: Progress | None) -> Any:
    """Take each row of a table, and return the forecasts as a table of the same library.

    `Sensors.run` describes both tables, the errors and the warning.
    """
    table = table_of(data, "run")
    n = table.n_rows * len(table.columns)
    figures, alarms = np.full((len(FIGURES), n), math.nan), np.zeros(n, np.bool_)
    events, at = np.full(n, "", object), 0
    for _, _, rows in _rows(sensors, table, progress, with_ahead=False):
        own = slice(at, at + len(rows))
        figures[0, own] = rows.values
        figures[1 : 1 + len(BAND), own] = rows.forecasts.T
        figures[-2:, own] = np.where(
            rows.is_scored, (rows.column("log_density"), rows.column("p_value")), math.nan
        )
        alarms[own], events[own] = rows.is_alarm, rows.events
        for refused in rows.refused:
            events[at + refused] = REFUSED
        at += len(rows)
    found = dict(zip(FIGURES, figures, strict=True))
    return table.forecasts({**found, "alarm": alarms, "event": events})


def score_table(
    sensors: RowsTaker,
    horizons: tuple[int, ...],
    data: Any,
    skip: int,
    progress: Progress | None,
) -> Any:
    """Take each row of a table, and return scores of all horizons as a table of the same library.

    Args:
        sensors: The sensors.
        horizons: The numbers of slots ahead; one season is scored besides.
        data: The table; `Sensors.backtest` describes it, the result and the errors.
        skip: The number of each sensor's first rows that are not scored.
        progress: As for `run_table`.
    """
    table = table_of(data, "backtest")
    scores = {name: HorizonScores(horizons) for name in table.columns}
    for name, first, rows in _rows(sensors, table, progress, with_ahead=True):
        scores[name].add(rows, max(skip - first, 0))
    lines = [
        (name, horizon, score) for name, own in scores.items() for horizon, score in own.result()
    ]
    found: dict[str, list[Any]] = {"series": [name for name, *_ in lines]} if table.is_frame else {}
    found["horizon"] = [horizon for _, horizon, _ in lines]
    for place, column in enumerate(BacktestScore._fields):
        found[column] = [score[place] for *_, score in lines]
    return table.scores(found)


def _rows(
    sensors: RowsTaker, table: SensorTable, progress: Progress | None, with_ahead: bool
) -> Iterator[tuple[str, int, ScoredRows]]:
    """Take all rows, one column after the other, in blocks: name, number of the first row, rows.

    At the end a warning counts the rows that were refused.
    """
    said = progress or TerminalProgress()
    n_done, n_refused, n_said, first = 0, 0, 0, ""
    n_all = table.n_rows * len(table.columns)
    for name, column in table.columns.items():
        at = 0
        for rows in row_blocks(sensors, table.times, column, name, table.dated, with_ahead):
            for refused, error in rows.refused.items() if not first else ():
                whose = f"{name}, row {at + refused}" if name else f"row {at + refused}"
                first = first or f"{whose} ({table.label(at + refused)}): {error}"
            n_refused += len(rows.refused)
            n_done += len(rows)
            if n_done - n_said >= EVERY or n_done == n_all:
                said(n_done, n_all)
                n_said = n_done
            yield name, at, rows
            at += len(rows)
    if n_refused:
        warnings.warn(
            f"{n_refused:,} of {n_all:,} rows were refused, and nothing was learned of them. The "
            f"first is {first}",
            stacklevel=5,
        )


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
