import io
import tracemalloc
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import Columns, PointColumns, Row, SeriesColumns
from edgefold.runtime.rows.csv_fields import parse_date
from edgefold.runtime.rows.csv_reader import (
    MAX_LINE_BYTES,
    BadRow,
    CsvRows,
    open_source,
    read_series,
)

DATA = Path(__file__).parents[3] / "data"


def rows_of(data: bytes, columns: Columns | None = None) -> list[Row | BadRow]:
    return list(CsvRows(io.BytesIO(data), columns or SeriesColumns()))


def good(data: bytes, columns: Columns | None = None) -> list[tuple[float, ...]]:
    return [row.numbers for row in rows_of(data, columns) if isinstance(row, Row)]


def test_shipped_series_are_clean_and_whole() -> None:
    co2 = read_series(DATA / "co2_weekly.csv")
    assert (len(co2.values), co2.clock, co2.n_filled) == (2284, "date", 0)
    assert co2.values[[0, -1]].tolist() == [316.1, 371.5]
    assert len(read_series(DATA / "sea_surface_monthly.csv").values) == 732
    sunspots = read_series(DATA / "sunspots_yearly.csv")
    assert (len(sunspots.values), sunspots.clock, sunspots.times[0]) == (309, "number", 1700)


def test_held_out_co2_has_the_stated_baselines() -> None:
    values = read_series(DATA / "co2_weekly.csv").values
    held_out = np.arange(int(0.8 * len(values)), len(values))
    persistence = values[held_out] - values[held_out - 1]
    last_year = values[held_out - 52] + values[held_out - 1] - values[held_out - 53]
    assert np.sqrt(np.mean(persistence**2)) == pytest.approx(0.513, abs=5e-4)
    assert np.sqrt(np.mean((values[held_out] - last_year) ** 2)) == pytest.approx(0.664, abs=6e-4)


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


def test_columns_are_found_by_name() -> None:
    data = b"a,b,c\n1,2,3\n"
    assert good(data, SeriesColumns("c", "a")) == [(3, 1)]
    assert good(data, PointColumns(2, 1, ["b", "c", "a"])) == [(2, 3, 1)]
    assert good(b"y1,x2,x1\n1,2,3\n", PointColumns(2, 1)) == [(3, 2, 1)]
    assert good(b"a,b,c\n1,2,3\n", PointColumns(2, 1)) == [(1, 2, 3)]
    assert good(b"1,2,3\n", PointColumns(2, 1)) == [(1, 2, 3)]


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
        ("time,value\n1,2\n".encode("utf-16-le"), SeriesColumns(), "binary or UTF-16"),
        (
            b"\x89PNG\0\n\x1a\0\0\n" * 9,
            SeriesColumns(),
            "no line that can be read .line 1 is not UTF-8",
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
        b"2,",
        b"3,n/a",
        b"4,nan",
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
    assert bad[3] == "has a column value that is empty"
    assert bad[4] == "has a column value that is 'n/a', not a number"
    assert "finite" in bad[5]
    assert bad[6] == "has 1 columns where 2 are expected"
    assert "NUL" in bad[8]
    assert "quote" in bad[9]
    assert "UTF-8" in bad[10]
    assert "longer than" in bad[11]
    assert "column time" in bad[12]


def test_absurd_numbers_are_bad_rows() -> None:
    rows = rows_of(b"time,value\n1,1e308\n2,-1e308\n3,1e100\n")
    assert [isinstance(row, BadRow) for row in rows] == [True, True, False]
    assert isinstance(rows[0], BadRow) and "beyond 1e+100" in rows[0].reason


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


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1958-03", datetime(1958, 3, 1)),
        ("1958-03-29", datetime(1958, 3, 29)),
        ("2001-12-29T06:30", datetime(2001, 12, 29, 6, 30)),
        ("2001-12-29 06:30:15", datetime(2001, 12, 29, 6, 30, 15)),
        ("2001-12-29T06:30:15.5Z", datetime(2001, 12, 29, 6, 30, 15, 500000)),
        ("2001-12-29T06:30:15.123456789", datetime(2001, 12, 29, 6, 30, 15, 123456)),
        ("2001-12-29T06:30:00+02:00", datetime(2001, 12, 29, 4, 30)),
    ],
)
def test_dates_are_seconds_since_1970_in_utc(text: str, moment: datetime) -> None:
    assert parse_date(text) == moment.replace(tzinfo=timezone.utc).timestamp()


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "series.csv"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["1,1", "2,2", "3,text"], "line 4 has a column value that is 'text'"),
        (["1,1", "2,2", "2,3"], "line 4: the time 2 is also that of line 3; keep one"),
        (["1,1", "3,2", "2,3"], "line 4: the time 2 is before line 3's 3; sort"),
        (["1,1", "2,2", "3,3", "6,4"], "line 5: 2 rows are missing between 3 and 6"),
        (["1,1", "2,2", "3,3", "3.1,4"], "line 5: 3.1 comes 0.1 of a usual step"),
        (["1,1"], "holds 1 rows"),
        ([], "holds 0 rows"),
    ],
)
def test_a_series_that_is_not_clean_is_refused_at_its_line(
    tmp_path: Path, lines: list[str], message: str
) -> None:
    path = write(tmp_path, "\n".join(["time,value", *lines]).encode())
    with pytest.raises(DataError, match=message) as error:
        read_series(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_gaps_are_interpolated_when_asked(tmp_path: Path) -> None:
    path = write(tmp_path, b"time,value\n2001-01-01,1\n2001-01-02,2\n2001-01-03,3\n2001-01-06,9\n")
    series = read_series(path, gaps="interpolate")
    assert series.n_filled == 2
    assert series.values.tolist() == [1, 2, 3, 5, 7, 9]
    assert np.diff(series.times).tolist() == [86400.0] * 5


def test_mostly_missing_rows_are_refused_even_then(tmp_path: Path) -> None:
    path = write(tmp_path, b"time,value\n1,1\n2,2\n3,3\n1000000000,4\n")
    with pytest.raises(DataError, match="more rows are missing"):
        read_series(path, gaps="interpolate")


def test_files_that_cannot_be_opened_give_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere.csv"):
        with pytest.raises(DataError, match="cannot open"), open_source(path):
            pass
    with pytest.raises(DataError, match="is it binary"):
        read_series(write(tmp_path, b"\x89PNG\r\n\0\0\0\n" * 50))


def test_errors_of_the_caller_pass_through(tmp_path: Path) -> None:
    path = write(tmp_path, b"time,value\n1,1\n")
    with pytest.raises(OSError, match="disk full"), open_source(path):
        raise OSError("disk full")
