"""What a board prints becomes the rows that are documented, or is refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgefold.runtime.errors import DataError
from edgefold.runtime.rows.csv_reader import RefusedLine
from edgefold.runtime.rows.row_format import RowFormat
from edgefold.runtime.sources.line_rows import LONGEST, LineRows
from edgefold.runtime.sources.message import Message
from edgefold.runtime.sources.message_rows import MessageKeys

RECEIVED = 1_764_300_000.25
ARRIVAL = "2025-11-28T03:20:00.250000Z"


def read(rows: LineRows, *lines: str | bytes) -> list[Any]:
    """Return (series, time, value) for each row, and the reason for each refused line."""
    found: list[Any] = []
    for line in lines:
        content = line.encode() if isinstance(line, str) else line
        for made in rows.lines(Message("", content, RECEIVED)):
            if isinstance(made, RefusedLine):
                found.append(made.reason)
            else:
                found.append(tuple(json.loads(made).values()))
    return found


def rows_of(*lines: str | bytes, **settings: Any) -> list[Any]:
    keys = MessageKeys(settings.pop("time", None), settings.pop("values", ()))
    return read(LineRows(keys, True, **settings), *lines)


def test_a_plain_number_is_a_row_at_its_receipt() -> None:
    assert rows_of("21.5", " -3e2 ") == [("value", ARRIVAL, "21.5"), ("value", ARRIVAL, "-3e2")]


@pytest.mark.parametrize(
    "line", ["temp:21.5,hum:40", "temp:21.5\thum:40", "temp: 21.5 hum: 40", "temp=21.5; hum=40"]
)
def test_labelled_numbers_name_their_sensors(line: str) -> None:
    assert rows_of(line) == [("temp", ARRIVAL, "21.5"), ("hum", ARRIVAL, "40")]


def test_the_keys_of_json_name_the_sensors_and_texts_are_no_values() -> None:
    line = '{"temp": 21.5, "state": "ON", "in": {"hum": 40}, "value": 3, "millis": 1234}'
    assert rows_of(line) == [
        ("temp", ARRIVAL, 21.5),
        ("in.hum", ARRIVAL, 40),
        ("value", ARRIVAL, 3),
    ]


@pytest.mark.parametrize("sign", [",", ";", "\t", " "])
def test_fields_without_names_are_columns_by_their_places(sign: str) -> None:
    assert rows_of(sign.join(["21.5", "40"])) == [
        ("column 1", ARRIVAL, "21.5"),
        ("column 2", ARRIVAL, "40"),
    ]


def test_a_header_names_the_fields_and_may_come_again() -> None:
    assert rows_of("temp (C),hum", "21.5,40", "temp (C),hum", "22,41") == [
        ("temp (C)", ARRIVAL, "21.5"),
        ("hum", ARRIVAL, "40"),
        ("temp (C)", ARRIVAL, "22"),
        ("hum", ARRIVAL, "41"),
    ]


def test_a_header_may_bring_the_columns_in_another_order() -> None:
    found = rows_of("a,b", "1,2", "b,a", "2,1")
    assert found == [("a", ARRIVAL, "1"), ("b", ARRIVAL, "2"), ("b", ARRIVAL, "2"),
                     ("a", ARRIVAL, "1")]  # fmt: skip


def test_words_that_are_no_header_do_not_rename_sensors() -> None:
    assert rows_of("Init,ok", "a,b", "1,2") == [("a", ARRIVAL, "1"), ("b", ARRIVAL, "2")]
    found = rows_of("a,b", "1,2", "Init,ok", "3,4")
    assert "rows before it were named a, b" in found.pop(2)
    assert [name for name, *_ in found] == ["a", "b", "a", "b"]
    found = rows_of("1,2", "a,b", "3,4")
    assert "rows before it had no header" in found.pop(2)
    assert [name for name, *_ in found] == ["column 1", "column 2"] * 2


def test_names_of_the_command_line_are_those_of_the_fields() -> None:
    named = {"columns": ("temp", "hum"), "values": ("temp", "hum")}
    expected = [("temp", ARRIVAL, "21.5"), ("hum", ARRIVAL, "40")]
    assert rows_of("21.5,40", **named) == expected
    assert rows_of("T,H", "21.5,40", **named) == expected
    assert rows_of("21.5,40", "T,H", "21.5,40", **named) == expected * 2
    assert rows_of("hum,x,temp", "40,1,21.5", **named) == expected
    date = "2026-01-01T10:00:00Z"
    assert [row[1] for row in rows_of(f"{date},21.5,40", **named)] == [date, date]
    (reason,) = rows_of("1,2,3,4", **named)
    assert reason == "the line has 4 fields where 2 are named"
    assert rows_of("21.5", columns=("temp",), values=("temp",)) == [("temp", ARRIVAL, "21.5")]


@pytest.mark.parametrize(
    ("line", "time"),
    [
        ("2026-01-01T10:00:00Z,21.5", "2026-01-01T10:00:00Z"),
        ("1764300000250,21.5", ARRIVAL),
        ("time:1764300000.25,value:21.5", ARRIVAL),
        ("time:5001,value:21.5", ARRIVAL),  # thousandths since the board was started
        ("uptime=77 value=21.5", ARRIVAL),
    ],
)
def test_a_time_in_the_line_is_taken_if_it_is_one(line: str, time: str) -> None:
    assert rows_of(line) == [("value", time, "21.5")]


def test_a_clock_that_counts_from_the_boards_start_is_no_sensor() -> None:
    assert rows_of("millis,temp", "5001,21.5") == [("temp", ARRIVAL, "21.5")]
    assert rows_of("time,temp", "5001,21.5") == [("temp", ARRIVAL, "21.5")]


def test_the_time_can_be_named_or_be_that_of_receipt() -> None:
    assert rows_of("when=1764300000 x=1", time="when") == [("x", "2025-11-28T03:20:00Z", "1")]
    assert rows_of("time=1764300000 x=1", time="received") == [("x", ARRIVAL, "1")]


def test_a_decimal_comma_parts_no_fields() -> None:
    assert rows_of("21,5", format=RowFormat(decimal=",")) == [("value", ARRIVAL, "21,5")]
    assert rows_of("1,5;2,5", format=RowFormat(decimal=","))[1] == ("column 2", ARRIVAL, "2,5")


def test_a_value_that_is_missing_stays_a_field() -> None:
    """Libraries of sensors print nan where a reading failed."""
    assert rows_of("nan", "nan,40", "temp:nan") == [
        ("value", ARRIVAL, "nan"),
        "the line has 2 fields where the one before it has 1",
        ("temp", ARRIVAL, "nan"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"21.\xff5", "1 of 5 characters are no text, as when a board is reset"),
        (b"\xf8\x9a\x00\xe0x", "4 of 5 characters are no text; is the baud rate right?"),
        (b"Booting ...", "the line holds no number: 'Booting ...'"),
        (b'{"temp": 2', "the line is not a JSON object: '{\"temp\": 2'"),
        (b"1" * LONGEST, "the line has no end in 8,192 bytes"),
    ],
)
def test_a_line_that_is_no_row_says_why(line: bytes, reason: str) -> None:
    assert rows_of(line) == [reason]


def test_a_line_with_other_fields_than_the_one_before_is_refused_once() -> None:
    found = rows_of("1,2", "2", "3,4", "5,6")
    assert [isinstance(row, str) for row in found] == [False, False, True, True, False, False]


def test_a_wrong_baud_rate_is_said_once_at_its_third_line() -> None:
    said: list[str] = []
    rows = LineRows(MessageKeys(), True, tell=said.append)
    read(rows, *[b"\xf8\x9a\xe0"] * 2, "1", *[b"\xf8\x9a\xe0"] * 2)
    assert said == []
    read(rows, *[b"\xf8\x9a\xe0"] * 5)
    assert said == ["3 lines in a row are no text; is the baud rate right?"]


def test_names_go_on_in_a_later_run() -> None:
    first, second = LineRows(MessageKeys(), True), LineRows(MessageKeys(), True)
    read(first, "a,b", "1,2")
    second.resume(json.loads(json.dumps(first.place())))
    assert read(second, "3,4") == [("a", ARRIVAL, "3"), ("b", ARRIVAL, "4")]
    assert "were named a, b" in read(second, "Init,ok")[0]
    with pytest.raises(DataError, match="damaged"):
        second.resume({"header": 3})


def test_other_bundles_get_the_fields_of_a_line_under_their_names() -> None:
    rows = LineRows(MessageKeys(), False, ("x1", "y1"))
    (line,) = rows.lines(Message("", b"1,2", RECEIVED))
    assert json.loads(line) == {"received": ARRIVAL, "time": ARRIVAL, "x1": "1", "y1": "2"}
    (line,) = rows.lines(Message("", b'{"date": "2026-01-01", "x1": 1}', RECEIVED))
    assert json.loads(line) == {"received": ARRIVAL, "date": "2026-01-01", "x1": 1}
