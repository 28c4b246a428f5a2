"""Write in words the seasons, gaps and scores that a loop with the general model has learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgefold.cli.text.streams import aligned, short
from edgefold.runtime.rows.csv_fields import Clock, plain
from edgefold.runtime.series.durations import elapsed

if TYPE_CHECKING:
    from edgefold.runtime.loop.sensor_rows import SensorRows
    from edgefold.runtime.loop.streams import LoopStream
    from edgefold.runtime.sensors.named_sensors import FeedView

HEADS = ("series", "rows", "missing", "season", "90 % band", "MAE", "persistence", "alarms")


def event_text(event: str, n_since: int) -> str:
    """Return the event of an alarm and, if it began earlier, how many rows before the alarm."""
    if not n_since:
        return event
    return f"{event} (begun {n_since:,} {'row' if n_since == 1 else 'rows'} before)"


def sensor_lines(sensors: Sequence[LoopStream]) -> list[str]:
    """Return lines on one sensor, or a table of several; an empty list for other models."""
    from edgefold.runtime.loop.sensor_rows import SensorRows

    learners = [(sensor, a) for sensor in sensors if isinstance(a := sensor.adapter, SensorRows)]
    if not learners:
        return []
    if len(learners) == 1 and not learners[0][0].name:
        return _one(*learners[0])
    rows = [HEADS, *((short(sensor.name), *_fields(sensor, a)) for sensor, a in learners)]
    return ["", *aligned(rows), ""]


def _one(sensor: LoopStream, adapter: SensorRows) -> list[str]:
    tally = adapter.engine.scores
    lines = []
    if tally.n_gaps:
        rows = "row" if tally.n_missing == 1 else "rows"
        lines.append(
            f"gaps          {tally.n_gaps:,.0f}, with {tally.n_missing:,.0f} {rows} missing"
        )
    clock: Clock = "date" if adapter.is_dated else "number"
    lines.append(f"season        {season_text(adapter.engine.feed, clock)}")
    if tally.n_forecast:
        lines.append(f"90 % band     holds {tally.coverage_90:.1%} of the values")
        errors = f"{tally.mean_error:.4g}, persistence {tally.mean_change:.4g}"
        ratio = f", ratio {tally.error / tally.change:.3f}" if tally.change else ""
        lines.append(f"MAE           {errors}{ratio}")
    lines.append(f"alarms        {sensor.counters.anomalies:,}")
    return lines


def siblings_line(names: Sequence[str]) -> str:
    """Return a line on the siblings by which new sensors start."""
    shown = ", ".join(plain(name) for name in names)
    return f"siblings  {shown}"


def season_text(feed: FeedView, clock: Clock) -> str:
    """Return the length of a sensor's season in rows, with its name or its length in time."""
    if not feed.season:
        return "none"
    name = f", a {feed.season_name}" if feed.season_name else ""
    if not name and clock == "date":
        name = f", {elapsed(feed.season * feed.pace, clock)}"
    return f"{feed.season:,} rows{name}"


def _fields(sensor: LoopStream, adapter: SensorRows) -> tuple[str, ...]:
    tally, feed = adapter.engine.scores, adapter.engine.feed
    scores = ("-", "-", "-")
    if tally.n_forecast:
        scores = f"{tally.coverage_90:.1%}", f"{tally.mean_error:.4g}", f"{tally.mean_change:.4g}"
    counts = f"{sensor.counters.rows:,}", f"{tally.n_missing:,.0f}", str(feed.season or "-")
    return (*counts, *scores, f"{sensor.counters.anomalies:,}")
