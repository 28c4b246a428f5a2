"""Choose the columns of a lake that name the sensors, and hold the times and the values.

What the user leaves out is found in the first rows by the rules that find the columns of a CSV
table, so that a table gives the same forecasts in both forms. Columns of folders such as year=2025
are never taken for values or times.
"""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Sequence
from typing import Any

from edgefold.fleets.forecasting.settings import RESERVED, LakeChoice
from edgefold.fleets.tables.arrow import require_pyarrow
from edgefold.fleets.tables.batches import explained
from edgefold.fleets.tables.columns import column_of
from edgefold.fleets.tables.lake import Lake, LakeFile, open_lake
from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_fields import write_fields
from edgefold.runtime.rows.detect.columns import find_table

SAMPLE_ROWS, SAMPLE_FILES = 500, 5
"""Rows that are read of each of some files to find the columns."""
JOINED = "/"
DATE = re.compile(r"\d{1,4}([-_.T]\d{1,4})*$")
"""Matches a date, a month or a time in the name of a folder."""


def open_sensors(
    patterns: Sequence[str],
    by: Sequence[str] | None,
    time: str | None,
    values: Sequence[str] | None,
    filter: str | None,
) -> tuple[Lake, LakeChoice]:
    """Open a lake with the columns that are named or found.

    Args:
        patterns: Files, folders or globs.
        by: The columns that name the sensor of each row; None to find one, [] for one sensor.
        time: The column of times; None to find it.
        values: The columns of values; None to find them.
        filter: Which rows are read; None for all.

    Raises:
        DataError: A column is missing or of another type, or it cannot be decided which is meant.
        BackendError: pyarrow is not installed.
    """
    if by is None or time is None or values is None:
        by, time, values = _found(open_lake(patterns, []), by, time, values)
    choice = LakeChoice(tuple(by), time, tuple(values))
    if len({*choice.columns}) < len(choice.columns):
        raise DataError(
            f"a column has two parts: {', '.join(choice.columns)}; name others with --by, --time "
            "and --columns."
        )
    for name in choice.by:
        if name in RESERVED:
            raise DataError(
                f"the results have a column {name!r} of their own, so that --by cannot name one; "
                "rename it where the files are written."
            )
    numbers = [*choice.values, *_given(choice.time)]
    return open_lake(patterns, choice.columns, filter, numbers), choice


def _given(name: str) -> list[str]:
    return [name] if name else []


def _found(
    lake: Lake, by: Sequence[str] | None, time: str | None, values: Sequence[str] | None
) -> tuple[Sequence[str], str, Sequence[str]]:
    """Return the columns of names, of times and of values; those that are None are found."""
    source = lake.files[0].path
    names, rows = _sample(lake, by, [*_given(time or ""), *(values or ())])
    if by and len(by) > 1:
        missing = [name for name in by if name not in names]
        if missing:
            raise DataError(f"{source} has no column {missing[0]!r}; it has {', '.join(names)}.")
        keep = [at for at, name in enumerate(names) if name not in by]
        places = [names.index(name) for name in by]
        rows = [[*(r[at] for at in keep), JOINED.join(r[at] for at in places)] for r in rows]
        names = [*(names[at] for at in keep), JOINED.join(by)]
    text = io.StringIO()
    for row in (names, *rows):
        write_fields(text, *row)
    lines = text.getvalue().encode().splitlines(keepends=True)
    series = None if by is None else JOINED.join(by)
    options = "--columns", "--by"
    choice = find_table(lines, source, time, values, series, options=options, turns=True).choice
    if len(choice.time) > 1:
        raise DataError(
            f"{source} has its times in the columns {' and '.join(choice.time)}; write them as one "
            "timestamp, and name it with --time."
        )
    if by is None:
        by = _given(choice.series)
    return by, choice.time[0] if choice.time else "", choice.values


def _sample(
    lake: Lake, by: Sequence[str] | None, named: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """Return the names of all columns that may be meant, and the texts of some rows.

    A column of folders is meant if an option names it. If none names the sensors, folders of texts,
    such as site=north, may name them.
    """
    files = [file for file in lake.files if file.n_rows]
    if not files:
        raise DataError(f"{lake.files[0].path} and all other files have no rows.")
    folders = {*named, *(by or ()), *(_naming_folders(files) if by is None else ())}
    step = max(len(files) // SAMPLE_FILES, 1)
    names, rows = list[str](), list[list[str]]()
    for file in files[::step][:SAMPLE_FILES]:
        own, texts = _texts(file, folders)
        names = names or own
        if own != names:
            continue  # columns that are needed must be in all files, as the lake then says
        rows += texts
    return names, rows


def _naming_folders(files: Sequence[LakeFile]) -> set[str]:
    """Return the columns of folders that hold neither numbers nor dates in some file."""
    return {
        name
        for file in files
        for name, value in file.values.items()
        if isinstance(value, str) and not DATE.match(value)
    }


def _texts(file: LakeFile, folders: Collection[str]) -> tuple[list[str], list[list[str]]]:
    """Return the names of a file's columns, with some of its folders, and its first rows' texts."""
    pa = require_pyarrow()
    from pyarrow.parquet import ParquetFile

    with explained(file), ParquetFile(file.path) as opened:
        schema = opened.schema_arrow
        names = [n for n in schema.names if column_of(n, schema.field(n).type, file.path)]
        batch = next(opened.iter_batches(SAMPLE_ROWS, columns=names), None)
    columns = {} if batch is None else {name: _column(pa, batch.column(name)) for name in names}
    n = 0 if batch is None else batch.num_rows
    for name, value in file.values.items():
        if name not in folders:
            continue
        columns.setdefault(name, ["" if value is None else str(value)] * n)
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _column(pa: Any, array: Any) -> list[str]:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(array.type) and array.type.tz:
        array = array.cast(pa.timestamp(array.type.unit))  # a name of a zone is no part of a date
    return ["" if text is None else text for text in array.cast(pa.string()).to_pylist()]
