"""Read the rows of a shard's sensors, wherever they are in the lake, in the order of their times.

A row takes 8 bytes for its time and 8 for each value, and some more while the rows are sorted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefold.fleets.forecasting.census import BATCH_ROWS, KeyNumbers, Shard, Sources
from edgefold.fleets.forecasting.settings import LakeChoice
from edgefold.fleets.tables.batches import read_batches
from edgefold.fleets.tables.columns import LakeColumn, NumberValues, tick_type
from edgefold.fleets.tables.lake import Lake
from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.sensors.tables.sensor_table import seconds_since_1970

NO_FRACTION, OFFSET = re.compile(r"\.0+(?=[-+Z]|$)"), re.compile(r"([-+]\d\d)(\d\d)$")
"""Match a fraction of a second that is 0, and an offset of a time zone without a colon."""
ROW_BYTES = 60
"""Memory of a row with one value while a shard is sorted; measured."""


@dataclass(frozen=True, slots=True)
class ShardSensor:
    """Holds the rows of one sensor in the order of their times.

    Attributes:
        place: The place of its name among the keys.
        ticks: The times as `TickValues` has them; None if rows only count, (n,).
        values: The values of each column, (n,) each; NaN where one is missing.
        n_moved: The number of rows before which a row with a later time was read.
        n_timeless: The number of rows without a time, which were left out.
    """

    place: int
    ticks: Array | None
    values: Sequence[FloatArray]
    n_moved: int
    n_timeless: int


RowPart = tuple[Array, ...]
"""Columns of some rows: places of their sensors, whether they lack a time, ticks, each value."""


def lake_parts(
    lake: Lake, choice: LakeChoice, sources: Sources, numbers: KeyNumbers
) -> Iterator[RowPart]:
    """Read those rows of some row groups whose sensor has a number.

    Raises:
        DataError: A file is damaged or was changed.
    """
    for number, groups in sources:
        for batch in read_batches(lake, lake.files[number], groups, BATCH_ROWS):
            places = numbers.of(batch)
            taken = np.flatnonzero(places >= 0)
            if not len(taken):
                continue
            ticks, is_null = np.zeros(len(taken)), np.zeros(len(taken), np.bool_)
            if choice.time:
                found = batch.ticks(choice.time)
                ticks = found.values[taken]
                is_null = ticks != ticks
                if found.is_null is not None:
                    is_null = is_null | found.is_null[taken]
            values = [_with_nan(batch.numbers(name), taken) for name in choice.values]
            yield places[taken].astype(np.int32), is_null, ticks, *values


def read_shard(parts: Iterable[RowPart], choice: LakeChoice, shard: Shard) -> Iterator[ShardSensor]:
    """Yield the sensors of a shard in their order.

    Args:
        parts: All rows of these sensors. Those of equal times stay in this order.
        choice: The columns.
        shard: The shard.
    """
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if not columns:
        return
    places, is_null, ticks, *values = columns
    # Sorting by sensor keeps the order of reading; each sensor is then sorted by time.
    order = np.argsort(places, kind="stable")
    edges = np.searchsorted(places[order], np.arange(shard.start, shard.stop + 1))
    for place in range(shard.start, shard.stop):
        rows = order[edges[place - shard.start] : edges[place - shard.start + 1]]
        if not choice.time:
            yield ShardSensor(place, None, [v[rows] for v in values], 0, 0)
            continue
        timed = rows[~is_null[rows]]
        read = ticks[timed]
        n_moved = int((read[1:] < np.maximum.accumulate(read)[:-1]).sum())
        sort = np.argsort(read, kind="stable") if n_moved else slice(None)
        timed = timed[sort]
        yield ShardSensor(
            place, ticks[timed], [v[timed] for v in values], n_moved, len(rows) - len(timed)
        )


def _with_nan(numbers: NumberValues, rows: Array) -> FloatArray:
    """Return the numbers of some rows, NaN where one is missing."""
    taken: FloatArray = numbers.values[rows].copy()
    if numbers.is_null is not None:
        taken[numbers.is_null[rows]] = np.nan
    return taken


class LakeTimes:
    """Turns the times of a lake into numbers for the model, and back into times of their type.

    Args:
        column: The column of times; None if rows only count.
    """

    def __init__(self, column: LakeColumn | None):
        self._column = column
        self.is_dated = column is not None and column.kind == "time"
        self._ticks_type = tick_type(column.type) if self.is_dated and column else None

    @property
    def type(self) -> Any:
        """Return the type of pyarrow in which times are written."""
        import pyarrow as pa

        return pa.int64() if self._column is None else self._column.type

    @property
    def dated(self) -> bool | None:
        """Return whether numbers are dates, as `Sensors.step` takes it."""
        return True if self.is_dated else None

    def seconds(self, ticks: Array) -> FloatArray:
        """Return times as the model takes them: seconds since 1970, or numbers."""
        if self._ticks_type is not None:
            return seconds_since_1970(ticks, self._ticks_type.unit)
        return ticks.astype(np.float64)

    def array(self, ticks: Array) -> Any:
        """Return ticks as an array of the column's type."""
        import pyarrow as pa

        array = pa.array(ticks)
        if self._ticks_type is not None:
            array = array.cast(self._ticks_type)
        return array.cast(self.type, safe=False)

    def array_of_seconds(self, seconds: FloatArray) -> Any:
        """Return numbers of the model as times of the column's type; NaN becomes null."""
        import pyarrow as pa

        is_null = ~np.isfinite(seconds)
        numbers = np.where(is_null, 0.0, seconds)
        if self._ticks_type is not None:
            per_s = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[self._ticks_type.unit]
            ticks = pa.array(np.rint(numbers * per_s).astype(np.int64), mask=is_null)
            return ticks.cast(self._ticks_type).cast(self.type, safe=False)
        is_whole = pa.types.is_integer(self.type)
        numbers = np.rint(numbers).astype(np.int64) if is_whole else numbers
        return pa.array(numbers, mask=is_null).cast(self.type, safe=False)

    def array_of(self, ticks: Sequence[float | None]) -> Any:
        """Return ticks, or None, as an array of the column's type."""
        import pyarrow as pa
        from pyarrow.compute import if_else

        array = self.array(np.array([0 if tick is None else tick for tick in ticks]))
        is_known = pa.array([tick is not None for tick in ticks], pa.bool_())
        return if_else(is_known, array, pa.scalar(None, array.type))

    def written(self, array: Any) -> list[str]:
        """Return times of the column's type as texts, as CSV would have them; "" for null."""
        import pyarrow as pa

        if self._ticks_type is None:
            return ["" if time is None else repr(time) for time in array.to_pylist()]
        return [
            OFFSET.sub(r"\1:\2", NO_FRACTION.sub("", text or ""))
            for text in array.cast(pa.string()).to_pylist()
        ]
