"""Open a lake: many Parquet files that are read as one table, with the same columns everywhere.

    patterns ──> files, sorted ──> footers: rows, types, identity ──> Lake
    Lake.batches(file, row groups) ──> LakeBatch, LakeBatch, ...

Opening reads only the files' ends. `edgefold.fleets.tables.batches` reads the rows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

from edgefold.fleets.tables.arrow import require_pyarrow
from edgefold.fleets.tables.columns import LakeColumn, column_of
from edgefold.fleets.tables.places import find_files, near_names, partition_values
from edgefold.fleets.tables.row_filter import RowFilter
from edgefold.runtime.errors import DataError
from edgefold.runtime.hashing import sha256

MAGIC = b"PAR1"
SAMPLE_BYTES = 1 << 16
WHOLE = re.compile("0|-?[1-9][0-9]{0,17}")
"""Matches a whole number that is written in one way only: 07 stays a text."""


class FileStamp(NamedTuple):
    """Holds what changes when a file is written again.

    Attributes:
        n_bytes: The file's length.
        modified_ns: When it was last written.
    """

    n_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class LakeFile:
    """Describes a Parquet file of a lake.

    Attributes:
        path: Where the file lies, as the patterns named it.
        identity: 16 hexadecimal digits that follow from the content and not from name and place:
            of a SHA-256 over the footer, which lists sizes and ranges of all columns, and over the
            first and the last 64 KiB before it.
        row_groups: The number of rows of each of its row groups.
        values: The values of columns that the names of its folders give, as in site=3, without
            those of columns that the file has itself.
        stamp: Its length and time when it was opened.
    """

    path: str
    identity: str
    row_groups: tuple[int, ...]
    values: Mapping[str, str | int | None]
    stamp: FileStamp

    @property
    def n_rows(self) -> int:
        """Return the number of rows."""
        return sum(self.row_groups)

    @property
    def source(self) -> str:
        """Return the name under which a state remembers the file.

        It is the identity and not the file's own name, which may change.
        """
        return f"parquet#{self.identity}"

    def first_row(self, row_group: int) -> int:
        """Return the number of the first row of a row group."""
        return sum(self.row_groups[:row_group])

    def require_unchanged(self) -> None:
        """Raise DataError if the file is gone, or its content was changed since it was opened."""
        try:
            if stamp_of(self.path) != self.stamp and identity_of(self.path) != self.identity:
                raise DataError(
                    f"{self.path} was changed while it was read; run the command again when it is "
                    "written to no longer."
                )
        except OSError as error:
            raise DataError(
                f"{self.path} cannot be read any more ({error.strerror}); bring it back and run "
                "the command again."
            ) from error


class Lake:
    """Holds the files and the columns of a lake; `open_lake` makes it.

    Attributes:
        files: The files in their canonical order.
        columns: The columns that were asked for, and those of the filter, by name.
        filter: Which rows are read; None for all.
    """

    def __init__(
        self,
        files: Sequence[LakeFile],
        columns: Mapping[str, LakeColumn],
        filter: RowFilter | None,
    ):
        self.files, self.columns, self.filter = tuple(files), dict(columns), filter

    @property
    def n_rows(self) -> int:
        """Return the number of rows of all files, with those that the filter leaves out."""
        return sum(file.n_rows for file in self.files)


def open_lake(
    patterns: Sequence[str | os.PathLike[str]],
    columns: Sequence[str],
    filter: str | None = None,
    numbers: Sequence[str] = (),
) -> Lake:
    """Find files, read their footers, and require that all have the columns.

    Args:
        patterns: Files, folders or globs; see `find_files`.
        columns: The names of the columns that will be read. Folders named as site=3 add a column.
        filter: An expression that chooses rows; see `RowFilter`.
        numbers: Those of the columns that must hold numbers or times.

    Raises:
        DataError: No file is found; a file is no sound Parquet or lacks a column, whose types must
            be alike in all files; two files have the same content; the filter cannot be read.
        BackendError: pyarrow is not installed.
    """
    require_pyarrow()
    parsed = None if filter is None else RowFilter(filter)
    names = list(dict.fromkeys([*columns, *(parsed.names if parsed else ())]))
    files, per_file = [], []
    for path in find_files([os.fspath(pattern) for pattern in patterns]):
        file, types = _read_footer(path)
        files.append(file)
        per_file.append(types)
    files = _typed_values(files)
    _require_different(files)
    found = {name: _column(name, files, per_file) for name in names}
    for name in numbers:
        if found[name].kind == "text":
            raise DataError(
                f"column {name!r} of {found[name].path} is text, and numbers or times are needed; "
                "cast it where the files are written."
            )
    lake = Lake(files, found, parsed)
    if parsed is not None:
        parsed.expression(lake.columns, {})  # a constant of the wrong kind is refused here
    return lake


def stamp_of(path: str) -> FileStamp:
    """Return what changes when a file is written again; raises OSError."""
    status = os.stat(path)
    return FileStamp(status.st_size, status.st_mtime_ns)


def identity_of(path: str) -> str:
    """Return a file's identity; see `LakeFile`.

    Raises:
        DataError: The file does not begin and end as Parquet does.
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        n_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, n_bytes - 8))
        tail = file.read(8)
        n_footer = int.from_bytes(tail[:4], "little")
        file.seek(0)
        head = file.read(SAMPLE_BYTES)
        if tail[4:] != MAGIC or head[:4] != MAGIC or n_footer + 12 > n_bytes:
            raise DataError(
                f"{path} is not a Parquet file, or was not written to its end; leave it out, or "
                "write it again."
            )
        start = n_bytes - 8 - n_footer
        first = max(0, start - SAMPLE_BYTES)
        file.seek(first)
        digest = sha256(head[:start])
        digest.update(file.read(n_bytes - first))
    return digest.hexdigest()[:16]


