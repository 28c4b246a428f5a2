"""Say in sentences why a row was refused, and what a row changed of a sensor's pace and season."""

from __future__ import annotations

import math
from typing import NamedTuple

from edgefold.runtime.rows.csv_fields import Clock
from edgefold.runtime.sensors.clock.row_slots import LARGEST, RowSlots
from edgefold.runtime.sensors.clock.seasons import Season, SeasonNews
from edgefold.runtime.sensors.clock.slot_clock import LATEST, Leap, Refusal
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


class RowNews(NamedTuple):
    """Holds what a row changed of a sensor's pace and season.

    Attributes:
        leap: Whether the clock was set before the row.
        n_gap: The number of missing slots before the row, if that is worth a note; else 0.
        pace: The time between two slots.
        pace_before: The pace that the user heard of before, if it is another one now; else NaN.
        season: The season after the row.
        season_news: How the row changed the season.
    """

    leap: Leap
    n_gap: int
    pace: float
    pace_before: float
    season: Season
    season_news: SeasonNews


def news_of(slots: RowSlots) -> RowNews:
    """Return what the row learned last changed."""
    clock, seasons = slots.clock, slots.seasons
    return RowNews(
        clock.leap, slots.n_gap, clock.pace, slots.pace_before, seasons.season, seasons.news
    )


def notes_of(news: RowNews, kind: Clock) -> tuple[str, ...]:
    """Return sentences for the user about what a row changed; times are of a kind."""
    notes = list[str]()
    if news.leap:
        is_back = news.leap == "back"
        notes.append("the clock was set back" if is_back else "rows go on after a long pause")
    if news.n_gap:
        length = elapsed(news.n_gap * news.pace, kind)
        notes.append(f"{news.n_gap:,} rows are missing ({length})")
    if not math.isnan(news.pace_before):
        before = elapsed(news.pace_before, kind)
        notes.append(f"a row comes every {elapsed(news.pace, kind)} now, {before} before")
    if news.season_news:
        notes.append(_season_text(news.season, news.season_news))
    return tuple(notes)


def _season_text(season: Season, news: SeasonNews) -> str:
    """Return a sentence about a season that changed."""
    if news == "lost":
        return "no season any more"
    name = f", a {season.name}" if season.name else ""
    guess = " (by the calendar, until the values show one)" if news == "guessed" else ""
    return f"season of {season.length} slots{name}{guess}"
