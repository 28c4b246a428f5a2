"""Write as text the results of `edgefold forecast`: scores, alarms, gaps, forecasts ahead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefold.cli.text.sensors import season_text
from edgefold.cli.text.streams import aligned, short
from edgefold.runtime.predictions.sensor_forecast import FIRST_SLOTS
from edgefold.runtime.rows.csv_fields import Clock, plain
from edgefold.runtime.series.durations import elapsed

if TYPE_CHECKING:
    from edgefold.cli.forecasting import ForecastRun, Track
    from edgefold.runtime.rows.detect.choice import Choice
    from edgefold.runtime.rows.detect.columns import Table, TableColumns
    from edgefold.runtime.sensors.forecasts import Distribution
    from edgefold.runtime.sensors.named_sensors import FeedView

MOST_SHOWN = 20
"""Number of sensors that are shown one by one."""
SHOWN_ALARMS, SHOWN_NOTES = 8, 3
SHOWN_AHEAD = (4, 16, 48)
"""Rows ahead for which the help of covariates is told."""
HEADS = ("series", "rows", "MAE", "persistence", "ratio", "90 % band", "alarms", "pace", "season")
CLOCKS = {"unix time": "since 1970", "numbers": "plain numbers", "dates": "dates"}


def table_lines(table: Table, columns: Sequence[str]) -> list[str]:
    """Return lines on the columns that are read, and notes on assumptions and columns left out.

    `columns` are those of the sensors' values.
    """
    choice = table.choice
    times = "rows are counted"
    if choice.time:
        times = f"{' and '.join(map(short, choice.time))} ({CLOCKS[choice.clock]})"
    values = ", ".join(map(short, columns[:MOST_SHOWN]))
    left = len(columns) - MOST_SHOWN
    values += f" and {left:,} more" if left > 0 else ""
    lines = [f"times         {times}", f"values        {values}"]
    if choice.series:
        lines.append(f"series        the column {short(choice.series)} names the sensors")
    return lines + [f"note          {note}" for note in table.notes]


def score_lines(tracks: Sequence[tuple[Track, FeedView]], clock: Clock) -> list[str]:
    """Return a table of scores with a line for each of the first `MOST_SHOWN` sensors."""
    rows = [HEADS, *(_scores(track, feed, clock) for track, feed in tracks[:MOST_SHOWN])]
    left = len(tracks) - MOST_SHOWN
    return aligned(rows) + ([f"{left:,} more series are in the output"] if left > 0 else [])


def _scores(track: Track, feed: FeedView, clock: Clock) -> tuple[str, ...]:
    tally = track.tally
    errors = ["-"] * 4
    if tally.n_forecast:
        errors = [f"{tally.mean_error:.4g}", f"{tally.mean_change:.4g}"]
        errors.append(f"{tally.error / tally.change:.2f}" if tally.change else "-")
        errors.append(f"{tally.coverage_90:.1%}")
    pace = "-"
    if feed.is_irregular:
        pace = "uneven"
    elif feed.pace == feed.pace:
        pace = elapsed(feed.pace, clock) if clock == "date" else f"{feed.pace:g}"
    return (
        short(track.name), f"{track.n_rows:,}", *errors, f"{tally.n_alarms:,.0f}", pace,
        season_text(feed, clock),
    )  # fmt: skip


def panel_line(track: Track) -> str:
    """Return the scores of a sensor as one line, for the picture."""
    tally = track.tally
    if not tally.n_forecast:
        return f"{track.n_rows:,} {'row' if track.n_rows == 1 else 'rows'}"
    ratio = f"{tally.error / tally.change:.2f} of" if tally.change else "beside"
    return (
        f"{track.n_rows:,} rows   MAE {tally.mean_error:.4g}, {ratio} persistence   "
        f"90 % band holds {tally.coverage_90:.1%}   alarms {tally.n_alarms:,.0f}"
    )


def told_lines(run: ForecastRun, rate: float, csv: str, incidents: str = "") -> list[str]:
    """Return lines on the sensors' alarms, gaps, empty cells, changes of clock, and refused rows.

    A text that several sensors share, such as their common gaps, is written once. `rate` is the
    share of rows that alarm by chance, as --false-alarms has it, and `csv` the name of the file in
    which all alarms are. `incidents` is the name of the file in which they are incidents, or "".
    """
    whose: dict[tuple[str, str], list[str]] = {}
    tracks = list(run.tracks.values())
    for track in tracks[:MOST_SHOWN]:
        for note in (*_happened(track), *_refusals(track)):
            whose.setdefault(note, []).append(short(track.name))
    lines = [
        f"{label:<14}{_heading(names, len(tracks)) if run.is_named else ''}{text}"
        for (label, text), names in whose.items()
    ]
    lines += [f"{label:<14}{text}" for label, text in _refusals(run.bad)]
    lines += unread_lines(run.table.columns, "--columns")
    n = sum(track.n_rows for track in tracks)
    if any(track.tally.n_alarms > SHOWN_ALARMS for track in tracks):
        lines.append(f"{'all alarms':<14}the rows of {csv} with alarm 1")
    if incidents and run.incidents is not None:
        lines.append(f"{'incidents':<14}{run.incidents.n:,}, a line each in {incidents}")
    if any(track.tally.n_alarms for track in tracks):
        chance = f"{rate * n:.2g} of the alarms, at --false-alarms {rate:g}"
        lines.append(f"{'by chance':<14}{chance}")
    return lines


def unread_lines(columns: TableColumns, option: str) -> list[str]:
    """Return lines on JSON keys that are not read because no line had them at the beginning.

    Args:
        columns: The columns that are read.
        option: The command's option that names columns of values.
    """
    lines = []
    for key, n in columns.unread.items():
        where = f"in {n:,} {'line' if n == 1 else 'lines'} and in none of the first ones"
        advice = f"name it with {option} to read it"
        lines.append(f"unread        the key {short(plain(key))} comes {where}; {advice}")
    return lines


def _heading(names: Sequence[str], n_all: int) -> str:
    """Return up to three names for the start of a line, then the number of others."""
    if len(names) == n_all > 1:
        return "all: "
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}: "


def _happened(track: Track) -> list[tuple[str, str]]:
    lines, tally = [], track.tally
    if tally.n_alarms:
        last = [f"{event} at {time}" for time, _, event in track.alarms][-SHOWN_ALARMS:]
        which = "" if tally.n_alarms <= SHOWN_ALARMS else f"{_counts(track.alarmed)}; the last: "
        lines.append(("alarms", f"{which}{', '.join(last)}"))
    if not tally.n_forecast:
        lines.append(("note", f"forecasts begin after the first {FIRST_SLOTS} rows"))
    if track.events:
        lines.append(("events", f"{_counts(track.events)}, without another alarm"))
    if tally.n_gaps:
        n = tally.n_missing
        gaps = f"{tally.n_gaps:,.0f}, {n:,.0f} {'row is' if n == 1 else 'rows are'} missing"
        lines.append(("gaps", gaps))
    if track.n_empty:
        rows = "row has" if track.n_empty == 1 else "rows have"
        lines.append(("empty", f"{track.n_empty:,} {rows} no value"))
    notes = list(track.notes)[-SHOWN_NOTES:]
    return lines + [("learned", f"{note}, at {time}") for time, note in notes]


def _counts(events: dict[str, int]) -> str:
    return ", ".join(f"{n:,} {event}" for event, n in sorted(events.items(), key=lambda e: -e[1]))


def _refusals(track: Track) -> list[tuple[str, str]]:
    """Return a list of one pair (label, text) on the most frequent reason of refused rows.

    The list is empty if no row was refused.
    """
    if not track.n_refused:
        return []
    first, reason, n = max(track.reasons.values(), key=lambda entry: entry[2])
    others = track.n_refused - n
    more = f"; {others:,} more for other reasons" if others else ""
    count = f"{n:,} rows, the first in line {first:,}" if n > 1 else f"line {first:,}"
    return [("refused", f"{count}: {reason.rstrip('.')}{more}")]


def covariate_lines(run: ForecastRun, tracks: Sequence[tuple[Track, FeedView]]) -> list[str]:
    """Return a table of what each sensor's covariates change, and notes; empty without any."""
    covariates = run.covariates
    if covariates is None:
        return []
    rows, notes = [], []
    for track, _ in tracks[:MOST_SHOWN]:
        sensor = covariates.sensor(run.sensor_of(track))
        plain, other = sensor.losses.tolist()
        changes = [other / plain if plain else math.nan, *map(sensor.helps, SHOWN_AHEAD)]
        n, last = track.coming.known
        rows.append(
            [
                *[short(track.name)] * run.is_named,
                "yes" if sensor.is_believed else "no",
                *("-" if math.isnan(c) else f"{100 * (c - 1):+.0f} %" for c in changes),
                f"{n:,}" if n == last else f"{n:,} of {last:,}",
            ]
        )
        if n_far := track.coming.n_far:
            where = "too far ahead, or at no time of their own"
            notes.append(f"note          {short(track.name)}: {n_far:,} planned rows are {where}")
    heads = [*["series"] * run.is_named, "rows use it", "loss of a row"]
    heads += [*(f"error {n} ahead" for n in SHOWN_AHEAD), "rows known ahead"]
    for name, unknown in covariates.unknown.items():
        if unknown:
            first = covariates.bad.get(name)
            why = f"; line {first.line:,}: {first.reason.rstrip('.')}" if first else ""
            text = f"{unknown:,} cells without a number, taken as unchanged{why}"
            notes.append(f"note          {short(name)}: {text}")
    names = ", ".join(map(short, covariates.names))
    return [f"with          {names}", *aligned([heads, *rows]), *notes]


def ahead_lines(
    coming: Sequence[tuple[Track, FeedView, list[tuple[int, Distribution]]]],
    choice: Choice,
    is_named: bool,
) -> list[str]:
    """Return a table of the forecasts made after the last row of each sensor.

    Args:
        coming: For each sensor its counts, its pace and season, and pairs (rows ahead, forecast).
        choice: The columns that were read, which also say how the table writes times.
        is_named: Whether the table has a column with the sensor's name.
    """
    rows = []
    for track, feed, steps in coming[:MOST_SHOWN]:
        for slots, forecast in steps:
            like = track.last if choice.clock == "dates" else ""
            at = choice.written(track.last_time + slots * feed.pace, like)
            head = [short(track.name)] if is_named else []
            numbers = [f"{number:.4g}" for number in (forecast.q50, forecast.q05, forecast.q95)]
            rows.append([*head, f"{slots:,}", at.replace("T", " "), *numbers])
    if not rows:
        return []
    heads = [*["series"] * is_named, "rows ahead", "time", "median", "5 %", "95 %"]
    return aligned([heads, *rows])
