"""Write as text what came of a lake's sensors: counts, the worst sensors, scores by horizon."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from edgefold.cli.text.streams import aligned, short
from edgefold.runtime.series.durations import elapsed

if TYPE_CHECKING:
    from edgefold.fleets.forecasting.census import Census
    from edgefold.fleets.forecasting.sensor_summary import SensorSummary
    from edgefold.fleets.forecasting.settings import ForecastSettings
    from edgefold.fleets.forecasting.shard_result import ShardResult

N_LISTED = 12
HEADS = ("worst", "rows", "alarms", "90 % band", "MAE", "ratio", "log score", "pace", "season")


def result_lines(
    result: ShardResult, settings: ForecastSettings, census: Census, lasted_s: float
) -> list[str]:
    """Return lines on all sensors.

    Args:
        result: What came of all sensors.
        settings: What was forecast.
        census: The names of the sensors.
        lasted_s: The seconds that this run took.
    """
    sensors = result.summaries
    worst = sorted(sensors, key=lambda each: each.rank)[:N_LISTED]
    rows = [HEADS, *(_worst_fields(each, settings, census) for each in worst)]
    lines = ["", *aligned(rows)]
    if len(sensors) > len(worst):
        lines.append(f"{len(sensors) - len(worst):,} more sensors are in sensors.csv")
    lines += ["", *_count_lines(sensors), *_score_lines(result)]
    n_rows = sum(each.n_rows for each in sensors)
    rate = n_rows / max(lasted_s, 1e-3)
    lines.append(f"this run      {lasted_s:,.1f} s, {rate:,.0f} rows/s of all {n_rows:,}")
    return lines


def _worst_fields(
    each: SensorSummary, settings: ForecastSettings, census: Census
) -> tuple[str, ...]:
    choice = settings.choice
    name = "/".join(map(str, census.keys[each.place]))
    if choice.names_columns or not name:
        name = f"{name}/{each.column}" if name else each.column
    column = settings.lake.columns.get(choice.time)
    is_dated = column is not None and column.kind == "time"
    pace = "-"
    if each.is_irregular:
        pace = "uneven"
    elif not math.isnan(each.pace):
        pace = elapsed(each.pace, "date") if is_dated else f"{each.pace:g}"
    scores = ["-"] * 4
    if each.n_scored:
        ratio = f"{each.error / each.change:.2f}" if each.change else "-"
        scores = [f"{each.coverage_90:.1%}", f"{each.mae:.4g}", ratio]
        scores.append(f"{each.mean_log_density:.3g}")
    season = f"{each.season:,} rows" if each.season else "none"
    if each.season_name:
        season += f", a {each.season_name}"
    return (short(name), f"{each.n_rows:,}", f"{each.n_alarms:,}", *scores, pace, season)


def _count_lines(sensors: list[SensorSummary]) -> list[str]:
    """Return lines on the rows and alarms of all sensors together."""
    total = {
        name: sum(getattr(each, name) for each in sensors)
        for name in (
            *("n_rows", "n_refused", "n_timeless", "n_moved", "n_empty", "n_missing"),
            *("n_scored", "n_within_90"),
        )
    }
    counts = [f"{total['n_rows']:,}"]
    for name, words in (
        ("n_empty", "without a value"),
        ("n_refused", "refused"),
        ("n_timeless", "without a time"),
        ("n_moved", "put in the order of their times"),
    ):
        if total[name]:
            counts.append(f"{total[name]:,} {words}")
    lines = [f"rows          {', '.join(counts)}"]
    if total["n_missing"]:
        lines.append(f"gaps          {total['n_missing']:,} rows are missing between others")
    refusal = next((each.refusal for each in sensors if each.refusal), "")
    if refusal:
        lines.append(f"refused       the first one: {refusal}")
    if total["n_scored"]:
        share = total["n_within_90"] / total["n_scored"]
        lines.append(f"90 % band     holds {share:.1%} of {total['n_scored']:,} values")
    alarms = Counter[str]()
    for each in sensors:
        alarms.update(each.alarms)
    kinds = ", ".join(f"{n:,} {event}" for event, n in alarms.most_common())
    n_alarms, n_with = alarms.total(), sum(each.n_alarms > 0 for each in sensors)
    of = f" of {n_with:,} sensors: {kinds}" if n_alarms else ""
    lines.append(f"alarms        {n_alarms:,}{of}")
    return lines


def _score_lines(result: ShardResult) -> list[str]:
    """Return a table of the scores at each horizon; an empty list without scores."""
    if not result.scores:
        return []
    rows = [("rows ahead", "forecasts", "sensors", "median ratio", "90 % band")]
    for horizon, n, n_sensors, ratio, coverage in result.scores:
        scores = ("-", "-")
        if n:
            scores = "-" if math.isnan(ratio) else f"{ratio:.3f}", f"{coverage:.1%}"
        rows.append((horizon, f"{n:,}", f"{n_sensors:,}", *scores))
    return [
        "",
        *aligned(rows),
        "ratio: errors beside those of the newest value; below 1 is better",
        "",
    ]
