from __future__ import annotations

import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import PointColumns, Row, SeriesColumns
from edgefold.runtime.rows.csv_reader import BadRow, CsvRows, MissingRow
from edgefold.runtime.rows.row_format import RowFormat

FIRST = '{"time": 1, "value": 2}'


def rows_of(*lines: str, columns: SeriesColumns | None = None) -> list[Row | BadRow]:
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    return list(CsvRows(io.BytesIO(data), columns or SeriesColumns()))


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        (FIRST, (1, 2)),
        ('  { "value":2.0,"more":{"a":[1]},"time":1e0 }  ', (1, 2)),
        ('{"time": "1", "value": " 2 "}', (1, 2)),
        ('{"Time": 1, "VALUE": 2}', (1, 2)),
    ],
)
def test_a_first_line_that_begins_with_a_brace_makes_json_lines(
    line: str, numbers: tuple[float, float]
) -> None:
    rows = rows_of("", line)
    assert [row.numbers for row in rows if isinstance(row, Row)] == [numbers]


def test_dates_and_names_of_keys_are_as_in_csv() -> None:
    line = '{"when": "2020-01-01T00:00:00Z", "temp": -3.25, "time": null}'
    columns = SeriesColumns("when", "temp")
    (row,) = rows_of(line, columns=columns)
    assert isinstance(row, Row) and row.numbers == (1577836800.0, -3.25)
    assert row.texts == ("2020-01-01T00:00:00Z", "-3.25") and columns.clock == "date"
    (row,) = rows_of(line, columns=SeriesColumns(remembered=("when", "temp")))
    assert isinstance(row, Row) and row.numbers[1] == -3.25
    points = CsvRows(io.BytesIO(b'{"y1": 3, "x2": 2, "x1": 1}\n'), PointColumns(2, 1))
    assert [row.numbers for row in points if isinstance(row, Row)] == [(1, 2, 3)]


def test_numbers_have_a_point_whatever_csv_files_have() -> None:
    columns = SeriesColumns(format=RowFormat(decimal=","))
    (row,) = rows_of('{"time": 1.5, "value": 2.5}', columns=columns)
    assert isinstance(row, Row) and row.numbers == (1.5, 2.5)


def test_numbers_in_texts_have_the_decimal_sign_of_the_options() -> None:
    columns = SeriesColumns(format=RowFormat(decimal=","))
    first, second = rows_of(
        '{"time": 1.5, "value": "21,5"}', '{"time": 2.5, "value": "1.234"}', columns=columns
    )
    assert isinstance(first, Row) and first.numbers == (1.5, 21.5) and first.texts[1] == "21.5"
    assert isinstance(second, BadRow)  # 1.234 may be meant as a thousand there


@pytest.mark.parametrize(
    "line", ['{"time": 3, "value": null}', '{"time": 3, "value": ""}', '{"time": 3, "value": "NA"}']
)
def test_a_value_that_is_null_or_empty_is_missing(line: str) -> None:
    assert isinstance(rows_of(FIRST, line)[1], MissingRow)


@pytest.mark.parametrize(
    "line",
    [
        '{"time": 3, "value": NaN}',
        '{"time": 3, "value": -Infinity}',
        '{"time": 3, "value": 1e999}',
        '{"time": 3, "value": [4]}',
        '{"time": 3, "value": {"a": 4}}',
        '{"time": 3, "value": true}',
        '{"time": 3, "value": "warm"}',
        '{"time": 3, "value": "1_000"}',
        '{"time": 3, "value": 4, "value": 5}',
        '{"time": 3, "value": 4, "other": {"a": 1, "a": 2}}',
        '{"time": null, "value": 4}',
        '{"value": 4}',
        '{"time": 3}',
        '{"time": 3, "renamed": 4}',
        '{"time": 3, "value": 4',
        '{"time": 3, "value": 4} {"time": 4}',
        "{'time': 3, 'value': 4}",
        "[3, 4]",
        "3,4",
        '"text"',
        "[" * 60_000,
        '{"a":' * 12_000,
        '{"time": 3, "value": ' + "9" * 5000 + "}",
        '{"time": 3, "value": "\x1b[31m"}',
        '{"time": "2020-01-01", "value": 4}',
        '{"time": 3, "value": 4, "\ud800": 5}',
    ],
)
def test_what_is_no_row_is_bad_and_the_next_one_goes_on(line: str) -> None:
    rows = rows_of(FIRST, line, '{"time": 5, "value": 6}')
    assert [type(row) for row in rows] == [Row, BadRow, Row]
    assert isinstance(rows[1], BadRow) and not isinstance(rows[1], MissingRow)
    assert rows[1].line == 2 and rows[1].reason.isprintable()


def test_a_first_object_without_the_keys_says_which_it_has() -> None:
    with pytest.raises(DataError, match=r"no column 'value'; its columns are time, te.x1bmp"):
        rows_of(r'{"time": 1, "te\u001bmp": 2}')


def test_a_broken_first_line_is_bad_and_the_next_one_decides() -> None:
    rows = rows_of('{"time": 0, "val', FIRST)
    assert [type(row) for row in rows] == [BadRow, Row]


def test_a_layout_of_json_lines_goes_on_without_a_first_line() -> None:
    first = CsvRows(io.BytesIO(FIRST.encode()), SeriesColumns())
    list(first)
    assert first.layout is not None and first.layout.kind == "json"
    data = io.BytesIO(b'{"value": 7}\n{"value": 8, "time": 9}\n')
    second = list(CsvRows(data, SeriesColumns(), layout=first.layout, line=1))
    assert [(type(row), row.line) for row in second] == [(BadRow, 2), (Row, 3)]
    assert SeriesColumns().names_in(first.layout, "x") == ("time", "value")
    assert SeriesColumns(value="other").names_in(first.layout, "x") == ("time", "other")


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
OBJECTS = st.dictionaries(
    st.sampled_from(["time", "value", "x"]) | st.text(),
    st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)),
)


@pytest.mark.long
@given(st.lists(OBJECTS | SCALARS, max_size=8))
def test_any_json_is_a_row_of_numbers_or_a_printable_reason(objects: list[object]) -> None:
    rows = rows_of(FIRST, *(json.dumps(o) for o in objects))
    assert len(rows) == 1 + len(objects)
    for row in rows:
        assert isinstance(row, Row) or row.reason.isprintable()
