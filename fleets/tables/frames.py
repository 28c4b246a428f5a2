"""Write tables that a program has in memory as Parquet, so that they are read as a lake."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgefold.fleets.tables.arrow import require_pyarrow
from edgefold.runtime.errors import DataError

GROUP_ROWS = 1 << 17
NAME = "frame.parquet"


@contextmanager
def as_patterns(tables: Any, folder: Path) -> Iterator[list[str]]:
    """Yield the files that a caller's tables are; what is in memory is one until the block ends.

    Args:
        tables: A path, several paths, or a table: of pyarrow (also a dataset), polars (also lazy)
            or pandas.
        folder: A folder for the file of a table; it is made, and removed at the end.

    Raises:
        DataError: It is something else.
    """
    if isinstance(tables, str | os.PathLike):
        yield [os.fspath(tables)]
    elif isinstance(tables, Sequence):
        yield [os.fspath(path) for path in tables]
    else:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            _write(tables, str(folder / NAME))
            yield [str(folder / NAME)]
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _write(table: Any, place: str) -> None:
    pa = require_pyarrow()
    from pyarrow.dataset import Dataset
    from pyarrow.parquet import ParquetWriter

    if hasattr(table, "sink_parquet"):  # of polars, lazy: rows are written as they are computed
        table.sink_parquet(place, row_group_size=GROUP_ROWS)
    elif hasattr(table, "write_parquet"):  # of polars
        table.write_parquet(place, row_group_size=GROUP_ROWS)
    else:
        if type(table).__module__.partition(".")[0] == "pandas":
            table = pa.Table.from_pandas(table, preserve_index=False)
        if not isinstance(table, pa.Table | Dataset):
            raise DataError(
                f"the tables are of type {type(table).__name__}; give paths, or a table of "
                "pyarrow, polars or pandas."
            )
        with ParquetWriter(place, table.schema) as writer:
            for batch in table.to_batches():
                writer.write_batch(batch, row_group_size=GROUP_ROWS)
