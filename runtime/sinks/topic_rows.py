"""Turn rows of a loop's output into messages: JSON objects, each with a topic and a key.

series,time,value,mean,..          PREFIX/SERIES   {"series": .., "time": .., "value": 21.5, ..}
kitchen,2026-11-28T10:00,21.5,..   key: what identifies the row, so that one that comes twice is
                                   recognized
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from edgefold.runtime.brokers.broker_address import BrokerAddress
from edgefold.runtime.errors import DataError

NAMES = ("series", "stream")
KEYS = ("line", "time", "event")
TEXTS = {*NAMES, "time", "event"}


def require_topic(address: BrokerAddress, wildcards: str) -> None:
    """Raise DataError unless an address names one topic or subject without these signs."""
    if len(address.topics) != 1 or set(wildcards) & set(address.topics[0]):
        signs = " and ".join(wildcards)
        raise DataError(
            f"{address}: rows are published under one topic or subject without {signs}."
        )


class TopicRow(NamedTuple):
    """Holds one message.

    Attributes:
        series: The name of the row's sensor; "" for a single one.
        payload: The row as a JSON object.
        key: A text that identifies the row among those of this output.
    """

    series: str
    payload: bytes
    key: str


class TopicRows:
    """Turns lines into messages.

    Args:
        header: The names of the columns as a line of CSV; "" if lines are JSON objects.
    """

    def __init__(self, header: str):
        self._names = next(csv.reader([header]), []) if header else []

    def rows(self, text: str) -> Iterator[TopicRow]:
        """Yield a message for each line of a text."""
        for line in csv.reader(text.splitlines()) if self._names else text.splitlines():
            row = json.loads(line) if isinstance(line, str) else self._object(line)
            series = next((str(row[name]) for name in NAMES if name in row), "")
            key = " ".join(str(row[name]) for name in (*NAMES, *KEYS) if row.get(name))
            yield TopicRow(series, json.dumps(row).encode(), key)

    def _object(self, fields: list[str]) -> dict[str, Any]:
        pairs = zip(self._names, fields, strict=True)
        return {name: text if name in TEXTS else _number(text) for name, text in pairs}


def _number(text: str) -> float | int | str | None:
    """Return a field as a number, None if it is empty, or the text if it is none."""
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        return text
    if number != number or number in (float("inf"), float("-inf")):
        return text
    return int(text) if text.lstrip("-").isdigit() and len(text) < 16 else number


def safe_topic(prefix: str, series: str, separator: str, forbidden: str) -> str:
    """Return the topic for a sensor; characters that a topic cannot hold become `_`.

    Args:
        prefix: The topic that all rows share.
        series: The sensor's name; "" for a single one.
        separator: The sign between the parts of a topic.
        forbidden: The characters that a topic cannot hold, as a class of a regular expression.
    """
    own = re.sub(forbidden, "_", series).strip(separator)
    return f"{prefix}{separator}{own}" if own else prefix
