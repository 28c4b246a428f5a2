"""Say what the values of a column are, over all files of a lake, and convert them to numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from edgefold.fleets.tables.arrow import ArrowArray, require_pyarrow
from edgefold.runtime.arrays import Array, FloatArray
from edgefold.runtime.errors import DataError

ColumnKind = Literal["number", "time", "text"]
UNITS_PER_S = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """Describes a column over all files of a lake.

    Attributes:
        name: The column's name.
        kind: number (integers, floats, decimals, booleans), time (timestamps, dates) or text.
        type: The type of pyarrow into which all files' types fit; of a dictionary, its values'.
        path: The first file that has the column, for messages.
    """

    name: str
    kind: ColumnKind
    type: Any
    path: str

    def joined(self, other: LakeColumn) -> LakeColumn:
        """Return the column with a type that also holds the values of another file.

        Raises:
            DataError: The kinds differ, or one has a time zone and the other has none.
        """
        if self.type == other.type:
            return self
        pa = require_pyarrow()
        clash = f"column {self.name!r} is {self.type} in {self.path} and {other.type} in "
        if self.kind != other.kind:
            raise DataError(f"{clash}{other.path}; write the files with one type.")
        if self.kind == "text":
            return self if self.type == pa.large_string() else other
        if self.kind == "number":
            both = {self.type, other.type}
            whole = all(pa.types.is_integer(type) or pa.types.is_boolean(type) for type in both)
            type = pa.int64() if whole and pa.uint64() not in both else pa.float64()
            return LakeColumn(self.name, self.kind, type, self.path)
        zones = _zone(self.type), _zone(other.type)
        if (zones[0] is None) != (zones[1] is None):
            raise DataError(
                f"{clash}{other.path}; one of them has no time zone, so that the times of both "
                "cannot be compared. Write the files with one type."
            )
        zone = zones[0] if zones[0] == zones[1] else "UTC"
        unit = max(_unit(self.type), _unit(other.type), key=UNITS_PER_S.__getitem__)
        return LakeColumn(self.name, self.kind, pa.timestamp(unit, zone), self.path)

    def array_of(self, values: FloatArray) -> ArrowArray:
        """Return float64 numbers, or seconds since 1970, as an array of the column's type.

        NaN becomes null.

        Raises:
            DataError: The column is text, or its type does not hold the numbers.
        """
        pa = require_pyarrow()
        is_null = np.isnan(values)
        if self.kind == "text":
            raise DataError(f"column {self.name!r} is text, and numbers cannot be written there.")
        if self.kind == "number":
            array = pa.array(values, pa.float64(), mask=is_null)
        else:
            ticks = np.rint(np.where(is_null, 0, values) * UNITS_PER_S[_unit(self.type)])
            array = pa.array(ticks.astype(np.int64), mask=is_null)
            array = array.cast(pa.timestamp(_unit(self.type), _zone(self.type)))
        try:
            return array.cast(self.type)
        except pa.ArrowInvalid as error:
            raise DataError(f"column {self.name!r} of {self.type}: {error}.") from error


def column_of(name: str, type: Any, path: str) -> LakeColumn | None:
    """Return the description of a file's column; None if its values are lists, bytes or the like.

    Args:
        name: The column's name.
        type: The type of pyarrow.
        path: The file.
    """
    types = require_pyarrow().types
    if types.is_dictionary(type):
        type = type.value_type
    kind: ColumnKind
    if (
        types.is_integer(type)
        or types.is_floating(type)
        or types.is_boolean(type)
        or types.is_decimal(type)
    ):
        kind = "number"
    elif types.is_timestamp(type) or types.is_date(type):
        kind = "time"
    elif types.is_string(type) or types.is_large_string(type):
        kind = "text"
    else:
        return None
    return LakeColumn(name, kind, type, path)


def _zone(type: Any) -> str | None:
    zone: str | None = getattr(type, "tz", None)
    return zone


def _unit(type: Any) -> str:
    return str(getattr(type, "unit", "s" if "date32" in str(type) else "ms"))


class TickValues(NamedTuple):
    """Holds a column's numbers or times without rounding.

    Attributes:
        values: Whole numbers as int64, other numbers as float64, times as int64 in ticks of the
            column's unit since 1970, (n,). Where a value is missing, any.
        is_null: Whether a value is missing, bool (n,); None if none is.
    """

    values: Array
    is_null: Array | None


def tick_type(type: Any) -> Any:
    """Return the type of timestamps whose ticks a column of times has: days count as seconds."""
    pa = require_pyarrow()
    return type if pa.types.is_timestamp(type) else pa.timestamp(_unit(type))


def ticks_of(array: ArrowArray, column: LakeColumn) -> TickValues:
    """Return the values of a column of numbers or times without rounding."""
    pa = require_pyarrow()
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    is_null = None if not array.null_count else array.is_null().to_numpy(zero_copy_only=False)
    if column.kind == "time":
        array = array.cast(column.type).cast(tick_type(column.type)).cast(pa.int64())
    else:
        whole = pa.types.is_integer(column.type) and not pa.types.is_uint64(column.type)
        array = array.cast(pa.int64() if whole else pa.float64(), safe=False)
    if is_null is not None:
        array = array.fill_null(0)
    return TickValues(array.to_numpy(zero_copy_only=False), is_null)


class NumberValues(NamedTuple):
    """Holds a column's values as numbers; the arrays may be views of the batch's memory.

    Attributes:
        values: The numbers, or seconds since 1970, float64 (n,). Where a value is missing, any.
        is_null: Whether a value is missing, bool (n,); None if none is.
    """

    values: FloatArray
    is_null: Array | None


class KeyCodes(NamedTuple):
    """Holds a column's values as indices of the different values.

    Attributes:
        codes: The index of each row's value in `values`, int32 (n,); -1 where it is missing.
        values: The different values: str, int, float, bool, Decimal, datetime or date. Some may
            occur in no row.
    """

    codes: Array
    values: Sequence[Any]


def numbers_of(array: ArrowArray, kind: ColumnKind) -> NumberValues:
    """Return the values of a column of numbers or times."""
    pa = require_pyarrow()
    types, type = pa.types, array.type
    if types.is_dictionary(type):
        array, type = array.dictionary_decode(), type.value_type
    is_null = None if not array.null_count else array.is_null().to_numpy(zero_copy_only=False)
    scale = 1
    if kind == "time":
        scale = UNITS_PER_S[_unit(type)]
        if types.is_date32(type):
            array, scale = array.cast(pa.timestamp("s")), 1
        array = array.cast(pa.int64())
    elif types.is_decimal(type) or types.is_boolean(type) or types.is_float16(type):
        array = array.cast(pa.float64() if not types.is_boolean(type) else pa.uint8())
    if is_null is not None:
        array = array.fill_null(0)
    values: FloatArray = array.to_numpy(zero_copy_only=False)
    if values.dtype != np.float64:
        values = values.astype(np.float64)
    return NumberValues(values / scale if scale != 1 else values, is_null)


def codes_of(array: ArrowArray, type: Any) -> KeyCodes:
    """Return the values of any column as indices of its different values.

    Args:
        array: The values.
        type: The column's type over all files, in which the different values are returned.

    Raises:
        DataError: Times differ by less than a microsecond.
    """
    pa = require_pyarrow()
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    if pa.types.is_timestamp(type) and type.unit == "ns":  # Python's datetime has none
        type = pa.timestamp("us", type.tz)
    codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    try:
        values = array.dictionary.cast(type).to_pylist()
    except pa.ArrowInvalid as error:
        raise DataError(f"the values of a group cannot be read: {error}.") from error
    if None in values:  # a dictionary may hold null itself
        codes = np.where(codes == values.index(None), np.int32(-1), codes)
    return KeyCodes(codes, values)
