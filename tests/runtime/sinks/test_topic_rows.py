"""Rows become JSON messages with a topic and a key, for brokers."""

from __future__ import annotations

import json

from edgefold.runtime.sinks.topic_rows import TopicRows, safe_topic


def test_a_row_of_csv_is_an_object_of_numbers_texts_and_nulls() -> None:
    rows = TopicRows("series,time,value,mean,alarm,event\n")
    (row,) = rows.rows('"a ""b""",2026-01-01T00:00:00Z,21.50,,0,\n')
    assert json.loads(row.payload) == {
        "series": 'a "b"',
        "time": "2026-01-01T00:00:00Z",
        "value": 21.5,
        "mean": None,
        "alarm": 0,
        "event": "",
    }
    assert (row.series, row.key) == ('a "b"', 'a "b" 2026-01-01T00:00:00Z')


def test_a_value_that_is_no_number_stays_a_text() -> None:
    rows = TopicRows("time,value,mark\n")
    (row,) = rows.rows("3,1e999,nan\n")
    assert json.loads(row.payload) == {"time": "3", "value": "1e999", "mark": "nan"}


def test_lines_of_json_stay_as_they_are() -> None:
    rows = TopicRows("")
    found = [*rows.rows('{"series": "a", "event": "drift", "time": "t"}\n{"event": "stuck"}\n')]
    assert [(row.series, row.key) for row in found] == [("a", "a t drift"), ("", "stuck")]
    assert json.loads(found[1].payload) == {"event": "stuck"}


def test_the_name_of_a_sensor_is_below_the_topic_and_holds_no_wildcards() -> None:
    assert safe_topic("out", "home/a+b#", "/", "[+#\0]") == "out/home/a_b_"
    assert safe_topic("out", "", "/", "[+#\0]") == "out"
    assert safe_topic("out", "a b.>", ".", r"[*>\s]") == "out.a_b._"
