"""Sentences about refused rows, and about what a row changed."""

from __future__ import annotations

import math

import pytest

from edgefold.runtime.sensors.clock.notes import news_of, notes_of, refusal_text
from edgefold.runtime.sensors.clock.row_slots import RowSlots
from edgefold.runtime.sensors.clock.season_search import SeasonSearch

HOUR = 3600.0


def slots_of(n: int, dated: bool = True) -> RowSlots:
    """The slots of a sensor that has sent n rows, one an hour."""
    slots = RowSlots(48)
    for i in range(n):
        assert slots.accept(HOUR * i, float(i % 5), dated) == ""
        slots.learn(SeasonSearch())
    return slots


@pytest.mark.parametrize(
    ("time", "value", "start"),
    [
        (20 * HOUR, 1e31, "the value 1e+31 is beyond 1e+30; drop"),
        (20 * HOUR, -math.inf, "the value -inf is beyond 1e+30; drop"),
        (math.nan, 1.0, "the time nan is not finite; drop"),
        (1e301, 1.0, "the time 1e+301 is beyond 1e+300; drop"),
        (19 * HOUR, 1.0, "its time is that of the newest row; drop"),
        (17 * HOUR, 1.0, "its time is 2 hours before the newest row's; if the next"),
        (2419 * HOUR, 1.0, "its time is 100 days after the newest row's; if the next"),
    ],
)
def test_a_refused_row_is_told_why(time: float, value: float, start: str) -> None:
    slots = slots_of(20)
    refusal = slots.accept(time, value, True)
    text = refusal_text(refusal, time, value, slots.clock.distance, "date")
    assert text.startswith(start)
    assert not slots.is_accepted


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([20.0], []),
        ([32.0], ["12 rows are missing (12 hours)"]),
        ([2419.0, 2420.0], ["rows go on after a long pause"]),
        ([float(n) for n in range(8)], ["the clock was set back"]),
        ([19 + n / 4 for n in range(1, 25)], ["a row comes every 15 minutes now, 1 hour before"]),
    ],
)
def test_a_row_that_changes_the_clock_has_a_note(times: list[float], expected: list[str]) -> None:
    slots, notes = slots_of(20), list[str]()
    for time in times:
        if not slots.accept(HOUR * time, 1.0, True):
            slots.learn(SeasonSearch())
            notes += notes_of(news_of(slots), "date")
    assert [note for note in notes if "season" not in note] == expected
