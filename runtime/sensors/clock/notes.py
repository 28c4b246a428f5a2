"""Say in sentences why a row was refused, and what a row changed of a sensor's pace and season."""

from __future__ import annotations

import math

from edgefold.runtime.rows.csv_fields import Clock
from edgefold.runtime.sensors.clock.row_slots import LARGEST, RowSlots
from edgefold.runtime.sensors.clock.seasons import Season, SeasonNews
from edgefold.runtime.sensors.clock.slot_clock import LATEST, Refusal
from edgefold.runtime.series.durations import elapsed


def refusal_text(refusal: Refusal, time: float, value: float, distance: float, kind: Clock) -> str:
    """Return the sentence that says why a row is refused, and what to do.

    Args:
        refusal: Why the row is refused.
        time: The row's time.
        value: The row's value.
        distance: How far the time is from that of the newest row.
        kind: Whether times are dates or numbers.
    """
    if refusal == "value too large":
        return f"the value {value:g} is beyond {LARGEST:g}; drop the row."
    if refusal == "time too large":
        return f"the time {time:g} is beyond {LATEST:g}; drop the row."
    if refusal == "time not finite":
        return f"the time {time:g} is not finite; drop the row."
    if refusal == "repeated":
        return "its time is that of the newest row; drop the row."
    where = "before" if refusal == "late" else "after"
    return (
        f"its time is {elapsed(distance, kind)} {where} the newest row's; if the next rows "
        "follow it, the clock goes on there."
    )


def notes_of(slots: RowSlots) -> tuple[str, ...]:
    """Return sentences for the user about what the row learned last changed."""
    kind: Clock = "date" if slots.is_dated else "number"
    pace, notes = slots.clock.pace, list[str]()
    if slots.clock.leap:
        is_back = slots.clock.leap == "back"
        notes.append("the clock was set back" if is_back else "rows go on after a long pause")
    if slots.n_gap:
        length = elapsed(slots.n_gap * pace, kind)
        notes.append(f"{slots.n_gap:,} rows are missing ({length})")
    if not math.isnan(slots.pace_before):
        before = elapsed(slots.pace_before, kind)
        notes.append(f"a row comes every {elapsed(pace, kind)} now, {before} before")
    if slots.seasons.news:
        notes.append(_season_text(slots.seasons.season, slots.seasons.news))
    return tuple(notes)


def _season_text(season: Season, news: SeasonNews) -> str:
    """Return a sentence about a season that changed."""
    if news == "lost":
        return "no season any more"
    name = f", a {season.name}" if season.name else ""
    guess = " (by the calendar, until the values show one)" if news == "guessed" else ""
    return f"season of {season.length} slots{name}{guess}"
