"""Find the columns that would part the rows of a sensor whose times repeat.

Where folders site=3/ and site=7/ both have a sensor `a`, `--by sensor` takes the two for one, and
half of its rows are refused, because each time comes twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgefold.fleets.forecasting.census import Key, KeyNumbers
from edgefold.fleets.forecasting.settings import LakeChoice
from edgefold.fleets.tables.batches import read_batches
from edgefold.fleets.tables.columns import column_of
from edgefold.fleets.tables.lake import Lake, open_lake
from edgefold.runtime.arrays import Array

MOST_ROWS = 1_000_000
"""Rows of a sensor that are looked at."""


def parting_columns(lake: Lake, choice: LakeChoice, key: Key) -> list[str]:
    """Return the columns of folders and of texts by which most repeated times of a sensor differ.

    Args:
        lake: The lake.
        choice: Its columns, with one of times.
        key: The sensor's name.

    Raises:
        DataError: A file is damaged or was changed.
    """
    names = [name for name in _other_names(lake) if name not in choice.columns]
    if not names:
        return []
    opened = open_lake([file.path for file in lake.files], [*choice.by, choice.time, *names])
    opened = Lake(lake.files, {**lake.columns, **opened.columns}, lake.filter)
    finder = KeyNumbers(choice.by, {key: 0})
    ticks, codes, n_rows = list[Array](), {name: list[Array]() for name in names}, 0
    numbers: dict[str, dict[Any, int]] = {name: {} for name in names}
    for file in opened.files:
        for batch in read_batches(opened, file):
            rows = np.flatnonzero(finder.of(batch) == 0)
            if not len(rows):
                continue
            ticks.append(batch.ticks(choice.time).values[rows])
            for name in names:
                own, values = batch.codes(name)
                known = numbers[name]
                table = [known.setdefault(value, len(known)) for value in values]
                codes[name].append(np.array([*table, -1])[own[rows]])
            n_rows += len(rows)
        if n_rows > MOST_ROWS:
            break
    if not ticks:
        return []
    times = np.concatenate(ticks)
    n_repeated = len(times) - len(np.unique(times))
    return [
        name
        for name in names
        if 2 * (len(times) - _n_different(times, np.concatenate(codes[name]))) < n_repeated
    ]


def _n_different(times: Array, codes: Array) -> int:
    order = np.lexsort((codes, times))
    times, codes = times[order], codes[order]
    is_new = (times[1:] != times[:-1]) | (codes[1:] != codes[:-1])
    return 1 + int(is_new.sum())


def _other_names(lake: Lake) -> Sequence[str]:
    """Return the names of folders and of columns of texts that all files have."""
    from pyarrow.parquet import read_schema

    common: list[str] | None = None
    for file in lake.files:
        schema = read_schema(file.path)
        own = [*file.values]
        for name in schema.names:
            column = column_of(name, schema.field(name).type, file.path)
            if column is not None and column.kind == "text":
                own.append(name)
        common = own if common is None else [name for name in common if name in own]
    return common or []
