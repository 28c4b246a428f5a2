"""Copy what the page shows of a loop and its sensors, in the loop's thread.

The loop changes its sensors while the page is read. So the page never looks at them: about once a
second the loop's own thread copies a few numbers into these objects, which nobody changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edgefold.cli.text.sensors import season_text
from edgefold.runtime.loop.sensor_rows import SensorRows
from edgefold.runtime.series.durations import elapsed

if TYPE_CHECKING:
    from edgefold.runtime.loop.loop import PredictionLoop
    from edgefold.runtime.loop.streams import LoopStream
    from edgefold.runtime.rows.csv_fields import Clock
    from edgefold.runtime.sources.row_source import RowSource


class SensorFacts(NamedTuple):
    """Holds what is known of one sensor since its first row, of earlier runs too.

    Attributes:
        rows: Number of rows that were accepted.
        missing: Number of rows without a value.
        malformed: Number of rows that were refused.
        not_learned: Number of rows that were only predicted, because the state was full.
        pace: The time between two rows, in the unit of the times; None if it is not known.
        pace_text: The pace in words; "" if it is not known.
        is_irregular: Whether each row counts as one step, as rows come unevenly.
        season_text: The season in words; "" for models that look for none.
        n_gaps: Number of gaps; None for models that count none.
        n_gap_rows: Number of rows that are missing in gaps.
        coverage_90: Share of the values inside the 90 % band; None before the first.
        mean_error: Mean absolute error of the forecasts; None where it is not kept.
        mean_change: Mean absolute error of persistence; None where it is not kept.
        rmse: Root mean squared error of the first output; None where it is not kept.
    """

    rows: int
    missing: int
    malformed: int
    not_learned: int
    pace: float | None = None
    pace_text: str = ""
    is_irregular: bool = False
    season_text: str = ""
    n_gaps: int | None = None
    n_gap_rows: int = 0
    coverage_90: float | None = None
    mean_error: float | None = None
    mean_change: float | None = None
    rmse: float | None = None


class LoopFacts(NamedTuple):
    """Holds what is known of a whole loop.

    Attributes:
        rows: Number of rows since the first start.
        lines: Number of the last line of the input.
        malformed: Number of refused rows since the first start.
        n_sensors: Number of sensors that have come.
        most_sensors: Number of sensors that may come.
        are_named: Whether rows name their sensor.
        is_dated: Whether times are dates.
        is_live: Whether rows arrive while they are sent.
        resumed: Whether rows were processed before this run.
        n_connections: Number of connections to a broker.
        progress: The part of the input that is read, such as "45%"; "" if that is not known.
        notes: Remarks of the source, as pairs of label and sentence.
        unit: The word for a numbered part of the input, "line" or "message".
        bundle: The name of the bundle whose forecasts are written.
        away_since: The time in seconds since 1970 since which the broker or the device is away;
            None while it is connected.
    """

    rows: int
    lines: int
    malformed: int
    n_sensors: int
    most_sensors: int
    are_named: bool
    is_dated: bool
    is_live: bool
    resumed: bool
    n_connections: int
    progress: str
    notes: tuple[tuple[str, str], ...]
    unit: str
    bundle: str
    away_since: float | None


class PageFacts(NamedTuple):
    """Holds the facts of one copy: of the loop, and of the sensors that someone looks at."""

    loop: LoopFacts
    sensors: dict[str, SensorFacts]


def facts_of(loop: PredictionLoop, source: RowSource, names: frozenset[str]) -> PageFacts:
    """Copy the facts of a loop; call it in the loop's thread, between two lines.

    Args:
        loop: The loop.
        source: The source of its rows.
        names: Names of the sensors whose facts are copied.
    """
    sensors, counters = loop.sensors, loop.counters
    facts = LoopFacts(
        counters.rows,
        counters.lines,
        counters.malformed,
        len(sensors.named) if sensors.are_named else 1,
        len(sensors.all),
        sensors.are_named,
        sensors.first.adapter.is_dated,
        source.is_live,
        loop.resumed,
        source.n_connections,
        source.progress(),
        tuple(source.notes()),
        source.unit,
        sensors.stream.manifest.path.name,
        source.away_since,
    )
    found = ((name, sensors.find(name)) for name in names)
    return PageFacts(facts, {name: sensor_facts(s) for name, s in found if s is not None})


def sensor_facts(sensor: LoopStream) -> SensorFacts:
    """Copy the facts of a sensor."""
    counters, adapter = sensor.counters, sensor.adapter
    counts = (counters.rows, counters.missing, counters.malformed, counters.not_learned)
    if not isinstance(adapter, SensorRows):
        rmse = counters.rmse[0] if counters.rmse else None
        return SensorFacts(*counts, coverage_90=_number(counters.coverage_90), rmse=rmse)
    feed, scores = adapter.engine.feed, adapter.engine.scores
    clock: Clock = "date" if adapter.is_dated else "number"
    pace = _number(feed.pace)
    return SensorFacts(
        *counts,
        pace=pace,
        pace_text="" if pace is None else elapsed(pace, clock),
        is_irregular=feed.is_irregular,
        season_text=season_text(feed, clock),
        n_gaps=int(scores.n_gaps),
        n_gap_rows=int(scores.n_missing),
        coverage_90=_number(scores.coverage_90),
        mean_error=_number(scores.mean_error),
        mean_change=_number(scores.mean_change),
    )


def _number(number: float) -> float | None:
    """Return the number; None for NaN and infinity, which JSON does not have."""
    return number if abs(number) < float("inf") else None
