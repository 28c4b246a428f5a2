from __future__ import annotations

import io

import pytest

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import Columns, PointColumns, Row, SeriesColumns
from edgefold.runtime.rows.csv_reader import BadRow, CsvRows, MissingRow
from edgefold.runtime.rows.sensor_columns import MAX_NAME, LongColumns, SensorsRow, WideColumns

Found = list[tuple[int, list[tuple[str, tuple[float, ...] | str | None]]]]


def read(columns: Columns, text: str) -> Found:
    """The lines; of each its sensors, and None for a row that cannot be used."""
    found: Found = []
    for row in CsvRows(io.BytesIO(text.encode()), columns):
        if isinstance(row, SensorsRow):
            parts = [(name, outcome(part)) for name, part in row.parts]
            found.append((row.line, parts))
        else:
            found.append((row.line, []))
    return found


def outcome(part: Row | BadRow) -> tuple[float, ...] | str | None:
    if isinstance(part, Row):
        return part.numbers
    return "missing" if isinstance(part, MissingRow) else None


def wide() -> Columns:
    return WideColumns(SeriesColumns(clock="number"), None, ["roof", "cellar"])


def test_a_long_row_belongs_to_the_sensor_that_it_names() -> None:
    columns = LongColumns(SeriesColumns(clock="number"), "where")
    text = "value,where,more,time\n5,roof,x,1\n6, cellar ,x,1\noops,roof,x,2\n7,roof,x,3\n"
    assert read(columns, text) == [
        (2, [("roof", (1.0, 5.0))]),
        (3, [("cellar", (1.0, 6.0))]),
        (4, [("roof", None)]),
        (5, [("roof", (3.0, 7.0))]),
    ]


def test_long_rows_may_be_points() -> None:
    columns = LongColumns(PointColumns(1, 1), "s")
    assert read(columns, "x1,y1,s\n1,2,a\n") == [(2, [("a", (1.0, 2.0))])]


@pytest.mark.parametrize("name", ["", "  ", "x" * (MAX_NAME + 1), "a\x1b[31m", "a\u202eb"])
def test_a_row_that_names_no_sensor_belongs_to_none(name: str) -> None:
    columns = LongColumns(SeriesColumns(clock="number"), "s")
    assert read(columns, f"time,value,s\n1,2,{name}\n1,2\n") == [(2, []), (3, [])]


@pytest.mark.parametrize(
    "header", ["1,2,3", "time,value,name", "time,value,s,s", "time,s", "time,value"]
)
def test_a_long_file_without_such_a_column_is_refused(header: str) -> None:
    stream = "value" if header == "time,value" else "s"
    columns = LongColumns(SeriesColumns(clock="number"), stream)
    with pytest.raises(DataError):
        read(columns, f"{header}\n1,2,3\n")


def test_a_wide_row_brings_a_row_for_each_sensor() -> None:
    text = "time,cellar,other,roof\n1,5,0,6\n2,,0,7\n3, NA ,0,\n4,oops,0,8\n5,9,0,1e999\n"
    assert read(wide(), text) == [
        (2, [("roof", (1.0, 6.0)), ("cellar", (1.0, 5.0))]),
        (3, [("roof", (2.0, 7.0)), ("cellar", "missing")]),
        (4, [("roof", "missing"), ("cellar", "missing")]),
        (5, [("roof", (4.0, 8.0)), ("cellar", None)]),
        (6, [("roof", None), ("cellar", (5.0, 9.0))]),
    ]


def test_a_wide_row_without_a_time_is_refused_once() -> None:
    rows = list(CsvRows(io.BytesIO(b"time,roof,cellar\noops,1,2\n1,2\n3,4,5\n"), wide()))
    assert [isinstance(row, BadRow) for row in rows] == [True, True, False]


@pytest.mark.parametrize("header", ["time,roof", "roof,cellar", "time,roof,roof,cellar"])
def test_a_wide_file_without_such_columns_is_refused(header: str) -> None:
    with pytest.raises(DataError):
        read(wide(), f"{header}\n1,2,3\n")


def test_json_lines_may_be_long_or_wide() -> None:
    long = LongColumns(SeriesColumns(clock="number"), "s")
    text = '{"s": "roof", "time": 1, "value": 5}\n{"value": null, "time": 2, "s": "roof"}\n'
    assert read(long, text) == [(1, [("roof", (1.0, 5.0))]), (2, [("roof", "missing")])]
    text = '{"time": 1, "roof": 6, "cellar": 5}\n{"time": 2, "cellar": "4"}\n'
    assert read(wide(), text) == [
        (1, [("roof", (1.0, 6.0)), ("cellar", (1.0, 5.0))]),
        (2, [("roof", "missing"), ("cellar", (2.0, 4.0))]),
    ]


@pytest.mark.parametrize(
    ("columns", "first", "then"),
    [
        (wide(), "time,roof,cellar\n1,6,5\n", "time,cellar,roof\n2,5,6\n"),
        (
            LongColumns(SeriesColumns(clock="number"), "s"),
            "time,value,s\n1,6,roof\n",
            "s,value,time\nroof,6,2\n",
        ),
    ],
)
def test_a_new_source_may_have_its_sensors_in_another_order(
    columns: Columns, first: str, then: str
) -> None:
    before = CsvRows(io.BytesIO(first.encode()), columns)
    (_,) = before
    (row,) = CsvRows(io.BytesIO(then.encode()), columns, layout=before.layout, line=2)
    assert isinstance(row, SensorsRow) and row.line == 3
    name, part = row.parts[0]
    assert (name, outcome(part)) == ("roof", (2.0, 6.0))


def test_a_name_in_json_with_half_a_pair_is_no_sensor() -> None:
    columns = LongColumns(SeriesColumns(clock="number"), "s")
    text = '{"s": "a", "time": 1, "value": 5}\n{"s": "\\ud800", "time": 2, "value": 5}\n'
    assert read(columns, text) == [(1, [("a", (1.0, 5.0))]), (2, [])]
