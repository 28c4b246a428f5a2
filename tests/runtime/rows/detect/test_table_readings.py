"""Tables that can be misread: sensors that take turns, thousands, odd names, files in no form."""

from __future__ import annotations

import io
import json

import pytest

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_columns import Row
from edgefold.runtime.rows.csv_reader import BadRow
from edgefold.runtime.rows.detect.columns import TableColumns, open_table
from edgefold.runtime.rows.sensor_columns import SensorsRow
from tests.runtime.rows.detect.test_table_columns import parts, table

TURNS = ("roof", "cellar")


def taking_turns(header: str, values: tuple[str, str]) -> str:
    """A log of two sensors, each of which reports at times of its own."""
    rows = [
        f"2024-01-01T00:{i:02}:{1 + 30 * k:02}Z,{TURNS[k]},{values[k].format(v=i % 3)}"
        for i in range(10, 59)
        for k in (0, 1)
    ]
    return "\n".join([header, *rows]) + "\n"


@pytest.mark.parametrize(
    ("header", "values"),
    [
        ("time,sensor,value", ("20", "500")),
        ("time,deviceId,value", ("2{v}", "2{v}")),  # a known header is enough
        ("time,which,value", ("2{v}", "50{v}")),  # so are values that are far apart
    ],
)
def test_sensors_that_report_at_times_of_their_own_are_told_apart(
    header: str, values: tuple[str, str]
) -> None:
    found = table(taking_turns(header, values))
    assert found.choice.series == header.split(",")[1]
    rows = [row.parts[0] for row in found.rows() if isinstance(row, SensorsRow)]
    assert [name for name, _ in rows] == [*TURNS] * 49
    assert all(isinstance(row, Row) for _, row in rows)


def test_words_that_take_turns_and_may_be_names_are_refused_with_both_options() -> None:
    text = taking_turns("time,which,value", ("2{v}", "2{v}"))
    with pytest.raises(DataError, match=r"--series which .* --series ''"):
        table(text)
    assert table(text, series="which").choice.series == "which"
    assert table(text, series="").choice.series == ""
    assert table(text, values=["value"]).choice.series == ""


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("state", ("on", "off")),
        ("which", ("ok", "warn")),  # words of a state under any header
        ("device_status", ("a", "b")),
        ("which", ("a",) * 30 + ("b",) * 30),  # words that stay
    ],
)
def test_states_name_no_sensors(header: str, words: tuple[str, ...]) -> None:
    rows = [f"{i},{words[i % len(words)]},{i % 7}.5" for i in range(60)]
    assert table("\n".join([f"t,{header},v", *rows])).choice.series == ""


def test_ids_may_be_numbers_and_each_row_may_not_have_one_of_its_own() -> None:
    rows = [f"{i},{1 + i % 3},{i % 7}.5" for i in range(60)]
    found = table("\n".join(["time,sensor_id,v", *rows]))
    assert (found.choice.series, found.choice.values) == ("sensor_id", ("v",))
    rows = [f"{i},k{i},{i % 7}.5" for i in range(60)]
    with pytest.raises(DataError, match="--series sensor_id"):
        table("\n".join(["time,sensor_id,v", *rows]))


def test_sensors_that_two_columns_name_together_are_refused() -> None:
    rows = [f"{i},{d},{m},{i % 7}.5" for i in range(30) for d in "ab" for m in ("temp", "hum")]
    with pytest.raises(DataError, match="device and metric"):
        table("\n".join(["time,device,metric,v", *rows]))


def test_a_key_that_comes_late_is_counted() -> None:
    rows = [{"time": i, "a": i % 5} | ({"b": 1} if i > 420 else {}) for i in range(900)]
    found = table("\n".join(map(json.dumps, rows)))
    assert len(parts(found)) == 900
    assert found.columns.unread == {"b": 479}
    named = table("\n".join(map(json.dumps, rows)), values=["b"])
    assert named.choice.values == ("b",) and parts(named)[-1].numbers == (899.0, 1.0)
    again = TableColumns.from_json(json.loads(json.dumps(found.columns.form)))
    again.see({"time": 1, "a": 2, "b": 3})
    assert again.unread == {"b": 1}


def test_a_comma_before_three_digits_is_refused_where_it_has_two_readings() -> None:
    head = "time,v\n" + "".join(f"{i},{900 + i}\n" for i in range(100))
    text = head + '100,"1,000"\n101,"1,001"\n'
    with pytest.raises(DataError, match=r"--decimal \. if it is 1000.*--decimal , if it is 1.000"):
        table(text)
    with pytest.raises(DataError, match=r"--decimal , if it is 1000.*--decimal \. if it is 1.000"):
        table(text.replace("1,00", "1.00"))
    assert parts(table("t;v\n1;433.378\n2;433.125\n"))[0].numbers[1] == 433.378
    assert parts(table("v\n1.250\n2.375\n1.125\n"))[0].numbers[1] == 1.25  # all have three digits
    assert parts(table(text, given={"decimal": "."}))[-1].numbers == (101.0, 1001.0)
    assert parts(table(text, given={"decimal": ","}))[-1].numbers == (101.0, 1.001)


@pytest.mark.parametrize(
    ("last", "value"),
    [
        ('"1,000"\n7.5', 1000.0),  # a point elsewhere is the decimal sign
        ('"1,000,000"\n"1,000"', 1e6),
        ('"1,000.5"\n"1,000"', 1000.5),
        ('"1.000,5"\n"1,000"', 1000.5),
        ('"0,125"\n"1,000"', 0.125),
    ],
)
def test_other_numbers_of_a_table_show_what_a_comma_separates(last: str, value: float) -> None:
    lines_of = [f"{i},{cell}" for i, cell in enumerate(["5", *last.split("\n")])]
    assert parts(table("\n".join(["time,v", *lines_of])))[1].numbers[1] == value


