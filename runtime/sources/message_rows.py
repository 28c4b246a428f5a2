"""Turn messages into lines of JSON, which are read as those of a file.

For the general model of sensors each number of a message is a row of a sensor:

    topic                payload                                 rows (series, time, value)
    home/kitchen         21.5                                    home/kitchen, arrival, 21.5
    home/kitchen         {"time": 1764300000, "value": 21.5}     home/kitchen, time, 21.5
    zigbee2mqtt/kitchen  {"temperature": 21.5, "humidity": 40}   zigbee2mqtt/kitchen/temperature, ..
                                                                 zigbee2mqtt/kitchen/humidity, ..

For any other model a message is one row: its own object, with the topic under the key "topic".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from edgefold.runtime.sources.message import Message

TIME_KEYS = ("time", "timestamp", "ts", "t", "datetime", "date", "last_seen")
"""Keys under which the time of a row is found if none is named, in capitals or not."""
FIRST_S = 1e8
"""A number below this, 1973 in seconds, is no time unless its key is named: "t" is a temperature
elsewhere."""
MOST_DEPTH = 4
MANY, LISTED = 20, 20
RECEIVED = "received"
"""This name as the key of times stands for the time of receipt."""
ZERO = datetime(1970, 1, 1, tzinfo=timezone.utc)
COLUMNS = ("series", "time", "value")


@dataclass(frozen=True, slots=True)
class MessageKeys:
    """Names the keys of the payloads' objects; inner ones are written as outer.inner.

    Attributes:
        time: The key of the time; None finds one of `TIME_KEYS`, else takes the time of receipt,
            as "received" does.
        values: The keys of the values; () takes all that hold numbers.
        sequence: The keys of the row's identity: one of a number that rises with each message of a
            topic, or two, of which the first one rises when the second one starts over.
    """

    time: str | None = None
    values: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()


class MessageRows:
    """Turns messages into lines.

    Args:
        keys: The names of keys.
        of_sensors: Whether each number is a row of a sensor, for the general model.
        tell: Function that gets a sentence for the user if keys that are named do not come.

    Attributes:
        n_without_value: Number of messages that held no number and gave no row.
    """

    def __init__(
        self,
        keys: MessageKeys,
        of_sensors: bool,
        tell: Callable[[str], None] = lambda sentence: None,
    ):
        self._keys, self._of_sensors, self._tell = keys, of_sensors, tell
        named = (*([keys.time] if keys.time not in (None, RECEIVED) else ()), *keys.values)
        # The number under such a key is of the sensor that the topic names.
        self._unnamed = keys.values[:1] if len(keys.values) == 1 else ("value",) * (not keys.values)
        self._missed = dict.fromkeys(named, 0)  # messages without a key, until it comes once
        self.n_without_value = 0

    def lines(self, message: Message) -> list[bytes]:
        """Return the lines of a message, each with its end; none if it holds no number.

        A payload that cannot be read gives one line, which is refused with a reason later.
        """
        row = object_of(message.payload)
        if not self._of_sensors:
            return [_joined(message, row)]
        if row is None:
            text = " ".join(message.payload.decode(errors="replace").split())
            return [_line(message.topic, iso(message.received), text[:200])]
        return self._lines_of(row, message)

    def _lines_of(self, row: Mapping[str, Any], message: Message) -> list[bytes]:
        """Return a line for each number of a message's object."""
        if self._missed:
            self._look_for_keys(row, message.topic)
        time = self._time(row, message)
        lines = [_line(self._series(message, key), time, value) for key, value in self._values(row)]
        self.n_without_value += not lines
        return lines

    def _series(self, message: Message, key: str) -> str:
        """Return the name of the sensor of which the number under a key is."""
        return message.topic if key in self._unnamed else f"{message.topic}/{key}"

    def _look_for_keys(self, row: Mapping[str, Any], topic: str) -> None:
        """Report a named key that the first `MANY` messages do not hold; it may be misspelled."""
        for key in [*self._missed]:
            if _found(row, key) is not None:
                del self._missed[key]
                continue
            self._missed[key] += 1
            if self._missed[key] == MANY:
                keys = ", ".join(list(row)[:LISTED])
                of = f", of {topic}," * bool(topic)
                self._tell(f"{MANY} messages held no key {key}; the last{of} holds {keys}")

    def sequence(self, message: Message) -> tuple[float, ...]:
        """Return the numbers that identify a message among those of its topic; () without them."""
        if not self._keys.sequence:
            return ()
        row = object_of(message.payload) or {}
        found = [_found(row, key) for key in self._keys.sequence]
        return tuple(found) if all(map(_is_number, found)) else ()

    def _time(self, row: Mapping[str, Any], message: Message) -> str:
        wanted = self._keys.time
        if wanted == RECEIVED:
            return iso(message.received)
        if wanted is not None:
            return _time_text(_found(row, wanted))
        by_name = {key.lower(): key for key in row}
        for name in TIME_KEYS:
            if name in by_name and _looks_like_time(name, value := row[by_name[name]]):
                return _time_text(value)
        return iso(message.received)

    def _values(self, row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield the keys of the values, and the values."""
        for key in self._keys.values:
            value = _found(row, key)
            yield key, int(value) if isinstance(value, bool) else value
        if self._keys.values:
            return
        skipped = {self._keys.time, *self._keys.sequence, *self._clocks(row)}
        yield from ((key, value) for key, value in _numbers(row) if key not in skipped)

    def _clocks(self, row: Mapping[str, Any]) -> set[str]:
        """Return the keys that hold a time; none where the user names the key of times."""
        if self._keys.time is not None:
            return set()
        found = [key for key in row if key.lower() in TIME_KEYS]
        return {key for key in found if _looks_like_time(key.lower(), row[key])}


def object_of(payload: bytes) -> dict[str, Any] | None:
    """Return the object of a payload, or None if it holds none."""
    if payload.lstrip()[:1] != b"{":
        return None
    try:
        row = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _joined(message: Message, row: dict[str, Any] | None) -> bytes:
    """Return one line with the message's own object, its topic and its time of receipt."""
    own = {"value": message.payload.decode(errors="replace")} if row is None else row
    whole = {"topic": message.topic, RECEIVED: iso(message.received), **own}
    return json.dumps(whole).encode() + b"\n"


def _line(series: str, time: str, value: Any) -> bytes:
    return json.dumps({"series": series, "time": time, "value": value}).encode() + b"\n"


def _found(row: Mapping[str, Any], key: str) -> Any:
    """Return the value under a key or under outer.inner; None if there is none."""
    if key in row:
        return row[key]
    value: Any = row
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _numbers(row: Mapping[str, Any], depth: int = 1) -> Iterator[tuple[str, Any]]:
    """Yield the numbers of an object with their keys, those of inner objects as outer.inner."""
    for key, value in row.items():
        if isinstance(value, dict) and depth < MOST_DEPTH:
            yield from ((f"{key}.{inner}", number) for inner, number in _numbers(value, depth + 1))
        elif _is_number(value):
            yield key, value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _looks_like_time(key: str, value: Any) -> bool:
    """Return whether the value under one of `TIME_KEYS` is taken as a time.

    A text is one, whatever it holds: it is read later or refused with a reason. Only "t" may be
    something else.
    """
    if isinstance(value, str) and not _is_number(number := _as_number(value)):
        return key != "t" or value[:4].isdigit()
    number = _as_number(value)
    return _is_number(number) and number >= FIRST_S


def _as_number(value: Any) -> Any:
    """Return the number that a text holds; anything else as it is."""
    if isinstance(value, str) and value.replace(".", "", 1).isdigit():
        return float(value) if "." in value else int(value)
    return value


def _time_text(value: Any) -> str:
    """Return a time as a date; a text stays as it is, and what is no time is refused as a row."""
    value = _as_number(value)
    if not _is_number(value):
        return value if isinstance(value, str) else json.dumps(value)
    size = abs(value)
    for scale, largest in ((1, 1e11), (1e3, 1e14), (1e6, 1e17), (1e9, 1e20)):
        if size < largest:
            return iso(value / scale)
    return json.dumps(value)


def iso(seconds: float) -> str:
    """Return a time in seconds since 1970 as a date; a number that is beyond all dates as it is."""
    try:
        text = (ZERO + timedelta(seconds=seconds)).isoformat()
    except (OverflowError, ValueError):
        return repr(seconds)
    return text.removesuffix("+00:00") + "Z"
