"""Say of one row whether it is an alarm, and what has happened to its sensor."""

from __future__ import annotations

from typing import Literal, NamedTuple

Event = Literal[
    "", "value", "level shift", "stuck", "gap", "absent", "drift", "rhythm", "quiet", "noisy"
]
"""The names of what can happen to a sensor; "" for nothing."""


class AlarmVerdict(NamedTuple):
    """Says whether a row is an alarm, and what has happened.

    Attributes:
        alarm: Whether the row is an alarm; True once for each incident.
        event: What has happened. Some events also come without an alarm: "level shift" after a
            value that was alarmed, and "stuck" and what lasts for as long as they go on.
        n_since: How many rows before this one the event began; 0 if with this row.
        size: The size of an event that lasts, as `lasting` of this package measures it; else 0.
    """

    alarm: bool
    event: Event
    n_since: int = 0
    size: float = 0.0


QUIET = AlarmVerdict(False, "")
