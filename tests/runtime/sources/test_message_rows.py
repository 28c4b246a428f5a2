"""Messages become the lines that are documented, whatever the payload holds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgefold.runtime.sources.message import Message
from edgefold.runtime.sources.message_rows import MessageKeys, MessageRows

RECEIVED = 1_764_300_000.25
ARRIVAL = "2025-11-28T03:20:00.250000Z"


def rows_of(payload: Any, keys: MessageKeys | None = None, topic: str = "home/a") -> list[Any]:
    content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    rows = MessageRows(keys or MessageKeys(), of_sensors=True)
    lines = rows.lines(Message(topic, content, RECEIVED))
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    return [tuple(json.loads(line).values()) for line in lines]


def test_a_number_alone_is_a_row_at_its_arrival() -> None:
    assert rows_of(b" 21.5\n") == [("home/a", ARRIVAL, "21.5")]


def test_each_number_of_an_object_is_a_sensor_of_its_own() -> None:
    payload = {"temperature": 21.5, "state": "ON", "occupied": True, "inner": {"humidity": 40}}
    assert rows_of(payload) == [
        ("home/a/temperature", ARRIVAL, 21.5),
        ("home/a/inner.humidity", ARRIVAL, 40),
    ]


def test_the_key_value_is_the_sensor_of_the_topic_itself() -> None:
    assert rows_of({"value": 3}) == [("home/a", ARRIVAL, 3)]


@pytest.mark.parametrize(
    ("written", "time"),
    [
        (1_764_300_000, "2025-11-28T03:20:00Z"),
        (1_764_300_000_250, ARRIVAL),
        (1_764_300_000_250_000, ARRIVAL),
        (1_764_300_000_250_000_000, ARRIVAL),
        ("2025-11-28T04:20:00+01:00", "2025-11-28T04:20:00+01:00"),
    ],
)
@pytest.mark.parametrize("key", ["time", "Timestamp", "ts", "t"])
def test_the_time_is_found_by_its_usual_names(key: str, written: Any, time: str) -> None:
    assert rows_of({key: written, "value": 3}) == [("home/a", time, 3)]


def test_a_small_number_named_t_is_a_value_and_no_time() -> None:
    assert rows_of({"t": 21.5}) == [("home/a/t", ARRIVAL, 21.5)]


def test_named_keys_are_taken_and_no_others() -> None:
    payload = {"at": 86400, "a": {"b": 1, "c": True}, "d": 3}
    keys = MessageKeys("at", ("a.b", "a.c"))
    assert rows_of(payload, keys) == [
        ("home/a/a.b", "1970-01-02T00:00:00Z", 1),
        ("home/a/a.c", "1970-01-02T00:00:00Z", 1),
    ]
    assert rows_of(payload, MessageKeys("received", ("d",))) == [("home/a", ARRIVAL, 3)]
    assert rows_of({"d": 3}, MessageKeys(values=("x",))) == [("home/a", ARRIVAL, None)]


@pytest.mark.parametrize("payload", [b"{bad", b"[1, 2]", b"\xff\xfe", b"", b"{" * 5000])
def test_what_cannot_be_read_is_one_row_that_is_refused_later(payload: bytes) -> None:
    ((series, time, value),) = rows_of(payload)
    assert (series, time) == ("home/a", ARRIVAL)
    assert isinstance(value, str) and len(value) <= 200


def test_a_message_without_a_number_gives_no_row_and_is_counted() -> None:
    rows = MessageRows(MessageKeys(), of_sensors=True)
    assert rows.lines(Message("a", b'{"state": "ON"}', 0.0)) == []
    assert rows.n_without_value == 1


def test_other_models_get_the_object_with_its_topic() -> None:
    rows = MessageRows(MessageKeys(), of_sensors=False)
    (line,) = rows.lines(Message("home/a", b'{"x1": 1, "topic": "own"}', RECEIVED))
    assert json.loads(line) == {"topic": "own", "received": ARRIVAL, "x1": 1}
    (line,) = rows.lines(Message("home/a", b"3", RECEIVED))
    assert json.loads(line) == {"topic": "home/a", "received": ARRIVAL, "value": "3"}


def test_the_identity_is_read_by_its_keys_and_is_no_value() -> None:
    keys = MessageKeys(sequence=("boot", "id.count"))
    rows = MessageRows(keys, of_sensors=True)
    message = Message("a", b'{"boot": 3, "id": {"count": 7}, "value": 1}', RECEIVED)
    assert rows.sequence(message) == (3, 7)
    assert len(rows.lines(message)) == 1
    assert rows.sequence(Message("a", b'{"boot": 3}', 0.0)) == ()


def test_a_message_comes_back_from_the_journal_as_it_was() -> None:
    message = Message("home/ä", b"\0x", RECEIVED, begins=True)
    assert Message.from_bytes(message.to_bytes(), 5) == Message(
        "home/ä", b"\0x", RECEIVED, begins=True, number=5
    )


@pytest.mark.parametrize(
    "written", ["1764300000", "1764300000.25", "28.11.2025 03:20", "yesterday"]
)
def test_a_time_as_text_is_never_replaced_by_the_time_of_receipt(written: str) -> None:
    ((_, time, _),) = rows_of({"time": written, "value": 3})
    assert time == {"1764300000": "2025-11-28T03:20:00Z", "1764300000.25": ARRIVAL}.get(
        written, written
    )


def test_a_key_that_never_comes_is_reported_once() -> None:
    told: list[str] = []
    rows = MessageRows(MessageKeys("tim", ("temprature", "humidity")), True, told.append)
    for _ in range(50):
        rows.lines(Message("a", b'{"time": 1764300000, "temperature": 1, "humidity": 2}', 0.0))
    assert told == [
        "20 messages held no key tim; the last, of a, holds time, temperature, humidity",
        "20 messages held no key temprature; the last, of a, holds time, temperature, humidity",
    ]