def _read_footer(path: str) -> tuple[LakeFile, dict[str, Any]]:
    """Return a file's description and the types of its columns by name.

    Raises:
        DataError: The file is missing, damaged, or has one name for two columns.
    """
    pa = require_pyarrow()
    from pyarrow.parquet import ParquetFile

    try:
        stamp, identity = stamp_of(path), identity_of(path)
        with ParquetFile(path) as opened:
            footer, schema = opened.metadata, opened.schema_arrow
            rows = tuple(footer.row_group(i).num_rows for i in range(footer.num_row_groups))
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise DataError(f"{path} cannot be read: {reason}.") from error
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{path} is a damaged Parquet file: {error}") from error
    if len(set(schema.names)) < len(schema.names):
        raise DataError(f"{path} has two columns of one name; rename one.")
    types = {name: schema.field(name).type for name in schema.names}
    values = {n: value for n, value in partition_values(path).items() if n not in types}
    return LakeFile(path, identity, rows, values, stamp), types


def _typed_values(files: Sequence[LakeFile]) -> list[LakeFile]:
    """Return the files with those values of folders as numbers that are numbers in every file."""
    texts = {
        name
        for file in files
        for name, value in file.values.items()
        if value is not None and not WHOLE.fullmatch(str(value))
    }

    def typed(name: str, value: str | int | None) -> str | int | None:
        return value if value is None or name in texts else int(value)

    return [
        replace(file, values={name: typed(name, value) for name, value in file.values.items()})
        for file in files
    ]


def _require_different(files: Sequence[LakeFile]) -> None:
    """Raise DataError if two files have the same content: its rows would count twice."""
    places: dict[str, str] = {}
    for file in files:
        if (other := places.setdefault(file.identity, file.path)) is not file.path and file.n_rows:
            raise DataError(
                f"{other} and {file.path} have the same content, so that its rows would count "
                "twice; leave one of them out."
            )


def _column(
    name: str, files: Sequence[LakeFile], per_file: Sequence[Mapping[str, Any]]
) -> LakeColumn:
    """Return the description of a column over all files.

    Raises:
        DataError: A file lacks it, or it has a type that is not read or not alike everywhere.
    """
    pa = require_pyarrow()
    found: list[LakeColumn] = []
    for file, types in zip(files, per_file, strict=True):
        if name in types:
            column = column_of(name, types[name], file.path)
            if column is None:
                raise DataError(
                    f"column {name!r} of {file.path} is {types[name]}; numbers, times and texts "
                    "are read."
                )
        elif name in file.values:
            kind = pa.int64() if isinstance(_some(name, files), int) else pa.string()
            column = column_of(name, kind, file.path)
            assert column is not None
        else:
            near = near_names(name, [*types, *file.values])
            if name.startswith("`") and name.endswith("`"):
                near = "write it without backticks, which only the filter needs."
            raise DataError(f"{file.path} has no column {name!r}; {near}")
        found.append(column)
    return reduce(LakeColumn.joined, found)


def _some(name: str, files: Sequence[LakeFile]) -> str | int | None:
    """Return a value of a folder's column, of the first file that has one."""
    values = (file.values.get(name) for file in files)
    return next((value for value in values if value is not None), None)
