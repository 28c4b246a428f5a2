"""Tables of which nothing is told: the clock and the sensors are found by the first lines."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import math
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefold.runtime.errors import DataError
from edgefold.runtime.loop.record import DAMAGE
from edgefold.runtime.rows.csv_columns import Row
from edgefold.runtime.rows.csv_reader import BadRow
from edgefold.runtime.rows.detect.choice import Choice
from edgefold.runtime.rows.detect.columns import Table, TableColumns, find_table, open_table
from edgefold.runtime.rows.sensor_columns import SensorsRow
from tests.rough_files import ROUGH_FILES

START_S = 1704067200.0  # 2024-01-01 in UTC
DATES = Choice(("t",), "dates", ("v",))
UNIX_MS = Choice(("t",), "unix time", ("v",), unit_s=1e-3)


def table(text: str, **named: object) -> Table:
    return open_table(io.BytesIO(text.encode()), "sensor.csv", **named)  # type: ignore[arg-type]


def first(found: Table) -> tuple[float, ...]:
    """Time and value of the first sensor in the first row."""
    row = next(found.rows())
    assert isinstance(row, SensorsRow)
    part = row.parts[0][1]
    assert isinstance(part, Row)
    return part.numbers


def parts(found: Table) -> list[Row]:
    """The rows of the first sensor that can be used."""
    rows = [row.parts[0][1] for row in found.rows() if isinstance(row, SensorsRow)]
    return [row for row in rows if isinstance(row, Row)]


def lines(header: str, form: str, n: int = 100) -> str:
    """A header, and n lines of a form that is given the number of the line."""
    rows = (form.format(i=i, h=i % 24, d=1 + i // 24, v=20 + i % 7) for i in range(n))
    return "\n".join([header, *rows] if header else rows) + "\n"


FOUND = {
    "hourly_with_holes": (("Time",), "dates", ("Water flow [l/s]",), 1710892800.0),
    "minutes_of_four_sensors": (("time",), "dates", ("roof", "wall", "cellar", "yard"), 1714521600),
    "daily_with_blanks": (("date",), "dates", ("temp_max",), 1654041600.0),
    "german_dates": (("Zeit",), "dates", ("Wert",), START_S),
    "json_lines": (("time",), "dates", ("value",), START_S),
    "unix_milliseconds": (("time",), "unix time", ("value",), 1.7e9),
    "one_row_years_ahead": (("time",), "dates", ("value",), START_S),
}


@pytest.mark.parametrize("name", ROUGH_FILES)
def test_a_rough_file_is_read_without_an_option(name: str) -> None:
    rough = ROUGH_FILES[name]()
    found = table(rough.text())
    time, clock, values, start_s = FOUND[name]
    assert (found.choice.time, found.choice.clock, found.choice.values) == (time, clock, values)
    taken = parts(found)
    assert taken[0].numbers == (start_s, 19.92)
    assert sum(math.isnan(row.numbers[1]) for row in taken) == rough.n_empty
    n_torn = name == "daily_with_blanks"
    assert len(taken) == len(rough.lines) - (found.columns.n_before > 0) - n_torn


@pytest.mark.parametrize(
    ("text", "time", "values", "start"),
    [
        (lines("ds,y", "2024-01-{d:02}T{h:02}:00,{v}"), ("ds",), ("y",), START_S),
        (lines("y;Datum", "{v},5;{d:02}.01.2024 {h:02}:00"), ("Datum",), ("y",), START_S),
        (
            lines("Datum;Uhrzeit;T", "{d:02}.01.2024;{h}:00;{v}"),
            ("Datum", "Uhrzeit"),
            ("T",),
            START_S,
        ),
        (lines("when,v", "{d}/1/2024 {h}:00,{v}"), ("when",), ("v",), START_S),
        ("day,v\n20240101,1\n20240102,2\n20240103,1\n", ("day",), ("v",), START_S),
        (lines("t,v", "{i},{v}"), ("t",), ("v",), 0),
        (lines("", "{i},{v}"), ("column 1",), ("column 2",), 0),
        (lines("v", "{v}.5"), (), ("v",), 1),
        (lines("", "{v}.5"), (), ("column 1",), 1),
        (lines("", "2024-01-01 00:{i:02} {v}", 60), ("column 1", "column 2"), ("column 3",),
         START_S),
        (lines(",when,v", "{i},2024-01-{d:02} {h:02}:00,{v}"), ("when",), ("v",), START_S),
        (lines("stamp,v", "17000000{i:02},{v}"), ("stamp",), ("v",), 1.7e9),
        (lines("stamp,v", "17000000{i:02}000000,{v}"), ("stamp",), ("v",), 1.7e9),
        ("\ufeff" + lines("time,v", "2024-01-{d:02} {h:02}:00,{v}"), ("time",), ("v",), START_S),
    ],
)  # fmt: skip
def test_the_clock_is_found(
    text: str, time: tuple[str, ...], values: tuple[str, ...], start: float
) -> None:
    found = table(text)
    assert (found.choice.time, found.choice.values) == (time, values)
    assert first(found)[0] == start


def test_what_is_no_sensor_is_left_out_and_told() -> None:
    text = lines("id,time,v,state,epoch", "7,2024-01-{d:02} {h:02}:00,{v},OK,17000{i:02}000")
    found = table(text)
    assert found.choice.values == ("v",)
    assert len(found.notes) == 3
    assert all(note.startswith(("id ", "state ", "epoch ")) for note in found.notes)


def test_lines_above_the_table_are_skipped() -> None:
    found = table("Station 7\nmade by a logger\n" + lines("time,v", "2024-01-{d:02} {h:02}:00,{v}"))
    row = next(found.rows())
    assert (found.columns.n_before, row.line, found.choice.values) == (3, 4, ("v",))


def test_days_and_months_are_told_apart_by_the_steps_between_rows() -> None:
    months_first = lines("time,v", "1/{d}/2024 {h}:00,{v}", 240)
    days_first = lines("time,v", "{d}/1/2024 {h}:00,{v}", 240)
    for text in (months_first, days_first):
        times = [part.numbers[0] for part in parts(table(text))]
        assert times[-1] - times[0] == 239 * 3600


def test_dates_that_can_be_read_in_two_ways_are_told() -> None:
    found = table(lines("time,v", "3/4/2024 {h}:00,{v}", 24))
    assert any("--time-format '%m/%d/%Y %H:%M'" in note for note in found.notes)


def test_a_long_table_names_its_sensors() -> None:
    text = "time,place,v,unit\n" + "".join(
        f"2024-01-01 {i:02}:00,{place},{i}.5,C\n" for i in range(24) for place in ("roof", "wall")
    )
    found = table(text)
    assert found.choice.series == "place"
    names = [row.parts[0][0] for row in found.rows() if isinstance(row, SensorsRow)]
    assert names == ["roof", "wall"] * 24


def test_json_lines_may_lack_keys() -> None:
    rows = [{"t": 1_700_000_000 + i, "a": i % 5} | ({"b": 0.5} if i % 2 else {}) for i in range(50)]
    found = table("\n".join(map(json.dumps, rows)))
    assert (found.choice.time, found.choice.values) == (("t",), ("a", "b"))
    row = next(found.rows())
    assert isinstance(row, SensorsRow)
    (_, a), (_, b) = row.parts
    assert isinstance(a, Row) and isinstance(b, Row)
    assert a.numbers == (1.7e9, 0.0) and math.isnan(b.numbers[1])


def test_the_clock_is_found_where_all_other_columns_are_named() -> None:
    text = lines("time,a,b", "{i}0,{v},{h}")
    assert table(text, values=["a", "b"]).choice.time == ("time",)
    assert table(lines("a,b", "{v},{h}"), values=["a", "b"]).choice.time == ()
    found = table(text, beside=["a"]).choice
    assert found.time == ("time",) and found.values == ("b", "a")


def test_what_is_named_is_taken() -> None:
    text = lines("time,other,a,b", "2024-01-{d:02} {h:02}:00,{i},{v},x")
    found = table(text, time="other", values=["b", "a"])
    assert (found.choice.time, found.choice.values) == (("other",), ("b", "a"))
    row = next(found.rows())
    assert isinstance(row, SensorsRow)
    assert isinstance(row.parts[0][1], BadRow) and isinstance(row.parts[1][1], Row)


@pytest.mark.parametrize(
    ("choice", "like", "time", "text"),
    [
        (DATES, "2024-01-01 00:00", START_S, "2024-01-01T00:00:00"),
        (
            Choice(("t",), "dates", ("v",)),
            "2024-01-01 01:00+01:00",
            START_S,
            "2024-01-01T00:00:00Z",
        ),
        (DATES, "2024-01-01", START_S + 0.5, "2024-01-01T00:00:00.500"),
        (DATES, "2024-01-01", 1e15, ""),
        (
            Choice(("t",), "unix time", ("v",), unit_s=1e-3),
            "1704067200000",
            START_S,
            "1704067200000",
        ),
        (UNIX_MS, "", START_S, "2024-01-01T00:00:00Z"),
        (Choice(("t",), "numbers", ("v",)), "1.5", 2.25, "2.25"),
        (Choice((), "rows", ("v",)), "3", math.nan, ""),
    ],
)
def test_times_to_come_are_written_as_those_of_the_table(
    choice: Choice, like: str, time: float, text: str
) -> None:
    assert choice.written(time, like) == text


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", {}),
        ("a,b\nx,y\n", {}),
        ('[{"a": 1}]', {}),
        ("time,v\n2024-01-01,1\n", {"time": "none"}),
        ("time,v,w\n2024-01-01,1,x\n2024-01-02,1,x\n", {"time": "w"}),
        ("\x00\x00\n", {}),
        ("time,v\n", {}),
        ("time,v\n" + "".join(f"{i},\n" for i in range(9)), {}),  # times alone are no sensor
    ],
)
def test_what_holds_no_table_is_refused(text: str, named: dict[str, str]) -> None:
    with pytest.raises(DataError):
        table(text, **named)


FORMS = {
    "gzip": gzip.compress(b"time,v\n1,2\n", mtime=0),
    "zip": b"PK\x03\x04\x14\0\n",
    "Parquet": b"PAR1\x15\0\n",
    "UTF-8": b"time,v,unit\n" + 9 * b"2024-01-01,1,\xb0C\n",
}


@pytest.mark.parametrize("name", FORMS)
def test_files_in_another_form_are_refused_by_its_name(name: str) -> None:
    with pytest.raises(DataError, match=rf"\b{name}\b"):
        open_table(io.BytesIO(FORMS[name]))


BACKWARD = {
    "dates": lines("time,v", "2024-01-{d:02} {h:02}:00,{v}"),
    "a date and a time": lines("date;time;v", "{d:02}.01.2024;{h:02}:00;{v}"),
    "unix time": lines("ts,v", "17{i:08},{v}"),
}


@pytest.mark.parametrize("form", BACKWARD)
def test_a_table_that_begins_with_its_newest_row_is_turned_or_refused(form: str) -> None:
    header, *rows = BACKWARD[form].splitlines()
    forward = table(BACKWARD[form])
    text = "\n".join([header, *reversed(rows)])
    assert forward.choice.is_dated
    with pytest.raises(DataError, match="newest"):  # a stream cannot be turned around
        find_table(text.encode().splitlines(keepends=True))
    turned = table(text)
    assert any("newest row" in note for note in turned.notes)
    expected, found = parts(forward), parts(turned)
    assert [row.numbers for row in found] == [row.numbers for row in expected]
    assert [row.line for row in found] == [*range(101, 1, -1)]


def test_a_header_of_old_windows_is_read() -> None:
    text = lines("Zeit;Wert °C", "{d:02}.01.2024 {h:02}:00;{v}")
    found = open_table(io.BytesIO(text.encode("cp1252")))
    assert found.choice.values == ("Wert °C",)
    assert len(parts(found)) == 100


@given(
    st.lists(
        st.sampled_from(
            [*"0123456789,;.:-/ \t|\"'{}[]\n\r#eE", "time", "2024-01-01", "NA", "\n", "1.5,", "\0"]
        ),
        max_size=60,
    )
)
def test_no_text_is_worse_than_refused(pieces: list[str]) -> None:
    try:
        rows = list(table("".join(pieces)).rows())
    except DataError:
        return
    assert all(isinstance(row, (SensorsRow, BadRow)) for row in rows)


@given(st.binary(max_size=200))
def test_no_bytes_are_worse_than_refused(data: bytes) -> None:
    with contextlib.suppress(DataError):
        list(open_table(io.BytesIO(data)).rows())


KEPT = table("a;b;c\n" + "".join(f"2024-01-01 00:0{i};{i},5;x{i % 2}\n" for i in range(9))).columns


def test_columns_are_rebuilt_from_what_a_snapshot_keeps() -> None:
    again = TableColumns.from_json(json.loads(json.dumps(KEPT.form)))
    assert again.form == KEPT.form
    assert (again.choice.columns, again.format, again.n_before) == (("a", "b"), KEPT.format, 1)


@pytest.mark.parametrize("part", ["choice", "format", "layout", "n_before", None])
@given(st.one_of(st.none(), st.integers(), st.text(max_size=3), st.lists(st.integers())))
def test_damaged_columns_are_refused(part: str | None, value: object) -> None:
    form = json.loads(json.dumps(KEPT.form))
    inner = form.get(part) if part else None
    if part and isinstance(inner, dict):
        for name in inner:
            with contextlib.suppress(DataError, *DAMAGE):
                TableColumns.from_json({**form, part: {**inner, name: value}})
    elif not part:
        with pytest.raises((DataError, *DAMAGE)):
            TableColumns.from_json({"choice": value})
    else:
        with contextlib.suppress(DataError, *DAMAGE):
            TableColumns.from_json({**form, part: value})


def test_a_long_table_is_read_in_constant_memory() -> None:
    class Endless:
        """Lines without end."""

        n = 0

        def readline(self, size: int, /) -> bytes:
            self.n += 1
            return b"time,v\n" if self.n == 1 else b"%d,%d\n" % (self.n, self.n % 9)

    rows: Iterator[object] = open_table(Endless()).rows()
    for _ in range(1000):
        next(rows)
    tracemalloc.start()
    for _ in range(3000):
        next(rows)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200_000  # the rows alone would take more than 1 MB
