"""Read the rows of a lake's file by batches, in memory that does not grow with the file.

A row group is read through buffers of `BUFFER_BYTES` a column, so that one of 100 million rows
takes no more memory than a small one. Everything runs in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from edgefold.fleets.tables.arrow import ArrowArray, require_pyarrow
from edgefold.fleets.tables.columns import (
    KeyCodes,
    LakeColumn,
    NumberValues,
    TickValues,
    codes_of,
    numbers_of,
    ticks_of,
)
from edgefold.fleets.tables.lake import Lake, LakeFile
from edgefold.runtime.arrays import Array
from edgefold.runtime.errors import DataError

BATCH_ROWS = 1 << 16
BUFFER_BYTES = 1 << 20


class LakeBatch:
    """Holds some consecutive rows of a file, without those that the filter leaves out.

    Attributes:
        file: The file.
        start, stop: The first row of the file that was read, and the first that was not. Rows that
            the filter left out count here.
        rows: The numbers of the rows in the file, int64 (n,).
    """

    def __init__(
        self,
        file: LakeFile,
        start: int,
        stop: int,
        rows: Array,
        arrays: Mapping[str, ArrowArray],
        columns: Mapping[str, LakeColumn],
    ):
        self.file, self.start, self.stop, self.rows = file, start, stop, rows
        self._arrays, self._columns = arrays, columns

    def __len__(self) -> int:
        return len(self.rows)

    def numbers(self, name: str) -> NumberValues:
        """Return a column's numbers, or its times as seconds since 1970, float64 (n,)."""
        if name in self._arrays:
            return numbers_of(self._arrays[name], self._columns[name].kind)
        value, n = self.file.values[name], len(self)
        if value is None:
            return NumberValues(np.zeros(n), np.ones(n, np.bool_))
        return NumberValues(np.full(n, float(value)), None)

    def ticks(self, name: str) -> TickValues:
        """Return a column's numbers or times without rounding; see `TickValues`."""
        if name in self._arrays:
            return ticks_of(self._arrays[name], self._columns[name])
        values, is_null = self.numbers(name)
        return TickValues(values.astype(np.int64), is_null)

    def codes(self, name: str) -> KeyCodes:
        """Return any column's values as indices of its different values; see `KeyCodes`."""
        type = self._columns[name].type
        if name in self._arrays:
            return codes_of(self._arrays[name], type)
        value = require_pyarrow().scalar(self.file.values[name], type).as_py()
        return KeyCodes(np.full(len(self), 0 if value is not None else -1, np.int32), [value])


def read_batches(
    lake: Lake,
    file: LakeFile,
    row_groups: Sequence[int] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[LakeBatch]:
    """Yield the rows of a file's row groups in their order.

    Row groups of which the footer's statistics say that the filter takes no row are not read.

    Args:
        lake: The lake, whose columns are read and whose filter is applied.
        file: One of its files.
        row_groups: The indices of row groups, ascending; None reads all.
        batch_rows: The most rows of a batch.

    Raises:
        DataError: The file is gone, was changed since the lake was opened, or is damaged.
    """
    file.require_unchanged()
    wanted = range(len(file.row_groups)) if row_groups is None else row_groups
    pa = require_pyarrow()
    from pyarrow.parquet import ParquetFile

    with explained(file):
        with ParquetFile(file.path, buffer_size=BUFFER_BYTES, pre_buffer=False) as opened:
            schema = opened.schema_arrow
        names = [name for name in lake.columns if name in schema.names]
        texts = [name for name in names if lake.columns[name].kind == "text"]
        chosen = _with_rows(lake, file, wanted, schema)
        with ParquetFile(
            file.path, buffer_size=BUFFER_BYTES, pre_buffer=False, read_dictionary=texts
        ) as opened:
            for group in chosen:
                start = file.first_row(group)
                read: Iterator[Any] = (
                    opened.iter_batches(batch_rows, [group], names, use_threads=False)
                    if names
                    else _no_columns(file.row_groups[group], batch_rows)
                )
                for part in read:
                    arrays = {name: part.column(name) for name in names}
                    yield _batch(lake, file, start, part.num_rows, arrays)
                    start += part.num_rows
                pa.default_memory_pool().release_unused()
    file.require_unchanged()


def _batch(
    lake: Lake, file: LakeFile, start: int, n: int, arrays: Mapping[str, ArrowArray]
) -> LakeBatch:
    rows: Array = np.arange(start, start + n, dtype=np.int64)
    if lake.filter is not None:
        taken = lake.filter.taken(lake.columns, arrays, file.values, n)
        if taken is not None:
            rows = rows[taken.to_numpy(zero_copy_only=False)]
            arrays = {name: array.filter(taken) for name, array in arrays.items()}
    return LakeBatch(file, start, start + n, rows, arrays, lake.columns)


def _with_rows(lake: Lake, file: LakeFile, wanted: Sequence[int], schema: Any) -> Sequence[int]:
    """Return those row groups of which the statistics do not rule out the filter."""
    if lake.filter is None or not wanted:
        return wanted
    is_boolean = require_pyarrow().types.is_boolean
    here = [name for name in lake.filter.names if name in schema.names]
    if any(is_boolean(schema.field(n).type) != is_boolean(lake.columns[n].type) for n in here):
        return wanted  # other files have numbers, with which booleans are not compared
    from pyarrow.dataset import ParquetFileFormat
    from pyarrow.fs import LocalFileSystem

    values = {name: value for name, value in file.values.items() if name not in schema.names}
    expression = lake.filter.expression(lake.columns, values)
    fragment = ParquetFileFormat().make_fragment(
        file.path, LocalFileSystem(), row_groups=list(wanted)
    )
    parts = fragment.split_by_row_group(expression, schema)
    return sorted(group.id for part in parts for group in part.row_groups)


def _no_columns(n: int, batch_rows: int) -> Iterator[Any]:
    """Yield batches without columns: of a file whose folders name all that is read."""
    pa = require_pyarrow()
    for start in range(0, n, batch_rows):
        count = min(batch_rows, n - start)
        yield pa.RecordBatch.from_arrays([pa.nulls(count)], ["nothing"])


@contextmanager
def explained(file: LakeFile) -> Iterator[None]:
    """Raise DataError, which names the file, for what pyarrow and the system report."""
    pa = require_pyarrow()
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        file.require_unchanged()  # a reason that says more
        reason = " ".join(str(error).split())
        raise DataError(
            f"{file.path} cannot be read ({reason}); it is damaged, or its disk is: leave it out, "
            "or write it again."
        ) from error