def test_thousands_behind_the_first_lines_are_refused_where_no_line_shows_the_sign() -> None:
    text = "time,v\n" + "".join(f"{i},{i % 900}\n" for i in range(450)) + '450,"1,000"\n'
    *_, last = table(text).rows()
    assert isinstance(last, SensorsRow)
    bad = last.parts[0][1]
    assert isinstance(bad, BadRow) and "--decimal ." in bad.reason and "--decimal ," in bad.reason


@pytest.mark.parametrize("sign", ".,")
def test_columns_that_are_aligned_by_spaces_are_read(sign: str) -> None:
    rows = [f"{i:7} {i % 7 + 0.25:8.2f}\n".replace(".", sign) for i in range(100)]
    found = table("".join(rows))
    assert [part.numbers for part in parts(found)] == [(i, i % 7 + 0.25) for i in range(100)]
    header = "   date       time   temp\n"
    rows = [f"2024-01-01 {i // 60:02}:{i % 60:02} {i % 7:6.2f}\n" for i in range(100)]
    found = table(header + "".join(rows))
    assert (found.choice.time, found.choice.values) == (("date", "time"), ("temp",))
    assert len(parts(found)) == 100


def test_json_keys_are_escaped_as_headers_are() -> None:
    rows = [{"time": i, "a\ud800": 2, "b\x1b\n": 3, "b\\x1b\\n": 4} for i in range(60)]
    found = table("\n".join(map(json.dumps, rows)))
    assert found.choice.values == ("a\\ud800", "b\\x1b\\n", "b\\x1b\\n (2)")
    row = next(found.rows())
    assert isinstance(row, SensorsRow)
    assert [part.numbers[1] for _, part in row.parts if isinstance(part, Row)] == [2.0, 3.0, 4.0]
    assert TableColumns.from_json(json.loads(json.dumps(found.columns.form))).form


def test_no_two_columns_or_sensors_have_one_name() -> None:
    rows = [f"{i},{i % 3},{i % 4},{i % 5}" for i in range(60)]
    found = table("\n".join(["time,a,a,a (2)", *rows]))
    assert found.choice.values == ("a", "a (3)", "a (2)")
    rows = [f"{i},x,1,2\n{i},x a,3,4" for i in range(60)]
    found = table("\n".join(["time,s,a b,b", *rows]))
    read = [row for row in found.rows() if isinstance(row, SensorsRow)]
    assert len({name for row in read for name, _ in row.parts}) == 4


def test_a_very_long_line_costs_itself_only() -> None:
    rows = [f"{i},{i % 3}\n" for i in range(2, 500)]
    found = table("time,v\n1,1\n" + "x" * 2_200_000 + "\n" + "".join(rows))
    read = list(found.rows())
    assert [row.line for row in read if isinstance(row, BadRow)] == [3]
    assert len(read) == 500 and read[-1].line == 501


def test_a_reading_of_dates_that_never_runs_backward_is_preferred() -> None:
    rows = [f"{d}/{m}/2024,{d}" for m in range(1, 11) for d in range(1, 13)]
    found = table("\n".join(["time,v", *rows]))
    times = [part.numbers[0] for part in parts(found)]
    assert found.choice.time_format == "%d/%m/%Y" and times == sorted(times)


def test_a_line_of_excel_states_the_delimiter() -> None:
    found = table("sep=;\nt;v\n" + "".join(f"{i};{i % 3},5\n" for i in range(20)))
    assert (found.columns.n_before, found.choice.values) == (2, ("v",))
    assert len(parts(found)) == 20


UNREADABLE = {
    "UTF-16": "time,v\n1,2\n".encode("utf-16-le"),
    "UTF-32": "time,v\n1,2\n".encode("utf-32"),
    "NUL bytes": b"ab\0\0\0\0c\n",
    "bzip2": b"BZh91AY\n",
    "xz": b"\xfd7zXZ\0\n",
    "zstd": b"\x28\xb5\x2f\xfda\n",
    "SQLite": b"SQLite format 3\0abc\n",
    "blank lines": b"\n\n\n",
    "line break between quotes": b"t,b,v\n" + b"".join(b'%d,"x\ny",1\n' % i for i in range(9)),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_what_cannot_be_read_is_called_by_its_name(what: str) -> None:
    with pytest.raises(DataError, match=what):
        open_table(io.BytesIO(UNREADABLE[what]))


def test_a_pipe_that_begins_with_its_newest_row_is_turned_too() -> None:
    class Pipe:
        """Lines that can be read once."""

        def __init__(self, text: str):
            self._file = io.BytesIO(text.encode())

        def readline(self, size: int, /) -> bytes:
            return self._file.readline(size)

    rows = [f"{1_700_000_000 - 60 * i},{i % 7}" for i in range(1000)]
    rows[600] += "x" * 70_000
    found = open_table(Pipe("\ufefftime,v\n" + "\n".join(rows)))
    read = list(found.rows())
    assert [row.line for row in read] == [*range(1001, 1, -1)]
    assert [row.line for row in read if isinstance(row, BadRow)] == [602]
    first = read[0]
    assert isinstance(first, SensorsRow) and isinstance(first.parts[0][1], Row)
    assert first.parts[0][1].numbers == (1_700_000_000 - 60 * 999, 999 % 7)
