from __future__ import annotations

import csv
import io
import json
import math
import tracemalloc
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import Columns, Layout, PointColumns, Row, SeriesColumns
from edgefold.runtime.rows.csv_fields import quoted
from edgefold.runtime.rows.csv_reader import (
    MAX_LINE_BYTES,
    BadRow,
    CsvRows,
    MissingRow,
    open_source,
)
from edgefold.runtime.rows.row_format import RowFormat


def rows_of(data: bytes, columns: Columns | None = None) -> list[Row | BadRow]:
    return list(CsvRows(io.BytesIO(data), columns or SeriesColumns()))


def good(data: bytes, columns: Columns | None = None) -> list[tuple[float, ...]]:
    return [row.numbers for row in rows_of(data, columns) if isinstance(row, Row)]


@pytest.mark.parametrize(
    "data",
    [
        b"time,value\n1,10\n2,20\n",
        b"\xef\xbb\xbftime,value\r\n1,10\r\n2,20\r\n",
        b'"time","value"\n"1","10"\n"2","20"',
        b"value,note,time\n10,a,1\n20,b,2\n",
        b"Time;Value\n1;10\n2;20\n",
        b"when,ppm\n1,10\n\n   \n2,20\n",
        b"1,10\n2,20\n",
        b"time\tvalue\n 1\t 10\n2\t2e1\n",
    ],
)
def test_the_same_rows_however_they_are_written(data: bytes) -> None:
    assert good(data) == [(1, 10), (2, 20)]


def test_a_long_first_line_behind_a_byte_order_mark_is_one_line() -> None:
    first, *others = rows_of(b"\xef\xbb\xbf" + b"x" * 70_000 + b"\ntime,value\n1,10\n")
    assert isinstance(first, BadRow) and first.line == 1 and "longer" in first.reason
    assert [row.line for row in others] == [3]


def test_columns_are_found_by_name() -> None:
    data = b"a,b,c\n1,2,3\n"
    assert good(data, SeriesColumns("c", "a")) == [(3, 1)]
    assert good(data, PointColumns(2, 1, ["b", "c", "a"])) == [(2, 3, 1)]
    assert good(b"y1,x2,x1\n1,2,3\n", PointColumns(2, 1)) == [(3, 2, 1)]
    assert good(b"a,b,c\n1,2,3\n", PointColumns(2, 1)) == [(1, 2, 3)]
    assert good(b"1,2,3\n", PointColumns(2, 1)) == [(1, 2, 3)]
    assert good(b"rain,Date,value\n1,2,3\n") == [(2, 3)]
    with pytest.raises(DataError, match="2 columns named 'time'"):
        good(b"ts,date,value\n1,2,3\n")


@pytest.mark.parametrize(
    ("data", "columns", "message"),
    [
        (b"", SeriesColumns(), "holds no lines"),
        (b"\n\n", SeriesColumns(), "holds no lines"),
        (b"a,b,c\n1,2,3\n", SeriesColumns(), "no column 'time'; its columns are a, b, c"),
        (b"a,b\n1,2\n", SeriesColumns("a", "z"), "no column 'z'"),
        (b"a,a,b\n1,2,3\n", SeriesColumns("a", "b"), "2 columns named 'a'"),
        (b"a,b\n1,2\n", SeriesColumns("a", "a"), "same one"),
        (b"1,2,3\n", SeriesColumns(), "no header"),
        (b"1,2\n", PointColumns(2, 1), "exactly the columns x1,x2,y1"),
        ("time,value\n1,2\n".encode("utf-16"), SeriesColumns(), "UTF-16"),
        ("time,value\n1,2\n".encode("utf-16-le"), SeriesColumns(), "encoded as UTF-16"),
        (
            b"\x89PNG\0\n\x1a\0\0\n" * 9,
            SeriesColumns(),
            "no line that can be read .line 1: the line is not UTF-8",
        ),
        (b"time,value\r1,2\r2,3\r", SeriesColumns(), "CR alone"),
        (b"time,value\r" + b"1,2\r" * 90_000, SeriesColumns(), "CR alone"),
    ],
)
def test_a_source_that_cannot_get_better_ends_with_one_line(
    data: bytes, columns: Columns, message: str
) -> None:
    with pytest.raises(DataError, match=message) as error:
        rows_of(data, columns)
    assert "\n" not in str(error.value)


def test_bad_rows_are_reported_with_their_line_and_the_rest_goes_on() -> None:
    lines = [
        b"time,value",
        b"1,10",
        b",2",
        b"3,warm",
        b"4,inf",
        b"5",
        b"6,60,600",
        b"7,7\0",
        b'8,"80',
        b"9,\xff\xfe",
        b"x" * (3 * MAX_LINE_BYTES),
        b"2001-01-01,1",
        b"13,130",
        b"14,1",
    ]
    rows = rows_of(b"\n".join(lines))
    bad = {row.line: row.reason for row in rows if isinstance(row, BadRow)}
    assert [row.line for row in rows if isinstance(row, Row)] == [2, 13, 14]
    assert sorted(bad) == list(range(3, 13))
    assert bad[3] == "column time is empty"
    assert bad[4] == "column value is 'warm', not a number"
    assert "finite" in bad[5]
    assert bad[6] == "the line has 1 columns where 2 are expected"
    assert "NUL" in bad[8]
    assert "quote" in bad[9]
    assert "UTF-8" in bad[10]
    assert "longer than" in bad[11]
    assert "column time" in bad[12]


