"""Write the rows of a shard's sensors to a Parquet file, row group by row group.

The file replaces an older one once it is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgefold.fleets.forecasting.census import Key
from edgefold.fleets.tables.columns import LakeColumn
from edgefold.runtime.files import replacing

GROUP_ROWS = 1 << 16
"""A row group is written once it has so many rows."""


class SensorNames:
    """Makes the columns that name a sensor in the results.

    Args:
        by: The columns of the lake that name it, in their order.
        with_column: Whether the name of the column of values is one more.
    """

    def __init__(self, by: Sequence[LakeColumn], with_column: bool):
        self._by, self._with_column = tuple(by), with_column

    def fields(self) -> list[Any]:
        """Return the columns as fields of pyarrow: texts as dictionaries."""
        import pyarrow as pa

        text = pa.dictionary(pa.int32(), pa.string())
        fields = [pa.field(c.name, text if c.kind == "text" else c.type) for c in self._by]
        return [*fields, *[pa.field("column", text)] * self._with_column]

    def arrays(self, names: Sequence[tuple[Key, str]], counts: Sequence[int]) -> list[Any]:
        """Return the columns of rows: `counts` rows of each sensor (key, column of values)."""
        import pyarrow as pa

        codes = np.repeat(np.arange(len(names), dtype=np.int32), counts)
        columns = [[key[at] for key, _ in names] for at in range(len(self._by))]
        if self._with_column:
            columns.append([column for _, column in names])
        arrays = []
        for field, values in zip(self.fields(), columns, strict=True):
            if pa.types.is_dictionary(field.type):
                number = {value: at for at, value in enumerate(dict.fromkeys(values))}
                places = np.array([number[value] for value in values], np.int32)
                texts = pa.array(list(number), pa.string())
                arrays.append(pa.DictionaryArray.from_arrays(pa.array(places[codes]), texts))
            else:
                arrays.append(pa.array(values, field.type).take(pa.array(codes)))
        return arrays

    def texts(self, key: Key, column: str) -> list[str]:
        """Return the name of a sensor as texts, one for each column."""
        return [*map(str, key), *[column] * self._with_column]


class PartFile:
    """Collects rows of sensors and writes them.

    Args:
        path: The path of the open file.
        names: Makes the columns of the sensors' names.
        fields: The other columns, as fields of pyarrow.
    """

    def __init__(self, path: Path, names: SensorNames, fields: Sequence[Any]):
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        self._names, self._schema = names, pa.schema([*names.fields(), *fields])
        coded = [f.name for f in self._schema if pa.types.is_dictionary(f.type)]
        self._writer = ParquetWriter(
            path, self._schema, compression="zstd", use_dictionary=coded, write_statistics=True
        )
        self._parts: list[tuple[Key, str, int, Mapping[str, Any]]] = []
        self._n = 0

    def add(self, key: Key, column: str, arrays: Mapping[str, Any]) -> None:
        """Add rows of a sensor: arrays of numpy or pyarrow by column."""
        n = len(next(iter(arrays.values())))
        if n:
            self._parts.append((key, column, n, arrays))
            self._n += n
        if self._n >= GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._parts:
            return
        names = [(key, column) for key, column, _, _ in self._parts]
        columns = self._names.arrays(names, [n for _, _, n, _ in self._parts])
        for field in self._schema.names[len(columns) :]:
            parts = [arrays[field] for *_, arrays in self._parts]
            if isinstance(parts[0], np.ndarray):
                columns.append(pa.array(np.concatenate(parts), from_pandas=True))
            else:
                columns.append(pa.concat_arrays(parts))
        self._writer.write_table(pa.Table.from_arrays(columns, schema=self._schema), self._n)
        self._parts, self._n = [], 0

    def close(self) -> None:
        """Write the rest, and the end of the file."""
        self._flush()
        self._writer.close()


@contextmanager
def part_file(path: Path, names: SensorNames, fields: Sequence[Any]) -> Iterator[PartFile]:
    """Open a file for a block; it is there once the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        opened = PartFile(beside, names, fields)
        yield opened
        opened.close()
