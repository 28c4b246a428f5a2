"""Describe an alarm of the general model of sensors, and write it as a line of a file."""

from __future__ import annotations

import json
from typing import NamedTuple, get_args

from edgefold.runtime.rows.csv_fields import quoted
from edgefold.runtime.sensors.alarms.verdict import Event

EVENTS: tuple[str, ...] = get_args(Event)[1:]
"""Names of all events that are alarmed."""


class Alarm(NamedTuple):
    """Describes an alarm of the general model of sensors.

    Attributes:
        series: The sensor's name; "" for a single sensor.
        event: The name of what has happened.
        time: The row's time as written in the input.
        text: The row's value as written in the input; "" if it is missing.
        value: The row's value; NaN if it is missing.
        n_since: The number of rows before this one at which the event began.
        size: The size of an event that lasts; else 0.
    """

    series: str
    event: str
    time: str
    text: str
    value: float
    n_since: int
    size: float

    def to_json(self) -> dict[str, str | float | None]:
        """Return the alarm as a JSON object; a missing value and no size are null."""
        value = self.value if self.value == self.value else None
        return {
            "series": self.series,
            "event": self.event,
            "time": self.time,
            "value": value,
            "since": self.n_since,
            "size": self.size or None,
        }


class AlarmLines:
    """Writes alarms as lines of a file, JSON or CSV.

    Args:
        is_json: Whether the lines are JSON objects.
        are_named: Whether rows name their sensor, so that CSV has a column `series`.

    Attributes:
        header: The first line of the file; "" for JSON.
    """

    def __init__(self, is_json: bool, are_named: bool):
        self._is_json = is_json
        self._are_named = are_named
        names = [*["series"] * are_named, "event", "time", "value", "since", "size"]
        self.header = "" if self._is_json else f"{','.join(names)}\n"

    def text(self, alarm: Alarm) -> str:
        """Return the line of an alarm."""
        if self._is_json:
            return json.dumps(alarm.to_json()) + "\n"
        size = f"{alarm.size:.9g}" if alarm.size else ""
        fields = [alarm.event, alarm.time, alarm.text, str(alarm.n_since), size]
        return ",".join(quoted([*[alarm.series] * self._are_named, *fields])) + "\n"