def test_absurd_numbers_are_bad_rows() -> None:
    rows = rows_of(b"time,value\n1,1e308\n2,-1e308\n3,1e100\n")
    assert [isinstance(row, BadRow) for row in rows] == [True, True, False]
    assert isinstance(rows[0], BadRow) and "beyond 1e+100" in rows[0].reason


@pytest.mark.long
def test_memory_is_constant_along_an_endless_source() -> None:
    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            n = len(buffer) // 4 * 4
            buffer[:n] = b"1,2\n" * (n // 4)
            return n

    rows = iter(CsvRows(io.BufferedReader(Endless()), SeriesColumns()))
    for _ in range(1000):
        next(rows)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(20_000):
        next(rows)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 4096  # the row in flight


def test_files_that_cannot_be_opened_give_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere.csv"):
        with pytest.raises(DataError, match="cannot open"), open_source(path):
            pass


def test_errors_of_the_caller_pass_through(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_bytes(b"time,value\n1,1\n")
    with pytest.raises(OSError, match="disk full"), open_source(path):
        raise OSError("disk full")


def kinds(data: bytes, format: RowFormat | None = None) -> list[str]:
    columns = SeriesColumns(format=format)
    return [type(row).__name__ for row in CsvRows(io.BytesIO(data), columns)]


@pytest.mark.parametrize(
    "cell", ["", " ", "NA", "n/a", "#N/A", "NULL", "None", "nan", "NaN", "-", "?"]
)
def test_a_cell_without_a_value_is_missing_and_not_bad(cell: str) -> None:
    assert kinds(f"time,value\n1,2\n2,{cell}\n3,4\n".encode()) == ["Row", "MissingRow", "Row"]
    assert isinstance(rows_of(f"x1,y1\n{cell},2\n".encode(), PointColumns(1, 1))[0], MissingRow)


def test_words_of_the_users_own_may_stand_for_a_missing_value() -> None:
    data = b"time,value\n1,-999\n2,off\n3,OFF\n"
    own = RowFormat(missing=("-999", "off"))
    assert kinds(data, own) == ["MissingRow", "MissingRow", "BadRow"]


def test_a_time_must_be_there() -> None:
    assert kinds(b"time,value\n1,1\n,2\nNA,3\n,\n") == ["Row", "BadRow", "BadRow", "BadRow"]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("1_000", "without _"),
        ("\u0661\u0662", "digits 0 to 9"),
        ("\uff11\uff12", "digits 0 to 9"),
        ('"3,5"', "--decimal , reads it as 3.5"),
        ("inf", "finite"),
        ("1e400", "1e400"),
        ("0x10", "not a number"),
        ("1e", "not a number"),
        ("\x1b[31m5", "\\x1b"),
    ],
)
def test_what_is_no_number_says_why(value: str, words: str) -> None:
    rows = rows_of(f"time,value\n1,{value}\n".encode())
    assert isinstance(rows[0], BadRow) and words in rows[0].reason and rows[0].reason.isprintable()


@pytest.mark.parametrize(
    "data",
    [b"a;b\n1;2,5\n", b"1;2,5\n", b"1\t2,5\n", b'a,b\n1,"2,5"\n'],
)
def test_a_decimal_comma_is_read_where_asked_and_written_as_a_point(data: bytes) -> None:
    rows = rows_of(data, SeriesColumns(format=RowFormat(decimal=",")))
    assert [(row.numbers, row.texts) for row in rows if isinstance(row, Row)] == [
        ((1.0, 2.5), ("1", "2.5"))
    ]
    point = rows_of(b"a;b\n1;2.5\n", SeriesColumns(format=RowFormat(decimal=",")))
    assert isinstance(point[0], BadRow) and "--decimal ." in point[0].reason


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"time,flow [l/s; raw]\n1,2\n", (1, 2)),
        (b"1;2\n", (1, 2)),
        (b"time|value\n1|2\n", (1, 2)),
    ],
)
def test_the_delimiter_is_found_in_the_first_line(data: bytes, expected: tuple[float, ...]) -> None:
    assert good(data) == [expected]


def test_names_of_training_are_found_where_the_input_has_them() -> None:
    remembered = ("when", "flow")
    data = b"flow,time,when,value\n1,2,3,4\n"
    assert good(data, SeriesColumns(remembered=remembered)) == [(3, 1)]
    assert good(data, SeriesColumns(value="value", remembered=remembered)) == [(3, 4)]
    assert good(b"value,time,other\n1,2,3\n", SeriesColumns(remembered=remembered)) == [(2, 1)]
    assert good(b"when,value\n1,2\n", SeriesColumns(remembered=remembered)) == [(1, 2)]
    assert good(b"1,2\n", SeriesColumns(remembered=remembered)) == [(1, 2)]


def test_a_name_with_control_characters_reaches_no_terminal() -> None:
    data = b"time,va\x1b[31mlue\n1,red\n"
    rows = rows_of(data)
    assert isinstance(rows[0], BadRow) and rows[0].reason.isprintable()
    with pytest.raises(DataError) as error:
        rows_of(data, SeriesColumns(value="value"))
    assert str(error.value).isprintable()


def test_a_layout_survives_json_and_a_damaged_one_does_not() -> None:
    reader = CsvRows(io.BytesIO(b"b,a,c\n1,2,3\n"), SeriesColumns("a", "b"))
    assert len(list(reader)) == 1 and reader.layout is not None
    form = json.loads(json.dumps(asdict(reader.layout)))
    assert Layout.from_json(form) == reader.layout
    old = {name: value for name, value in form.items() if name != "kind"}
    assert Layout.from_json(old) == reader.layout
    for change in (
        {"positions": [0, 9]},
        {"positions": [0]},
        {"positions": ["0", "1"]},
        {"names": [1, 2]},
        {"n_fields": "3"},
        {"n_fields": 1e300},
        {"delimiter": '"'},
        {"delimiter": ""},
        {"delimiter": None},
        {"kind": "xml"},
        {"header": ["a"]},
        {"header": 7},
    ):
        with pytest.raises((TypeError, ValueError)):
            Layout.from_json(form | change)
    resumed = CsvRows(io.BytesIO(b"4,5,6\n"), SeriesColumns("a", "b"), layout=reader.layout)
    assert [row.numbers for row in resumed if isinstance(row, Row)] == [(5, 4)]


@pytest.mark.long
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.text(max_size=30).map(lambda text: text.encode("utf-8", "surrogatepass")),
            st.text("0123456789-:.,;\"'\t\r eETZ{}[]\x1b", max_size=30).map(str.encode),
            st.tuples(st.dates(), st.floats()).map(lambda row: f"{row[0]},{row[1]}".encode()),
        ),
        max_size=20,
    ),
    st.sampled_from(["time,value", '{"time": 1, "value": 2}', "2020-01-01;5", "x"]),
)
def test_whatever_comes_each_row_has_as_many_printable_fields(
    lines: list[bytes], first: str
) -> None:
    data = b"\n".join([first.encode(), *lines])
    try:
        rows = rows_of(data)
    except DataError as error:
        assert "\n" not in str(error)
        return
    for row in rows:
        if isinstance(row, BadRow):
            assert row.reason.isprintable()
            continue
        assert all(map(math.isfinite, row.numbers)) and len(row.texts) == 2
        written = ",".join(quoted(row.texts))
        assert next(csv.reader([written], strict=True)) == list(row.texts)
        assert written.isprintable() and written.isascii()


def layout_after(data: bytes, columns: Columns) -> Layout:
    reader = CsvRows(io.BytesIO(data), columns)
    list(reader)
    assert reader.layout is not None
    return reader.layout


def test_a_new_source_may_have_its_columns_in_another_order() -> None:
    wanted = SeriesColumns(value="a")
    known = layout_after(b"time,a,b\n1,2,3\n", wanted)
    rest = CsvRows(io.BytesIO(b"b,time,more,a\n"), wanted, layout=known, line=2, is_new=False)
    assert [type(row) for row in rest] == [BadRow]  # in the midst of a source it is no header
    again = CsvRows(io.BytesIO(b"b,time,more,a\n6,4,0,5\n"), wanted, layout=known, line=2)
    assert [(row.line, row.numbers) for row in again if isinstance(row, Row)] == [(3, (4.0, 5.0))]
    assert again.layout is not None and again.layout.positions == (1, 3)


@pytest.mark.parametrize("header", [b"time,hum", b"time", b"hum,temp"])
def test_a_new_source_with_other_columns_is_refused(header: bytes) -> None:
    known = layout_after(b"time,temp\n1,2\n", SeriesColumns())
    with pytest.raises(DataError):
        list(CsvRows(io.BytesIO(header + b"\n3,4\n"), SeriesColumns(), layout=known, line=2))


@pytest.mark.parametrize("line", [b"oops,oops", b"3,temp", b"tim"])
def test_a_bad_row_where_a_run_goes_on_is_no_header(line: bytes) -> None:
    known = layout_after(b"time,temp\n1,2\n", SeriesColumns())
    rows = list(CsvRows(io.BytesIO(line + b"\n3,4\n"), SeriesColumns(), layout=known, line=2))
    assert [type(row) for row in rows] == [BadRow, Row]
